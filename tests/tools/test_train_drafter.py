"""Training a drafter: what is unrolled is what drafting does, and what is stored loads and drafts."""

from __future__ import annotations

import itertools
import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline import blas, presets

blas.preload()
mx = pytest.importorskip("mlx.core", reason="mlx has no wheel for this machine")

from mlx.utils import tree_map_with_path  # noqa: E402

from pipeline.adapter import drafters, inputs, loading  # noqa: E402
from pipeline.adapter.loading import LoadedModel  # noqa: E402
from pipeline.adapter.session import MlxSession  # noqa: E402
from pipeline.startup_check import picture  # noqa: E402
from tools import train_drafter  # noqa: E402
from tools.drafter import eagle, harvest  # noqa: E402
from tools.drafter.harvest import Example  # noqa: E402
from tools.tiny import corpus, fonts  # noqa: E402
from tools.tiny.pictures import Sources  # noqa: E402
from tools.tiny.recipe import RECIPES  # noqa: E402

ROWS = 151_666


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    return loading.load(presets.TINY_FOLDER)


@pytest.fixture(scope="module")
def found(loaded: LoadedModel) -> list[Example]:
    sources = Sources(corpus.gather("builtin"), fonts.find(), RECIPES["shipped"].looks)
    taps = train_drafter.configuration(loaded)["capture_layer_ids"]
    return list(itertools.islice(harvest.examples(loaded, taps, sources, seed=3, held=False), 4))


def made(loaded: LoadedModel, found: list[Example]) -> tuple[Any, dict[str, Any], np.ndarray]:
    config = train_drafter.configuration(loaded)
    vocabulary = train_drafter.draft_vocabulary(loaded, found, config["draft_vocab_size"])
    mx.random.seed(5)
    model = eagle.make(config, loaded.model.language_model.model.embed_tokens.weight)

    def spread(path: str, array: Any) -> Any:
        random = array.ndim > 1 and not path.startswith("embed_tokens")
        return mx.random.normal(array.shape) * (2.0 / array.shape[-1] ** 0.5) if random else array

    model.update(tree_map_with_path(spread, model.parameters()))
    model.d2t = mx.array(vocabulary - np.arange(len(vocabulary)), dtype=mx.int32)
    return model, config, vocabulary


def test_examples_hold_a_state_for_each_id_and_the_choice_after_it(
    loaded: LoadedModel, found: list[Example]
) -> None:
    for example in found:
        assert len(example.ids) == len(example.hidden) == example.prompt + len(example.chosen)
        text = example.ids[example.prompt :]
        right = (example.chosen[:-1] == text[1:]).mean()
        assert right > 0.5  # the model reads what is drawn


def test_what_training_unrolls_is_what_drafting_does(
    loaded: LoadedModel, found: list[Example], tmp_path: Path
) -> None:
    model, config, vocabulary = made(loaded, found)
    train_drafter.store(model, config, presets.TINY_FOLDER, tmp_path / "drafter")
    drafter = drafters.load(loaded, "eagle3", tmp_path / "drafter")
    assert drafter.width == train_drafter.BLOCK - 1
    page = inputs.prepare(loaded, "", picture(20, 504))
    embedded = inputs.embed(loaded, page, inputs.encode(loaded, page))
    session = MlxSession(loaded, page, embedded, taps=drafter.taps)
    first = session.start()
    own = drafter.page(session)
    own.begin(first.hidden, first.ids[0])
    drafted, chances = own.propose(drafter.width)
    assert len(set(drafted)) > 1
    # The same as training sees it: a text that goes on as was drafted.
    ids = np.array([*page.ids[0].tolist(), first.ids[0], *drafted], np.int32)
    hidden = np.zeros((len(ids), first.hidden.shape[-1]), np.float32)
    hidden[: page.length] = np.array(first.hidden[0])
    example = Example(ids, hidden, np.array([*drafted, 0], np.int32), page.length)
    to_draft = np.full(ROWS, eagle.IGNORED, np.int32)
    to_draft[vocabulary] = np.arange(len(vocabulary))
    batch = eagle.collate([example, found[0]], to_draft, drafter.width)  # beside another one, padded
    alive = 1.0
    for step, logits in enumerate(eagle.unroll(model, batch)):
        assert vocabulary[int(mx.argmax(logits[0, 0]).item())] == drafted[step]
        alive *= float(mx.softmax(logits[0, 0]).max().item())
        assert alive == pytest.approx(chances[step], rel=1e-3)


def test_training_learns(loaded: LoadedModel, found: list[Example]) -> None:
    model, _, vocabulary = made(loaded, found)
    to_draft = np.full(ROWS, eagle.IGNORED, np.int32)
    to_draft[vocabulary] = np.arange(len(vocabulary))
    batch = eagle.collate(found, to_draft, 2)
    before = eagle.loss(model, batch).item()
    given = Namespace(seed=1, rate=5e-3, batch=4, train_minutes=0.05)
    report = train_drafter.train(model, found, found, vocabulary, ROWS, given)
    assert report["steps"] > 1
    assert eagle.loss(model, batch).item() < before


def test_the_folder_is_one_that_ocrd_takes(loaded: LoadedModel, found: list[Example], tmp_path: Path) -> None:
    model, config, _ = made(loaded, found)
    train_drafter.store(model, config, presets.TINY_FOLDER, tmp_path)
    stored = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    assert stored["quantization"]["bits"] == 2  # the embedding is stored as the model's own
    assert (tmp_path / "model.safetensors").stat().st_size < 7_000_000
