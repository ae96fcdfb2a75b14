"""Draft from what was written before: the continuation of the latest equal n-gram (prompt lookup decoding).

Source of the idea: A. Saxena, "Prompt Lookup Decoding" (2023). Differs in two points: the table is kept across the
pages of a document, and continuations are followed through an index instead of a scan.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.proposers.base import NOTHING, Draft
from pipeline.target import Decision


class NGramTable:
    """Token history of a document and, per n-gram, where it was followed last."""

    def __init__(self, shortest: int = 1, longest: int = 5) -> None:
        self.shortest = shortest
        self.longest = longest
        self.history: list[int] = []
        self._latest: dict[tuple[int, ...], int] = {}  # n-gram → index of what followed it last
        self._starts = [0]  # of the pages: n-grams do not reach across them

    def start_page(self) -> None:
        """What comes next does not continue what was added before."""
        self._starts.append(len(self.history))

    def add(self, ids: Sequence[int]) -> None:
        """Append `ids` to the page being written."""
        for token in ids:
            here = len(self.history)
            for size in range(self.shortest, self.longest + 1):
                if here - size >= self._starts[-1]:
                    self._latest[tuple(self.history[here - size : here])] = here
            self.history.append(token)

    def drop(self, count: int) -> None:
        """Forget the last `count` ids of the page being written, as if they had never been: a loop is no example."""
        if count <= 0:
            return
        history, starts = self.history, self._starts
        kept = max(starts[-1], len(history) - count)
        self.history, self._starts, self._latest = [], [], {}
        for start, end in zip(starts, [*starts[1:], kept], strict=True):
            self.start_page()
            self.add(history[start:end])

    def continuation(self, limit: int) -> tuple[int, ...]:
        """Up to `limit` ids that followed the longest known n-gram ending the page so far; one id is no n-gram."""
        return self.longest_continuation(limit, max(2, self.shortest))[0]

    def longest_continuation(self, limit: int, shortest: int = 1) -> tuple[tuple[int, ...], int]:
        """`continuation`, and the length of the n-gram it rests on, `shortest` at least."""
        here = len(self.history)
        for size in range(self.longest, max(self.shortest, shortest) - 1, -1):
            if here - size < self._starts[-1]:
                continue
            at = self._latest.get(tuple(self.history[here - size :]))
            if at is not None:
                return self._follow(at, limit), size
        return (), 0

    def _follow(self, at: int, limit: int) -> tuple[int, ...]:
        # Running into the end of what is written means a period: go on with it, as the text itself seems to.
        period = len(self.history) - at
        return tuple(self.history[at + i % period] for i in range(limit))


class LookupProposer:
    """N-grams of the output, and of the document's earlier pages where `table` is handed on."""

    name = "lookup"

    def __init__(self, table: NGramTable | None = None) -> None:
        self.table = table if table is not None else NGramTable()

    def begin(self, prompt: Sequence[int], first: Decision) -> None:
        """A new page; the prompt is instructions and image tokens, nothing an output repeats."""
        self.table.start_page()

    def propose(self, limit: int) -> Draft:
        """The continuation of the longest n-gram known, or nothing."""
        ids = self.table.continuation(limit) if limit > 0 else ()
        return Draft(ids, self.name) if ids else NOTHING

    def observe(self, ids: Sequence[int], draft: Draft, accepted: int, decision: Decision) -> None:
        """Learn what was written."""
        self.table.add(ids)
