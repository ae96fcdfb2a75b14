"""Tables of aligned cells: columns by white strips, rows by white bands, cells of several lines put together."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from pipeline.fragments import Fragment
from pipeline.joining import join_lines

_FORMULA = re.compile(r"[=∂∈∀∃⇒⊆∪∩∑∫√]|\\|[{}]")

Cell = tuple[Fragment, ...]
Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Table:
    """A grid of cells, each the fragments in it. A header over several columns stands in each of them."""

    cells: tuple[tuple[Cell, ...], ...]  # rows of columns, every row as long as the others

    @property
    def items(self) -> list[Fragment]:
        """Every fragment once, row by row."""
        return list(dict.fromkeys(item for row in self.cells for cell in row for item in cell))

    def texts(self, words: frozenset[str]) -> list[list[str]]:
        """The text of every cell; `words` as in `joining.join_lines`."""
        return [[_text(cell, words) for cell in row] for row in self.cells]


def _text(cell: Cell, words: frozenset[str]) -> str:
    ordered = sorted(cell, key=lambda f: (f.t, f.l))
    lines: list[list[Fragment]] = []
    for item in ordered:
        if lines and min(item.b, lines[-1][0].b) - item.t > 0.5 * (item.b - item.t):
            lines[-1].append(item)
        else:
            lines.append([item])
    return join_lines(
        [" ".join(f.line.text.strip() for f in sorted(line, key=lambda f: f.l)) for line in lines], words
    )


@dataclass(frozen=True, slots=True)
class Aligned:
    """A table of aligned cells, and the lines above and below it that are no rows of it."""

    above: tuple[Fragment, ...]
    table: Table
    below: tuple[Fragment, ...]


def aligned_table(items: Sequence[Fragment], em: float) -> Aligned | None:
    """The table that aligned `items` (sorted from top to bottom) make, or None if they make none."""
    bands = _bands(items)
    wide = _spanning(bands, em)
    columns = _columns([item for item in items if item not in wide], em)
    columns = _with_headers(columns, bands, em)
    if len(columns) < 2 or len(bands) < 2 or len(wide) > 0.2 * len(items):
        return None
    first, last = _extent(bands, columns)
    inner = bands[first:last]
    if len(inner) < 2:
        return None
    rows = _merge(inner, [_row(band, columns, wide, repeat=at == 0) for at, band in enumerate(inner)], em)
    used = [at for at in range(len(columns)) if any(row[at] for row in rows)]
    table = Table(tuple(tuple(tuple(row[at]) for at in used) for row in rows))
    if not is_filled(table) or not _reads_as_table(table):
        return None
    above = tuple(item for band in bands[:first] for item in band)
    return Aligned(above, table, tuple(item for band in bands[last:] for item in band))


def _extent(bands: Sequence[Sequence[Fragment]], columns: Sequence[Interval]) -> tuple[int, int]:
    """The bands without the leading and closing ones that have something in one column only."""
    single = [len({_nearest(item, columns) for item in band}) < 2 for band in bands]
    first, last = 0, len(bands)
    while first < last and single[first]:
        first += 1
    while last > first and single[last - 1] and _nearest(bands[last - 1][0], columns) == 0:
        last -= 1
    return first, last


def is_filled(table: Table) -> bool:
    """Whether enough of the grid is filled, and most rows have more than one cell."""
    rows = table.cells
    filled = [sum(1 for cell in row if cell) for row in rows]
    if len(rows) < 2 or len(rows[0]) < 2:
        return False
    if sum(1 for count in filled if count >= 2) < 0.6 * len(rows):
        return False
    return sum(filled) >= 0.4 * len(rows) * len(rows[0])


def _reads_as_table(table: Table) -> bool:
    """Whether the cells hold words and figures, not the letters of a drawing or the parts of a formula."""
    cells = [" ".join(item.line.text for item in cell) for row in table.cells for cell in row if cell]
    if len(table.cells) < 3 and (len(table.cells[0]) < 3 or len(cells) < 2 * len(table.cells[0])):
        return False
    odd = sum(1 for text in cells if _FORMULA.search(text) or (len(text) < 3 and not text.isdigit()))
    return odd <= 0.35 * len(cells)


def _with_headers(columns: list[Interval], bands: Sequence[Sequence[Fragment]], em: float) -> list[Interval]:
    """Neighbours that no row fills both, as a header set off from the figures below it, are one column."""
    filled = [{_nearest(item, columns) for item in band} for band in bands]
    out: list[Interval] = []
    joined = False
    for at, (left, right) in enumerate(columns):
        alone = not any({at - 1, at} <= row for row in filled)
        if out and alone and not joined and left - out[-1][1] < 2.5 * em:
            out[-1] = (out[-1][0], right)
            joined = True  # with the next one too it might bridge a row that fills both
        else:
            out.append((left, right))
            joined = False
    return out


def _bands(items: Sequence[Fragment]) -> list[list[Fragment]]:
    """Items by rows of the table: those whose heights overlap, directly or through others."""
    bands: list[list[Fragment]] = []
    bottom = 0.0
    for item in items:
        if bands and bottom - item.t >= 0.25 * (item.b - item.t):
            bands[-1].append(item)
            bottom = max(bottom, item.b)
        else:
            bands.append([item])
            bottom = item.b
    return bands


def _spanning(bands: Sequence[Sequence[Fragment]], em: float) -> frozenset[Fragment]:
    """Items that lie over two or more items of one line elsewhere: headers over columns."""
    lines = [line for band in bands for line in _lines(band)]
    found = set()
    for line in lines:
        for item in line:
            for other in lines:
                if other is line:
                    continue
                if sum(1 for f in other if min(f.r, item.r) - max(f.l, item.l) > 0.05 * em) >= 2:
                    found.add(item)
                    break
    return frozenset(found)


def _lines(band: Sequence[Fragment]) -> list[list[Fragment]]:
    lines: list[list[Fragment]] = []
    for item in sorted(band, key=lambda f: (f.mid, f.l)):
        if lines and item.mid - lines[-1][0].mid < 0.35 * item.size:
            lines[-1].append(item)
        else:
            lines.append([item])
    return lines


def _columns(items: Sequence[Fragment], em: float) -> list[Interval]:
    """What white strips leave: the columns from left to right."""
    columns: list[Interval] = []
    for left, right in sorted((item.l, item.r) for item in items):
        if columns and left < columns[-1][1] + 0.3 * em:
            columns[-1] = (columns[-1][0], max(columns[-1][1], right))
        else:
            columns.append((left, right))
    return columns


def _row(
    band: Sequence[Fragment], columns: Sequence[Interval], wide: frozenset[Fragment], *, repeat: bool
) -> list[list[Fragment]]:
    cells: list[list[Fragment]] = [[] for _ in columns]
    for item in band:
        over = [at for at, (left, right) in enumerate(columns) if min(right, item.r) > max(left, item.l)]
        if item not in wide or not over:
            cells[_nearest(item, columns)].append(item)
            continue
        # A short header over some columns, with more below it in the same row, is the header of each.
        for_each = repeat and len(over) < len(columns) and len(item.line.text) <= 40 and len(_lines(band)) > 1
        for at in over if for_each else over[:1]:
            cells[at].append(item)
    return cells


def _nearest(item: Fragment, columns: Sequence[Interval]) -> int:
    middle = (item.l + item.r) / 2
    return min(range(len(columns)), key=lambda at: max(columns[at][0] - middle, middle - columns[at][1], 0.0))


def _merge(
    bands: Sequence[Sequence[Fragment]], grid: Sequence[list[list[Fragment]]], em: float
) -> list[list[list[Fragment]]]:
    """Rows that only go on with cells of the row above are joined to it."""
    gaps = [min(f.t for f in b) - max(f.b for f in a) for a, b in itertools.pairwise(bands)]
    usual = median(gaps) if gaps else 0.0
    out = [[list(cell) for cell in grid[0]]]
    for gap, cells in zip(gaps, grid[1:], strict=True):
        above = out[-1]
        fewer = sum(1 for cell in cells if cell) < sum(1 for cell in above if cell)
        if fewer and not cells[0] and above[0] and gap <= max(usual, 0.6 * em):
            for mine, more in zip(above, cells, strict=True):
                mine.extend(more)
        else:
            out.append([list(cell) for cell in cells])
    return out
