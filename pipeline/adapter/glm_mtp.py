"""The multi-token prediction layer that GLM-OCR's checkpoint carries and mlx-vlm 0.7.10 drops when it loads.

Layer `num_hidden_layers` of the checkpoint: two norms and a projection join the next token's embedding with the hidden
state before it, then comes one decoder layer like the model's own, and a norm before the output matrix. Layout as in
vLLM's `glm_ocr_mtp` and the released file's tensor names; never run here on the released weights.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx_vlm.models.base import create_attention_mask
from mlx_vlm.models.cache import KVCache
from mlx_vlm.models.glm_ocr.language import GlmOcrDecoderLayer
from mlx_vlm.speculative.drafters.mtp_base import AutoregressiveMTPDraftModel

from storage.errors import ModelError, first_line

BLOCK = (
    4  # three drafted tokens: one layer used again and again, each time further from what it was trained on
)
# Names in the checkpoint, below the layer's → names here; what is not listed belongs to the decoder layer.
_OWN = {
    "enorm.weight": "enorm.weight",
    "hnorm.weight": "hnorm.weight",
    "eh_proj.weight": "eh_proj.weight",
    "shared_head.norm.weight": "shared_head_norm.weight",
}
_SHARED = ("embed_tokens.weight", "shared_head.head.weight")  # copies of the model's own


class GlmOcrMTP(AutoregressiveMTPDraftModel):  # type: ignore[misc]  # mlx-vlm is untyped
    """mlx-vlm's frame for such layers around GLM-OCR's own decoder layer; positions as the page's prompt has them."""

    def __init__(self, text: Any, rotary: Any) -> None:
        super().__init__(_Config(text))
        width, eps = text.hidden_size, text.rms_norm_eps
        self.enorm = nn.RMSNorm(width, eps=eps)
        self.hnorm = nn.RMSNorm(width, eps=eps)
        self.eh_proj = nn.Linear(2 * width, width, bias=False)
        self.mtp_block = GlmOcrDecoderLayer(text)
        self.shared_head_norm = nn.RMSNorm(width, eps=eps)
        self._rotary = rotary
        self._prompt: Any = None  # `PromptContext` of the page

    def make_cache(self) -> list[Any]:
        """One layer, one cache."""
        return [KVCache()]

    def _forward_tokens(self, tokens: Any, hidden: Any, token_dtype: Any, **_: Any) -> tuple[Any, Any]:
        start, length, prompt = self._next_position, int(tokens.shape[1]), self._prompt
        embedded = self._input_embed(tokens.astype(token_dtype))
        if start == 0 and length > 1:  # the prompt: image tokens have their features in place of an embedding
            embedded = mx.concatenate(
                [prompt.embeddings[:, 1:].astype(embedded.dtype), embedded[:, -1:]], axis=1
            )
        joined = mx.concatenate([self.enorm(embedded), self.hnorm(hidden[:, :length])], axis=-1)
        rotary = self._rotary(joined, self._rope_positions(start, length))
        state = self.eh_proj(joined)
        cache = self._cache[0]
        state = self.mtp_block(state, create_attention_mask(state, cache), cache, rotary)
        self._next_position += length
        return self.shared_head_norm(state), state

    def _rope_positions(self, start: int, length: int) -> Any:
        """(3, 1, length): those of the hidden states, a token before the ids that go with them."""
        prompt = self._prompt
        total = prompt.positions.shape[-1]
        known = prompt.positions[:, :, start : min(start + length, total)]
        first = max(start, total) + prompt.delta
        rest = mx.arange(first, start + length + prompt.delta)
        if rest.size == 0:
            return known
        following = mx.broadcast_to(rest[None, None], (3, 1, rest.size)).astype(known.dtype)
        return mx.concatenate([known, following], axis=-1)


class _Config:
    model_type = "glm_ocr_mtp"

    def __init__(self, text: Any) -> None:
        self.text_config = text
        self.hidden_size, self.vocab_size, self.block_size = text.hidden_size, text.vocab_size, BLOCK


def load(language_model: Any, folder: Path, weights: tuple[Path, ...]) -> GlmOcrMTP:
    """The layer out of the checkpoint's files. Raises: `ModelError` where they have none, as in most conversions."""
    text = language_model.args
    marks = tuple(
        f"{prefix}layers.{text.num_hidden_layers}."
        for prefix in ("model.language_model.", "language_model.model.", "model.")
    )
    found: dict[str, Any] = {}
    for path in weights:
        for name, array in mx.load(str(path)).items():
            mark = next((mark for mark in marks if name.startswith(mark)), None)
            if mark is not None:
                found[name[len(mark) :]] = array
    if not found:
        raise ModelError(
            f"the checkpoint has no layer {text.num_hidden_layers}, which predicts tokens ahead (mtp)", file=folder,
            remedy="conversions made by mlx-vlm leave it out: take the released checkpoint, or another mode",
        )  # fmt: skip
    model = GlmOcrMTP(text, language_model.model.rotary_emb)
    named = {
        _OWN.get(name, f"mtp_block.{name}"): array for name, array in found.items() if name not in _SHARED
    }
    try:
        model.load_weights(list(named.items()), strict=True)
    except ValueError as error:
        raise ModelError(
            f"its layer {text.num_hidden_layers} (mtp) cannot be used: {first_line(error)}", file=folder
        ) from error
    return model
