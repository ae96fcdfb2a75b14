"""Order of table cells, learned from the table being written: a draft may have them by columns, a model by rows."""

from __future__ import annotations

from pipeline.reference.draft import Break
from pipeline.reference.scanner import Mode


class CellOrder:
    """Which draft line stood in which cell of the table under way, and so which will stand in the next."""

    def __init__(self) -> None:
        self.columns = 0  # of the latest row that is complete
        self.row = 0
        self.column = 0
        self._lines: dict[tuple[int, int], int] = {}
        self._mode = Mode.TEXT
        self.known = 0

    def take(self, mode: Mode, run: str, line: int | None) -> None:
        """The output went on to text of draft line `line` (None: not found in the draft) after `run`."""
        if mode is not self._mode or "<table" in run:
            self._mode, self.columns, self.row, self.column = mode, 0, 0, 0
            self._lines.clear()
            if mode is Mode.TEXT:
                return
            self._advance(mode, run[run.rfind("<table") :] if mode is Mode.HTML else run, first=True)
        elif mode is Mode.TEXT:
            return
        else:
            self._advance(mode, run)
        if line is not None:
            self._lines[self.row, self.column] = line

    def next(self, line: int, column: int, row: int) -> tuple[int | None, Break | None]:
        """After the cell at (`row`, `column`) with draft line `line`: the line of the next, and the border before it.

        None where nothing is known: the draft's own order and marks hold.
        """
        if not self.columns:
            return None, None
        if column + 1 < self.columns:
            here, there = self._lines.get((row - 1, column)), self._lines.get((row - 1, column + 1))
            following = None if here is None or there is None else line + there - here
            return following, Break.CELL
        start, above = self._lines.get((row, 0)), self._lines.get((row - 1, 0))
        return (None if start is None or above is None else 2 * start - above), Break.ROW

    def _advance(self, mode: Mode, run: str, first: bool = False) -> None:
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
            bars = line.count("|")
            self.column += bars
            if "---" in line:
                self.column = 0

    def _new_row(self) -> None:
        if self.column > 1:
            self.columns = self.column
        if self.column > 0:
            self.row += 1
        self.column = 0
