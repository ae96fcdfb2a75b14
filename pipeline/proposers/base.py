"""What a proposer is: something that guesses the next tokens. A wrong guess costs time, never correctness."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pipeline.target import Decision


@dataclass(frozen=True, slots=True)
class Draft:
    """Guessed ids, and who guessed them (the provenance of those the model accepts)."""

    ids: tuple[int, ...] = ()
    source: str = "none"
    basis: str = ""  # what the proposer rests it on, in words of its own
    survival: tuple[
        float, ...
    ] = ()  # per id, the chance that it and all before it are accepted; empty = unknown
    rivals: tuple[Draft, ...] = ()  # other guesses: the schedule takes the one that promises most


NOTHING = Draft()


class Proposer(Protocol):
    """Guesses what follows. One instance per page; `begin` once, then `propose` and `observe` by turns."""

    name: str

    def begin(self, prompt: Sequence[int], first: Decision) -> None:
        """A page starts: its prompt ids, and the decision the prefill gave."""
        ...

    def propose(self, limit: int) -> Draft:
        """At most `limit` ids that may follow everything observed so far; `limit` >= 0."""
        ...

    def observe(self, ids: Sequence[int], draft: Draft, accepted: int, decision: Decision) -> None:
        """`ids` were written: `accepted` of `draft`, then the model's own. Called for every id written, once."""
        ...


class NoProposer:
    """Drafts nothing: the model one token at a time, the baseline every other proposer must equal."""

    name = "none"

    def begin(self, prompt: Sequence[int], first: Decision) -> None:
        """Nothing to remember."""

    def propose(self, limit: int) -> Draft:
        """Nothing."""
        return NOTHING

    def observe(self, ids: Sequence[int], draft: Draft, accepted: int, decision: Decision) -> None:
        """Nothing to learn."""
