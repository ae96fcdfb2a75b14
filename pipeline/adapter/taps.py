"""Read hidden states of a language model while it runs, whatever its architecture: its layers are wrapped for a call.

mlx-vlm 0.7.10 has no hook for this in the five models we read with. Wrappers are put in place before a call and taken
away after it, so that pages read by turns, with taps or without, do not meddle with each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any


class _Tap:
    """Stands for a layer: calls it, keeps what it returned, and is otherwise the layer."""

    def __init__(self, layer: Any, number: int, sink: dict[int, Any]) -> None:
        self._layer, self._number, self._sink = layer, number, sink

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        output = self._layer(*arguments, **named)
        self._sink[self._number] = output
        return output

    def __getattr__(self, name: str) -> Any:
        return getattr(self._layer, name)


def layer_count(language_model: Any) -> int:
    """Layers of the language model. Their outputs are taps 0…n-1; tap n is the output of the norm after the last."""
    return len(language_model.model.layers)


@contextmanager
def tapped(language_model: Any, taps: Sequence[int]) -> Iterator[dict[int, Any]]:
    """While open, each call of the model leaves its hidden states (B, rows, D) at `taps` in the dictionary given."""
    inner = language_model.model
    layers, norm = inner.layers, inner.norm
    saved = list(layers)
    sink: dict[int, Any] = {}
    try:
        for number in taps:
            if number < len(layers):
                layers[number] = _Tap(saved[number], number, sink)
            else:
                inner["norm"] = _Tap(norm, number, sink)  # an mlx module is a dictionary of its parts
        yield sink
    finally:
        layers[:] = saved
        inner["norm"] = norm
