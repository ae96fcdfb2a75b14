"""Tables: cells from ruled lines or from alignment."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from pipeline.fragments import Fragment
from pipeline.joining import join_lines
from pipeline.layout import rows_of


@dataclass(frozen=True, slots=True)
class Table:
    """A grid of cells, each the fragments in it from top to bottom."""

    cells: tuple[tuple[tuple[Fragment, ...], ...], ...]  # rows of columns

    @property
    def items(self) -> list[Fragment]:
        """All fragments, row by row."""
        return [item for row in self.cells for cell in row for item in cell]

    def texts(self, words: frozenset[str]) -> list[list[str]]:
        """The text of every cell."""
        return [[join_lines([item.line.text for item in cell], words) for cell in row] for row in self.cells]


def aligned_table(items: Sequence[Fragment], em: float) -> Table | None:
    """The table that aligned `items` make, or None if they make none."""
    columns = _columns(items, em)
    rows = rows_of(items)
    if len(columns) < 2 or len(rows) < 2:
        return None
    grid = [_row(row, columns) for row in rows]
    merged = _merge(rows, grid, em)
    if len(merged) < 2:
        return None
    return Table(tuple(tuple(tuple(cell) for cell in row) for row in merged))


def _columns(items: Sequence[Fragment], em: float) -> list[tuple[float, float]]:
    """Intervals of columns: what is left between the white strips that nearly all rows keep clear."""
    spans = sorted((item.l, item.r) for item in items)
    columns: list[tuple[float, float]] = []
    for left, right in spans:
        if columns and left < columns[-1][1] + 0.3 * em:
            columns[-1] = (columns[-1][0], max(columns[-1][1], right))
        else:
            columns.append((left, right))
    return columns


def _row(row: Sequence[Fragment], columns: Sequence[tuple[float, float]]) -> list[list[Fragment]]:
    cells: list[list[Fragment]] = [[] for _ in columns]
    for item in row:
        middle = (item.l + item.r) / 2
        at = min(range(len(columns)), key=lambda i: max(columns[i][0] - middle, middle - columns[i][1], 0.0))
        cells[at].append(item)
    return cells


def _merge(
    rows: Sequence[Sequence[Fragment]], grid: list[list[list[Fragment]]], em: float
) -> list[list[list[Fragment]]]:
    """Rows that only go on with cells of the row above are joined to it."""
    gaps = [max(0.0, min(f.t for f in b) - max(f.b for f in a)) for a, b in itertools.pairwise(rows)]
    usual = median(gaps) if gaps else 0.0
    out = [grid[0]]
    for gap, cells in zip(gaps, grid[1:], strict=True):
        above = out[-1]
        if not cells[0] and above[0] and gap <= max(usual, 0.6 * em):
            for mine, more in zip(above, cells, strict=True):
                mine.extend(more)
        else:
            out.append(cells)
    return out
