"""Lines of a zone into chunks: paragraphs, list items, code, lines that stand for themselves.

What ends a paragraph: a wider gap, another size or weight, an indent, or a line that stops although the next one's
first word would have fitted. Works in the frame of `pipeline.fragments`, so left is where a line begins.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pipeline.layout import has_leaders
from pipeline.lists import Marker, marker_of, starts_list
from pipeline.rows import Row, usual_pitch


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows that make one block."""

    rows: tuple[Row, ...]
    marker: Marker | None = None  # a list item
    keep_lines: bool = False  # an address, a poem, lines of contents
    mono: bool = False
    starts_zone: bool = False
    space_before: float = 0.0  # to the row above in the zone, in points


def chunks_of(rows: Sequence[Row], em: float, *, keep_lines: bool = False) -> list[Chunk]:
    """The chunks of a zone, from top to bottom."""
    if not rows:
        return []
    right = max(row.r for row in rows)
    left = min(row.l for row in rows)
    out: list[Chunk] = []
    for run, space in _runs(rows):
        if (
            len(run) <= 3
            and min(row.size for row in run) >= 1.28 * em
            and not any(marker_of(row.text) for row in run)
        ):
            out.append(Chunk(tuple(run), space_before=space))  # a title over several lines
        else:
            out.extend(_chunks_of_run(run, space, left, right, keep_lines))
    out[0] = replace(out[0], starts_zone=True)
    return out


def _runs(rows: Sequence[Row]) -> list[tuple[list[Row], float]]:
    """Rows that no gap and no change of type parts, each with the space above it."""
    limit = usual_pitch(rows) * 1.3 + 0.08
    runs: list[tuple[list[Row], float]] = [([rows[0]], 0.0)]
    for before, row in itertools.pairwise(rows):
        size = max(before.size, row.size)
        apart = (row.mid - before.mid) / size > limit
        if apart or _type_changes(before, row):
            runs.append(([row], row.t - before.b))
        else:
            runs[-1][0].append(row)
    return runs


def _type_changes(before: Row, row: Row) -> bool:
    small, large = sorted((before.size, row.size))
    if large > 1.15 * small and min(len(before.text), len(row.text)) > 3:
        return True
    return before.mono != row.mono or (before.bold != row.bold and len(before.text) > 2)


def _chunks_of_run(run: list[Row], space: float, left: float, right: float, keep_lines: bool) -> list[Chunk]:
    if all(row.mono for row in run):
        return [Chunk(tuple(run), mono=True, space_before=space)]
    if keep_lines:
        return [Chunk(tuple(run), keep_lines=True, space_before=space)]
    ends = _ends(run, left, right)
    markers = _markers(run, ends)
    out: list[Chunk] = []
    start = 0
    for at in range(1, len(run) + 1):
        if (
            at < len(run)
            and markers[at] is None
            and not (markers[start] and _leaves_item(run, start, at, ends))
        ):
            continue
        part, gap = run[start:at], space if start == 0 else run[start].t - run[start - 1].b
        marker = markers[start]
        if marker is not None:
            out.append(Chunk(tuple(part), marker=marker, space_before=gap))
        else:
            out.extend(_paragraphs(part, ends[start:at], gap, left))
        start = at
    return out


def _ends(run: Sequence[Row], left: float, right: float) -> list[bool]:
    """For every row whether it stops before it had to: the next one's first word would have fitted."""
    edge = _edge(run, left, right)
    ends: list[bool] = []
    for row, after in itertools.pairwise(run):
        room = edge - row.r - 0.3 * row.size - 0.03 * (edge - left)
        ends.append(after.first_width < room or has_leaders(row.text))
    return [*ends, True]


def _edge(run: Sequence[Row], left: float, right: float) -> float:
    """Where the lines of `run` had to break: its own right side if it shows one, else that of the zone."""
    own = max(row.r for row in run)
    if own >= left + 0.7 * (right - left):
        return own
    set_out = [row for row in run[:-1] if own - row.r <= 0.02 * (own - left) + 0.5 * row.size]
    if len(run) >= 3 and len(set_out) >= 0.6 * (len(run) - 1):
        return own
    return right


def _markers(run: Sequence[Row], ends: Sequence[bool]) -> list[Marker | None]:
    """The list marker of every row that begins an item."""
    out: list[Marker | None] = []
    last: Marker | None = None
    for at, row in enumerate(run):
        marker = marker_of(row.text)
        if marker and not marker.certain:
            known = last is not None and last.kind == marker.kind
            after_break = at == 0 or ends[at - 1] or known
            moved = at > 0 and abs(row.l - run[at - 1].l) > 0.5 * row.size
            beside = at > 0 and out[at - 1] is not None and abs(row.l - run[at - 1].l) < 0.3 * row.size
            if not (after_break or ((moved or beside) and starts_list(marker))):
                marker = None
        last = marker or last
        out.append(marker)
    return out


def _leaves_item(run: Sequence[Row], start: int, at: int, ends: Sequence[bool]) -> bool:
    """Whether row `at` no longer belongs to the list item that begins at `start`."""
    first, row = run[start], run[at]
    if row.l > first.l + 0.4 * row.size:
        return False  # it hangs under the text of the item
    if at - start > 1 and run[start + 1].l > first.l + 0.4 * row.size:
        return True
    return ends[at - 1]


def _paragraphs(part: list[Row], ends: Sequence[bool], space: float, left: float) -> list[Chunk]:
    if _is_ragged(part, ends):
        return [Chunk(tuple(part), keep_lines=True, space_before=space)]
    indents = _indents(part, ends)
    out: list[Chunk] = []
    start = 0
    for at in range(1, len(part) + 1):
        if at < len(part) and not indents[at] and not (ends[at - 1] and not _goes_on(part[at - 1], part[at])):
            continue
        gap = space if start == 0 else part[start].t - part[start - 1].b
        out.append(Chunk(tuple(part[start:at]), space_before=gap))
        start = at
    return out


def _is_ragged(part: Sequence[Row], ends: Sequence[bool]) -> bool:
    """Whether most lines break before they are full, as in a poem or an address."""
    pairs = len(part) - 1
    if pairs < 1 or (part[-1].mid - part[0].mid) / pairs > 1.75 * part[0].size:
        return False  # set so far apart, every line is a paragraph
    if sum(1 for row in part if has_leaders(row.text)) * 2 > len(part):
        return True  # a list of contents
    short = sum(1 for at in range(pairs) if ends[at] and not _goes_on(part[at], part[at + 1]))
    return short > 0.6 * pairs and (pairs > 1 or abs(part[0].l - part[1].l) < 0.3 * part[0].size)


def _goes_on(row: Row, after: Row) -> bool:
    """Whether the words say that the sentence goes on."""
    return after.text[:1].islower() and row.text[-1:] not in ".!?:;"


def goes_on(chunk: Chunk, after: Chunk) -> bool:
    """Whether `after`, at the top of the next column, is the rest of `chunk`."""
    if chunk.mono or after.mono or chunk.keep_lines or after.keep_lines or after.marker is not None:
        return False
    row, first = chunk.rows[-1], after.rows[0]
    if (
        len(chunk.rows) + len(after.rows) < 4
        or abs(row.size - first.size) > 0.08 * row.size
        or row.bold != first.bold
    ):
        return False
    return first.text[:1].islower() and row.text[-1:] not in ".!?:;”\"'"


def _indents(part: Sequence[Row], ends: Sequence[bool]) -> list[bool]:
    """For every row whether its left edge begins a paragraph: first lines set in, or, if lines hang, set out."""
    base = min(row.l for row in part)
    inner = [row.l > base + 0.6 * row.size for row in part]
    found = [False] * len(part)
    if not any(inner) or all(inner):
        return found
    hanging = _hangs(inner, ends)
    for at in range(1, len(part)):
        if inner[at] != inner[at - 1]:
            found[at] = inner[at] != hanging
    if not hanging:
        for at in range(1, len(part) - 1):
            # Centred or otherwise wandering lines are no first lines.
            if found[at] and inner[at + 1] and not ends[at - 1]:
                found[at] = False
    return found


def _hangs(inner: Sequence[bool], ends: Sequence[bool]) -> bool:
    out_short = sum(1 for at in range(1, len(inner)) if inner[at - 1] and not inner[at] and ends[at - 1])
    in_short = sum(1 for at in range(1, len(inner)) if inner[at] and not inner[at - 1] and ends[at - 1])
    if out_short != in_short:
        return out_short > in_short
    return not inner[0] and sum(inner) > len(inner) / 2
