"""The dots.ocr architecture in torch, at the tiny model's size. Parameter names are those of the released checkpoints.

The layout (DotsVisionTransformer with 2-D RoPE, RMSNorm, SwiGLU, a 2 x 2 merger; a Qwen2 language model) is that of
`rednote-hilab/dots.ocr`, `modeling_dots_vision.py` and config.json (MIT), as mlx-vlm 0.7.10 loads it. What differs:
patches are grey (196 inputs; three channels of a third each when exported), and the two token tables are trained as
they are stored, in two bits a weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tools.tiny.charset import DENSE
from tools.tiny.recipe import PATCH_PX, Shape

_GRAIN = 4  # patches per image token
Cache = list[Tensor]  # keys and values (B, heads, n, d) of one layer; empty at first


@dataclass(frozen=True, slots=True)
class Guide:
    """Where the guided heads should look: the image token of the next character.

    `start`: first position that predicts a character; `image`: position and number of the image tokens;
    `tokens` (B, T): target token of each prediction, negative where there is none.
    """

    start: int
    image: tuple[int, int]
    tokens: Tensor


class RMSNorm(nn.Module):
    """Root mean square norm over the last axis."""

    def __init__(self, dim: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        """(…, D) → (…, D)."""
        return F.rms_norm(x, (x.shape[-1],), self.weight.to(x.dtype), self.epsilon)


def rotate(x: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
    """Rotary embedding; `angles` are cosines and sines, broadcast to x."""
    cosine, sine = angles
    first, second = x.chunk(2, -1)
    return x * cosine.to(x.dtype) + torch.cat((-second, first), -1) * sine.to(x.dtype)


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Softmax attention over (B, heads, n, d); also the scores. torch's own bf16 kernel is slower here."""
    scores = torch.matmul(q * q.shape[-1] ** -0.5, k.transpose(-1, -2))
    if mask is not None:
        scores = scores + mask
    return torch.matmul(torch.softmax(scores, -1, dtype=scores.dtype), v), scores


def angles_of(positions: Tensor, dim: int, theta: float) -> Tensor:
    """(n,) positions → (n, dim/2) angles."""
    inverse = 1.0 / theta ** (torch.arange(0, dim, 2, device=positions.device).float() / dim)
    return positions.float()[:, None] * inverse


class VisionAttention(nn.Module):
    """Attention of every patch to every other."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.vision_heads
        self.qkv = nn.Linear(shape.vision_dim, 3 * shape.vision_dim, bias=False)
        self.proj = nn.Linear(shape.vision_dim, shape.vision_dim, bias=False)

    def forward(self, x: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
        """(B, N, D) → (B, N, D)."""
        batch, count, dim = x.shape
        q, k, v = self.qkv(x).view(batch, count, 3, self.heads, dim // self.heads).permute(2, 0, 3, 1, 4)
        seen, _ = attend(rotate(q, angles), rotate(k, angles), v)
        return self.proj(seen.transpose(1, 2).reshape(batch, count, dim))


class VisionMLP(nn.Module):
    """SwiGLU; fc1 is the gate."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.fc1 = nn.Linear(shape.vision_dim, shape.vision_inner, bias=False)
        self.fc2 = nn.Linear(shape.vision_inner, shape.vision_dim, bias=False)
        self.fc3 = nn.Linear(shape.vision_dim, shape.vision_inner, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(…, D) → (…, D)."""
        return self.fc2(F.silu(self.fc1(x)) * self.fc3(x))


class VisionBlock(nn.Module):
    """Attention and MLP, each normed before and added."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.attn = VisionAttention(shape)
        self.norm1 = RMSNorm(shape.vision_dim, shape.vision_epsilon)
        self.mlp = VisionMLP(shape)
        self.norm2 = RMSNorm(shape.vision_dim, shape.vision_epsilon)

    def forward(self, x: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
        """(B, N, D) → (B, N, D)."""
        x = x + self.attn(self.norm1(x), angles)
        return x + self.mlp(self.norm2(x))


class Patchifier(nn.Module):
    """Grey patches to vectors."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.proj = nn.Linear(PATCH_PX * PATCH_PX, shape.vision_dim)
        self.norm = RMSNorm(shape.vision_dim, shape.vision_epsilon)

    def forward(self, x: Tensor) -> Tensor:
        """(B, N, 196) → (B, N, D)."""
        return self.norm(self.proj(x))


class Merger(nn.Module):
    """Four neighbouring patches to one image token."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.inner = _GRAIN * shape.vision_dim
        self.ln_q = nn.LayerNorm(shape.vision_dim, eps=1e-6)
        self.mlp = nn.Sequential(
            nn.Linear(self.inner, self.inner), nn.GELU(), nn.Linear(self.inner, shape.dim)
        )

    def forward(self, x: Tensor) -> Tensor:
        """(B, N, vision D) → (B, N/4, D)."""
        batch, count, _ = x.shape
        return self.mlp(self.ln_q(x).reshape(batch, count // _GRAIN, self.inner))


class VisionTower(nn.Module):
    """Patches to image tokens."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.head_dim = shape.vision_dim // shape.vision_heads
        self.patch_embed = nn.Module()
        self.patch_embed.patchifier = Patchifier(shape)
        self.blocks = nn.ModuleList(VisionBlock(shape) for _ in range(shape.vision_layers))
        self.post_trunk_norm = RMSNorm(shape.vision_dim, shape.vision_epsilon)
        self.merger = Merger(shape)

    def forward(self, patches: Tensor, rows: int, columns: int) -> Tensor:
        """(B, rows*columns, 196) → (B, rows*columns/4, D)."""
        x = self.patch_embed.patchifier(patches)
        angles = self._angles(rows, columns, patches.device)
        for block in self.blocks:
            x = block(x, angles)
        return self.merger(self.post_trunk_norm(x))

    def _angles(self, rows: int, columns: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Half of a head turns with the row, half with the column, in the order patches come in."""
        row = torch.arange(rows, device=device).view(rows, 1).expand(rows, columns)
        column = torch.arange(columns, device=device).view(1, columns).expand(rows, columns)
        halves = [angles_of(_merge_order(each), self.head_dim // 2, 10_000.0) for each in (row, column)]
        both = torch.cat([*halves, *halves], -1)
        return both.cos(), both.sin()


def _merge_order(grid: Tensor) -> Tensor:
    """(rows, columns) → (rows*columns,) with the four patches of a token together."""
    rows, columns = grid.shape
    return grid.reshape(rows // 2, 2, columns // 2, 2).permute(0, 2, 1, 3).reshape(-1)


class SelfAttention(nn.Module):
    """Causal attention; heads in `guided` can be taught where to look."""

    def __init__(self, shape: Shape, guided: Sequence[int]) -> None:
        super().__init__()
        self.heads, self.guided = shape.heads, tuple(guided)
        self.q_proj = nn.Linear(shape.dim, shape.dim)
        self.k_proj = nn.Linear(shape.dim, shape.dim)
        self.v_proj = nn.Linear(shape.dim, shape.dim)
        self.o_proj = nn.Linear(shape.dim, shape.dim, bias=False)

    def forward(
        self, x: Tensor, angles: tuple[Tensor, Tensor], cache: Cache | None, guide: Guide | None
    ) -> tuple[Tensor, Tensor | None]:
        """(B, n, D) → (B, n, D), and the loss of the guided heads. With a cache n new positions follow those in it."""
        batch, count, dim = x.shape

        def split(y: Tensor) -> Tensor:
            return y.view(batch, count, self.heads, dim // self.heads).transpose(1, 2)

        q, k = rotate(split(self.q_proj(x)), angles), rotate(split(self.k_proj(x)), angles)
        v = split(self.v_proj(x))
        if cache is not None:
            if cache:
                k, v = torch.cat((cache[0], k), 2), torch.cat((cache[1], v), 2)
            cache[:] = [k, v]
        mask = torch.full((count, k.shape[2]), -torch.inf, dtype=q.dtype, device=q.device)
        seen, scores = attend(q, k, v, mask.triu(k.shape[2] - count + 1) if count > 1 else None)
        loss = self._guidance(scores, guide) if guide is not None and self.guided else None
        return self.o_proj(seen.transpose(1, 2).reshape(batch, count, dim)), loss

    def _guidance(self, scores: Tensor, guide: Guide) -> Tensor:
        """Mean of -log attention(target token) over guided heads and predictions that have a target."""
        rows = scores[:, list(self.guided), guide.start :].float()  # (B, G, T, n)
        targets = (
            guide.tokens.clamp_min(0)[:, None, :, None].expand(-1, len(self.guided), -1, 1) + guide.image[0]
        )
        missed = torch.logsumexp(rows, -1) - rows.gather(-1, targets)[..., 0]  # (B, G, T)
        counted = (guide.tokens >= 0)[:, None].expand_as(missed)
        return (missed * counted).sum() / counted.sum().clamp_min(1)


class MLP(nn.Module):
    """SwiGLU."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.dim, shape.inner, bias=False)
        self.up_proj = nn.Linear(shape.dim, shape.inner, bias=False)
        self.down_proj = nn.Linear(shape.inner, shape.dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(…, D) → (…, D)."""
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """A layer of the language model."""

    def __init__(self, shape: Shape, guided: Sequence[int]) -> None:
        super().__init__()
        self.self_attn = SelfAttention(shape, guided)
        self.mlp = MLP(shape)
        self.input_layernorm = RMSNorm(shape.dim, shape.epsilon)
        self.post_attention_layernorm = RMSNorm(shape.dim, shape.epsilon)

    def forward(
        self, x: Tensor, angles: tuple[Tensor, Tensor], cache: Cache | None, guide: Guide | None
    ) -> tuple[Tensor, Tensor | None]:
        """(B, n, D) → (B, n, D), and the loss of its guided heads."""
        seen, loss = self.self_attn(self.input_layernorm(x), angles, cache, guide)
        x = x + seen
        return x + self.mlp(self.post_attention_layernorm(x)), loss


class LanguageModel(nn.Module):
    """Embedding, layers, norm."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(DENSE, shape.dim)
        self.layers = nn.ModuleList(Layer(shape, shape.guided.get(i, ())) for i in range(shape.layers))
        self.norm = RMSNorm(shape.dim, shape.epsilon)
