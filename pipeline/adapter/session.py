"""One page in the language model: prefill, blocks, rollback. Implements `pipeline.target.Session`.

Positions are always passed, never left to the model: mlx-vlm 0.7.10 keeps M-RoPE state of GLM-OCR and PaddleOCR-VL
on the language model, which breaks pages read by turns (both) and chunked prefill (PaddleOCR-VL).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import mlx.core as mx

from pipeline.adapter.inputs import PageInputs, device_error
from pipeline.adapter.loading import LoadedModel
from pipeline.adapter.taps import layer_count, tapped
from pipeline.target import Banned, Decision
from storage.errors import EngineError

PREFILL_STEP = 2048  # tokens a prefill chunk has: bounds the attention matrix
_FORBIDDEN = float("-inf")


@dataclass(frozen=True, slots=True)
class PromptContext:
    """What a neural drafter is told of a page's prompt: ids (1, N), embeddings (1, N, D) with the image in place.

    `positions`: (3, 1, N) where the model has M-RoPE, else None; the token at N + i is at position N + i + `delta`.
    """

    ids: Any
    embeddings: Any
    positions: Any
    delta: int


class MlxSession:
    """A page's prompt, embeddings and KV cache; one per page being read, any number at a time.

    `taps`: layers whose outputs come back as `Decision.hidden`, (1, rows, taps · D) on the device, side by side in the
    order given; the number of layers stands for the final norm (`pipeline.adapter.taps`). `start` gives a row for
    every token of the prompt, `forward` for every token of the block.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        inputs: PageInputs,
        embeddings: Any,
        *,
        prefill_step: int = PREFILL_STEP,
        taps: Sequence[int] = (),
    ) -> None:
        self._model = loaded.model.language_model
        self._inputs = inputs
        self._embeddings = embeddings
        self._prefill_step = prefill_step
        self._cache = _make_cache(self._model)
        self._positions, self._delta = _rope(self._model, inputs)
        self._taps = tuple(taps)
        outside = [tap for tap in self._taps if not 0 <= tap <= layer_count(self._model)]
        if outside:
            raise ValueError(f"no layer {outside[0]} to tap: the model has {layer_count(self._model)}")
        self._owed = 0

    @property
    def length(self) -> int:
        """Tokens in the cache."""
        return int(self._cache[0].offset)

    def room(self) -> int:
        """The widest block the caches take now."""
        rooms = [cache.room() for cache in self._cache if hasattr(cache, "room")]
        return min(rooms, default=1 << 30)

    def start(self, *, banned: Sequence[int] = (), margins: bool = False) -> Decision:
        """Prefill in chunks, the last token alone; see `pipeline.target.Session.start`."""
        if self.length:
            raise RuntimeError("a session starts once")
        ids, total = self._inputs.ids, self._inputs.length
        try:
            done, hidden = 0, []
            while done < total - 1:
                upto = min(done + self._prefill_step, total - 1)
                _, states = self._call(
                    ids[:, done:upto], self._embeddings[:, done:upto], self._prompt_positions(done, upto)
                )
                hidden.append(states)
                mx.eval([cache.state for cache in self._cache], states)
                done = upto
            output, states = self._call(
                ids[:, -1:], self._embeddings[:, -1:], self._prompt_positions(total - 1, total)
            )
            if not self._taps:
                self._embeddings = None  # the cache holds what follows from them
            decision = _decide(output.logits[0], [tuple(banned)] if banned else (), margins)
            return replace(decision, hidden=_joined([*hidden, states]))
        except RuntimeError as error:
            raise device_error(error, "the language model") from error

    def forward(self, tokens: Sequence[int], *, banned: Banned = (), margins: bool = False) -> Decision:
        """One pass over a block; see `pipeline.target.Session.forward`."""
        self._owe(len(tokens))
        try:
            logits, hidden = self._rows(tokens)
            return replace(_decide(logits, banned, margins), hidden=hidden)
        except RuntimeError as error:
            raise device_error(error, "the language model") from error

    def logits(self, tokens: Sequence[int]) -> Any:
        """(rows, V) float32 logits of one pass, on the device; for calibration. A `trim` follows, as with `forward`."""
        self._owe(len(tokens))
        return self._rows(tokens)[0].astype(mx.float32)

    def prompt_context(self) -> PromptContext:
        """What drafters are told of the prompt; of sessions with `taps` only, and once: the embeddings are let go."""
        if self._embeddings is None:
            raise RuntimeError("the prompt's embeddings are gone")
        embeddings, self._embeddings = self._embeddings, None
        return PromptContext(self._inputs.ids, embeddings, self._positions, self._delta)

    def trim(self, count: int) -> None:
        """Take back the last `count` tokens of the latest forward; see `pipeline.target.Session.trim`."""
        if not 0 <= count <= self._owed:
            raise ValueError(f"cannot take back {count} of {self._owed} tokens")
        self._owed = 0
        for cache in self._cache:
            if count or hasattr(cache, "room"):  # ring caches commit here
                cache.trim(count)

    def _owe(self, count: int) -> None:
        """Note that a pass over `count` tokens waits for its `trim`; refuse it where one does already."""
        if self._owed:
            raise RuntimeError("trim() must follow each forward()")
        if not 1 <= count <= self.room():
            raise ValueError(f"a block of {count} tokens where 1 to {self.room()} fit")
        self._owed = count

    def _rows(self, tokens: Sequence[int]) -> tuple[Any, Any]:
        """(rows, V) logits of one pass over `tokens`, and the hidden states at the taps."""
        output, hidden = self._call(mx.array([list(tokens)]), None, self._next_positions(len(tokens)))
        return output.logits[0], hidden

    def _call(self, ids: Any, embeddings: Any, positions: Any) -> tuple[Any, Any]:
        extra = {} if positions is None else {"position_ids": positions}
        if not self._taps:
            return self._model(ids, inputs_embeds=embeddings, cache=self._cache, **extra), None
        with tapped(self._model, self._taps) as states:
            output = self._model(ids, inputs_embeds=embeddings, cache=self._cache, **extra)
        return output, mx.concatenate([states[tap] for tap in self._taps], axis=-1)

    def _prompt_positions(self, start: int, stop: int) -> Any:
        return None if self._positions is None else self._positions[:, :, start:stop]

    def _next_positions(self, count: int) -> Any:
        if self._positions is None:
            return None
        first = self.length + self._delta
        return mx.broadcast_to(mx.arange(first, first + count)[None, None], (3, 1, count))


def _make_cache(language_model: Any) -> list[Any]:
    from mlx_vlm.models.cache import make_prompt_cache
    from mlx_vlm.models.unlimited_ocr.language import RingSlidingKVCache

    from pipeline.adapter.ring_cache import RingBlockCache

    caches = make_prompt_cache(language_model)
    made = [RingBlockCache(c.window_size) if isinstance(c, RingSlidingKVCache) else c for c in caches]
    for cache in made:
        if not cache.is_trimmable():
            raise EngineError(f"the model's cache {type(cache).__name__} cannot take tokens back")
    return made


def _rope(language_model: Any, inputs: PageInputs) -> tuple[Any, int]:
    """Explicit M-RoPE positions (3, 1, N) and the offset of what follows; (None, 0) for plain positions."""
    index = getattr(language_model, "get_rope_index", None)
    if index is None:
        return None, 0
    positions, delta = index(inputs.ids, inputs.grid, None, inputs.mask)
    return positions, int(delta.reshape(-1)[0].item())


def _decide(logits: Any, banned: Banned, margins: bool) -> Decision:
    """Greedy ids of the rows of (rows, V) logits, chosen on the device; only ids and margins come back."""
    if banned:
        rows = [row for row, ids in enumerate(banned) for _ in ids]
        columns = [i for ids in banned for i in ids]
        if rows:
            logits[mx.array(rows), mx.array(columns)] = _FORBIDDEN
    chosen = mx.argmax(logits, axis=-1)
    if not margins:
        return Decision(_ids(chosen))
    # Two maxima beat a sort: a vocabulary is 150,000 wide.
    rows = mx.arange(logits.shape[0])
    best = logits.max(axis=-1)
    logits[rows, chosen] = _FORBIDDEN
    gaps = (best - logits.max(axis=-1)).astype(mx.float32)
    mx.eval(chosen, gaps)
    return Decision(_ids(chosen), tuple(float(gap) for gap in gaps.tolist()))


def _joined(parts: Sequence[Any]) -> Any:
    """Hidden states of a prompt's chunks as one array; None without taps."""
    return None if parts[0] is None else mx.concatenate(list(parts), axis=1)


def _ids(chosen: Any) -> tuple[int, ...]:
    return tuple(int(i) for i in chosen.tolist())
