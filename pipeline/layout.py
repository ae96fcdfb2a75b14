"""Reading order: cuts a page at its gutters into zones, each read line by line.

A recursive cut in the manner of XY-cut (Nagy and Seth 1984), but over gutters rather than projections: a gutter is
the longest vertical white strip with text on both sides and none across it, so a heading over two columns or a line
below a box beside the text ends the gutter instead of hiding it. Works in the frame of `pipeline.fragments`.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from pipeline.fragments import Fragment

_MIN_GUTTER_EM = 0.6
_MIN_ROWS = 3
_PROSE_EM = 12.0  # narrower lines are cells or labels, no column of text
_LEADERS = re.compile(r"(?:\.\s?){5,}|…{2,}|(?:·\s?){5,}")
_MARK = re.compile(r"\(?(?:\d{1,4}|[A-Za-z]|[ivxlcIVXLC]{1,6})[.):]{0,2}|[^\w\s]{1,2}")


class ZoneKind(StrEnum):
    """How the fragments of a zone are read."""

    TEXT = "text"
    TABLE = "table"  # aligned cells
    LINES = "lines"  # row by row, every line for itself: lists of contents, forms


@dataclass(frozen=True, slots=True)
class Zone:
    """A part of the page that no gutter crosses."""

    kind: ZoneKind
    items: tuple[Fragment, ...]


@dataclass(frozen=True, slots=True)
class _Gutter:
    x: float  # where the text on its right begins
    top: float
    bottom: float
    score: float


def zones_of(items: Sequence[Fragment], em: float) -> list[Zone]:
    """`items` (sorted from top to bottom) as zones in reading order; `em` is the page's usual font size."""
    out: list[Zone] = []
    _cut(list(items), em, 0, out)
    return out


def _cut(items: list[Fragment], em: float, depth: int, out: list[Zone]) -> None:
    if not items:
        return
    gutter = _best_gutter(items, em) if depth < 16 else None
    if gutter is None:
        out.append(Zone(ZoneKind.TEXT, tuple(items)))
        return
    above, band, below = _bands(items, gutter)
    left, right = _sides(band, gutter.x)
    _cut(above, em, depth + 1, out)
    kind = _kind(left, right, em)
    if kind is None:
        _cut(left, em, depth + 1, out)
        _cut(right, em, depth + 1, out)
    else:
        out.append(Zone(kind, tuple(band)))
    _cut(below, em, depth + 1, out)


def _bands(items: list[Fragment], gutter: _Gutter) -> tuple[list[Fragment], list[Fragment], list[Fragment]]:
    above, band, below = [], [], []
    for item in items:
        if item.mid < gutter.top:
            above.append(item)
        elif item.mid > gutter.bottom:
            below.append(item)
        else:
            band.append(item)
    return above, band, below


def _sides(band: Sequence[Fragment], x: float) -> tuple[list[Fragment], list[Fragment]]:
    left = [item for item in band if item.l + item.r < 2 * x]
    right = [item for item in band if item.l + item.r >= 2 * x]
    return left, right


def _best_gutter(items: list[Fragment], em: float) -> _Gutter | None:
    """The gutter with the longest run of text on both sides."""
    if len(items) < 2 * _MIN_ROWS:
        return None
    lefts = sorted(item.l for item in items)
    rights = sorted(item.r for item in items)
    best: _Gutter | None = None
    tried = -1e9
    for x in lefts:
        if x - tried < 0.3 * em:
            continue
        tried = x
        # A cheap bound first: enough items must begin right of x, and enough must have ended before it.
        if len(items) - bisect_left(lefts, x - 0.1 * em) < _MIN_ROWS:
            break
        if bisect_right(rights, x - _MIN_GUTTER_EM * em) < _MIN_ROWS:
            continue
        found = _gutter_at(items, x, em)
        if found and (best is None or found.score > best.score):
            best = found
    return best


def _gutter_at(items: list[Fragment], x: float, em: float) -> _Gutter | None:
    """The best band of rows that leave the strip before `x` white."""
    best: _Gutter | None = None
    left: list[Fragment] = []
    right: list[Fragment] = []
    fence: Fragment | None = None  # the last item across the strip
    edge = x - 0.1 * em
    for item in items:
        if item.l >= edge:
            right.append(item)
        elif item.r <= edge:
            left.append(item)
        elif item.r - item.l > 1.5 * em:
            best = _better(best, _measure(left, right, x, em, fence, item))
            left, right, fence = [], [], item
    return _better(best, _measure(left, right, x, em, fence, None))


def _better(one: _Gutter | None, other: _Gutter | None) -> _Gutter | None:
    if one is None or (other is not None and other.score > one.score):
        return other
    return one


def _measure(
    left: list[Fragment],
    right: list[Fragment],
    x: float,
    em: float,
    over: Fragment | None,
    under: Fragment | None,
) -> _Gutter | None:
    if len(left) < _MIN_ROWS or len(right) < _MIN_ROWS:
        return None
    ends = sorted(item.r for item in left)
    # One line that sticks out must not close a gutter that the others leave open.
    if x - ends[max(0, len(ends) - 1 - len(ends) // 8)] < _MIN_GUTTER_EM * em:
        return None
    left, right = _trim(left, right, over, under)
    if len(left) < _MIN_ROWS or len(right) < _MIN_ROWS:
        return None
    top = max(left[0].t, right[0].t)
    bottom = min(max(item.b for item in left), max(item.b for item in right))
    if bottom - top < 1.5 * em:
        return None
    rows = min(_distinct([item.mid for item in side], 0.6 * em) for side in (left, right))
    if rows < _MIN_ROWS or (rows < 5 and _is_torn(left, x, em)):
        return None
    mids = [item.mid for item in (*left, *right)]
    return _Gutter(x, min(mids), max(mids), bottom - top)


def _is_torn(left: list[Fragment], x: float, em: float) -> bool:
    """Whether the strip may be chance: a few justified lines with wide spaces one below the other."""
    torn = sum(1 for item in left if item.parts > 1)
    return torn > 0.5 * len(left) and x - max(item.r for item in left) < 2 * em


def _trim(
    left: list[Fragment], right: list[Fragment], over: Fragment | None, under: Fragment | None
) -> tuple[list[Fragment], list[Fragment]]:
    """Both sides without the one or two lines that stick out of one side and lie nearer to the line across.

    Such a line (a heading over what follows, the last line of what went before) belongs above or below the columns.
    """
    if over is not None:
        left = left[_overhang(left, right, over) :]
        right = right[_overhang(right, left, over) :]
    if under is not None and left and right:
        left_end, right_end = _tail(left, right, under), _tail(right, left, under)
        left = left[: len(left) - left_end]
        right = right[: len(right) - right_end]
    return left, right


def _overhang(side: list[Fragment], other: list[Fragment], over: Fragment) -> int:
    if not side or not other:
        return 0
    count = sum(1 for item in side[:3] if item.b <= other[0].t + 0.2 * item.size)
    if not 0 < count < 3 or count >= len(side):
        return 0
    return count if side[0].t - over.b <= side[count].t - side[count - 1].b else 0


def _tail(side: list[Fragment], other: list[Fragment], under: Fragment) -> int:
    end = max(item.b for item in other)
    count = sum(1 for item in side[-3:] if item.t >= end - 0.2 * item.size)
    if not 0 < count < 3 or count >= len(side):
        return 0
    return count if under.t - side[-1].b < side[-count].t - side[-count - 1].b else 0


def _kind(left: list[Fragment], right: list[Fragment], em: float) -> ZoneKind | None:
    """What stands on both sides of a gutter; None: columns, to be read one after the other."""
    left_prose, right_prose = _is_prose(left, em), _is_prose(right, em)
    if left_prose and right_prose:
        return None
    few, many = sorted((left, right), key=len)
    aligned = _aligned(few, many, em)
    if len(aligned) < (0.8 if left_prose or right_prose else 0.6) * len(few):
        return None
    if _distinct(aligned, 0.6 * em) < _MIN_ROWS:
        return None
    if left_prose or right_prose:
        marks = right if left_prose else left
        if all(_MARK.fullmatch(item.line.text.strip()) for item in marks):
            return ZoneKind.TEXT  # bullets, numbers of lines or items beside their text
    if sum(1 for item in (*left, *right) if has_leaders(item.line.text)) * 2 > min(len(left), len(right)):
        return ZoneKind.LINES
    if all(_MARK.fullmatch(item.line.text.strip()) for item in left) and not _is_numeric(right):
        return ZoneKind.TEXT
    return ZoneKind.TABLE


def has_leaders(text: str) -> bool:
    """Whether dots lead from one part of the line to another, as in a list of contents."""
    return (".." in text or ". ." in text or "…" in text or "·" in text) and _LEADERS.search(text) is not None


def _is_numeric(items: Sequence[Fragment]) -> bool:
    return all(any(char.isdigit() for char in item.line.text) for item in items)


def _aligned(few: Sequence[Fragment], many: Sequence[Fragment], em: float) -> list[float]:
    """The centres of those of `few` that stand in one line with one of `many`."""
    reach = 0.2 * em
    mids, feet = sorted(item.mid for item in many), sorted(item.b for item in many)
    return [item.mid for item in few if _has_near(mids, item.mid, reach) or _has_near(feet, item.b, reach)]


def _distinct(values: list[float], reach: float) -> int:
    count, last = 0, float("-inf")
    for value in sorted(values):
        if value - last > reach:
            count += 1
            last = value
    return count


def _has_near(values: list[float], value: float, reach: float) -> bool:
    at = bisect_left(values, value - reach)
    return at < len(values) and values[at] <= value + reach


def _is_prose(items: Sequence[Fragment], em: float) -> bool:
    """Whether most lines run the full width of a column wide enough for running text."""
    widths = sorted(item.r - item.l for item in items)
    usual = widths[max(0, (len(widths) * 9) // 10 - 1)]
    if usual < _PROSE_EM * em:
        return False
    full = sum(1 for width in widths if width >= 0.75 * usual)
    return full >= 0.5 * len(widths) and median(len(item.line.text) for item in items) >= 12


def rows_of(items: Sequence[Fragment]) -> list[list[Fragment]]:
    """`items` as rows from top to bottom, each from left to right.

    Two fragments are of one row if they overlap by half the lower one's height and stand side by side.
    """
    rows: list[list[Fragment]] = []
    for item in sorted(items, key=lambda f: (f.mid, f.l, f.r, f.line.text)):
        for row in rows[:-4:-1]:
            if _fits(row, item):
                row.append(item)
                break
        else:
            rows.append([item])
    for row in rows:
        row.sort(key=lambda f: (f.l, f.r, f.t, f.line.text))
    return rows


def _fits(row: list[Fragment], item: Fragment) -> bool:
    for other in row:
        overlap = min(other.b, item.b) - max(other.t, item.t)
        if overlap < 0.5 * min(other.b - other.t, item.b - item.t) or overlap <= 0:
            return False
        if min(other.r, item.r) - max(other.l, item.l) > 0.3 * min(other.size, item.size):
            return False
    return True
