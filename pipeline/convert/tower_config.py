"""The sizes of a dots.ocr vision tower, and the work that follows from them."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.convert.names import Dimensions


@dataclass(frozen=True, slots=True)
class TowerConfig:
    """Sizes of the tower. `hidden_size`: of the language model, which the merger's output must have."""

    embed_dim: int
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    channels: int
    patch_size: int
    merge: int
    rms_norm_eps: float
    use_bias: bool
    post_norm: bool

    @property
    def head_dim(self) -> int:
        """Width of an attention head."""
        return self.embed_dim // self.heads

    @property
    def pixel_width(self) -> int:
        """Values of a patch."""
        return self.channels * self.patch_size**2

    @property
    def rotary_width(self) -> int:
        """Angles of a patch: half a head, of which half tell the row and half the column."""
        return self.head_dim // 2

    @property
    def input_width(self) -> int:
        """Columns of the tower's one input: pixels, cosines, sines, mask."""
        return self.pixel_width + 2 * self.rotary_width + 1

    @property
    def merged(self) -> int:
        """Patches that become one image token."""
        return self.merge**2

    def multiply_adds(self, count: int) -> int:
        """Multiply-adds of matrix products for `count` patches: what decides how long a page takes.

        Attention is `2 · count² · embed_dim` a layer and grows fastest.
        """
        wide = self.embed_dim * self.merged
        linear = self.embed_dim * (4 * self.embed_dim + 3 * self.intermediate_size)
        layer = count * linear + 2 * count**2 * self.embed_dim
        merger = count // self.merged * wide * (wide + self.hidden_size)
        return count * self.pixel_width * self.embed_dim + self.layers * layer + merger

    def parameters(self) -> int:
        """Weights and biases of the whole tower."""
        wide, dim, ffn = self.embed_dim * self.merged, self.embed_dim, self.intermediate_size
        layer = dim * (4 * dim + 3 * ffn) + 2 * dim
        if self.use_bias:
            layer += 5 * dim + 2 * ffn
        embed = dim * self.pixel_width + 2 * dim
        merger = 2 * dim + wide * wide + wide + wide * self.hidden_size + self.hidden_size
        return embed + self.layers * layer + merger + dim * self.post_norm


def of(sizes: Dimensions) -> TowerConfig:
    """The tower's part of what config.json says."""
    return TowerConfig(
        embed_dim=sizes.embed,
        hidden_size=sizes.projected,
        intermediate_size=sizes.vision_inner,
        layers=sizes.vision_layers,
        heads=sizes.vision_heads,
        channels=sizes.channels,
        patch_size=sizes.patch,
        merge=sizes.merge,
        rms_norm_eps=sizes.vision_eps,
        use_bias=sizes.vision_bias,
        post_norm=sizes.post_norm,
    )
