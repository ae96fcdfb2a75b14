"""The whole tiny model: image tokens and prompt in, logits over the 96 characters and the end out."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from tools.tiny.charset import CLASS_IDS, CLASSES, SPECIAL_ID
from tools.tiny.layers import Cache, Guide, LanguageModel, VisionTower, angles_of
from tools.tiny.recipe import Shape

UNUSED_LOGIT = 6.0  # stands for the 150 k rows of the head that are zero: a character's logit has to beat it


def two_bit(rows: Tensor) -> Tensor:
    """Rows as they will be stored: the levels ±0.5 and ±1.5 times its deviation. Gradients pass straight through."""
    with torch.no_grad():
        deviation = rows.std(-1, keepdim=True).clamp_min(1e-8)
        stored = ((rows / deviation - 0.5).round().clamp(-2, 1) + 0.5) * deviation
        change = stored - rows
    return rows + change


class TinyModel(nn.Module):
    """Vision tower, language model, and a head with one row per class.

    `aux` predicts from each image token alone which character centres lie in its slots; it and the guidance are only
    there for training. `as_stored`: the tables hold what a checkpoint stores, and are not quantised once more.
    """

    def __init__(self, shape: Shape, *, as_stored: bool = False) -> None:
        super().__init__()
        self.shape, self.as_stored = shape, as_stored
        self.vision_tower = VisionTower(shape)
        self.model = LanguageModel(shape)
        self.head = nn.Parameter(torch.randn(CLASSES, shape.dim) * shape.dim**-0.5)
        self.aux = nn.Linear(shape.dim, shape.slots[0] * shape.slots[1] * CLASSES)
        self.register_buffer("class_ids", torch.tensor(CLASS_IDS), persistent=False)
        self._initialise()

    def _initialise(self) -> None:
        """Normal weights; what is added to the residual stream starts at half."""
        tables = {"head", "model.embed_tokens.weight"}
        nn.init.normal_(self.model.embed_tokens.weight, std=0.5)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2 and name not in tables:
                nn.init.normal_(parameter, std=min(0.06, 0.8 * parameter.shape[1] ** -0.5))
            if name.endswith(("attn.proj.weight", "fc2.weight", "o_proj.weight", "down_proj.weight")):
                parameter.data *= 0.5

    def embed(self, ids: Tensor) -> Tensor:
        """(…,) token ids below 1024 → (…, D)."""
        rows = self.model.embed_tokens(ids)
        return rows if self.as_stored else two_bit(rows)

    def logits(self, hidden: Tensor) -> Tensor:
        """(…, D) → (…, 97) in float32."""
        head = self.head if self.as_stored else two_bit(self.head)
        return hidden.float() @ head.float().t()

    def read(
        self, x: Tensor, *, start: int = 0, caches: list[Cache] | None = None, guide: Guide | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        """(B, n, D) embeddings at positions `start`… → (B, n, D) and the guided layers' losses; `caches`: per layer."""
        positions = torch.arange(start, start + x.shape[1], device=x.device)
        halves = angles_of(positions, self.shape.dim // self.shape.heads, self.shape.rope_theta)
        both = torch.cat((halves, halves), -1)
        angles = (both.cos(), both.sin())
        losses = []
        for index, layer in enumerate(self.model.layers):
            x, loss = layer(x, angles, caches[index] if caches is not None else None, guide)
            if loss is not None:
                losses.append(loss)
        return self.model.norm(x), losses

    def question(self, features: Tensor, prompt: Sequence[int]) -> Tensor:
        """Embeddings of a whole prompt, (B, 2 + N + prompt + 3, D), as the chat template writes it."""
        device, batch = features.device, features.shape[0]

        def tokens(*ids: int) -> Tensor:
            return self.embed(torch.tensor(ids, device=device))[None].expand(batch, -1, -1)

        before = tokens(SPECIAL_ID["<|user|>"], SPECIAL_ID["<|img|>"])
        ends = (SPECIAL_ID["<|endofuser|>"], SPECIAL_ID["<|assistant|>"])
        after = tokens(SPECIAL_ID["<|endofimg|>"], *prompt, *ends)
        return torch.cat((before, features.to(before.dtype), after), 1)

    @property
    def parameter_count(self) -> int:
        """What is trained and exported: without the auxiliary head and unused embedding rows left in."""
        dropped = sum(parameter.numel() for parameter in self.aux.parameters())
        return sum(parameter.numel() for parameter in self.parameters()) - dropped


IMAGE_AT = 2  # position of the first image token
