"""Markdown tables as text: where their bars stand, to draft padded cells and the rule under the header."""

from __future__ import annotations


class PipeGrid:
    """The rows of the Markdown table under way."""

    def __init__(self) -> None:
        self.line = ""  # the line being written
        self._rows: list[str] = []  # finished ones of this table

    def feed(self, text: str) -> None:
        """More output."""
        *finished, last = text.split("\n")
        for part in finished:
            row = self.line + part
            self.line = ""
            if row.startswith("|"):
                self._rows.append(row)
            elif row.strip():
                self._rows.clear()
        self.line += last
        if self.line and not self.line.startswith("|"):
            self._rows.clear()

    @property
    def wants_rule(self) -> bool:
        """Whether the header is written and the rule under it is not."""
        return len(self._rows) == 1

    def rule(self) -> str:
        """The rule under the header, `|---|---|`: as wide as the header's cells where these are padded."""
        cells = self._rows[-1].strip().strip("|").split("|")
        padded = any(cell.endswith("  ") for cell in cells)
        return "|" + "".join("-" * (len(cell) if padded else 3) + "|" for cell in cells)

    def padding(self, written: str) -> int | None:
        """Spaces before the next bar if `written` is the row so far; None where cells are not padded."""
        if len(self._rows) < 2 or len(self._rows[-1]) != len(self._rows[-2]):
            return None
        bars = [at for at, char in enumerate(self._rows[-1]) if char == "|"]
        index = written.count("|")
        if index >= len(bars) or not self._is_padded():
            return None
        missing = bars[index] - len(written)
        return missing if missing >= 0 else None

    def _is_padded(self) -> bool:
        return "  |" in self._rows[-1] or ("---|" in self._rows[-1] and "  |" in self._rows[-2])
