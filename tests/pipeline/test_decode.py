"""Whatever is drafted, at whatever length, under whatever rule: the ids are those of one token at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.acceptance import accept
from pipeline.decode import DecodeOptions, Outcome, Step, decode
from pipeline.proposers.base import Draft, NoProposer, Proposer
from pipeline.proposers.lookup import LookupProposer, NGramTable
from pipeline.proposers.reference import ReferenceProposer
from pipeline.reference.draft import DraftLine
from pipeline.reference.source import ReadyDraft
from pipeline.rules import NoRepeatNGram
from pipeline.schedule import AdaptiveSchedule, FixedSchedule
from pipeline.target import Banned, Decision
from storage.records import StopReason
from tests.pipeline.tokens import letters

VOCABULARY = 7
LETTERS = letters("abc1 .\n")  # an id each, for proposers that read text
STOP = 0


class FakeTarget:
    """A model whose choice is a hash of the whole prefix; refuses any misuse of its cache.

    With `noise`, rows of a block see other margins than a single row and near ties flip, as Metal's kernels do.
    """

    def __init__(
        self, seed: int, prompt: Sequence[int] = (1, 2, 3), room: int = 64, noise: bool = False
    ) -> None:
        self.seed, self.prompt, self.noise, self._room = seed, list(prompt), noise, room
        self.cache: list[int] = []
        self.owed = 0  # tokens of a forward not yet trimmed

    @property
    def length(self) -> int:
        return len(self.cache)

    def room(self) -> int:
        return self._room

    def _row(self, prefix: Sequence[int], banned: Sequence[int], single: bool) -> tuple[int, float]:
        raw = hashlib.blake2b(repr((self.seed, prefix)).encode(), digest_size=VOCABULARY).digest()
        scores = [byte / 255 for byte in raw]
        if self.noise and not single:
            scores = [s + 0.02 * ((byte % 3) - 1) for s, byte in zip(scores, raw, strict=True)]
        for token in banned:
            scores[token] = -1.0
        order = sorted(range(VOCABULARY), key=lambda i: (-scores[i], i))
        return order[0], scores[order[0]] - scores[order[1]]

    def start(self, *, banned: Sequence[int] = (), margins: bool = False) -> Decision:
        assert not self.cache
        self.cache = list(self.prompt)
        token, margin = self._row(self.cache, banned, True)
        return Decision((token,), (margin,) if margins else None)

    def forward(self, tokens: Sequence[int], *, banned: Banned = (), margins: bool = False) -> Decision:
        assert not self.owed and 1 <= len(tokens) <= self.room()
        rows = []
        for i, token in enumerate(tokens):
            self.cache.append(token)
            rows.append(self._row(self.cache, banned[i] if banned else (), len(tokens) == 1))
        self.owed = len(tokens)
        return Decision(tuple(r[0] for r in rows), tuple(r[1] for r in rows) if margins else None)

    def trim(self, count: int) -> None:
        assert self.owed and 0 <= count <= self.owed
        del self.cache[len(self.cache) - count :]
        self.owed = 0


class ScriptedProposer:
    """Drafts the true continuation, damaged where the script says so, or pure noise."""

    name = "scripted"

    def __init__(self, truth: Sequence[int], script: Sequence[tuple[int, bool]]) -> None:
        self.truth, self.script = list(truth), list(script)
        self.seen: list[int] = []
        self.turn = 0

    def begin(self, prompt: Sequence[int], first: Decision) -> None:
        self.seen = []

    def propose(self, limit: int) -> Draft:
        length, honest = self.script[self.turn % len(self.script)]
        self.turn += 1
        ids = self.truth[len(self.seen) : len(self.seen) + length]
        if not honest:
            ids = [(t + 1 + i) % VOCABULARY for i, t in enumerate(ids)] or [3] * length
        return Draft(tuple(ids[: limit + 3]), self.name)  # more than asked for: the loop must cut it

    def observe(self, ids: Sequence[int], draft: Draft, accepted: int, decision: Decision) -> None:
        self.seen += ids


def run(
    target: FakeTarget, proposer: Proposer, options: DecodeOptions, length: int | None = None
) -> tuple[Outcome, list[Step]]:
    loop = decode(
        target, proposer, options, FixedSchedule(length) if length is not None else AdaptiveSchedule()
    )
    steps: list[Step] = []
    while True:
        try:
            steps.append(next(loop))
        except StopIteration as end:
            return end.value, steps


RULES = st.sampled_from(
    [(), (NoRepeatNGram(2, 8),), (NoRepeatNGram(1, 3, frozenset({STOP})), NoRepeatNGram(3, 20))]
)
SCRIPT = st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=1, max_size=6)


@settings(max_examples=300)
@given(
    seed=st.integers(0, 10**6), script=SCRIPT, length=st.integers(0, 12), room=st.integers(1, 9),
    max_tokens=st.integers(0, 40), rules=RULES, stop=st.booleans(), watched=st.one_of(st.none(), st.integers(1, 6)),
)  # fmt: skip
def test_any_draft_gives_the_ids_of_one_token_at_a_time(
    seed: int, script: list[tuple[int, bool]], length: int, room: int, max_tokens: int,
    rules: tuple[NoRepeatNGram, ...], stop: bool, watched: int | None,
) -> None:  # fmt: skip
    def options() -> DecodeOptions:
        counts = {"seen": 0}

        def watch(token: int) -> StopReason | None:
            counts["seen"] += token == watched
            return StopReason.REPETITION if counts["seen"] >= 3 else None

        return DecodeOptions(
            max_tokens,
            frozenset({STOP}) if stop else frozenset(),
            rules,
            watch if watched is not None else None,
        )

    plain_target = FakeTarget(seed)
    plain, _ = run(plain_target, NoProposer(), options(), 0)
    drafts = [
        [DraftLine(text)] for text in (LETTERS.decode(plain.ids), LETTERS.decode([length % 7, seed % 7] * 4))
    ]
    proposers: list[Proposer] = [
        ScriptedProposer(plain.ids, script),
        LookupProposer(NGramTable(1, 4)),
        *(ReferenceProposer(LETTERS, ReadyDraft(draft), stop=STOP) for draft in drafts),
    ]
    for proposer in proposers:
        target = FakeTarget(seed, room=room)
        outcome, steps = run(target, proposer, options(), length)
        assert outcome.ids == plain.ids
        assert outcome.stop_reason is plain.stop_reason
        assert [i for step in steps for i in step.ids] == plain.ids
        assert len(outcome.ids) <= max_tokens
        assert sum(step.accepted for step in steps) == outcome.accepted <= outcome.drafted
        assert outcome.passes <= plain.passes
        if outcome.ids:  # all but the last id written have been through the model, and nothing else has
            written = [*target.prompt, *plain.ids]
            assert target.cache[: len(written) - 1] == written[:-1]


@settings(max_examples=200)
@given(seed=st.integers(0, 10**6), script=SCRIPT, length=st.integers(1, 12))
def test_near_ties_are_decided_by_a_single_row(
    seed: int, script: list[tuple[int, bool]], length: int
) -> None:
    options = DecodeOptions(30, tau=0.1)
    plain, _ = run(FakeTarget(seed, noise=True), NoProposer(), DecodeOptions(30), 0)
    outcome, _ = run(FakeTarget(seed, noise=True), ScriptedProposer(plain.ids, script), options, length)
    assert outcome.ids == plain.ids


def test_near_ties_do_flip_without_the_single_row() -> None:
    """The noise of the fake is real: without tau some seed reads differently (else the test above proves nothing)."""

    def differs(seed: int) -> bool:
        plain, _ = run(FakeTarget(seed, noise=True), NoProposer(), DecodeOptions(30), 0)
        fast, _ = run(
            FakeTarget(seed, noise=True), ScriptedProposer(plain.ids, [(8, True)]), DecodeOptions(30), 8
        )
        return fast.ids != plain.ids

    assert any(differs(seed) for seed in range(40))


def test_no_redecision_without_near_ties() -> None:
    plain, _ = run(FakeTarget(5), NoProposer(), DecodeOptions(30), 0)
    outcome, _ = run(FakeTarget(5), ScriptedProposer(plain.ids, [(8, True)]), DecodeOptions(30, tau=1e-9), 8)
    assert outcome.redecided == 0
    assert outcome.passes < plain.passes


def test_a_perfect_draft_costs_a_pass_a_block() -> None:
    plain, _ = run(FakeTarget(1), NoProposer(), DecodeOptions(41), 0)
    outcome, _ = run(FakeTarget(1), ScriptedProposer(plain.ids, [(7, True)]), DecodeOptions(41), 7)
    assert (plain.passes, outcome.passes) == (40, 5)
    assert outcome.stats.accepted == 35


def test_cancelling_between_passes_leaves_the_cache_whole() -> None:
    target = FakeTarget(3)
    plain, _ = run(FakeTarget(3), NoProposer(), DecodeOptions(30), 0)
    loop = decode(target, ScriptedProposer(plain.ids, [(4, True)]), DecodeOptions(30), FixedSchedule(4))
    written = [i for _ in range(3) for i in next(loop).ids]
    loop.close()
    assert target.cache == [*target.prompt, *written[:-1]]
    assert target.owed == 0


def test_a_stop_id_inside_a_block_ends_it_there() -> None:
    for seed in range(200):
        plain, _ = run(FakeTarget(seed), NoProposer(), DecodeOptions(40, frozenset({STOP})), 0)
        if 3 < len(plain.ids) < 12:
            break
    proposer = ScriptedProposer([*plain.ids, STOP, 4, 4, 4], [(30, True)])
    outcome, _ = run(FakeTarget(seed), proposer, DecodeOptions(40, frozenset({STOP})), 30)
    assert outcome.ids == plain.ids
    assert outcome.stop_reason is StopReason.COMPLETE


@pytest.mark.parametrize(
    ("draft", "choices", "count"),
    [((), (4,), 0), ((4,), (4, 5), 1), ((4, 9), (4, 5, 6), 1), ((9, 5), (4, 5, 6), 0)],
)
def test_accepts_the_agreed_prefix(draft: tuple[int, ...], choices: tuple[int, ...], count: int) -> None:
    assert accept(draft, choices).count == count


def test_choices_must_match_the_block() -> None:
    with pytest.raises(ValueError, match="expected one more"):
        accept((1, 2), (1, 2))


@given(st.lists(st.integers(0, 3), max_size=60), st.integers(1, 4), st.integers(4, 20))
def test_banned_ids_are_those_that_repeat_an_n_gram(ids: list[int], size: int, window: int) -> None:
    rule = NoRepeatNGram(size, window)
    recent = ids[-window:]
    grams = {tuple(recent[i : i + size]) for i in range(len(recent) - size + 1)}
    expected = {
        t for t in range(4) if (*recent[len(recent) - size + 1 :], t)[-size:] in grams and len(ids) >= size
    }
    assert rule.banned(ids) == expected


def test_lookup_remembers_earlier_pages_but_not_across_their_border() -> None:
    table = NGramTable(2, 3)
    proposer = LookupProposer(table)
    nothing = Decision((0,))
    proposer.begin((), nothing)
    proposer.observe([5, 6, 7, 8], Draft(), 0, nothing)
    proposer.begin((), nothing)
    assert proposer.propose(4).ids == ()
    proposer.observe([5, 6], Draft(), 0, nothing)
    assert proposer.propose(2).ids == (7, 8)


def test_lookup_goes_on_with_a_period() -> None:
    proposer = LookupProposer(NGramTable(2, 3))
    proposer.begin((), Decision((0,)))
    proposer.observe([1, 2, 1, 2, 1, 2], Draft(), 0, Decision((0,)))
    assert proposer.propose(5).ids == (1, 2, 1, 2, 1)


def test_blocks_known_to_equal_single_rows_are_never_decided_again() -> None:
    class Spy(FakeTarget):
        def forward(self, tokens: Sequence[int], *, banned: Banned = (), margins: bool = False) -> Decision:
            asked.add(margins)
            assert margins == (len(tokens) > 4)
            return super().forward(tokens, banned=banned, margins=margins)

    asked: set[bool] = set()
    loop = decode(Spy(3), LookupProposer(), DecodeOptions(60, tau=1.0, equal_upto=4), FixedSchedule(6))
    assert sum(len(step.ids) for step in loop) == 60
    assert asked == {True, False}
