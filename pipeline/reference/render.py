"""What the draft says next, in the model's own form: text from the pointer on, borders as the model separates."""

from __future__ import annotations

from typing import NamedTuple

from pipeline.reference.draft import Break
from pipeline.reference.gaps import Gaps
from pipeline.reference.page import DraftedPage
from pipeline.reference.scanner import Mode
from pipeline.reference.separators import Border, border
from pipeline.reference.skeleton import COMMANDS


class Rendered(NamedTuple):
    """Text the model may write next; `risks` are (where a border begins, chance that it is written so)."""

    text: str
    risks: tuple[tuple[int, float], ...]
    ended: bool  # nothing of the draft is left after it
    cut: bool = True  # more text would follow: the last id may be part of a longer one


NOTHING = Rendered("", (), False)


class Renderer:
    """Writes a draft on from where the aligner stands."""

    def __init__(self, page: DraftedPage) -> None:
        self._page = page
        self._draft = page.draft
        self._scanner = page.scanner
        self._gaps = Gaps(page)

    def after(self, markup: str, need: int) -> Rendered:
        """`markup`, foretold by another source, and then the draft's next characters."""
        if self._page.aligner.here >= self._draft.size:
            return NOTHING
        rest = _Walk(self._page, self._page.aligner.here, need, True).run()
        shift = len(markup)
        return Rendered(
            markup + rest.text, tuple((at + shift, chance) for at, chance in rest.risks), rest.ended
        )

    def render(self, need: int, settled: bool = False) -> Rendered:
        """About `need` characters. `settled`: the mark-up that is written is all there is before the next character."""
        here = self._page.aligner.here
        if here >= self._draft.size and not self._goes_on():
            open_head = self._scanner.in_keys and self._scanner.run.count("{") > self._scanner.run.count("}")
            if not open_head:
                return Rendered(self._end(), (), True)
            head = self._page.heads.draft(self._scanner.run[self._scanner.key_from :], None)
            return Rendered(head or "", (), False)
        walk = _Walk(self._page, here, need, settled)
        return walk.run()

    def _goes_on(self) -> bool:
        """Whether lines are expected after the draft's last: those of another column."""
        order = self._page.order
        if order.is_straight or self._scanner.mode is not Mode.TEXT or self._scanner.in_keys:
            return False
        return self._page.aligner.next_line(len(self._draft.lines) - 1, order.steps) is not None

    def _end(self) -> str:
        """What closes the text once the draft is written: an open cell, an open row."""
        run, mode = self._scanner.run, self._scanner.mode
        closing = ""
        if self._page.json:
            run, closing = run[self._scanner.key_from :] if self._scanner.in_keys else run, '"}]'
        elif mode is Mode.PIPE and not run.strip():
            closing = " |"
        elif mode is Mode.HTML:
            closing = "</td></tr></table>"
        return closing[len(run) :] if closing.startswith(run) else ""

    def command(self, need: int) -> Rendered:
        """The rest of the LaTeX command under way, if it is the draft's next character, and what follows it."""
        draft, here = self._draft, self._page.aligner.here
        name = COMMANDS.get(draft.chars[here], "") if here < draft.size else ""
        if not name.startswith(self._scanner.command):
            return NOTHING
        line = draft.line[here]
        end = draft.starts[line + 1] if line + 1 < len(draft.starts) else draft.size
        after = draft.text[draft.at[here] + 1 : draft.at[end - 1] + 1]
        return Rendered(
            name[len(self._scanner.command) :] + self._gaps.spell(self._page.formulas.inside(after))[:need],
            (),
            False,
        )


class _Walk:
    """One rendering: moves over the draft, line by line."""

    def __init__(self, page: DraftedPage, here: int, need: int, settled: bool) -> None:
        self.page = page
        self.gaps = Gaps(page)
        self.draft = page.draft
        self.here = here
        self.need = need
        self.settled = settled
        self.parts: list[str] = []
        self.length = 0
        self.risks: list[tuple[int, float]] = []
        self.column = page.cells.column
        self.row = page.cells.row
        self.steps = () if page.order.is_straight else page.order.steps
        self.walked: set[int] = set()  # lines

    def run(self) -> Rendered:
        page, draft, here = self.page, self.draft, self.here
        run, line = page.scanner.run, draft.line[here] if here < draft.size else len(draft.starts)
        begins = here == draft.size or draft.starts[line] == here
        if page.scanner.in_keys:
            if begins and here:
                line = self._next_line(draft.line[here - 1])[0] or line
            head = page.heads.draft(run[page.scanner.key_from :], line)
            if head is None:
                return NOTHING
            self._put(head, None)
            self.here = draft.starts[line] if begins else here
        elif self.settled:
            pass
        elif begins and (here or run):
            if not self._enter(draft.line[here - 1] if here else -1, run):
                return self._done(True)
        elif not run and page.scanner.mode is not Mode.TEXT and draft.gap(here) == " ":
            self._part_inline(draft.text[draft.at[here] - 2] + draft.text[draft.at[here]], line)
        else:
            self._put(self.gaps.missing(draft.gap(here) if here else "", None, run)[0], None)
        math = page.scanner.math
        if math and page.formulas.is_spaced and not run and self.parts == [""]:
            self.parts[0] = " "
        while self.length < self.need:
            line = draft.line[self.here]
            last = self._last(line)
            if page.scanner.mode is Mode.TEXT:
                self._put(self.gaps.segment(draft.at[self.here], draft.at[last] + 1, math), None)
            else:
                self._put_cells(draft.text[draft.at[self.here] : draft.at[last] + 1], line)
            math = False
            if not self._enter(line, ""):
                return self._done(True)
        return self._done(False)

    def _done(self, ended: bool) -> Rendered:
        if ended:
            rest = self._trailing()
            self.parts.append(rest)
        return Rendered("".join(self.parts), tuple(self.risks), ended)

    def _trailing(self) -> str:
        draft, page = self.draft, self.page
        after = draft.text[draft.at[-1] + 1 :]
        closing = '"}]' if page.json else " |" if page.scanner.mode is Mode.PIPE else ""
        return self.gaps.spell(after) + closing

    def _put(self, text: str, chance: float | None) -> None:
        if chance is not None:
            self.risks.append((self.length, chance))
        self.parts.append(text)
        self.length += len(text)

    def _last(self, line: int) -> int:
        starts = self.draft.starts
        return (starts[line + 1] if line + 1 < len(starts) else self.draft.size) - 1

    def _next_line(self, line: int) -> tuple[int | None, str | None]:
        """The line after `line` and the mark before it, as far as tables and furniture change the draft's own."""
        following, mark = line + 1, None
        mode = self.page.scanner.mode
        if mode is not Mode.TEXT:
            predicted, found = self.page.cells.next(line, self.column, self.row)
            if predicted is not None and 0 <= predicted < len(self.draft.lines):
                following, mark = predicted, found
            elif following < len(self.draft.lines):
                parts = self.page.separators.parts_cells(mode, self.draft.lines[following].before)
                mark = (found or Break.CELL) if parts else Break.WRAP
        elif self.steps:
            ordered = self.page.aligner.next_line(line, self.steps, self.walked)
            following = ordered if ordered is not None else len(self.draft.lines)
        following = self.page.furniture.skip(following)
        return (following if following < len(self.draft.lines) else None), mark

    def _enter(self, line: int, run: str) -> bool:
        """Write the border after `line` (-1: before the first) and stand at the next; False: there is none."""
        draft, page = self.draft, self.page
        following, mark = self._next_line(line)
        if following is None:
            return False
        if self.steps:
            self.steps = (*self.steps, following - line)
            self.walked.add(following)
        start = draft.starts[following]
        if line < 0:
            found = Border("", Break.PARAGRAPH, draft.text[: draft.at[0]], draft.kinds[0])
        else:
            end = draft.starts[line + 1] if line + 1 < len(draft.starts) else draft.size
            head = border(draft.gap(end) if end < draft.size else "\x02", "") or Border(
                "", Break.PARAGRAPH, "", ""
            )
            tail = border(draft.gap(start), draft.kinds[following]) if start else None
            own = draft.lines[following].before if following == line + 1 else Break.PARAGRAPH
            found = Border(head.head, mark or own, tail.tail if tail else "", draft.kinds[following])
        if (
            page.json
            and not run
            and page.scanner.mode is Mode.TEXT
            and found.mark == Break.PARAGRAPH
            and page.heads.known
        ):
            return self._close_cell(following)
        text, chance = self.gaps.missing("", found, run)
        if page.scanner.mode is Mode.PIPE and found.mark in (Break.CELL, Break.ROW) and not page.json:
            text = self._barred(text, run, found.mark)
        self._put(text, chance)
        self._count(found.mark)
        self.here = start
        return True

    def _put_cells(self, text: str, line: int) -> None:
        """Text of a table's line: its spaces may part cells."""
        before = ""
        for word in self.gaps.spell(text).split(" "):
            if before and word:
                self._part_inline(before[-1] + word[0], line)
            self._put(word, None)
            before = word

    def _part_inline(self, pair: str, line: int) -> None:
        page, mode = self.page, self.page.scanner.mode
        if not page.separators.parts_inline(mode, pair):
            self._put(" ", None)
            return
        mark = page.cells.next(line, self.column, self.row)[1] or Break.CELL
        text, chance = page.separators.guess(mode, Border("", mark, "", ""))
        if mode is Mode.PIPE and not page.json:
            text = self._barred(text, "", mark)
        self._put(text, chance)
        self._count(mark)

    def _count(self, mark: str) -> None:
        if mark == Break.ROW:
            self.row, self.column = self.row + 1, 1
        elif mark == Break.CELL:
            self.column += 1

    def _barred(self, usual: str, run: str, mark: str) -> str:
        """The border of a Markdown cell: spaces up to the bar of the rows above, and the rule under a header."""
        grid = self.page.grid
        row = (grid.line + "".join(self.parts)).rsplit("\n", 1)[-1]
        if "\n" in run and grid.wants_rule:
            rest = grid.rule() + "\n| "
            return rest[len(grid.line) :] if rest.startswith(grid.line) else usual
        if run.strip():
            return usual
        missing = grid.padding(row)
        if missing is None:
            return usual
        return " " * missing + ("| " if mark == Break.CELL else "|\n| ")

    def _close_cell(self, following: int) -> bool:
        head = self.page.heads.draft("", following)
        self._put(head or self.page.heads.close(), 0.8)
        self.here = self.draft.starts[following]
        if head is None:
            self.need = 0
        return True
