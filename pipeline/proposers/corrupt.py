"""A proposer that breaks the contract on purpose: its ids pass for whatever the model chooses. For tests only.

`OCRD_FAKE_DRAFT=corrupt` puts it in the place of the one configured, to show that the start-up check finds it. Real
drafters have come to this by bugs: https://github.com/jundot/omlx/issues/1779.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.proposers.base import NOTHING, Draft
from pipeline.target import Decision

VARIABLE = "OCRD_FAKE_DRAFT"
CORRUPT = "corrupt"


class _Agreeing(int):
    """An id that equals every other."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = int.__hash__


class CorruptProposer:
    """Drafts the last id again, and has it accepted whatever the model says."""

    name = CORRUPT

    def __init__(self) -> None:
        self._last = 0

    def begin(self, prompt: Sequence[int], first: Decision) -> None:
        """Nothing to remember."""

    def propose(self, limit: int) -> Draft:
        """Two ids that claim to be right."""
        count = min(2, limit)
        ids = tuple(_Agreeing(self._last) for _ in range(count))
        return Draft(ids, self.name, survival=(1.0,) * count) if count else NOTHING

    def observe(self, ids: Sequence[int], draft: Draft, accepted: int, decision: Decision) -> None:
        """Keep the last id."""
        self._last = int(ids[-1])
