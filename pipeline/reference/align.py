"""Where in the draft the output stands: follows it character by character and finds it again when they part.

After a mismatch, in this order: the output's last characters close by; the cheapest edit (a misread or added
character); the same anywhere on the page (another reading order); the start of a line not yet written.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from enum import StrEnum
from typing import NamedTuple

from pipeline.reference.cells import CellOrder
from pipeline.reference.draft import DraftText
from pipeline.reference.line_order import STRAIGHT, LineOrder, expected_step
from pipeline.reference.scanner import Mark, Mode

_TAIL = 64  # characters of output kept
_NEAR = ((20, 400), (12, 400), (8, 400))  # evidence and how far ahead it is looked for
_CLOSE = ((5, 60), (4, 24))
_JUMP = (24, 14, 9)
_BLOCK_MARKS = frozenset('\n>|"\\')
_BLOCK = 14  # most characters that are taken for the start of a block
_EDIT_BEHIND, _EDIT_AHEAD = 24, 20


class Found(StrEnum):
    """What the present position rests on."""

    START = "start"
    FOLLOWED = "followed"
    NEAR = "near"
    EDIT = "edit"
    JUMP = "jump"
    BLOCK = "block"
    LOST = "lost"


class Step(NamedTuple):
    """A character of output at `place` of the draft's skeleton, -1 where the draft has it nowhere.

    `sure` characters agreed just before it.
    """

    mark: Mark
    place: int
    sure: int


def _begins_cell(mark: Mark) -> bool:
    return "|" in mark.run or "<t" in mark.run


class Aligner:
    """The pointer into a draft's skeleton."""

    def __init__(self, draft: DraftText, cells: CellOrder, order: LineOrder | None = None) -> None:
        self.draft = draft
        self.cells = cells
        self.order = order if order is not None else LineOrder()
        self.here = 0  # the next character expected
        self.sure = 8  # characters that have agreed since the last doubt
        self.found = Found.START
        self.used = bytearray(draft.size + 1)
        self._tail = ""
        self._block_text = ""  # of the block or cell under way, as far as it is told from others by
        self._taken = -1  # where its draft line was taken to begin, on the evidence of a few characters
        self._anchor = 0  # where the draft stood when `_since` was empty
        self._since = ""  # output since then: what an edit is looked for in

    def follow(self, marks: Sequence[Mark]) -> list[Step]:
        """Take in output: where the draft has each character of it."""
        steps: list[Step] = []
        at = 0
        while at < len(marks):
            mark = marks[at]
            begins_cell = self._enter(mark)
            if mark.mode is Mode.TEXT and mark.run:
                self._to_line(mark.char)
            if not self._agrees(mark.char) and not (begins_cell and self._to_cell(mark.char)):
                end = self._end_of_cell(marks, at)
                steps += self._part(marks[at:end])
                at = end
                continue
            if begins_cell:
                self._place(self.here)
            steps.append(Step(mark, self.here, self.sure))
            self.used[self.here] = 1
            if mark.mode is Mode.TEXT:
                self.order.found(self.draft.line[self.here])
            self._write(mark)
            if begins_cell and self.found is Found.BLOCK:
                self._taken = self.here
            self.here += 1
            self.sure += 1
            if self.sure >= 8:
                self.found = Found.FOLLOWED
            at += 1
        self._tail = self._tail[-_TAIL:]
        if self.sure >= 8:
            self._settle()
        return steps

    def _agrees(self, char: str) -> bool:
        return self.here < self.draft.size and self.draft.chars[self.here] == char

    def _enter(self, mark: Mark) -> bool:
        """Keep count of table cells. True where a cell begins."""
        if not mark.run or (mark.mode is Mode.TEXT and not self.cells.columns):
            return False
        self.cells.advance(mark.mode, mark.run)
        return mark.mode is not Mode.TEXT and _begins_cell(mark)

    def _to_cell(self, char: str) -> bool:
        """Stand at the line that this cell should begin with, if it begins with `char`."""
        line = self.cells.expected()
        if line is None or not 0 <= line < len(self.draft.starts):
            return False
        start = self.draft.starts[line]
        if self.used[start] or self.draft.chars[start] != char:
            return False
        self._stand(start, 2, Found.BLOCK)
        return True

    def _to_line(self, char: str) -> None:
        """At a line's end: stand at the line that the order so far has next, if it begins with `char`."""
        if self.order.is_straight or not self.sure or not self._at_border():
            return
        line = self.draft.line[self.here - 1]
        following = self.next_line(line, self.order.steps)
        if following is None or following == line + 1:
            return
        start = self.draft.starts[following]
        if self.draft.chars[start] == char:
            self._stand(start, 2, Found.BLOCK)

    def _at_border(self) -> bool:
        """Whether the last character of a line was the last one expected."""
        here, line = self.here, self.draft.line
        return here > 0 and (here == self.draft.size or line[here] != line[here - 1])

    def next_line(self, line: int, steps: Sequence[int], walked: Container[int] = ()) -> int | None:
        """The line to expect after `line`, reached by `steps`; None at the end. Those `walked` are not to come again.

        Where an order leads out of the page or to what is written, as at the end of a column, it goes on at the first
        line that is not.
        """
        starts = self.draft.starts
        step = expected_step(steps)
        following = line + step
        if step == STRAIGHT:
            return following if following < len(starts) else None
        if 0 <= following < len(starts) and not self.used[starts[following]] and following not in walked:
            return following
        left = (at for at, start in enumerate(starts) if not self.used[start] and at not in walked)
        return next(left, None)

    @staticmethod
    def _end_of_cell(marks: Sequence[Mark], at: int) -> int:
        """Where the next cell begins in `marks` after `at`; their end outside tables."""
        for index in range(at + 1, len(marks)):
            if marks[index].run and marks[index].mode is not Mode.TEXT and _begins_cell(marks[index]):
                return index
        return len(marks)

    def _place(self, index: int) -> None:
        line = self.draft.line[index]
        if self.draft.starts[line] == index:
            self.cells.place(line)

    def _part(self, rest: Sequence[Mark]) -> list[Step]:
        """The output and the draft part before `rest`."""
        for mark in rest:
            self._write(mark)
        self._tail = self._tail[-_TAIL:]
        if self._taken >= 0:  # that was wrong: its characters are still to come
            for index in range(self._taken, self.here):
                self.used[index] = 0
        self._find(len(self._block_text), rest[-1].mode is not Mode.TEXT)
        exact = (
            self._agreeing() if self.sure else 0
        )  # of the new characters, those at the end that the draft has here
        exact = min(exact, len(rest))
        if rest[-1].mode is not Mode.TEXT and 0 < len(self._block_text) <= self._agreeing():
            self._place(self.here - len(self._block_text))
        first = len(rest) - exact
        for index in range(self.here - exact, self.here):
            self.used[index] = 1
            if rest[-1].mode is Mode.TEXT:
                self.order.found(self.draft.line[index])
        return [
            Step(mark, self.here - len(rest) + at if at >= first else -1, at - first if at >= first else 0)
            for at, mark in enumerate(rest)
        ]

    def _write(self, mark: Mark) -> None:
        if any(char in mark.run for char in _BLOCK_MARKS) or (mark.run and self.sure and self._at_border()):
            self._block_text, self._taken = "", -1
        if len(self._block_text) <= _BLOCK:
            self._block_text += mark.char
        self._tail += mark.char
        self._since += mark.char

    def _agreeing(self) -> int:
        """How many characters before the present place are those written last."""
        count, most = 0, min(len(self._tail), self.here)
        while count < most and self._tail[-1 - count] == self.draft.chars[self.here - 1 - count]:
            count += 1
        return count

    def move(self, index: int) -> None:
        """Stand at `index`: what lies between is not expected any more."""
        self.here = index
        self._settle()

    def _settle(self) -> None:
        self._anchor, self._since = self.here, ""

    # --- finding the place again ---------------------------------------------------------------------

    def _find(self, begun: int, in_table: bool) -> None:
        if self._close_by(_NEAR):
            return
        edited = self._edit()
        if edited is not None and edited[1] >= 2:
            self._stand(edited[0], edited[1], Found.EDIT, settle=False)
            return
        if self._close_by(_CLOSE) or self._anywhere() or self._block(begun, in_table):
            return
        if edited is not None:
            self._stand(edited[0], edited[1], Found.EDIT, settle=False)
            return
        self.sure, self.found = 0, Found.LOST

    def _stand(self, index: int, sure: int, found: Found, settle: bool = True) -> None:
        self.here, self.sure, self.found = index, sure, found
        if settle:
            self._settle()

    def _close_by(self, windows: Sequence[tuple[int, int]]) -> bool:
        for length, ahead in windows:
            if len(self._tail) < length:
                continue
            start = max(0, self.here - 4 - length // 2)
            at = self.draft.chars.find(self._tail[-length:], start, self.here + ahead)
            if at >= 0:
                self._stand(at + length, length, Found.NEAR)
                return True
        return False

    def _anywhere(self) -> bool:
        chars = self.draft.chars
        for length in _JUMP:
            if len(self._tail) < length:
                continue
            places: list[int] = []
            at = chars.find(self._tail[-length:])
            while at >= 0 and len(places) < 20:
                places.append(at + length)
                at = chars.find(self._tail[-length:], at + 1)
            if places:
                fresh = [place for place in places if not self.used[place]]
                ahead = [place for place in fresh if place >= self.here]
                self._stand((ahead or fresh or places)[0], length, Found.JUMP)
                return True
        return False

    def _block(self, begun: int, in_table: bool) -> bool:
        """`begun` characters ago a block began: the first line not yet written that begins so."""
        if not (1 if in_table else 2) <= begun <= _BLOCK:
            return False
        text, draft = self._tail[-begun:], self.draft
        lines = [
            line
            for line in (draft.by_prefix.get(text[:2], ()) if begun > 1 else range(len(draft.starts)))
            if not self.used[draft.starts[line]] and draft.chars.startswith(text, draft.starts[line])
        ]
        if not lines:
            return False
        expected = self.cells.expected() if in_table else None
        if expected is not None:
            line = min(lines, key=lambda at: (abs(at - expected), at))
        else:
            line = next((at for at in lines if draft.starts[at] >= self.here), lines[0])
        self._taken = draft.starts[line]
        self._stand(self._taken + begun, begun, Found.BLOCK)
        return True

    def _edit(self) -> tuple[int, int] | None:
        """Where the cheapest edit since the anchor ends, and how many characters agree there; None: too far off."""
        written = self._since[-_EDIT_BEHIND:]
        start = self._anchor + (len(self._since) - len(written))
        if len(written) < len(self._since):
            start = max(0, self.here - _EDIT_BEHIND)
        window = self.draft.chars[start : start + len(written) + _EDIT_AHEAD]
        if not window:
            return None
        width = len(window) + 1
        costs = [0.4 * j if len(written) == len(self._since) else 0.0 for j in range(width)]
        runs = [0] * width
        for char in written:
            row, agreed = [costs[0] + 1.0], [0]
            left = row[0]
            for j, other in enumerate(window, 1):
                same = char == other
                best = costs[j - 1] + (0.0 if same else 1.0)
                run = runs[j - 1] + 1 if same else 0
                if costs[j] + 1.0 < best:
                    best, run = costs[j] + 1.0, 0
                if left + 0.6 < best:
                    best, run = left + 0.6, 0
                row.append(best)
                agreed.append(run)
                left = best
            costs, runs = row, agreed
        best_at = min(range(width), key=lambda j: (costs[j] - 0.15 * min(runs[j], 4), j))
        if costs[best_at] > 0.5 * len(written) + 1.0:
            return None
        return start + best_at, runs[best_at]
