"""dots.ocr's vision tower in PyTorch, written to be traced and converted: one page, one input, plain operators.

What the model's own code has and this has not, each shown to fail or to differ in tests/pipeline/convert: images in
batches (grid_thw with repeat_interleave and a loop), a choice of attentions, windows, boolean masks, integer aranges,
rotary tables made inside. And a norm that float16 can hold. Needs torch (extra `convert`).

Architecture as in the model's own `modeling_dots_vision.py` and mlx-vlm's `models/dots_ocr/vision.py`, with its
weights' names, so that a checkpoint's tensors load as they are.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipeline.convert.tower_config import TowerConfig

_LEAST = 1e-4  # of a row's largest value: below, squares of float16 vanish


class RMSNorm(nn.Module):
    """Root mean square norm whose squares stay within 0…1.

    Equal to `x · rsqrt(mean(x²) + eps) · weight`. Written plainly it squares activations, and from 256 on a square
    leaves float16: the mean is infinite, the row 0. Here a row is first divided by its largest value.
    """

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """(L, D) → (L, D)."""
        largest = x.abs().amax(dim=-1, keepdim=True).clamp(min=_LEAST)
        small = x / largest
        # eps / largest² in two steps: the square of a large value would leave float16 again. And eps as an array: a
        # number over an array becomes MIL's `inverse`, to which coremltools 9 adds 1e-4 without a word.
        eps = x.new_full((1, 1), self.eps)
        mean = (small * small).mean(dim=-1, keepdim=True) + eps / largest / largest
        return small * torch.rsqrt(mean) * self.weight


class Patchifier(nn.Module):
    """Patches of pixels to embeddings."""

    def __init__(self, config: TowerConfig) -> None:
        super().__init__()
        self.config = config
        self.proj = nn.Conv2d(config.channels, config.embed_dim, config.patch_size, config.patch_size)
        self.norm = RMSNorm(config.embed_dim, config.rms_norm_eps)

    def forward(self, pixels: Tensor) -> Tensor:
        """(L, pixel_width) → (L, embed_dim)."""
        size = self.config.patch_size
        images = pixels.reshape(-1, self.config.channels, size, size)
        return self.norm(self.proj(images).reshape(-1, self.config.embed_dim))


class PatchEmbed(nn.Module):
    """Holds the patchifier under its name in checkpoints."""

    def __init__(self, config: TowerConfig) -> None:
        super().__init__()
        self.patchifier = Patchifier(config)

    def forward(self, pixels: Tensor) -> Tensor:
        """(L, pixel_width) → (L, embed_dim)."""
        return self.patchifier(pixels)


class Attention(nn.Module):
    """Every patch attends to every patch that is not padding."""

    def __init__(self, config: TowerConfig) -> None:
        super().__init__()
        self.config = config
        self.qkv = nn.Linear(config.embed_dim, 3 * config.embed_dim, bias=config.use_bias)
        self.proj = nn.Linear(config.embed_dim, config.embed_dim, bias=config.use_bias)

    def forward(self, x: Tensor, cosines: Tensor, sines: Tensor, mask: Tensor) -> Tensor:
        """(L, D), tables (L, head_dim), mask (1, 1, 1, L) → (L, D)."""
        config = self.config
        split = self.qkv(x).reshape(-1, 3, config.heads, config.head_dim).permute(1, 2, 0, 3)
        q, k, v = split.chunk(3)  # each (1, heads, L, head_dim)
        q = q * cosines + _rotated(q) * sines
        k = k * cosines + _rotated(k) * sines
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.proj(mixed.permute(0, 2, 1, 3).reshape(-1, config.embed_dim))


def _rotated(x: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat([-second, first], dim=-1)


class SwiGLU(nn.Module):
    """The feed-forward layer."""

    def __init__(self, config: TowerConfig) -> None:
        super().__init__()
        self.fc1 = nn.Linear(config.embed_dim, config.intermediate_size, bias=config.use_bias)
        self.fc2 = nn.Linear(config.intermediate_size, config.embed_dim, bias=config.use_bias)
        self.fc3 = nn.Linear(config.embed_dim, config.intermediate_size, bias=config.use_bias)

    def forward(self, x: Tensor) -> Tensor:
        """(L, D) → (L, D)."""
        return self.fc2(F.silu(self.fc1(x)) * self.fc3(x))


class Block(nn.Module):
    """Attention and feed-forward, each behind a norm and added."""

    def __init__(self, config: TowerConfig) -> None:
        super().__init__()
        self.attn = Attention(config)
        self.norm1 = RMSNorm(config.embed_dim, config.rms_norm_eps)
        self.mlp = SwiGLU(config)
        self.norm2 = RMSNorm(config.embed_dim, config.rms_norm_eps)

    def forward(self, x: Tensor, cosines: Tensor, sines: Tensor, mask: Tensor) -> Tensor:
        """(L, D) → (L, D)."""
        x = x + self.attn(self.norm1(x), cosines, sines, mask)
        return x + self.mlp(self.norm2(x))


class Merger(nn.Module):
    """Four neighbouring patches to one image token of the language model's width."""

    def __init__(self, config: TowerConfig) -> None:
        super().__init__()
        self.width = config.embed_dim * config.merged
        self.ln_q = nn.LayerNorm(config.embed_dim, eps=1e-6)
        self.mlp = nn.Sequential(
            nn.Linear(self.width, self.width), nn.GELU(), nn.Linear(self.width, config.hidden_size)
        )

    def forward(self, x: Tensor) -> Tensor:
        """(L, embed_dim) → (L / 4, hidden_size)."""
        # coremltools 9 converts a float16 LayerNorm with an epsilon of float32 and stumbles over it: this one stays
        # float32 in a tower of float16 (`tower_weights.load_tower`), and its precision is chosen with the program's.
        normed = self.ln_q(x.to(self.ln_q.weight.dtype)).to(x.dtype)
        return self.mlp(normed.reshape(-1, self.width))


class VisionTower(nn.Module):
    """The whole tower, from `tower_inputs.pack` to image tokens."""

    def __init__(self, config: TowerConfig) -> None:
        super().__init__()
        self.config = config
        self.patch_embed = PatchEmbed(config)
        self.blocks = nn.ModuleList([Block(config) for _ in range(config.layers)])
        self.post_trunk_norm = (
            RMSNorm(config.embed_dim, config.rms_norm_eps) if config.post_norm else nn.Identity()
        )
        self.merger = Merger(config)

    def forward(self, packed: Tensor) -> Tensor:
        """(L, input_width) → (L / 4, hidden_size); rows of padding hold nothing of use."""
        pixels, cosines, sines, mask = self.unpack(packed.to(self.patch_embed.patchifier.proj.weight.dtype))
        x = self.patch_embed(pixels)
        for block in self.blocks:
            x = block(x, cosines, sines, mask)
        return self.merger(self.post_trunk_norm(x))

    def unpack(self, packed: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Pixels, cosines and sines for a whole head, and the mask as attention adds it."""
        pixel, rotary = self.config.pixel_width, self.config.rotary_width
        cosines = packed[:, pixel : pixel + rotary]
        sines = packed[:, pixel + rotary : pixel + 2 * rotary]
        mask = packed[:, pixel + 2 * rotary :].reshape(1, 1, 1, -1)
        return packed[:, :pixel], torch.cat([cosines, cosines], -1), torch.cat([sines, sines], -1), mask
