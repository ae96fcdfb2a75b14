"""Rows and cells that say the same again and again, whatever tags, boxes and padding stand around the words."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from pipeline.periods import PeriodTracker
from pipeline.repeats import COPIES, PAGE_LINES, ROW_COPIES, allowed, judge

LONGEST = 64  # rows of a unit
_END = re.compile(r'</tr\s*>|\\n(?![a-z])|\n|"\s*\}', re.IGNORECASE)
_END_LENGTH = 8  # characters an end may be cut at
# Where it stands and what it is, in layout answers; what is left is what it says.
_PLACE = re.compile(
    r'"bbox"\s*:\s*\[[^\]]*\]\s*,?|"category"\s*:\s*"[^"]*"\s*,?|"text"\s*:'
    r"|<\|det\|>.*?<\|/det\|>|\[\[[\d,\s]*\]\]",
    re.DOTALL,
)
_FRAME = '[]{}," \t\n'
_TAG = re.compile(r"</?[A-Za-z][^<>]*>|<\|[^<>]*\|>|\|")
_ROW = re.compile(r'<t[drh]\b|</t[drh]>|^\s*\||"\s*\}\s*\Z', re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class RowLoop:
    """A unit of `rows` rows, `copies` times; its first copy ends with character `first_end` of the text."""

    rows: int
    copies: int
    first_end: int


class RowRepeats:
    """Takes the text in pieces; keeps the last rows only."""

    def __init__(self, confirmed: Callable[[str], int] = lambda _: 0) -> None:
        """`confirmed`: how often another reading has a text."""
        self._confirmed = confirmed
        self._periods = PeriodTracker(LONGEST, COPIES)
        self._numbers: dict[str, int] = {}  # what a row says → a number for it
        self._rows: deque[str] = deque(maxlen=LONGEST)
        self._ends: list[int] = []  # of each row, in characters of the text
        self._pending = ""
        self._given = 0  # characters before `_pending`

    def push(self, piece: str) -> RowLoop | None:
        """The loop that `piece` makes certain, if any."""
        start = max(0, len(self._pending) - _END_LENGTH)
        self._pending += piece
        while (end := _END.search(self._pending, start)) is not None:
            row, self._pending, start = self._pending[: end.end()], self._pending[end.end() :], 0
            self._given += len(row)
            found = self._row(row)
            if found is not None:
                return found
        return None

    def _row(self, row: str) -> RowLoop | None:
        said = " ".join(_TAG.sub(" \x1f ", _PLACE.sub(" ", row)).replace("\\n", " ").split()).strip(_FRAME)
        if not any(map(str.isalnum, said)):
            if not _ROW.search(row):
                return None  # an empty line, a rule
            said = ""
        self._ends.append(self._given)
        self._rows.append(_PLACE.sub(" ", row))
        for period in self._periods.push(self._numbers.setdefault(said, len(self._numbers))):
            found = self._judged(period)
            if found is not None:
                return found
        return None

    def _judged(self, period: int) -> RowLoop | None:
        if not self._periods.is_primitive(period):
            self._periods.set_due(period, None)
            return None
        text = "".join(list(self._rows)[-period:])
        # Only the words are equal here, so a page may well hold some: never as few as a text that repeats itself.
        copies = max(judge(text).copies, -(-ROW_COPIES // period), allowed(self._confirmed(text)))
        if not any(map(str.isalnum, text)):  # empty rows, pictures: a page may be full of them
            copies = max(copies, -(-PAGE_LINES // period))
        run = self._periods.run(period)
        if run < (copies - 1) * period:
            self._periods.set_due(period, (copies - 1) * period)
            return None
        first = len(self._ends) - run - period
        return RowLoop(period, run // period + 1, self._ends[first + period - 1])
