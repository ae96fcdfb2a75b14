"""The rows of a zone: lines as the reader of one column sees them, sizes and bullets of OCR put straight."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from pipeline.fragments import Fragment, Frame
from pipeline.joining import is_unspaced
from pipeline.layout import rows_of
from storage.records import Line

_CODE = re.compile(r"[{};]\s*$|^\s*(?:#|//|/\*|<\w|\$ |>>> )|\w\(.*\)|[=!<>]=|->|=>|::|\w\[\w*\]")
# What Tesseract reads a bullet as: the first can be nothing else at a line's start, the others could.
_MISREAD = frozenset("¢©®°«¤")
_PERHAPS_MISREAD = frozenset("eo*.·»@¥")


@dataclass(frozen=True, slots=True)
class Row:
    """A line as the reader of one column sees it; `l, t, r, b` in the frame."""

    l: float  # noqa: E741 - left, top, right, bottom
    t: float
    r: float
    b: float
    size: float
    text: str
    lines: tuple[Line, ...]
    first_width: float  # of its first word
    bold: bool
    mono: bool

    @property
    def mid(self) -> float:
        """Vertical centre."""
        return (self.t + self.b) / 2


def rows_from(items: Sequence[Fragment], lines: Sequence[Line], frame: Frame) -> list[Row]:
    """The rows `items` make; a line whose parts meet again in one row is whole again."""
    return [_row(group, lines, frame) for group in rows_of(items)]


def _row(group: Sequence[Fragment], lines: Sequence[Line], frame: Frame) -> Row:
    first = group[0]
    parts = (first.line,) if len(group) == 1 else _whole_again(group, lines)
    text = parts[0].text.strip() if len(parts) == 1 else " ".join(part.text.strip() for part in parts)
    left, right = first.l, max(item.r for item in group)
    return Row(
        left,
        min(item.t for item in group),
        right,
        max(item.b for item in group),
        max(item.size for item in group),
        text,
        parts,
        _first_width(first, text, right - left, frame),
        all(part.bold for part in parts),
        all(part.mono for part in parts) and not is_unspaced(text),  # CJK faces are all of one width
    )


def _whole_again(group: Sequence[Fragment], lines: Sequence[Line]) -> tuple[Line, ...]:
    out: list[Line] = []
    at = 0
    while at < len(group):
        item = group[at]
        run = group[at : at + item.parts]
        if item.parts > 1 and [(f.source, f.part) for f in run] == [
            (item.source, n) for n in range(item.parts)
        ]:
            out.append(lines[item.source])
            at += item.parts
        else:
            out.append(item.line)
            at += 1
    return tuple(out)


def _first_width(first: Fragment, text: str, width: float, frame: Frame) -> float:
    if is_unspaced(text[:1]):
        return first.size
    if first.line.words:
        left, _, right, _ = frame.place(first.line.words[0].box)
        return right - left
    return width * len(text.split(" ", 1)[0]) / max(1, len(text))


def usual_pitch(rows: Sequence[Row]) -> float:
    """From line to line, in font sizes: the lower middle, so that gaps between paragraphs do not count."""
    ratios = sorted(
        (row.mid - before.mid) / max(before.size, row.size)
        for before, row in itertools.pairwise(rows)
        if row.mid > before.mid
    )
    usual = ratios[(len(ratios) - 1) * 2 // 5] if ratios else 1.2
    return min(max(usual, 0.9), 2.4)


def steady(rows: Sequence[Row]) -> list[Row]:
    """`rows` of an engine, whose sizes scatter with the letters of a line, evened out; misread bullets mended."""
    if not rows:
        return []
    pitches = sorted(b.mid - a.mid for a, b in itertools.pairwise(rows))
    pitch = pitches[len(pitches) // 3] if pitches else 0.0
    right = max(row.r for row in rows)
    usual = median(row.size for row in rows)
    out = []
    for at, row in enumerate(rows):
        size = _size_around(rows, at, pitch, right)
        if size is not None:
            row = replace(row, size=usual if 0.8 < size / usual < 1.25 else size)
        out.append(row)
    return _mend_bullets(out)


def _size_around(rows: Sequence[Row], at: int, pitch: float, right: float) -> float | None:
    """The median size of the lines around, or None for a line that differs from them for a reason."""
    row = rows[at]
    first, last = at, at
    while first > max(0, at - 3) and rows[first].mid - rows[first - 1].mid <= 1.3 * pitch:
        first -= 1
    while last < min(len(rows) - 1, at + 3) and rows[last + 1].mid - rows[last].mid <= 1.3 * pitch:
        last += 1
    around = median(other.size for other in rows[first : last + 1])
    if not 0.7 < row.size / around < 1.45:
        return None
    after = [other.size for other in rows[at + 1 : last + 1]]
    if first == at and after and row.r < right - 3 * row.size and row.size > 1.1 * median(after):
        return None  # a heading close to its text
    return around


def _mend_bullets(rows: list[Row]) -> list[Row]:
    marks = [row.text[0] if row.text[1:2] == " " and len(row.text) > 2 else "" for row in rows]
    sure = [row.l for row, mark in zip(rows, marks, strict=True) if mark in _MISREAD and mark]
    if not sure:
        return rows
    out: list[Row] = []
    for row, mark in zip(rows, marks, strict=True):
        beside = any(abs(row.l - left) < 0.5 * row.size for left in sure)
        if mark and (mark in _MISREAD or (beside and mark in _PERHAPS_MISREAD)):
            row = replace(row, text="•" + row.text[1:])
        out.append(row)
    return out


def proportional(rows: Sequence[Row]) -> list[Row]:
    """`rows` of a page all in type of one width: only what also reads like code is taken for code."""
    like_code = sum(1 for row in rows if _CODE.search(row.text))
    if like_code * 4 >= len(rows):
        return list(rows)
    return [replace(row, mono=False) for row in rows]
