"""Two proposers: a dear one is asked only where the cheap one promises less than the dear one has been good for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pipeline.proposers.base import NOTHING, Draft, Proposer
from pipeline.target import Decision

_BEGIN = 2.0  # ids that the dear one's drafts are taken to be good for before any was tried
_FADE = 0.9
# A network run id by id costs a good part of what its ids save: it has to promise this much more.
_DEARER = 2.0


class ChainedProposer:
    """The guesses of `cheap`, and where these promise little that of `dear` as their rival."""

    def __init__(self, cheap: Proposer, dear: Proposer) -> None:
        self.name = cheap.name
        self._cheap = cheap
        self._dear = dear
        self._good_for = _BEGIN

    def begin(self, prompt: Sequence[int], first: Decision) -> None:
        """Both begin."""
        self._cheap.begin(prompt, first)
        self._dear.begin(prompt, first)

    def propose(self, limit: int) -> Draft:
        """The best guess, the others as its rivals."""
        cheap = self._cheap.propose(limit)
        promised = max(sum(guess.survival) for guess in (cheap, *cheap.rivals))
        if limit <= 0 or promised * _DEARER >= self._good_for:
            return cheap
        dear = self._dear.propose(limit)
        if not dear.ids:
            return cheap
        rivals = (cheap, *cheap.rivals) if cheap.ids else ()
        return replace(dear, rivals=tuple(replace(guess, rivals=()) for guess in rivals))

    def observe(self, ids: Sequence[int], draft: Draft, accepted: int, decision: Decision) -> None:
        """Both see what was written; each counts its own drafts."""
        is_dear = draft.source == self._dear.name
        if is_dear:
            self._good_for = _FADE * self._good_for + (1 - _FADE) * accepted
        self._cheap.observe(ids, NOTHING if is_dear else draft, 0 if is_dear else accepted, decision)
        self._dear.observe(ids, draft, accepted, decision)
