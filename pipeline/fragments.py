"""The pieces layout works on: lines cut at wide gaps, in a frame where reading always runs right and down.

Right-to-left pages are mirrored and vertical pages turned, so that reading order, columns, indents and line
fullness need one implementation. Only coordinates are changed; `Line`s keep the boxes of the page.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from pipeline.joining import is_unspaced
from storage.records import Box, Direction, Line, PageText, Word

_LIMIT = 1e6  # points; a box beyond it is damage, and sums of such boxes must stay finite
_SPLIT_EM = 1.0  # a gap between words this wide may be a gutter or a cell border


@dataclass(frozen=True, slots=True, eq=False)  # two equal lines are still two
class Fragment:
    """A line or a part of one; `l, t, r, b` in the frame of the page's main direction."""

    l: float  # noqa: E741 - left, top, right, bottom
    t: float
    r: float
    b: float
    line: Line
    size: float  # font size in points, never 0
    source: int  # number of the input line it comes from
    part: int = 0
    parts: int = 1

    @property
    def mid(self) -> float:
        """Vertical centre."""
        return (self.t + self.b) / 2


@dataclass(frozen=True, slots=True)
class Frame:
    """The page's main direction and how its boxes are turned so that reading runs right and down."""

    direction: Direction
    width: float  # of the turned page
    height: float
    place: Callable[[Box], Box]
    turn: int = 0  # degrees clockwise, in quarters, that its lines are turned


def clean_box(box: Box) -> Box:
    """`box` with finite sides in ascending order."""
    x0, y0, x1, y1 = box
    if -_LIMIT <= x0 <= x1 <= _LIMIT and -_LIMIT <= y0 <= y1 <= _LIMIT:
        return box  # as nearly all are
    x0, y0, x1, y1 = (_finite(side) for side in box)
    return (min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1))


def _finite(value: float) -> float:
    if math.isnan(value):
        return 0.0
    return max(-_LIMIT, min(_LIMIT, value))


def frame_of(page: PageText) -> Frame:
    """The frame of `page`: the direction most of its characters have."""
    weight = dict.fromkeys(Direction, 0)
    for line in page.lines:
        weight[_direction(line)] += len(line.text)
    direction = max(Direction, key=lambda d: weight[d])
    width, height = _finite(page.width_pt), _finite(page.height_pt)  # as displayed
    # A vertical column becomes a row: down the page is rightwards, the rightmost column is the first row.
    turn = 90 if direction is Direction.TTB else _turn_of(page)
    upright: dict[int, Callable[[Box], Box]] = {
        0: lambda box: box,
        90: lambda box: (box[1], width - box[2], box[3], width - box[0]),
        180: lambda box: (width - box[2], height - box[3], width - box[0], height - box[1]),
        270: lambda box: (height - box[3], box[0], height - box[1], box[2]),
    }
    place = upright[turn]
    across, down = (height, width) if turn in (90, 270) else (width, height)
    if direction is Direction.RTL:
        return Frame(direction, across, down, lambda box: _mirrored(place(box), across), turn)
    return Frame(direction, across, down, place, turn)


def _mirrored(box: Box, width: float) -> Box:
    return (width - box[2], box[1], width - box[0], box[3])


def _turn_of(page: PageText) -> int:
    """Degrees clockwise, in quarters, that most text of the page is turned."""
    weight: dict[int, int] = {0: 0}
    for line in page.lines:
        quarter = round(_finite(line.angle) / 90) * 90 % 360
        weight[quarter] = weight.get(quarter, 0) + len(line.text)
    return max(weight, key=lambda quarter: weight[quarter])


def _direction(line: Line) -> Direction:
    """The line's direction; a tall box of CJK text is a vertical line even where the engine does not say so."""
    if line.direction is Direction.LTR and not line.angle and len(line.text) > 1 and is_unspaced(line.text):
        left, top, right, bottom = clean_box(line.box)
        if bottom - top > 1.5 * (right - left):
            return Direction.TTB
    return line.direction


def runs_aside(line: Line, frame: Frame) -> bool:
    """Whether `line` runs another way than the page's text: a note up the margin, a stamp across."""
    if (_direction(line) is Direction.TTB) != (frame.direction is Direction.TTB):
        return True
    if frame.direction is Direction.TTB or line.angle == frame.turn:
        return False
    return not -10 <= (_finite(line.angle) - frame.turn + 180) % 360 - 180 <= 10


def fragments_of(page: PageText, frame: Frame) -> list[Fragment]:
    """The page's lines, cut at wide gaps, sorted from top to bottom whatever order they came in."""
    found: list[Fragment] = []
    for source, line in enumerate(page.lines):
        if not line.text.strip():
            continue
        box = clean_box(line.box)
        placed = frame.place(box)
        size = _size_of(line, placed)
        parts = _split(line, placed, size, frame) or (line,)
        for number, part in enumerate(parts):
            spot = placed if part is line else frame.place(clean_box(part.box))
            found.append(Fragment(*spot, part, size, source, number, len(parts)))
    found.sort(key=lambda f: (f.t, f.l, f.b, f.r, f.line.text))
    return found


def _size_of(line: Line, placed: Box) -> float:
    if 0 < line.size_pt < _LIMIT:
        return line.size_pt
    return max(1.0, (placed[3] - placed[1]) * 0.8)


def _split(line: Line, placed: Box, size: float, frame: Frame) -> tuple[Line, ...] | None:
    words = line.words
    if len(words) < 2 or line.direction is not frame.direction:
        return None
    boxes = [frame.place(clean_box(word.box)) for word in words]
    slack = placed[2] - placed[0] - sum(box[2] - box[0] for box in boxes)
    if slack < _SPLIT_EM * size:
        return None
    # A cut is safe only where every word before it lies left of every word after it.
    after = list(accumulate((box[0] for box in reversed(boxes)), min))[::-1]
    before = accumulate((box[2] for box in boxes), max)
    cuts = [
        i + 1
        for i, right in enumerate(before)
        if i + 1 < len(words) and after[i + 1] - right > _SPLIT_EM * size
    ]
    return cut_line(line, cuts) if cuts else None


def cut_line(line: Line, cuts: Sequence[int]) -> tuple[Line, ...] | None:
    """`line` cut before the words numbered `cuts` (ascending), or None where its words do not spell its text."""
    ends: list[int] = []
    at = 0
    for word in line.words:
        at = line.text.find(word.text, at)
        if at < 0:
            return None
        ends.append(at)
        at += len(word.text)
    bounds = [0, *cuts, len(line.words)]
    offsets = [0, *(ends[cut] for cut in cuts), len(line.text)]
    return tuple(
        _part(line, line.words[bounds[i] : bounds[i + 1]], line.text[offsets[i] : offsets[i + 1]])
        for i in range(len(bounds) - 1)
    )


def _part(line: Line, words: Sequence[Word], text: str) -> Line:
    box = union(word.box for word in words)
    return replace(
        line, text=text.strip(), box=box, words=tuple(words), confidence=_mean(words, line.confidence)
    )


def _mean(words: Sequence[Word], otherwise: float | None) -> float | None:
    known = [(word.confidence, len(word.text)) for word in words if word.confidence is not None]
    weight = sum(length for _, length in known)
    return sum(value * length for value, length in known) / weight if weight else otherwise


def union(boxes: Iterable[Box]) -> Box:
    """The smallest box around `boxes` (at least one)."""
    lefts, tops, rights, bottoms = zip(*boxes, strict=True)
    return (min(lefts), min(tops), max(rights), max(bottoms))
