"""Train an EAGLE-3 drafter for a model: `python -m tools.train_drafter --out DIR`.

Draws pictures, runs the model over them, and trains a one-layer head on its hidden states; on a CPU, about 20 minutes
for the model `tiny`. See docs/drafters.md for what came of it, and for what to change for another model.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

from pipeline import blas, presets

blas.preload()

import mlx.core as mx  # noqa: E402
import mlx.nn as nn  # noqa: E402
import mlx.optimizers as optimizers  # noqa: E402
import numpy as np  # noqa: E402
from mlx.utils import tree_flatten  # noqa: E402

from pipeline.adapter import loading  # noqa: E402
from pipeline.adapter.loading import LoadedModel, embedding_rows  # noqa: E402
from pipeline.adapter.taps import layer_count  # noqa: E402
from tools.drafter import eagle, harvest  # noqa: E402
from tools.drafter.harvest import Example  # noqa: E402
from tools.tiny import corpus, fonts  # noqa: E402
from tools.tiny.pictures import Sources  # noqa: E402
from tools.tiny.recipe import RECIPES  # noqa: E402

log = logging.getLogger(__name__)
BLOCK = 6  # five drafted ids
HELD = 48  # examples kept for measuring


def main(arguments: Sequence[str] | None = None) -> int:
    """Harvest, train, measure, store; returns the exit code."""
    given = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    loaded = loading.load(given.model)
    config = configuration(loaded)
    taps = config["capture_layer_ids"]
    sources = Sources(corpus.gather(), fonts.find(), RECIPES["shipped"].looks)
    started = time.monotonic()
    held = list(
        itertools.islice(harvest.examples(loaded, taps, sources, seed=given.seed + 1, held=True), HELD)
    )
    trained = _collect(
        harvest.examples(loaded, taps, sources, seed=given.seed, held=False), given.harvest_minutes
    )
    log.info("%d examples in %.0f s", len(trained), time.monotonic() - started)
    vocabulary = draft_vocabulary(loaded, [*trained, *held], config["draft_vocab_size"])
    model = eagle.make(config, loaded.model.language_model.model.embed_tokens.weight)
    model.d2t = mx.array(vocabulary - np.arange(len(vocabulary)), dtype=mx.int32)
    report = train(model, trained, held, vocabulary, embedding_rows(loaded.model) or 0, given)
    store(model, config, given.model, given.out)
    print(
        json.dumps(
            {"examples": len(trained), "seconds": round(time.monotonic() - started), **report}, indent=1
        )
    )
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tools.train_drafter", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of the drafter")
    parser.add_argument("--model", type=Path, default=presets.TINY_FOLDER)
    parser.add_argument("--harvest-minutes", type=float, default=8.0)
    parser.add_argument("--train-minutes", type=float, default=12.0)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=1)
    return parser


def configuration(loaded: LoadedModel) -> dict[str, Any]:
    """config.json of the drafter: as wide as the model, the last three layers' states, a vocabulary of characters."""
    language_model = loaded.model.language_model
    layers, hidden = layer_count(language_model), int(language_model.config.hidden_size)
    taps = [max(0, layers - 3), max(0, layers - 2), layers - 1]
    return {
        "model_type": "eagle3", "speculators_model_type": "eagle3", "draft_vocab_size": 128, "block_size": BLOCK,
        "target_hidden_size": hidden, "capture_layer_ids": taps, "target_layer_ids": [tap + 1 for tap in taps],
        "norm_before_residual": True,
        "transformer_layer_config": {
            "hidden_size": hidden, "intermediate_size": 3 * hidden, "num_hidden_layers": 1, "num_attention_heads": 4,
            "num_key_value_heads": 4, "head_dim": hidden // 4, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
            "vocab_size": embedding_rows(loaded.model), "max_position_embeddings": 8192,
        },
    }  # fmt: skip


def _collect(source: Iterator[Example], minutes: float) -> list[Example]:
    until, found = time.monotonic() + 60 * minutes, []
    while time.monotonic() < until:
        found.append(next(source))
    return found


def draft_vocabulary(loaded: LoadedModel, seen: Sequence[Example], size: int) -> np.ndarray:
    """The model's ids that drafts are made of, rising: what it chose most, and what ends a text."""
    counts = np.bincount(np.concatenate([example.chosen for example in seen]), minlength=1)
    often = [int(i) for i in np.argsort(-counts, kind="stable") if counts[i] > 0]
    ids = sorted(set([*sorted(loaded.stop_ids), *often][:size]))
    spare = (i for i in itertools.count() if i not in set(ids))
    return np.array(sorted([*ids, *itertools.islice(spare, size - len(ids))]), np.int32)


def train(
    model: Any,
    trained: Sequence[Example],
    held: Sequence[Example],
    vocabulary: np.ndarray,
    rows: int,
    given: Any,
) -> dict[str, Any]:
    """Adam with a cosine from the rate given to nothing; the share of right drafts by step on held-out pictures."""
    to_draft = np.full(rows, eagle.IGNORED, np.int32)
    to_draft[vocabulary] = np.arange(len(vocabulary))
    steps, rng = BLOCK - 1, Random(given.seed)
    optimizer = optimizers.AdamW(learning_rate=given.rate, betas=[0.9, 0.97], weight_decay=0.02)
    step = nn.value_and_grad(model, eagle.loss)
    order = sorted(trained, key=lambda example: len(example.ids))  # batches of like lengths waste no rows
    began, done, told = time.monotonic(), 0, 0.0
    while (spent := (time.monotonic() - began) / (60 * given.train_minutes)) < 1:
        optimizer.learning_rate = given.rate * min(1, (done + 1) / 100) * 0.5 * (1 + np.cos(np.pi * spent))
        first = rng.randrange(max(1, len(order) - given.batch))
        batch = eagle.collate(order[first : first + given.batch], to_draft, steps)
        value, gradients = step(model, batch)
        gradients, _ = optimizers.clip_grad_norm(gradients, 1.0)
        optimizer.update(model, gradients)
        mx.eval(model.parameters(), optimizer.state, value)
        done += 1
        if time.monotonic() - told > 60:
            told = time.monotonic()
            log.info(
                "step %d, loss %.3f, right %s", done, value.item(), accuracy(model, held, to_draft, steps)
            )
    return {"steps": done, "right": accuracy(model, held, to_draft, steps)}


def accuracy(model: Any, held: Sequence[Example], to_draft: np.ndarray, steps: int) -> list[float]:
    """Per step, the share of held-out places where all drafts up to there are the model's choices."""
    right, places = np.zeros(steps), np.zeros(steps)
    for first in range(0, len(held), 16):
        batch = eagle.collate(held[first : first + 16], to_draft, steps)
        alive = None
        for at, logits in enumerate(eagle.unroll(model, batch)):
            labels = np.array(batch.labels[:, :, at])
            good = np.array(mx.argmax(logits, axis=-1)) == labels
            alive = good if alive is None else alive & good
            right[at] += (alive & (labels != eagle.IGNORED)).sum()
            places[at] += (labels != eagle.IGNORED).sum()
    return [round(float(share), 3) for share in right / np.maximum(places, 1)]


def store(model: Any, config: dict[str, Any], target: Path, out: Path) -> None:
    """The folder that mlx-vlm loads; the embedding as the model's own file has it."""
    out.mkdir(parents=True, exist_ok=True)
    weights = {
        name: array
        for name, array in tree_flatten(model.parameters())
        if not name.startswith("embed_tokens.")
    }
    own = "model.embed_tokens."
    for path in sorted(target.glob("*.safetensors")):
        weights |= {
            name[len("model.") :]: array for name, array in mx.load(str(path)).items() if name.startswith(own)
        }
    stored = json.loads((target / "config.json").read_text(encoding="utf-8"))
    if "quantization" in stored:
        config = {**config, "quantization": stored["quantization"]}
    mx.save_safetensors(str(out / "model.safetensors"), weights, metadata={"format": "mlx"})
    (out / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
