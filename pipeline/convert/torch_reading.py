"""dots.ocr read in PyTorch straight from a checkpoint, stage by stage: the plain reading that others are held against.

Written from the architecture (`modeling_dots_vision.py` of the release, transformers' Qwen2) for being checked by eye,
in float32, with one block's weights in memory at a time. Needs torch (extra `convert`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from pipeline.convert.plan import Plan
from storage.errors import EngineError

if TYPE_CHECKING:
    from pipeline.adapter.stages import PageArrays

Stage = tuple[str, NDArray[np.float32]]
_VISION_THETA = 10_000.0
_MERGER_EPS = 1e-6


def read(plan: Plan, page: PageArrays, logit_rows: int) -> Iterator[Stage]:
    """(name, (rows, D) float32) of every stage, named as in `pipeline.adapter.stages`; computed as it is asked for.

    Raises: `EngineError` naming both numbers where features and placeholders do not match.
    """
    reading = _Reading(plan)
    with torch.inference_mode():
        for name, x in reading.vision(page):
            yield name, x.numpy()
        hidden = reading.spliced(page, x)
        for name, x in reading.language(hidden, logit_rows):
            yield name, x.numpy()


class _Reading:
    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._sizes = plan.sizes

    def _get(self, name: str) -> Tensor:
        return torch.from_numpy(self._plan.values(name))

    def _linear(self, x: Tensor, module: str) -> Tensor:
        bias = f"{module}.bias"
        return F.linear(
            x, self._get(f"{module}.weight"), self._get(bias) if bias in self._plan.entries else None
        )

    def _norm(self, x: Tensor, module: str, eps: float) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), self._get(f"{module}.weight"), eps)

    # --- vision tower ------------------------------------------------------------------------------------

    def vision(self, page: PageArrays) -> Iterator[tuple[str, Tensor]]:
        sizes, root = self._sizes, "vision_tower"
        patchifier = f"{root}.patch_embed.patchifier"
        pixels = torch.from_numpy(page.pixels).reshape(-1, sizes.channels, sizes.patch, sizes.patch)
        x = F.conv2d(
            pixels, self._get(f"{patchifier}.proj.weight"), self._get(f"{patchifier}.proj.bias"),
            stride=sizes.patch,
        ).flatten(1)  # fmt: skip
        x = self._norm(x, f"{patchifier}.norm", sizes.vision_eps)  # (L, embed)
        yield "patch embedding", x
        angles = self._vision_angles(*page.grid)
        for n in range(sizes.vision_layers):
            x = self._block(x, angles, f"{root}.blocks.{n}")
            yield f"block {n}", x
        if sizes.post_norm:
            x = self._norm(x, f"{root}.post_trunk_norm", sizes.vision_eps)
            yield "final norm", x
        ln = f"{root}.merger.ln_q"
        x = F.layer_norm(x, (sizes.embed,), self._get(f"{ln}.weight"), self._get(f"{ln}.bias"), _MERGER_EPS)
        x = x.reshape(-1, sizes.embed * sizes.merge**2)  # patches of one merged cell follow each other
        x = F.gelu(self._linear(x, f"{root}.merger.mlp.0"))
        yield "merger", self._linear(x, f"{root}.merger.mlp.2")

    def _vision_angles(self, rows: int, columns: int) -> Tensor:
        """(L, head): angles of the row in one half of the pairs, of the column in the other, in the patches' order."""
        merge, quarter = self._sizes.merge, self._sizes.embed // self._sizes.vision_heads // 4
        row, column = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
        places = torch.stack([row, column], -1)
        cells = (
            places.reshape(rows // merge, merge, columns // merge, merge, 2).transpose(1, 2).reshape(-1, 2, 1)
        )
        frequencies = _VISION_THETA ** -(torch.arange(quarter, dtype=torch.float32) / quarter)
        return (cells * frequencies).reshape(-1, 2 * quarter).repeat(1, 2)

    def _block(self, x: Tensor, angles: Tensor, block: str) -> Tensor:
        heads, eps = self._sizes.vision_heads, self._sizes.vision_eps
        packed = self._linear(self._norm(x, f"{block}.norm1", eps), f"{block}.attn.qkv")
        q, k, v = packed.reshape(len(x), 3, heads, -1).permute(1, 2, 0, 3)  # each (heads, L, head)
        mixed = F.scaled_dot_product_attention(_turned(q, angles)[None], _turned(k, angles)[None], v[None])[0]
        x = x + self._linear(mixed.transpose(0, 1).flatten(1), f"{block}.attn.proj")
        y = self._norm(x, f"{block}.norm2", eps)
        gated = F.silu(self._linear(y, f"{block}.mlp.fc1")) * self._linear(y, f"{block}.mlp.fc3")
        return x + self._linear(gated, f"{block}.mlp.fc2")

    # --- language model ----------------------------------------------------------------------------------

    def spliced(self, page: PageArrays, features: Tensor) -> Tensor:
        """The prompt's embeddings (N, hidden) with the features in the placeholders' places."""
        if len(features) != len(page.positions):
            raise EngineError(
                f"{len(features)} vision features for {len(page.positions)} image placeholders in the prompt",
                remedy="processor and weights disagree on patch_size or merge_size; convert the checkpoint again",
            )
        embedded = self._get("model.embed_tokens.weight")[torch.from_numpy(page.ids)]
        embedded[list(page.positions)] = features
        return embedded

    def language(self, x: Tensor, logit_rows: int) -> Iterator[tuple[str, Tensor]]:
        sizes = self._sizes
        head = sizes.hidden // sizes.heads
        frequencies = sizes.rope_theta ** -(torch.arange(0, head, 2, dtype=torch.float32) / head)
        angles = torch.outer(torch.arange(len(x), dtype=torch.float32), frequencies).repeat(1, 2)  # (N, head)
        for n in range(sizes.layers):
            x = self._layer(x, angles, f"model.layers.{n}")
            yield f"layer {n}", x
        x = self._norm(x[-logit_rows:], "model.norm", sizes.eps)
        table = "lm_head.weight" if "lm_head.weight" in self._plan.entries else "model.embed_tokens.weight"
        yield "logits", x @ self._get(table).T

    def _layer(self, x: Tensor, angles: Tensor, layer: str) -> Tensor:
        sizes, attention = self._sizes, f"{layer}.self_attn"
        y = self._norm(x, f"{layer}.input_layernorm", sizes.eps)
        q, k, v = (
            self._linear(y, f"{attention}.{name}_proj").reshape(len(x), heads, -1).transpose(0, 1)
            for name, heads in (("q", sizes.heads), ("k", sizes.kv_heads), ("v", sizes.kv_heads))
        )  # (heads, N, head)
        k, v = (t.repeat_interleave(sizes.heads // sizes.kv_heads, 0) for t in (_turned(k, angles), v))
        mixed = F.scaled_dot_product_attention(_turned(q, angles)[None], k[None], v[None], is_causal=True)[0]
        x = x + self._linear(mixed.transpose(0, 1).flatten(1), f"{attention}.o_proj")
        y = self._norm(x, f"{layer}.post_attention_layernorm", sizes.eps)
        gated = F.silu(self._linear(y, f"{layer}.mlp.gate_proj")) * self._linear(y, f"{layer}.mlp.up_proj")
        return x + self._linear(gated, f"{layer}.mlp.down_proj")


def _turned(x: Tensor, angles: Tensor) -> Tensor:
    """Rotary positions: pairs are (i, i + head / 2)."""
    first, second = x.chunk(2, -1)
    return x * angles.cos() + torch.cat([-second, first], -1) * angles.sin()
