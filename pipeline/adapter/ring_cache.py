"""A block step for Unlimited-OCR's ring cache, which mlx-vlm can only advance one token at a time.

Its cache keeps the prompt and a ring of the last `window_size` tokens. A block appended there overwrites slots that
the block's earlier rows still need, and cannot be taken back. So a block's keys and values stay outside the ring
until `trim` says how many of them are kept. (mlx-vlm 0.7.10, `models/unlimited_ocr/language.py`.)
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
from mlx_vlm.models.unlimited_ocr.language import RingSlidingKVCache


class RingBlockCache(RingSlidingKVCache):  # type: ignore[misc]  # mlx-vlm is untyped
    """The ring with a transactional multi-token step: `update_and_fetch`, then exactly one `trim`."""

    def __init__(self, window_size: int) -> None:
        super().__init__(window_size)
        self._pending: tuple[Any, Any] | None = None

    def in_ring(self) -> bool:
        """Whether new tokens overwrite old ones already."""
        start = self.prefill_length
        return start is not None and self.offset >= start + self.window_size

    def room(self) -> int:
        """Tokens the next block may have: it must not straddle the border between warm-up and ring."""
        if self.prefill_length is None:
            return 1  # the first decode step fixes where the prompt ends
        if self.in_ring():
            return int(self.window_size)
        return int(self.prefill_length + self.window_size - self.offset)

    def make_mask(self, N: int, return_array: bool = False, **kwargs: Any) -> Any:
        """(N, prompt + window + N) booleans in ring state: a row sees slots not overwritten yet, and its block."""
        if N == 1 or not self.in_ring():
            return super().make_mask(N, return_array=return_array, **kwargs)
        row = mx.arange(N)[:, None]
        age = (
            mx.arange(self.window_size)[None] - self._ring_pos
        ) % self.window_size  # overwritten by new token `age`
        prompt = mx.ones((N, self.prefill_length), dtype=mx.bool_)
        return mx.concatenate([prompt, age > row, mx.arange(N)[None] <= row], axis=1)

    def update_and_fetch(self, keys: Any, values: Any) -> tuple[Any, Any]:
        """Append (B, heads, N, D) keys and values; a block in ring state waits for `trim`."""
        if keys.shape[2] == 1 or not self.in_ring():
            return super().update_and_fetch(keys, values)  # type: ignore[no-any-return]
        end = self.prefill_length + self.window_size
        self._pending = (keys, values)
        self.offset += keys.shape[2]
        held = mx.concatenate([self.keys[..., :end, :], keys], 2)
        return held, mx.concatenate([self.values[..., :end, :], values], 2)

    def trim(self, n: int) -> int:
        """Drop the last `n` tokens of the block and move the rest into the ring."""
        if self._pending is None:
            return super().trim(n) if n else 0
        keys, values = self._pending
        self._pending = None
        self.offset -= keys.shape[2]
        for i in range(keys.shape[2] - n):
            super().update_and_fetch(keys[..., i : i + 1, :], values[..., i : i + 1, :])
        return n
