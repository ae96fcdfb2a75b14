"""A dear proposer beside a cheap one: asked where that promises little, and as long as it is good for something."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pipeline.proposers.base import NOTHING, Draft
from pipeline.proposers.chained import ChainedProposer
from pipeline.target import Decision

DECISION = Decision((1,))


class Scripted:
    """Always the same draft; counts how often it was asked, and keeps what it was told of drafts."""

    def __init__(self, name: str, draft: Draft) -> None:
        self.name = name
        self.draft = draft
        self.asked = 0
        self.told: list[tuple[Draft, int]] = []

    def begin(self, prompt: Sequence[int], first: Decision) -> None:
        pass

    def propose(self, limit: int) -> Draft:
        self.asked += 1
        return self.draft

    def observe(self, ids: Sequence[int], draft: Draft, accepted: int, decision: Decision) -> None:
        self.told.append((draft, accepted))


def draft(name: str, *survival: float, rivals: tuple[Draft, ...] = ()) -> Draft:
    return Draft(tuple(range(len(survival))), name, "why", survival, rivals)


def chained(cheap: Draft) -> tuple[ChainedProposer, Scripted, Scripted]:
    first, second = Scripted("reference", cheap), Scripted("eagle3", draft("eagle3", 0.9, 0.8))
    return ChainedProposer(first, second), first, second


def test_a_promising_draft_stands_alone() -> None:
    good = draft("reference", 0.9, 0.8, 0.7)
    proposer, _, dear = chained(good)
    assert (proposer.propose(9), dear.asked) == (good, 0)


def test_a_promising_rival_will_do() -> None:
    both = draft("reference", 0.1, rivals=(draft("lookup", 0.9, 0.8),))
    proposer, _, dear = chained(both)
    assert (proposer.propose(9), dear.asked) == (both, 0)


@pytest.mark.parametrize("rivals", [(), (draft("lookup", 0.1),)])
def test_where_little_is_promised_all_guesses_are_rivals(rivals: tuple[Draft, ...]) -> None:
    poor = draft("reference", 0.2, rivals=rivals)
    proposer, _, dear = chained(poor)
    found = proposer.propose(9)
    assert (found.source, dear.asked) == ("eagle3", 1)
    assert found.rivals == (draft("reference", 0.2), *rivals)


def test_nothing_cheap_is_no_rival() -> None:
    proposer, _, _ = chained(NOTHING)
    assert proposer.propose(9).rivals == ()


def test_each_learns_of_its_own_drafts_and_both_of_all_that_is_written() -> None:
    proposer, cheap, dear = chained(draft("reference", 0.2))
    for guess in (cheap.draft, dear.draft):
        proposer.observe([1, 2], guess, 1, DECISION)
    assert cheap.told == [(cheap.draft, 1), (NOTHING, 0)]
    assert len(dear.told) == 2


def test_one_that_never_hits_is_left_in_peace_until_nothing_else_is_left() -> None:
    proposer, cheap, dear = chained(draft("reference", 0.2))
    for _ in range(30):
        proposer.observe([1], proposer.propose(9), 0, DECISION)
    asked = dear.asked
    assert 0 < asked < 20
    proposer.propose(9)
    assert dear.asked == asked
    cheap.draft = NOTHING
    proposer.propose(9)
    assert dear.asked == asked + 1


def test_at_the_end_of_the_budget_nobody_is_asked_twice() -> None:
    proposer, _, dear = chained(NOTHING)
    assert (proposer.propose(0), dear.asked) == (NOTHING, 0)
