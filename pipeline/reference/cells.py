"""Order of table cells, learned from the table being written: a draft may have them by columns, a model by rows."""

from __future__ import annotations

from pipeline.reference.draft import Break
from pipeline.reference.scanner import Mode


class CellOrder:
    """Which draft line stood in which cell of the table under way, and so which will stand in the next.

    Columns count from 1; 0 is before the first cell of a row.
    """

    def __init__(self) -> None:
        self.columns = 0  # of the latest row that is complete
        self.row = 0
        self.column = 0
        self._lines: dict[tuple[int, int], int] = {}
        self._mode = Mode.TEXT

    def advance(self, mode: Mode, run: str) -> None:
        """The output wrote `run` and goes on in `mode`."""
        if mode is not self._mode or "<table" in run:
            self._mode, self.columns, self.row, self.column = mode, 0, 0, 0
            self._lines.clear()
            if mode is not Mode.TEXT:
                self._count(mode, run[run.rfind("<table") :] if mode is Mode.HTML else run)
        elif mode is not Mode.TEXT:
            self._count(mode, run)

    def place(self, line: int) -> None:
        """The present cell begins with draft line `line`."""
        if self._mode is not Mode.TEXT:
            self._lines[self.row, self.column] = line

    def expected(self) -> int | None:
        """The draft line that the present cell should begin with, going by its row and the row above."""
        row, column = self.row, self.column
        above = self._lines.get((row - 1, column))
        if above is None:
            return None
        if column > 1:
            left, left_above = self._lines.get((row, column - 1)), self._lines.get((row - 1, column - 1))
            if left is not None and left_above is not None:
                return left + above - left_above
        higher = self._lines.get((row - 2, column))
        return above + (above - higher if higher is not None else 1)

    def next(self, line: int, column: int, row: int) -> tuple[int | None, Break | None]:
        """After the cell at (`row`, `column`) with draft line `line`: the line of the next, and the border before it.

        None where nothing is known: the draft's own order and marks hold.
        """
        if not self.columns:
            return None, None
        if column + 1 <= self.columns:
            here, there = self._lines.get((row - 1, column)), self._lines.get((row - 1, column + 1))
            following = None if here is None or there is None else line + there - here
            return following, Break.CELL
        start, above = self._lines.get((row, 1)), self._lines.get((row - 1, 1))
        return (None if start is None or above is None else 2 * start - above), Break.ROW

    def _count(self, mode: Mode, run: str) -> None:
        """Count the cells and rows that `run` closes and opens."""
        if mode is Mode.HTML:
            for part in run.split("<t")[1:]:
                if part.startswith("r"):
                    self._new_row()
                elif part.startswith(("d", "h")) and not part.startswith("head"):
                    self.column += 1
            return
        for at, line in enumerate(run.split("\n")):
            if at:
                self._new_row()
            self.column += line.count("|")
            if "---" in line:
                self.column = 0

    def _new_row(self) -> None:
        if self.column > 1:
            self.columns = self.column if self._mode is Mode.HTML else self.column - 1  # a row ends in a bar
        if self.column > 0:
            self.row += 1
        self.column = 0
