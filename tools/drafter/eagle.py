"""Train EAGLE-3's small head with its own drafts in the loop, as drafting will meet them (arXiv 2503.01840, §3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx_vlm.speculative.drafters.eagle3 import Model, ModelConfig

from tools.drafter.harvest import Example

IGNORED = -1
_FADE = 0.8  # weight of each further step


@dataclass(frozen=True, slots=True)
class Batch:
    """Padded examples, L states long, of which T begin a chain of drafts: those from the last of the prompt on.

    `hidden` (B, L, taps · D); `tokens` (B, L): the id after each state; `starts` (B,): the first state with a chain;
    `following` (B, T, steps): ids after each such state; `labels` the same: draft ids wanted, `IGNORED` where none.
    """

    hidden: Any
    tokens: Any
    starts: Any
    following: Any
    labels: Any


def collate(batch: Sequence[Example], to_draft: np.ndarray, steps: int) -> Batch:
    """`to_draft[id]`: the draft id of the model's `id`, `IGNORED` where it has none."""
    count, length = len(batch), max(len(example.ids) for example in batch) - 1
    most = max(len(example.chosen) for example in batch)
    hidden = np.zeros((count, length, batch[0].hidden.shape[1]), np.float32)
    tokens = np.zeros((count, length), np.int32)
    following = np.zeros((count, most, steps), np.int32)
    labels = np.full((count, most, steps), IGNORED, np.int32)
    for row, example in enumerate(batch):
        states, text = len(example.ids) - 1, example.ids[example.prompt :]
        hidden[row, :states], tokens[row, :states] = example.hidden[:states], example.ids[1:]
        for step in range(min(steps, len(text))):
            following[row, : len(text) - step, step] = text[step:]
            labels[row, : len(text) - step, step] = to_draft[example.chosen[step:]]
    starts = np.array([example.prompt - 1 for example in batch], np.int32)
    return Batch(*(mx.array(part) for part in (hidden, tokens, starts, following, labels)))


def loss(model: Any, batch: Batch) -> Any:
    """Mean cross entropy over all steps, later ones counting less."""
    total, weights = mx.array(0.0), 0.0
    for step, logits in enumerate(unroll(model, batch)):
        labels = batch.labels[:, :, step]
        here = labels != IGNORED
        losses = nn.losses.cross_entropy(logits, mx.maximum(labels, 0)) * here
        total = total + _FADE**step * losses.sum() / mx.maximum(here.sum(), 1)
        weights += _FADE**step
    return total / weights


def unroll(model: Any, batch: Batch) -> list[Any]:
    """(B, T, draft vocabulary) logits of each step: drafting on from every state of the text at once.

    A chain sees the true states up to its first, and its own rows after them: what the module does one chain at a time.
    Rows of all chains of a step are computed together. The head has one layer.
    """
    layer = model.layers[0]
    attention = layer.self_attn
    true = model._prepare_target_hidden(batch.hidden)
    steps, chains = batch.following.shape[2], batch.following.shape[1]
    first = batch.starts[:, None] + mx.arange(chains)  # state each chain begins at
    state = mx.take_along_axis(true, mx.minimum(first, true.shape[1] - 1)[..., None], axis=1)
    everything = mx.concatenate(
        [layer.input_layernorm(model.embed_tokens(batch.tokens)), layer.hidden_norm(true)], axis=-1
    )
    base_keys = attention.rope(_split(attention.k_proj(everything), attention.n_kv_heads), offset=1)
    base_values = _split(attention.v_proj(everything), attention.n_kv_heads)
    unseen = mx.where(mx.arange(true.shape[1]) <= first[..., None], 0.0, -1e9)[:, None]
    chain: list[tuple[Any, Any]] = []
    logits = []
    for step in range(steps):
        normed = layer.hidden_norm(state)
        residual = normed if layer.norm_before_residual else state
        x = mx.concatenate(
            [layer.input_layernorm(model.embed_tokens(batch.following[:, :, step])), normed], axis=-1
        )
        offset = batch.starts + 1 + step
        queries = attention.rope(_split(attention.q_proj(x), attention.n_heads), offset=offset)
        if step:  # the first row of a chain is a true state, and among those
            keys = attention.rope(_split(attention.k_proj(x), attention.n_kv_heads), offset=offset)
            chain.append((keys, _split(attention.v_proj(x), attention.n_kv_heads)))
        scores = queries @ base_keys.swapaxes(-1, -2) * attention.scale + unseen
        own = [(queries * k).sum(-1, keepdims=True) * attention.scale for k, _ in chain]
        shares = mx.softmax(mx.concatenate([scores, *own], axis=-1), axis=-1)
        mixed = shares[..., : true.shape[1]] @ base_values
        for at, (_, v) in enumerate(chain):
            mixed = mixed + shares[..., true.shape[1] + at, None] * v
        state = residual + attention.o_proj(mixed.transpose(0, 2, 1, 3).reshape(*state.shape[:2], -1))
        state = state + layer.mlp(layer.post_attention_layernorm(state))
        logits.append(model._logits(state))
    return logits


def _split(x: Any, heads: int) -> Any:
    """(B, rows, heads · D) to (B, heads, rows, D)."""
    return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)


def make(config: dict[str, Any], embedding: Any) -> Any:
    """The module with the model's own embedding, which is not trained. As many key heads as heads: see `unroll`."""
    model = Model(ModelConfig.from_dict(config))
    model.embed_tokens.weight = embedding
    model.embed_tokens.freeze()
    model.freeze(keys=["d2t"], recurse=False)
    return model
