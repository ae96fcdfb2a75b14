"""Random drafters of every kind: whatever they draft, what is written stays the model's own; their state is right."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from pipeline.adapter import drafters, loading
from pipeline.adapter.drafters import Drafter
from pipeline.adapter.loading import LoadedModel
from pipeline.adapter.session import MlxSession
from pipeline.adapter.taps import layer_count
from pipeline.decode import DecodeOptions, Outcome, decode
from pipeline.proposers.base import Draft, NoProposer, Proposer
from pipeline.proposers.neural import NeuralProposer
from pipeline.schedule import FixedSchedule
from storage.errors import ModelError, SettingsError, UntrustedModelError
from tests.pipeline.adapter import checkpoints, random_drafters
from tests.pipeline.adapter.conftest import Page, make_page

TOKENS = 36  # past Unlimited-OCR's ring of 32


def session_of(page: Page, drafter: Drafter | None = None) -> MlxSession:
    taps = drafter.taps if drafter is not None else ()
    return MlxSession(page.loaded, page.inputs, page.embeddings(), taps=taps)


def run(
    session: MlxSession,
    proposer: Proposer,
    schedule: FixedSchedule,
    *,
    tokens: int = TOKENS,
    tau: float = 0.0,
) -> Outcome:
    loop = decode(session, proposer, DecodeOptions(tokens, tau=tau), schedule)
    while True:
        try:
            next(loop)
        except StopIteration as end:
            outcome: Outcome = end.value
            return outcome


@pytest.fixture(scope="session")
def truth(page: Page) -> list[int]:
    return run(session_of(page), NoProposer(), FixedSchedule(0)).ids


@pytest.fixture(scope="session", params=drafters.KINDS)
def drafter(
    request: pytest.FixtureRequest, loaded: LoadedModel, tmp_path_factory: pytest.TempPathFactory
) -> Drafter:
    folder = tmp_path_factory.mktemp("drafter") / request.param
    return drafters.load(loaded, request.param, random_drafters.make(request.param, loaded, folder))


@pytest.fixture(scope="module")
def glm(tmp_path_factory: pytest.TempPathFactory, small_towers: None) -> LoadedModel:
    return loading.load(checkpoints.make("glm_ocr", tmp_path_factory.mktemp("glm")))


@pytest.fixture(scope="module")
def two_pages(glm: LoadedModel) -> tuple[Page, Page]:
    return make_page(glm, 0), make_page(glm, 1)


@pytest.fixture(scope="module", params=drafters.KINDS)
def glm_drafter(
    request: pytest.FixtureRequest, glm: LoadedModel, tmp_path_factory: pytest.TempPathFactory
) -> Drafter:
    folder = tmp_path_factory.mktemp("drafter") / request.param
    return drafters.load(glm, request.param, random_drafters.make(request.param, glm, folder))


# --- taps ------------------------------------------------------------------------------------------------


def test_hidden_states_are_those_that_the_choice_is_made_of(page: Page, truth: list[int]) -> None:
    count = layer_count(page.loaded.model.language_model)
    head = drafters._target(page.loaded).lm_head
    session = MlxSession(page.loaded, page.inputs, page.embeddings(), taps=(0, count))
    first = session.start()
    assert first.hidden.shape[:2] == (1, page.inputs.length)
    width = first.hidden.shape[2] // 2
    decisions = [first]
    for block in ([truth[0]], truth[1:2], truth[2:9]):
        decisions.append(session.forward(block))
        assert decisions[-1].hidden.shape == (1, len(block), 2 * width)
        session.trim(0)
    for decision in decisions:
        chosen = mx.argmax(head(decision.hidden[..., width:]), axis=-1)[0].tolist()
        assert chosen[-len(decision.ids) :] == list(decision.ids)


def test_taps_leave_the_model_as_it_was_also_when_it_fails(page: Page) -> None:
    inner = page.loaded.model.language_model.model
    before = [*inner.layers, inner.norm]
    session = MlxSession(page.loaded, page.inputs, page.embeddings(), taps=(0, 1, len(inner.layers)))
    session.start()
    with pytest.raises(Exception):  # noqa: B017  # whatever mlx makes of it
        session._call(mx.array([[1]]), "no array", None)
    assert all(a is b for a, b in zip([*inner.layers, inner.norm], before, strict=True))
    assert session_of(page).start().hidden is None


def test_chunks_of_the_prompt_give_the_states_of_the_whole(page: Page) -> None:
    whole = MlxSession(page.loaded, page.inputs, page.embeddings(), taps=(0,)).start()
    chunked = MlxSession(page.loaded, page.inputs, page.embeddings(), taps=(0,), prefill_step=31).start()
    assert mx.allclose(whole.hidden, chunked.hidden, atol=1e-4)


def test_a_tap_beyond_the_layers_is_refused(page: Page) -> None:
    with pytest.raises(ValueError, match="no layer 99 to tap: the model has"):
        MlxSession(page.loaded, page.inputs, page.embeddings(), taps=(99,))


# --- any draft ----------------------------------------------------------------------------------------------


class Cut(FixedSchedule):
    """Uses part of each draft, and now and then none."""

    calls = 0

    def choose(self, draft: Draft) -> Draft:
        self.calls += 1
        keep = (self.calls * 7) % (len(draft.ids) + 1)
        return Draft(draft.ids[:keep], draft.source) if keep else Draft()


@pytest.mark.parametrize("schedule", [Cut(7), pytest.param(FixedSchedule(7), marks=pytest.mark.slow)])
def test_any_garbage_draft_gives_greedy_ids(
    page: Page, drafter: Drafter, truth: list[int], schedule: FixedSchedule
) -> None:
    session = session_of(page, drafter)
    outcome = run(session, NeuralProposer(drafter.kind, drafter.page(session)), schedule)
    assert outcome.ids == truth
    assert outcome.drafted > 0
    assert session.length == page.inputs.length + TOKENS - 1


def test_near_ties_decided_again_do_not_disturb_a_drafter(
    glm_drafter: Drafter, two_pages: tuple[Page, Page]
) -> None:
    drafter, page = glm_drafter, two_pages[0]
    truth = run(session_of(page), NoProposer(), FixedSchedule(0), tokens=12).ids
    session = session_of(page, drafter)
    outcome = run(
        session, NeuralProposer(drafter.kind, drafter.page(session)), FixedSchedule(3), tau=1e6, tokens=12
    )
    assert outcome.ids == truth
    assert outcome.redecided > 0


# --- state ----------------------------------------------------------------------------------------------------


def drafted(
    drafter: Drafter, page: Page, truth: Sequence[int], blocks: Sequence[int], asks: bool
) -> list[Any]:
    """Drafts made along `truth` when it is written in blocks of these sizes; wrong ids follow each block."""
    session = session_of(page, drafter)
    own = drafter.page(session)
    first = session.start()
    own.begin(first.hidden, first.ids[-1])
    at, drafts = 0, []
    for size in blocks:
        if asks:
            own.propose(1 + size % 5)
        wrong = [(truth[at + size] + 1) % 200, 7]
        room = session.room()
        block = [*truth[at : at + size], *wrong][:room]
        assert len(block) >= size
        decision = session.forward(block)
        session.trim(len(block) - size)
        own.observe(truth[at + 1 : at + size + 1], decision.hidden)
        at += size
    drafts.append(own.propose(drafter.width))
    return drafts


@pytest.mark.parametrize("blocks", [(1, 3, 1, 5, 2), (4, 8)])
def test_state_after_rejections_is_that_of_never_having_drafted(
    page: Page, drafter: Drafter, truth: list[int], blocks: tuple[int, ...]
) -> None:
    if page.loaded.architecture == "unlimited_ocr":
        blocks = (1, *blocks)  # its first block is one token
    ((ids, chances),) = drafted(drafter, page, truth, blocks, asks=True)
    total = sum(blocks)
    plain = (1, total - 1) if page.loaded.architecture == "unlimited_ocr" else (total,)
    ((expected, expected_chances),) = drafted(drafter, page, truth, plain, asks=False)
    assert ids == expected
    assert chances == pytest.approx(expected_chances, abs=1e-3)
    assert len(ids) == len(chances) == drafter.width
    assert list(chances) == sorted(chances, reverse=True)


def test_pages_drafted_by_turns_do_not_mix(glm_drafter: Drafter, two_pages: tuple[Page, Page]) -> None:
    drafter = glm_drafter

    class Recorder(NeuralProposer):
        drafts: list[Draft]

        def propose(self, limit: int) -> Draft:
            draft = super().propose(limit)
            self.drafts.append(draft)
            return draft

    def start(which: Page) -> tuple[Recorder, Any]:
        session = session_of(which, drafter)
        recorder = Recorder(drafter.kind, drafter.page(session))
        recorder.drafts = []
        return recorder, decode(session, recorder, DecodeOptions(12), FixedSchedule(4))

    alone = []
    for which in two_pages:
        recorder, loop = start(which)
        list(loop)
        alone.append([draft.ids for draft in recorder.drafts])
    together = [start(which) for which in two_pages]
    live = [loop for _, loop in together]
    while live:
        live = [loop for loop in live if next(loop, None) is not None]
    assert [[draft.ids for draft in recorder.drafts] for recorder, _ in together] == alone


# --- what does not fit ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "changes", "says"),
    [
        ("dflash", {"hidden_size": 48}, r"hidden states 48 wide, the model's are \d+"),
        ("dflash", {"vocab_size": 1234}, r"a vocabulary of 1234, the model's has \d+"),
        ("dflash", {"dflash_config__num_target_layers": 28}, "made for 28 layers, the model has 2"),
        ("dflash", {"dflash_config__target_layer_ids": [0, 9]}, "layer 9, the model has layers 0 to 1"),
        ("dspark", {"vocab_size": 1234}, r"a vocabulary of 1234, the model's has \d+"),
        ("eagle3", {"target_hidden_size": 48}, r"hidden states 48 wide, the model's are \d+"),
        ("eagle3", {"capture_layer_ids": [0, 1, 14]}, "layer 14, the model has layers 0 to 1"),
        ("eagle3", {"capture_layer_ids": [0, 1]}, "names 2 layers to look at and has weights for 3"),
        ("mtp", {"text_config__hidden_size": 48}, r"hidden states 48 wide, the model's are \d+"),
    ],
)
def test_a_drafter_that_does_not_fit_is_refused_with_both_numbers(
    kind: str, changes: dict[str, Any], says: str, glm: LoadedModel, tmp_path: Path
) -> None:
    folder = random_drafters.make(kind, glm, tmp_path / "wrong", **changes)
    with pytest.raises(ModelError, match=says) as error:
        drafters.load(glm, kind, folder)
    assert "wrong does not fit the model glm_ocr" in error.value.message


def test_other_kinds_code_and_missing_files_are_refused(glm: LoadedModel, tmp_path: Path) -> None:
    folder = random_drafters.make("dflash", glm, tmp_path / "a")
    with pytest.raises(ModelError, match="drafter for mode 'dflash', not 'eagle3'"):
        drafters.load(glm, "eagle3", folder)
    with pytest.raises(SettingsError, match="needs a drafter"):
        drafters.load(glm, "dflash", None)
    with pytest.raises(ModelError, match="no such drafter folder"):
        drafters.load(glm, "dflash", tmp_path / "none")
    (folder / "config.json").write_text('{"model_file": "model.py"}')
    (folder / "model.py").write_text("raise SystemExit")
    with pytest.raises(UntrustedModelError):
        drafters.load(glm, "dflash", folder)


# --- GLM-OCR's own layer ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def glm_page(tmp_path_factory: pytest.TempPathFactory, small_towers: None) -> Page:
    folder = checkpoints.make("glm_ocr", tmp_path_factory.mktemp("mtp"), mtp=True)
    return make_page(loading.load(folder), 0)


def test_glm_ocr_serves_the_layer_that_its_checkpoint_brings(glm_page: Page) -> None:
    drafter = drafters.load(glm_page.loaded, "mtp", None)
    truth = run(session_of(glm_page), NoProposer(), FixedSchedule(0)).ids
    session = session_of(glm_page, drafter)
    outcome = run(session, NeuralProposer("mtp", drafter.page(session)), FixedSchedule(drafter.width))
    assert outcome.ids == truth
    assert outcome.drafted >= drafter.width * 10
    for blocks in ((1, 3, 1, 5, 2), (12,)):
        found = drafted(drafter, glm_page, truth, blocks, asks=len(blocks) > 1)
        assert found[0][0] == drafted(drafter, glm_page, truth, (6, 6), asks=False)[0][0]


def test_the_layer_is_the_one_on_disk_and_sees_the_image(glm_page: Page) -> None:
    model = drafters.load(glm_page.loaded, "mtp", None).model
    stored = mx.load(str(glm_page.loaded.checkpoint.weights[0]))
    own = "model.language_model.layers.16."
    assert mx.array_equal(model.eh_proj.weight, stored[f"{own}eh_proj.weight"])
    assert mx.array_equal(model.mtp_block.self_attn.q_proj.weight, stored[f"{own}self_attn.q_proj.weight"])
    drafter = drafters.load(glm_page.loaded, "mtp", None)
    session = session_of(glm_page, drafter)
    page = drafter.page(session)
    first = session.start()
    page.begin(first.hidden, first.ids[-1])
    page.propose(1)
    seen = page._state["_cache"][0].keys
    blind = session_of(glm_page, drafter)
    hidden = blind.start().hidden
    blind._embeddings = mx.zeros_like(glm_page.embeddings())
    other = drafter.page(blind)
    other.begin(hidden, first.ids[-1])
    other.propose(1)
    assert not mx.allclose(seen, other._state["_cache"][0].keys, atol=1e-2)


def test_a_checkpoint_without_the_layer_says_so(glm: LoadedModel) -> None:
    with pytest.raises(ModelError, match="no layer 2, which predicts tokens ahead"):
        drafters.load(glm, "mtp", None)
