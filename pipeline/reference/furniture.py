"""Headers, footers and page numbers: whether this model writes them, learned from what it has passed over."""

from __future__ import annotations

from pipeline.reference.draft import DraftText


class FurniturePolicy:
    """Counts the furniture lines of a page that were written and those that were left out."""

    def __init__(self, draft: DraftText) -> None:
        self._draft = draft
        self._written = 1.0
        self._left_out = 1.5  # most document models leave headers and footers out

    @property
    def leaves_out(self) -> bool:
        """Whether furniture is expected to be missing."""
        return self._left_out > self._written

    def skip(self, line: int) -> int:
        """The first line from `line` on that is expected to be written; the number of lines where none is."""
        lines = self._draft.lines
        if self.leaves_out:
            while line < len(lines) and lines[line].furniture:
                line += 1
        return line

    def went(self, before: int, to: int) -> None:
        """The output went from draft line `before` (-1: began) to line `to`."""
        if 0 <= to < len(self._draft.lines) and self._draft.lines[to].furniture:
            self._written += 1
        if before < to <= before + 4:
            self._left_out += sum(self._draft.lines[at].furniture for at in range(before + 1, to))
