"""For how long has a stream of ids been repeating itself, at every period at once? Exact, an id at a time.

The work per id does not depend on how much was written: a few vector operations over the periods (8 µs for 1,024).
"""

from __future__ import annotations

import numpy as np

_NEVER = np.iinfo(np.int32).max


class PeriodTracker:
    """Per period p, the run: how many ids in a row, up to the last, equalled the one p places before them.

    A run of (n - 1) p is n copies of a unit of p ids. `push` reports a period once its run is due: at first when it
    holds `copies` copies, later when `set_due` says; a run that breaks is due as at first again.
    """

    def __init__(self, longest: int, copies: int) -> None:
        self._longest = longest
        self._run = np.zeros(longest, np.int32)
        self._first = np.arange(1, longest + 1, dtype=np.int32) * (copies - 1)
        self._due = self._first.copy()
        # Latest id first, so that the ids at distance 1, 2, … lie in a row; filled towards the front.
        self._recent = np.full(longest * 9, -1, np.int64)
        self._at = len(self._recent) - longest

    def push(self, token: int) -> list[int]:
        """Take the next id (from 0); the periods that are due, shortest first."""
        equal = self._recent[self._at : self._at + self._longest] == token
        self._run += 1
        self._run *= equal
        np.copyto(self._due, self._first, where=~equal)
        self._remember(token)
        due = self._run >= self._due
        return [int(at) + 1 for at in np.flatnonzero(due)] if due.any() else []

    def _remember(self, token: int) -> None:
        if self._at == 0:
            self._at = len(self._recent) - self._longest
            self._recent[self._at :] = self._recent[: self._longest]
        self._at -= 1
        self._recent[self._at] = token

    def run(self, period: int) -> int:
        """The present run of `period`."""
        return int(self._run[period - 1])

    def set_due(self, period: int, run: int | None) -> None:
        """Report `period` when its run is `run` long; None: not before it breaks."""
        self._due[period - 1] = _NEVER if run is None else run

    def is_primitive(self, period: int) -> bool:
        """Whether the last `period` ids are no repetition of something shorter."""
        return not any(
            period % shorter == 0 and self._run[shorter - 1] >= period - shorter
            for shorter in range(1, period // 2 + 1)
        )
