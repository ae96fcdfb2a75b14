"""What every stage of a model of dots.ocr gives for a page, as the model runs in MLX: for comparing it with another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from pipeline.adapter import inputs as page_inputs
from pipeline.adapter.inputs import PageInputs, as_float32, device_error, grid_of
from pipeline.adapter.loading import LoadedModel, to_float32

LOGIT_ROWS = 16  # of the prompt's end; a row is 150,000 wide
Observer = Callable[[str, NDArray[np.float32]], None]


@dataclass(frozen=True, slots=True)
class PageArrays:
    """What the processor made of a page: `pixels` (L, channels · patch²) float32, `grid` in patches, prompt `ids` (N,).

    `positions`: where in 0…N-1 the image's placeholders stand.
    """

    pixels: NDArray[np.float32]
    grid: tuple[int, int]
    ids: NDArray[np.int64]
    positions: tuple[int, ...]


def arrays(prepared: PageInputs) -> PageArrays:
    """A prepared page as numpy arrays."""
    pixels = as_float32(prepared.pixels)
    ids = np.array(prepared.ids.reshape(-1), dtype=np.int64)
    return PageArrays(pixels.reshape(pixels.shape[0], -1), grid_of(prepared), ids, prepared.positions)


def run(loaded: LoadedModel, prepared: PageInputs, observe: Observer) -> None:
    """Run vision tower and language model over a page in float32; `observe` is given each stage's output as it comes.

    The stages: `patch embedding`, `block N`, `final norm`, `merger`, `layer N`, `logits` (of the last `LOGIT_ROWS`
    rows). Raises: `EngineError` naming both numbers where features and placeholders do not match.
    """
    model = loaded.model
    to_float32(model, None)  # on a GPU it is loaded as stored; there is nothing to do on a CPU
    try:
        with _watched(_tower_parts(model.vision_tower), observe):
            features = model.vision_tower(
                prepared.pixels.astype(mx.float32), prepared.grid, output_hidden_states=False
            )
        embeddings = page_inputs.embed(loaded, prepared, features)
        inner = model.language_model.model
        with (
            _watched([(inner.layers, n, f"layer {n}") for n in range(len(inner.layers))], observe),
            _short(inner),
        ):
            logits = model.language_model(prepared.ids, inputs_embeds=embeddings).logits
        observe("logits", _numpy(logits))
    except RuntimeError as error:
        raise device_error(error, "the model") from error


def _tower_parts(tower: Any) -> list[tuple[Any, Any, str]]:
    """(container, key, name of the stage); an mlx module is a dictionary of its parts."""
    blocks = [(tower.blocks, n, f"block {n}") for n in range(len(tower.blocks))]
    norm = [(tower, "post_trunk_norm", "final norm")] if "post_trunk_norm" in tower else []
    return [(tower, "patch_embed", "patch embedding"), *blocks, *norm, (tower, "merger", "merger")]


class _Watched:
    """Stands for a part: calls it, shows what it returned, and is otherwise the part."""

    def __init__(self, part: Any, show: Callable[[Any], None]) -> None:
        self._part, self._show = part, show

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        output = self._part(*arguments, **named)
        self._show(output)
        return output

    def __getattr__(self, name: str) -> Any:
        return getattr(self._part, name)


@contextmanager
def _watched(parts: list[tuple[Any, Any, str]], observe: Observer) -> Iterator[None]:
    saved = [(container, key, container[key]) for container, key, _ in parts]
    try:
        for container, key, name in parts:
            container[key] = _Watched(container[key], partial(_show, observe, name))
        yield
    finally:
        for container, key, part in saved:
            container[key] = part


@contextmanager
def _short(inner: Any) -> Iterator[None]:
    """While open, the head after the last norm sees the last rows only."""
    norm = inner.norm
    inner["norm"] = lambda hidden: norm(hidden[:, -LOGIT_ROWS:])
    try:
        yield
    finally:
        inner["norm"] = norm


def _show(observe: Observer, name: str, output: Any) -> None:
    observe(name, _numpy(output))


def _numpy(array: Any) -> NDArray[np.float32]:
    """(rows, D) float32, computed now."""
    return as_float32(array).reshape(-1, array.shape[-1])
