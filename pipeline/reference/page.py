"""A draft and all that is learned of the model's output while it is written."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.reference.align import Aligner
from pipeline.reference.boxes import BoxHeads
from pipeline.reference.cells import CellOrder
from pipeline.reference.draft import MARKS, DraftText
from pipeline.reference.formulas import FormulaStyle
from pipeline.reference.furniture import FurniturePolicy
from pipeline.reference.line_order import LineOrder
from pipeline.reference.pipes import PipeGrid
from pipeline.reference.scanner import Mark, Mode, OutputScanner
from pipeline.reference.separators import Separators, border
from pipeline.reference.spelling import Spelling

_LEARNS = 4  # characters that must agree before a border for its separator to be believed


class DraftedPage:
    """One page: where the output stands in the draft, and in what form the model writes.

    `scanner` and `grid` have seen the output before the draft came. `json`: the answer is dots.ocr's array.
    """

    def __init__(self, draft: DraftText, scanner: OutputScanner, grid: PipeGrid, json: bool) -> None:
        self.draft = draft
        self.scanner = scanner
        self.grid = grid
        self.json = json
        self.cells = CellOrder()
        self.order = LineOrder()
        self.aligner = Aligner(draft, self.cells, self.order)
        self.separators = Separators()
        self.spelling = Spelling()
        self.heads = BoxHeads(draft, json)
        self.furniture = FurniturePolicy(draft)
        self.formulas = FormulaStyle()
        first = self.furniture.skip(0)
        if 0 < first < len(draft.lines):
            self.aligner.move(draft.starts[first])
        self._line = -1

    def take(self, marks: Sequence[Mark]) -> None:
        """Align output and learn from it."""
        for mark, index, sure in self.aligner.follow(marks):
            if "<" in mark.run:
                self.separators.see(mark.run)
            if index >= 0:
                self._learn_formulas(mark, index)
            gap = self.draft.gap(index) if index >= 0 else ""
            if gap == " " and mark.mode is not Mode.TEXT and self.draft.at[index] > 1:
                at = self.draft.at[index]
                self.separators.learn_inline(
                    mark.mode, self.draft.text[at - 2] + self.draft.text[at], mark.run
                )
            if mark.run == gap:
                if gap.strip():
                    self.spelling.learn(mark.mode, gap, mark.run)
                self._line = self.draft.line[index] if index >= 0 else self._line
                continue
            self._learn(mark, index, sure, gap)

    def _learn_formulas(self, mark: Mark, index: int) -> None:
        draft, at = self.draft, self.draft.at[index]
        before = draft.text[at - 1] if at else ""
        if before == " " and not (mark.math and "$" not in mark.run):
            word = draft.text[at : at + 12].split(" ", 1)[0]
            self.formulas.learn_word(word, "$" in mark.run)
        elif mark.math and not before.isspace():
            self.formulas.learn_gap(draft.gap(index), mark.run)

    def _learn(self, mark: Mark, index: int, sure: int, gap: str) -> None:
        line = self.draft.line[index] if index >= 0 else -1
        begins = index >= 0 and self.draft.starts[line] == index
        if index < 0:
            self.heads.learn(mark.run, None)
            return
        if begins:
            self.furniture.went(self._line, line)
        if self.heads.learn(mark.run, line):
            pass
        elif begins:
            found = border(gap, self.draft.kinds[line]) if index else None
            if found is not None and (sure >= _LEARNS or self._line + 1 != line):
                if self._line + 1 != line:
                    found = found._replace(head="")
                self.separators.learn(mark.mode, found, mark.run)
        elif not any(char in MARKS for char in gap) and sure:
            self.spelling.learn(mark.mode, gap, mark.run)
        self._line = line
