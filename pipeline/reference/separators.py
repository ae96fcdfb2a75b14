"""What a model writes where the draft has the border of a line, learned from the borders it has written."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import NamedTuple

from pipeline.reference.draft import MARKS, Break
from pipeline.reference.scanner import Mode

_KEPT = 12  # latest borders of a kind that are remembered
_FADE = 0.85  # weight of a border against the one after it
_COARSE = 0.25  # weight of a border of another look
_PRIOR = 0.8  # weight of what is usual before anything was learned

_ATTRIBUTES = ("<td rowspan=1 colspan=1>", '<td colspan="2">', '<td rowspan="2">', '<div align="center">')
_TAG = re.compile(r"</?(?!t[drh]\b|table\b)[a-zA-Z][^<>]*>")
_OPENING = re.compile(r"<([a-zA-Z]+)(?:\s[^<>]*)?(?<!/)>")
_CELL = re.compile(r"<t[dh][^>]*>\s?")
_USUAL: dict[tuple[Mode, str], str] = {
    (Mode.TEXT, Break.WRAP): " ",
    (Mode.TEXT, Break.PARAGRAPH): "\n\n",
    (Mode.TEXT, Break.CELL): " ",
    (Mode.TEXT, Break.ROW): "\n",
    (Mode.HTML, Break.WRAP): " ",
    (Mode.HTML, Break.PARAGRAPH): "</td><td>",
    (Mode.HTML, Break.CELL): "</td><td>",
    (Mode.HTML, Break.ROW): "</td></tr><tr><td>",
    (Mode.PIPE, Break.WRAP): " ",
    (Mode.PIPE, Break.PARAGRAPH): " | ",
    (Mode.PIPE, Break.CELL): " | ",
    (Mode.PIPE, Break.ROW): " |\n| ",
}


class Border(NamedTuple):
    """A border as the draft has it: `head`, the mark, `tail`; `kind` as `DraftText.kinds`."""

    head: str
    mark: str
    tail: str
    kind: str

    @property
    def bare(self) -> bool:
        """Whether nothing but white space stands at it."""
        return not self.head.strip() and not self.tail.strip()


class Guess(NamedTuple):
    """What will stand at a border, and how likely that is."""

    text: str
    chance: float


def border(gap: str, kind: str, mark: str | None = None) -> Border | None:
    """The border in `gap`, or None where there is none. `mark` overrules the draft's own."""
    at = [i for i, char in enumerate(gap) if char in MARKS]
    if not at:
        return None
    return Border(gap[: at[0]], mark or gap[at[0]], gap[at[-1] + 1 :], kind)


class Separators:
    """The separators of one page."""

    def __init__(self) -> None:
        self._by_look: dict[tuple[str, ...], list[str]] = defaultdict(list)
        self._by_mark: dict[tuple[str, ...], list[str]] = defaultdict(list)
        self._cell = "<td>"  # how this model opens a cell
        self._tags: dict[str, None] = {}  # other tags of this page, the latest last
        self._inline: dict[tuple[Mode, str], list[bool]] = defaultdict(list)
        self._own: dict[tuple[Mode, str], list[bool]] = defaultdict(
            list
        )  # did a draft's mark part two cells?

    def learn(self, mode: Mode, found: Border, run: str) -> None:
        """The output had `run` at a border."""
        if mode is not Mode.TEXT:
            opened = _CELL.findall(run)
            if opened:
                self._cell = opened[-1]
            parts = bool(opened) or "|" in run
            self._own[mode, found.mark].append(parts)
            found = found._replace(mark=_mark_of(run) if parts else Break.WRAP)
        for table, key in ((self._by_look, _look(mode, found)), (self._by_mark, (mode, found.mark))):
            known = table[key]
            known.append(run)
            del known[:-_KEPT]

    def see(self, run: str) -> None:
        """Remember the tags in `run`, so that they can be finished when they come again."""
        for tag in _TAG.findall(run):
            self._tags.pop(tag, None)
            self._tags[tag] = None
            opened = _OPENING.match(tag)
            if opened:
                closing = f"</{opened.group(1)}>"
                self._tags.pop(closing, None)
                self._tags[closing] = None

    def parts_cells(self, mode: Mode, mark: str) -> bool:
        """Whether the draft's `mark` has lately stood between two cells."""
        known = self._own.get((mode, mark), ())[-4:]
        return sum(known) * 2 > len(known) if known else mark != Break.WRAP

    def learn_inline(self, mode: Mode, pair: str, run: str) -> None:
        """In a table the output had `run` at a space of the draft's; `pair`: the characters beside it."""
        self._inline[mode, classes(pair)].append("|" in run or "<t" in run)

    def parts_inline(self, mode: Mode, pair: str) -> bool:
        """Whether a space inside a draft line of a table parts two cells."""
        known = self._inline.get((mode, classes(pair)), ())[-4:]
        return sum(known) * 2 > len(known) if known else classes(pair) == "00"

    def guess(self, mode: Mode, found: Border) -> Guess:
        """What the output will have there, nothing of it being written."""
        scores: dict[str, float] = defaultdict(float)
        scores[self._usual(mode, found)] = _PRIOR
        weight = 1.0
        for run in reversed(self._by_look.get(_look(mode, found), ())):
            scores[run] += weight
            weight *= _FADE
        if found.bare:
            weight = _COARSE
            for run in reversed(self._by_mark.get((mode, found.mark), ())):
                scores[run] += weight
                weight *= _FADE
        best = max(scores, key=lambda run: scores[run])
        return Guess(best, scores[best] / (sum(scores.values()) + 0.25))

    def going_on(self, mode: Mode, found: Border | None, begun: str) -> Guess | None:
        """The learned separator that `begun` is the beginning of; None where there is none."""
        scores: dict[str, float] = defaultdict(float)
        total = 0.0
        look = _look(mode, found) if found is not None else None
        for key, runs in self._by_look.items():
            if key[0] != mode:
                continue
            weight = 1.0 if key == look else _COARSE
            for run in reversed(runs):
                if run.startswith(begun):
                    total += weight
                    if len(run) > len(begun):
                        scores[run] += weight
                weight *= _FADE
        if not scores:
            return None
        best = max(scores, key=lambda run: scores[run])
        return Guess(best, scores[best] / (total + 0.3))

    def _usual(self, mode: Mode, found: Border) -> str:
        end, start, *level = found.kind.split() if found.kind else ("word", "upper")
        if mode is Mode.TEXT:
            goes_on = (start == "lower" and end != "stop") or (end, start) == ("word", "upper")
            if found.mark == Break.PARAGRAPH and goes_on:
                return found.head + " " + found.tail
            if level and found.mark == Break.PARAGRAPH:
                return found.head + "\n\n" + "#" * int(level[0]) + " " + found.tail
        if found.mark == Break.WRAP:
            if found.head.rstrip().endswith("-") and start == "lower":
                return found.head.rstrip()[:-1] + found.tail
            if end == "wide" and start == "wide":
                return found.head + found.tail
        return found.head.rstrip() + self._usual_mark(mode, found.mark) + found.tail.lstrip()

    def _usual_mark(self, mode: Mode, mark: str) -> str:
        usual = _USUAL[mode, mark]
        return usual.replace("<td>", self._cell) if mode is Mode.HTML else usual

    def unfinished(self, run: str) -> str:
        """What is missing of mark-up that every table has, going by the end of `run`."""
        forms = [
            *reversed(self._tags.keys()),
            f"<table><tr>{self._cell}",
            *(self._usual_mark(Mode.HTML, mark) for mark in (Break.CELL, Break.ROW)),
            "</td></tr></table>",
            "</table>",
            *_ATTRIBUTES,
        ]
        at = run.rfind("<", 0, run.rfind("<")) if run.count("<") > 1 else -1
        for start in (at, run.rfind("<")):
            for form in forms:
                if start >= 0 and form.startswith(run[start:]) and len(form) > len(run) - start:
                    return form[len(run) - start :]
        return ""


def classes(pair: str) -> str:
    """Each character as what it is: a digit, a letter, something else."""
    return "".join("0" if c.isdigit() else "a" if c.isalpha() else "." for c in pair)


def _mark_of(run: str) -> Break:
    return Break.ROW if "</tr" in run or "\n" in run else Break.CELL


def _look(mode: Mode, found: Border) -> tuple[str, ...]:
    kind = found.kind if mode is Mode.TEXT else ""
    return (mode, found.mark, found.head.strip(), found.tail.strip(), kind)
