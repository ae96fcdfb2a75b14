"""Greedy reading with the torch model, a batch at a time: for evaluation; ocrd itself reads through mlx-vlm."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from tools.tiny.charset import CHARACTERS, END
from tools.tiny.layers import Cache
from tools.tiny.model import TinyModel


@torch.no_grad()
def read(
    model: TinyModel, patches: np.ndarray, rows: int, columns: int, prompt: Sequence[int], most: int
) -> list[str]:
    """The text on each of B pictures of one size, (B, rows*columns, 196); at most `most` characters each."""
    device = model.head.device
    features = model.vision_tower(torch.from_numpy(patches).to(device), rows, columns)
    x = model.question(features, prompt)
    caches: list[Cache] = [[] for _ in model.model.layers]
    texts: list[list[str]] = [[] for _ in range(len(patches))]
    open_ = set(range(len(patches)))
    position = 0
    for _ in range(most):
        hidden, _ = model.read(x, start=position, caches=caches)
        position += x.shape[1]
        best = model.logits(hidden[:, -1]).argmax(-1)
        for index, class_ in enumerate(best.tolist()):
            if class_ == END:
                open_.discard(index)
            elif index in open_:
                texts[index].append(CHARACTERS[class_])
        if not open_:
            break
        x = model.embed(model.class_ids[best])[:, None]
    return ["".join(text) for text in texts]
