"""What we rely on in mlx-vlm, checked for every architecture on tiny random checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from unittest import mock

import mlx.core as mx
import pytest

from pipeline.adapter import inputs
from pipeline.adapter.session import MlxSession
from pipeline.decode import DecodeOptions, Outcome, decode
from pipeline.proposers.base import Draft, NoProposer, Proposer
from pipeline.proposers.lookup import LookupProposer
from pipeline.rules import NoRepeatNGram
from pipeline.schedule import FixedSchedule
from pipeline.target import Decision
from storage.errors import EngineError
from tests.pipeline.adapter.conftest import PROMPT, Page, processor_options

TOKENS = 60  # past Unlimited-OCR's ring of 32


class Adversary:
    """Drafts the truth with a wrong id every few tokens, so that nearly every block is rejected somewhere."""

    name = "adversary"

    def __init__(self, truth: Sequence[int], every: int) -> None:
        self.truth, self.every, self.written = list(truth), every, 0

    def begin(self, prompt: Sequence[int], first: Decision) -> None:
        self.written = 0

    def propose(self, limit: int) -> Draft:
        ids = self.truth[self.written : self.written + limit]
        return Draft(tuple(t if (i + 1) % self.every else t + 1 for i, t in enumerate(ids)), self.name)

    def observe(self, ids: Sequence[int], draft: Draft, accepted: int, decision: Decision) -> None:
        self.written += len(ids)


def run(page: Page, proposer: Proposer, length: int = 0, tokens: int = TOKENS, **options: object) -> Outcome:
    session = MlxSession(page.loaded, page.inputs, page.embeddings())
    loop = decode(session, proposer, DecodeOptions(tokens, **options), FixedSchedule(length))  # type: ignore[arg-type]
    while True:
        try:
            next(loop)
        except StopIteration as end:
            assert session.length == page.inputs.length + len(end.value.ids) - 1
            return end.value


@pytest.fixture(scope="session")
def greedy(page: Page) -> Outcome:
    return run(page, NoProposer())


def test_ids_are_those_of_mlx_vlm_itself(page: Page, greedy: Outcome) -> None:
    from mlx_vlm import stream_generate
    from mlx_vlm.prompt_utils import apply_chat_template

    loaded = page.loaded
    prompt = apply_chat_template(loaded.processor, loaded.model.config, PROMPT, num_images=1)
    stream = stream_generate(
        loaded.model, loaded.processor, prompt, image=[page.image], max_tokens=TOKENS, temperature=0.0,
        **processor_options(loaded),
    )  # fmt: skip
    ids = [chunk.token for chunk in stream if chunk.token is not None]
    assert greedy.ids[: len(ids)] == ids[: len(greedy.ids)]
    assert len(ids) >= TOKENS - 1


def test_stored_features_are_fresh_ones(page: Page, greedy: Outcome) -> None:
    from pipeline.vision import to_array, to_bytes

    restored = to_array(to_bytes(page.features))
    assert mx.array_equal(restored, page.features)
    direct = page.loaded.model.get_input_embeddings(
        page.inputs.ids, page.inputs.pixels, mask=page.inputs.mask, **page.inputs.extra
    ).inputs_embeds
    assert mx.array_equal(inputs.embed(page.loaded, page.inputs, restored), direct)


def test_splicing_never_runs_the_tower(page: Page) -> None:
    model = page.loaded.model
    towers = [m for m in ("vision_tower", "visual", "vision_model", "sam_model") if hasattr(model, m)]
    assert towers
    with mock.patch.object(type(getattr(model, towers[0])), "__call__", side_effect=AssertionError("ran")):
        page.embeddings()
        with pytest.raises(AssertionError, match="ran"):
            inputs.encode(page.loaded, page.inputs)


def test_features_that_do_not_fit_are_an_error_with_both_numbers(page: Page) -> None:
    count = len(page.inputs.positions)
    with pytest.raises(EngineError, match=rf"{count - 1} vision features for {count} image placeholders"):
        inputs.embed(page.loaded, page.inputs, page.features[:-1])


@pytest.mark.parametrize("step", [7, 64])
def test_chunked_prefill_equals_whole(page: Page, step: int) -> None:
    whole = MlxSession(page.loaded, page.inputs, page.embeddings())
    chunked = MlxSession(page.loaded, page.inputs, page.embeddings(), prefill_step=step)
    assert whole.start() == chunked.start()
    assert whole.length == chunked.length == page.inputs.length
    token = [5]
    for _ in range(8):
        first, second = whole.forward(token), chunked.forward(token)
        whole.trim(0)
        chunked.trim(0)
        assert first.ids == second.ids
        token = [first.ids[0]]


def test_pages_read_by_turns_equal_pages_read_alone(page: Page, other_page: Page, greedy: Outcome) -> None:
    other = run(other_page, NoProposer())
    loops = [
        decode(
            MlxSession(p.loaded, p.inputs, p.embeddings()),
            NoProposer(),
            DecodeOptions(TOKENS),
            FixedSchedule(0),
        )
        for p in (page, other_page)
    ]
    written: list[list[int]] = [[], []]
    for _ in range(TOKENS):
        for at, loop in enumerate(loops):
            written[at] += next(loop, None).ids  # type: ignore[union-attr]
    assert written == [greedy.ids, other.ids]


@pytest.mark.parametrize(
    "length", [2, 15, *(pytest.param(length, marks=pytest.mark.slow) for length in (1, 3, 7))]
)
def test_blocks_equal_one_by_one_whatever_is_drafted(page: Page, greedy: Outcome, length: int) -> None:
    for proposer in (Adversary(greedy.ids, 1000), Adversary(greedy.ids, 3), LookupProposer()):
        outcome = run(page, proposer, length)
        assert outcome.ids == greedy.ids
    assert run(page, Adversary(greedy.ids, 1000), length).passes < greedy.passes


def test_rules_apply_per_position(page: Page) -> None:
    rules = (NoRepeatNGram(1, 12),)
    plain = run(page, NoProposer(), rules=rules)
    assert all(plain.ids[i] not in plain.ids[max(0, i - 12) : i] for i in range(1, TOKENS))
    assert run(page, Adversary(plain.ids, 4), 9, rules=rules).ids == plain.ids


def test_margins_come_back_where_asked_for(page: Page, greedy: Outcome) -> None:
    outcome = run(page, Adversary(greedy.ids, 3), 7, tau=1e-6)
    assert outcome.ids == greedy.ids
    huge = run(page, Adversary(greedy.ids, 1000), 7, tokens=12, tau=1e6)
    assert huge.redecided > 0  # every row is a near tie now: all are decided singly
    assert huge.ids == greedy.ids[:12]
