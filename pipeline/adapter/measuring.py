"""What calibration needs of a model: a session over plain text, and how far a block's logits are from single rows'."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx

from pipeline.adapter.inputs import PageInputs, device_error
from pipeline.adapter.loading import LoadedModel
from pipeline.adapter.session import MlxSession


@dataclass(frozen=True, slots=True)
class RowDifference:
    """The same tokens through one pass and through as many passes of one row.

    `equal`: bit for bit. `logit`: largest difference of a logit. `margin`: largest difference of the gap between the
    first and the second choice. `ids`: whether the first choices agree in every row.
    """

    equal: bool
    logit: float
    margin: float
    ids: bool


def text_session(loaded: LoadedModel, ids: Sequence[int]) -> MlxSession:
    """A session whose prompt is `ids`, without an image; `start` it first."""
    prompt = mx.array([list(ids)])
    embedded = loaded.model.get_input_embeddings(prompt, None).inputs_embeds
    return MlxSession(loaded, PageInputs(prompt, (), None, None, {}), embedded)


def compare(block: MlxSession, single: MlxSession, tokens: Sequence[int]) -> RowDifference:
    """Advance both sessions by `tokens`, one in a block, the other row by row, and compare their logits.

    Both keep the tokens, so that what earlier blocks left in the cache counts as it does while decoding. Logits stay
    on the device. Raises: `EngineError`, `OutOfMemoryError`.
    """
    try:
        together = block.logits(tokens)
        block.trim(0)
        rows = []
        for token in tokens:
            rows.append(single.logits([token]))
            single.trim(0)
        apart = mx.concatenate(rows)
        both = [_top_two(together), _top_two(apart)]
        logit = mx.abs(together - apart).max()
        margin = mx.abs((both[0][1] - both[0][2]) - (both[1][1] - both[1][2])).max()
        equal, same = mx.array_equal(together, apart), mx.array_equal(both[0][0], both[1][0])
        mx.eval(logit, margin, equal, same)
    except RuntimeError as error:
        raise device_error(error, "the language model") from error
    return RowDifference(bool(equal.item()), float(logit.item()), float(margin.item()), bool(same.item()))


def _top_two(logits: mx.array) -> tuple[mx.array, mx.array, mx.array]:
    """Per row of (rows, V): the first choice, its logit and the runner-up's."""
    chosen = mx.argmax(logits, axis=-1)
    rest = logits + 0  # a copy: the logits themselves are compared
    rest[mx.arange(logits.shape[0]), chosen] = float("-inf")
    return chosen, logits.max(axis=-1), rest.max(axis=-1)
