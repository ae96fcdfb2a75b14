"""Which characters of a PDF page stand on one line: pure geometry over arrays.

Text may be turned: each angle is looked at in a frame of its own, where `u` runs along the text and `v` down to the
next line. Vertical Japanese is a frame too: `u` runs down the page and `v` to the left.

In a frame, characters that follow each other in the file on one baseline make a *run*; runs on one baseline, close
enough to each other, and super- and subscripts beside them make a *line*. A wide gap ends a line, so that columns
and table cells stay apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline.pdf_chars import Bools, Characters, Floats, Ints, Style

VERTICAL = 360.0  # the "angle" of upright characters set from top to bottom

_MAX_SIZE = 20_000.0  # points; larger fonts are damage

# All in em, the font size.
_BASELINE = 0.15  # how far the baselines of neighbours in one run may differ
_RUN_GAP = 1.0  # neighbours further apart than this are in different runs
_STRETCHED = 2.5  # but so far apart with one space between them in one text object: justified text
_JOIN_NEXT = 1.0  # gap over which runs that follow each other in the file still join
_JOIN_ANY = 0.6  # the same, for runs from anywhere: columns may lie less than 1 em apart
_LABEL_GAP = 1.8  # the same, between "1.2", "(a)" or a bullet and the text it introduces
_OVERLAP = 0.5  # how far two runs of one line may overlap
_SCRIPT_GAP = 0.35  # a super- or subscript stands this close, or follows in the file
_SCRIPT_SIZE = 0.86  # a super- or subscript is at most this large
_RAISED, _LOWERED = 0.6, 0.4  # and its baseline at most so far from the line's
_SAME_PLACE = 0.2  # text printed twice for boldness or shadow is at most so far apart


@dataclass(frozen=True, slots=True)
class Frame:
    """Characters that run in one direction, N of them, in file order, in coordinates along (u) and down (v)."""

    angle: float  # degrees clockwise, or VERTICAL
    index: Ints  # (N,) into the page's characters
    start: Floats  # (N,) u where the character begins, and
    end: Floats  # (N,) where it ends
    base: Floats  # (N,) v of the baseline; of the middle where VERTICAL
    size: Floats  # (N,) font size
    line: Ints  # (N,) number of the line in this frame; -1: left out, printed a second time


def frames(characters: Characters, is_space: Bools) -> Iterator[Frame]:
    """The frames of a page, the one with most characters first, their lines numbered."""
    if not len(characters):
        return
    angles = np.array([style.angle for style in characters.styles])[characters.style_of]
    angles = np.where(_stacked(characters, angles), VERTICAL, angles)
    if (angles == VERTICAL).any():
        angles[angles == 90] = VERTICAL  # Latin words lie on their side in a vertical line
    values, counts = np.unique(angles, return_counts=True)
    for angle in values[np.argsort(-counts, kind="stable")]:
        index = np.flatnonzero(angles == angle)
        yield _number_lines(_frame(characters, index, float(angle)), characters, is_space)


def _stacked(characters: Characters, angles: Floats) -> Bools:
    """Which upright characters follow each other from top to bottom (CJK only)."""
    found = np.zeros(len(characters), dtype=bool)
    cjk = is_cjk(characters.codes) & (angles == 0)
    if not cjk.any():
        return found
    middle = (characters.boxes[:, :2] + characters.boxes[:, 2:]) / 2
    step = np.diff(middle, axis=0)
    size = _sizes(characters)[:-1]
    down = (np.abs(step[:, 0]) < 0.3 * size) & (step[:, 1] > 0.5 * size) & (step[:, 1] < 1.5 * size)
    down &= cjk[:-1] & cjk[1:] & (characters.style_of[:-1] == characters.style_of[1:])
    found[:-1] |= down
    found[1:] |= down
    return found


def is_cjk(codes: npt.NDArray[np.uint32]) -> Bools:
    """Han, Kana, their punctuation and full-width forms: written without spaces. (Hangul has spaces.)"""
    return (
        ((codes >= 0x2E80) & (codes <= 0x9FFF) & ~((codes >= 0x3130) & (codes <= 0x318F)))
        | ((codes >= 0xF900) & (codes <= 0xFAFF))
        | ((codes >= 0xFE30) & (codes <= 0xFE4F))
        | ((codes >= 0xFF00) & (codes <= 0xFFEF))
        | ((codes >= 0x20000) & (codes <= 0x3FFFF))
    )


def _sizes(characters: Characters) -> Floats:
    sizes = np.array([style.size_pt for style in characters.styles])[characters.style_of]
    # A font scaled by its matrix only may claim a size of nothing; the box knows better.
    tall = np.minimum(
        characters.boxes[:, 3] - characters.boxes[:, 1], characters.boxes[:, 2] - characters.boxes[:, 0]
    )
    return np.asarray(np.clip(np.where(sizes > 0.1, sizes, tall), 0.1, _MAX_SIZE))


def _frame(characters: Characters, index: Ints, angle: float) -> Frame:
    boxes, size = characters.boxes[index], _sizes(characters)[index]
    turn = math.radians(90.0 if angle == VERTICAL else angle)
    cos, sin = math.cos(turn), math.sin(turn)
    middle = (boxes[:, :2] + boxes[:, 2:]) / 2
    along = middle[:, 0] * cos + middle[:, 1] * sin
    width, height = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    lean = abs(angle) % 90
    if min(lean, 90 - lean) < 8:  # (nearly) upright or on its side: the box is the glyph's own
        length = width if abs(cos) > abs(sin) else height
    elif abs(cos) > abs(sin):  # the box of a leaning glyph about 1 em tall
        length = np.clip((width - size * abs(sin)) / abs(cos), 0.15 * size, 2 * size)
    else:
        length = np.clip((height - size * abs(cos)) / abs(sin), 0.15 * size, 2 * size)
    place = middle if angle == VERTICAL else characters.origins[index]
    base = -place[:, 0] * sin + place[:, 1] * cos
    start, end = along - length / 2, along + length / 2
    if angle != VERTICAL:  # a box may begin before the glyph's own place: j reaches under its neighbour
        origin = characters.origins[index, 0] * cos + characters.origins[index, 1] * sin
        start = np.where((np.abs(origin - start) < 0.3 * size) & (origin < end), origin, start)
    line = np.full(len(index), -1, dtype=np.int64)
    return Frame(angle, index, start, end, base, size, line)


def _number_lines(frame: Frame, characters: Characters, is_space: Bools) -> Frame:
    inked = np.flatnonzero(~is_space[frame.index])
    if not len(inked):
        return frame
    runs = _Runs.of(frame, characters, inked)
    runs.line[:] = _join(runs)
    line = frame.line
    line[inked] = runs.line[runs.of_char]
    _place_spaces(frame, is_space, line)
    return frame


@dataclass(frozen=True, slots=True)
class _Runs:
    """Runs of a frame, R of them: extents along the line, baselines at both ends, size."""

    of_char: Ints  # (inked characters,) number of the run
    start: Floats  # (R,)
    end: Floats
    left_base: Floats  # baseline of the leftmost and the rightmost character: text may climb a little
    right_base: Floats
    size: Floats
    first: Ints  # first and last inked character
    last: Ints
    hidden: Bools  # invisible text, never joined with visible text
    duplicate: Bools  # printed a second time over an equal run
    line: Ints

    @classmethod
    def of(cls, frame: Frame, characters: Characters, inked: Ints) -> _Runs:
        start, end = frame.start[inked], frame.end[inked]
        base, size = frame.base[inked], frame.size[inked]
        hidden = _hidden(characters.styles)[characters.style_of[frame.index[inked]]]
        small = np.minimum(size[1:], size[:-1])
        gap = np.maximum(start[1:] - end[:-1], start[:-1] - end[1:])
        objects = characters.object_of[frame.index[inked]]
        one_space = (np.diff(inked) == 2) & (objects[1:] == objects[:-1])
        breaks = gap > np.where(one_space, _STRETCHED, _RUN_GAP) * small
        breaks |= (np.abs(np.diff(base)) > _BASELINE * small) | (hidden[1:] != hidden[:-1])
        firsts = np.concatenate(([0], np.flatnonzero(breaks) + 1))
        lasts = np.concatenate((firsts[1:] - 1, [len(inked) - 1]))
        of_char = np.zeros(len(inked), dtype=np.int64)
        of_char[firsts[1:]] = 1
        forward = start[lasts] >= start[firsts]
        codes = characters.codes[frame.index[inked]]
        runs = cls(
            of_char=np.cumsum(of_char),
            start=np.minimum.reduceat(start, firsts),
            end=np.maximum.reduceat(end, firsts),
            left_base=np.where(forward, base[firsts], base[lasts]),
            right_base=np.where(forward, base[lasts], base[firsts]),
            size=np.maximum.reduceat(size, firsts),
            first=firsts,
            last=lasts,
            hidden=hidden[firsts],
            duplicate=np.zeros(len(firsts), dtype=bool),
            line=np.full(len(firsts), -1, dtype=np.int64),
        )
        runs._mark_duplicates(codes)
        return runs

    def _mark_duplicates(self, codes: npt.NDArray[np.uint32]) -> None:
        seen: dict[bytes, list[int]] = {}
        for run, (first, last) in enumerate(zip(self.first.tolist(), self.last.tolist(), strict=True)):
            earlier = seen.setdefault(codes[first : last + 1].tobytes(), [])
            near = _SAME_PLACE * self.size[run]
            if any(
                abs(self.start[run] - self.start[other]) < near
                and abs(self.left_base[run] - self.left_base[other]) < near
                for other in earlier[-50:]
            ):
                self.duplicate[run] = True
            else:
                earlier.append(run)


def _hidden(styles: tuple[Style, ...]) -> Bools:
    return np.array([style.invisible for style in styles], dtype=bool)


def _join(runs: _Runs) -> Ints:
    """Number of the line for each run: -1 for those printed twice."""
    kept = np.flatnonzero(~runs.duplicate)
    left, right = _pairs_in_reach(runs, kept)
    gap = runs.start[right] - runs.end[left]
    drop = runs.left_base[right] - runs.right_base[left]  # positive: the right one lies lower
    small, big = np.minimum(runs.size[left], runs.size[right]), np.maximum(runs.size[left], runs.size[right])
    next_in_file = np.abs(left - right) == 1
    close = gap < np.where(next_in_file, _JOIN_NEXT, _JOIN_ANY) * small
    close &= (gap > -_OVERLAP * small) & (runs.hidden[left] == runs.hidden[right])
    level = np.abs(drop) <= 0.2 * small
    lines = _Union(len(runs.size))
    level_pairs = (close & level) | (_is_label(runs, left, right) & next_in_file & level & (gap > 0))
    level_pairs &= gap < _LABEL_GAP * small
    for a, b in zip(left[level_pairs].tolist(), right[level_pairs].tolist(), strict=True):
        lines.join(a, b)
    # How far the smaller one's baseline lies below the bigger one's.
    lowered = np.where(runs.size[right] < runs.size[left], drop, -drop)
    script = ~level & (small <= _SCRIPT_SIZE * big) & (runs.hidden[left] == runs.hidden[right])
    script &= (gap < np.where(next_in_file, _JOIN_ANY, _SCRIPT_GAP) * big) & (gap > -_OVERLAP * small)
    script &= (lowered > -_RAISED * big) & (lowered < _LOWERED * big)
    _join_scripts(lines, runs, left[script], right[script], (np.abs(gap) + np.abs(drop))[script])
    roots = np.array([lines.root(run) for run in range(len(runs.size))], dtype=np.int64)
    roots[runs.duplicate] = -1
    return roots


def _is_label(runs: _Runs, left: Ints, right: Ints) -> Bools:
    """Whether the left run may be the number or bullet of the right one: short, before something long."""
    length = runs.last - runs.first + 1
    return np.asarray((length[left] <= 5) & (length[right] >= 8))


def _pairs_in_reach(runs: _Runs, kept: Ints) -> tuple[Ints, Ints]:
    """Pairs of runs (left one, right one) whose baselines are near enough to ask whether they share a line.

    Each pair is found from its bigger run, so that one large heading does not pair everything with everything.
    """
    order = kept[np.argsort(runs.left_base[kept], kind="stable")]
    base, size = runs.left_base[order], runs.size[order]
    reach = _RAISED * size + np.abs(runs.right_base[order] - base)
    low = np.searchsorted(base, base - reach, side="left")
    count = np.searchsorted(base, base + reach, side="right") - low
    one = np.repeat(np.arange(len(order)), count)
    two = np.repeat(low, count) + np.arange(len(one)) - np.repeat(np.cumsum(count) - count, count)
    once = (size[one] > size[two]) | ((size[one] == size[two]) & (one < two))
    a, b = order[one[once]], order[two[once]]
    swap = runs.start[a] > runs.start[b]
    return np.where(swap, b, a), np.where(swap, a, b)


def _join_scripts(lines: _Union, runs: _Runs, left: Ints, right: Ints, cost: Floats) -> None:
    """Give each small run to the line it fits best; it also bridges what stands on that line on its other side."""
    given: dict[int, int] = {}
    for i in np.argsort(cost, kind="stable").tolist():
        a, b = int(left[i]), int(right[i])
        small, big = (b, a) if runs.size[b] < runs.size[a] else (a, b)
        host = given.setdefault(small, big)
        if abs(runs.left_base[host] - runs.left_base[big]) <= 0.2 * runs.size[big]:
            lines.join(big, small)


class _Union:
    """Disjoint sets of runs; the root is the earliest in the file."""

    def __init__(self, count: int) -> None:
        self._parent = list(range(count))

    def root(self, item: int) -> int:
        parent = self._parent
        while parent[item] != item:
            parent[item] = parent[parent[item]]
            item = parent[item]
        return item

    def join(self, one: int, two: int) -> None:
        a, b = self.root(one), self.root(two)
        self._parent[max(a, b)] = min(a, b)


def _place_spaces(frame: Frame, is_space: Bools, line: Ints) -> None:
    """A space belongs to the line of its neighbours in the file, if they agree and it lies on their baseline."""
    spaces = np.flatnonzero(is_space[frame.index])
    if not len(spaces):
        return
    filled = np.where(is_space[frame.index], -1, np.arange(len(line)))
    before = np.maximum.accumulate(filled)[spaces]
    after = np.where(filled < 0, len(line), filled)
    after = np.minimum.accumulate(after[::-1])[::-1][spaces]
    for neighbour in (np.where(after < len(line), after, -1), before):
        fits = neighbour >= 0
        fits[fits] = (
            np.abs(frame.base[neighbour[fits]] - frame.base[spaces[fits]]) < 0.5 * frame.size[neighbour[fits]]
        )
        line[spaces[fits]] = line[neighbour[fits]]
