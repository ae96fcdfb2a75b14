"""Ends a model's text that goes round in circles or runs away, and says how much of it is good.

Asked about every accepted id, once and in order, so that nothing depends on how long the accepted blocks were. Exact
periods of up to 1,024 ids (loops of 405 have been seen), rows and layout cells by what they say, many small loops that
together make half the text, and more ids than a picture of this size can hold.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pipeline.periods import PeriodTracker
from pipeline.proposers.base import Draft
from pipeline.repeats import COPIES, Unit, allowed, judge, skeleton
from pipeline.row_repeats import RowRepeats
from pipeline.schedule import Schedule
from pipeline.text_stream import TextStream, text_of
from storage.records import StopReason

LONGEST = 1024  # ids of a unit
_READ_EVERY = 16  # ids after which the rows are looked at: always the same ids, whatever the blocks
# Many runs, each too short to be a loop: pages of them were over half repetition, every unit 6 times and more.
_PARTS_COPIES, _PARTS_RUNS, _PARTS_IDS, _PARTS_SHARE = 6, 3, 512, 0.5
_LEAST_CONFIRMED = 3  # letters and digits of a unit that can be looked for there


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why the text was ended, and how many of its ids are good."""

    reason: StopReason
    keep: int  # ids: up to and with the first copy of what repeats
    note: str  # for people; holds no text of the page


@dataclass(slots=True)
class _Run:
    """A unit that has been going on for `length` ids since its first copy."""

    unit: Unit
    due: int
    confirmed: int  # copies an independent reading has
    length: int = 0


class Guard:
    """Watches one text. Call it with each id; `verdict` is there once it has answered with a reason."""

    def __init__(
        self, tokenizer: Any, *, budget: int | None = None, independent: Callable[[], str] | None = None
    ) -> None:
        """`tokenizer`: for its `decode`. `budget`: ids the picture can hold at most; None = any number.

        `independent`: another reading of the same picture; what repeats there may repeat here. Asked for once
        something repeats, and waited for: when a text ends must not depend on how soon that reading is there.
        """
        self._tokenizer = tokenizer
        self._budget = budget
        self._independent = independent
        self._periods = PeriodTracker(LONGEST, COPIES)
        self._runs: dict[int, _Run] = {}  # by period
        self._parts: list[tuple[int, int]] = []  # ended runs as (first id, end), apart and in order
        self._rows = RowRepeats(self._confirmed)
        self._stream = TextStream(tokenizer)
        self._characters = [0]  # of the text after each `_READ_EVERY` ids
        self.ids: list[int] = []
        self.verdict: Verdict | None = None

    def __call__(self, token: int) -> StopReason | None:
        """Take the next id; the reason to end the text after it, or None."""
        self.ids.append(token)
        due = self._periods.push(token)
        self.verdict = self._ended() or self._due(due) or self._row_loop() or self._runaway()
        return self.verdict.reason if self.verdict is not None else None

    @property
    def keep(self) -> int:
        """How many ids are good; all of them while nothing is wrong."""
        return self.verdict.keep if self.verdict is not None else len(self.ids)

    def left(self) -> int | None:
        """How many more ids end the text if what repeats goes on; None while nothing does."""
        least = min((run.due - run.length for run in self._runs.values()), default=None)
        return None if least is None else max(1, least)

    def _due(self, periods: Sequence[int]) -> Verdict | None:
        for period in periods:
            if not self._periods.is_primitive(period):
                self._periods.set_due(period, None)
                continue
            run = self._runs.get(period) or self._judged(period)
            run.length = self._periods.run(period)
            if run.length >= run.due:
                return self._loop(period, run)
            self._periods.set_due(period, run.due)
            self._runs[period] = run
        return None

    def _judged(self, period: int) -> _Run:
        # Three copies: wherever the first begins, one of them is whole.
        unit = judge(text_of(self._tokenizer, self.ids[-3 * period :]), 3)
        confirmed = self._confirmed(text_of(self._tokenizer, self.ids[-period:]))
        copies = max(unit.copies, allowed(confirmed))
        return _Run(unit, (copies - 1) * period, confirmed)

    def _confirmed(self, text: str) -> int:
        """How often the independent reading has `text`."""
        said = skeleton(text)
        return self._other_reading.count(said) if len(said) >= _LEAST_CONFIRMED else 0

    @cached_property
    def _other_reading(self) -> str:
        return skeleton(self._independent()) if self._independent is not None else ""

    def _loop(self, period: int, run: _Run) -> Verdict:
        start = len(self.ids) - run.length - period
        keep = min(len(self.ids), start + period * max(1, run.confirmed))
        times = run.length // period + 1
        return Verdict(
            StopReason.REPETITION, keep, f"the model wrote the same {period} tokens {times} times over"
        )

    def _ended(self) -> Verdict | None:
        """Keep account of the runs that go on; look at those that ended."""
        found = None
        for period, run in list(self._runs.items()):
            now = self._periods.run(period)
            if now:
                run.length = now
                continue
            del self._runs[period]
            if run.unit.counts and run.length >= (_PARTS_COPIES - 1) * period and not run.confirmed > 1:
                end = len(self.ids) - 1
                found = self._part(end - run.length - period, end, period) or found
        return found

    def _part(self, start: int, end: int, period: int) -> Verdict | None:
        while self._parts and self._parts[-1][1] >= start:
            start = min(start, self._parts.pop()[0])
        self._parts.append((start, end))
        covered = sum(last - first for first, last in self._parts)
        if len(self._parts) < _PARTS_RUNS or covered < max(_PARTS_IDS, _PARTS_SHARE * len(self.ids)):
            return None
        keep = min(self._parts[0][0] + period, self._parts[0][1])
        note = f"{len(self._parts)} loops make {covered} of {len(self.ids)} tokens"
        return Verdict(StopReason.REPETITION, keep, note)

    def _row_loop(self) -> Verdict | None:
        if len(self.ids) % _READ_EVERY:
            return None
        piece = self._stream.push(self.ids[-_READ_EVERY:])
        self._characters.append(self._characters[-1] + len(piece))
        loop = self._rows.push(piece)
        if loop is None:
            return None
        note = f"the model wrote the same {loop.rows} rows {loop.copies} times over"
        return Verdict(StopReason.REPETITION, self._ids_before(loop.first_end), note)

    def _ids_before(self, character: int) -> int:
        """The number of ids that make the first `character` characters of the text."""
        chunk = max(0, bisect_left(self._characters, character) - 1)
        start = chunk * _READ_EVERY
        for count in range(1, _READ_EVERY):
            text = text_of(self._tokenizer, self.ids[start : start + count])
            if self._characters[chunk] + len(text) >= character:
                return start + count
        return start + _READ_EVERY

    def _runaway(self) -> Verdict | None:
        if self._budget is None or len(self.ids) < self._budget:
            return None
        note = f"{len(self.ids)} tokens are more than a picture of this size can hold"
        return Verdict(StopReason.LENGTH, len(self.ids), note)


class GuardedSchedule:
    """Another schedule's drafts, but none that goes on with a loop past where the guard ends it."""

    def __init__(self, inner: Schedule, guard: Guard) -> None:
        self._inner = inner
        self._guard = guard

    def limit(self) -> int:
        """The inner limit, or the ids left to the loop."""
        left = self._guard.left()
        return self._inner.limit() if left is None else min(self._inner.limit(), left)

    def choose(self, draft: Draft) -> Draft:
        """As the inner schedule."""
        return self._inner.choose(draft)

    def observe(self, drafted: int, accepted: int) -> None:
        """As the inner schedule."""
        self._inner.observe(drafted, accepted)
