"""Does mlx-vlm compute what the torch model does? The same picture through both: ids, features, logits, text."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from PIL import Image

from pipeline.adapter import inputs, loading
from tools.tiny import exporting, pictures
from tools.tiny.batches import patchify
from tools.tiny.charset import CLASS_IDS, IMAGE_ID, SPECIAL_ID
from tools.tiny.model import IMAGE_AT, TinyModel
from tools.tiny.pictures import Request, Sources
from tools.tiny.recipe import PATCH_PX, Kind
from tools.tiny.tokenizer import PromptEncoder

# Largest differences measured on CPUs: features 2e-5 of up to 20, logits 6e-3 of up to 20.
MOST_FEATURES, MOST_LOGITS = 1e-3, 5e-2


@dataclass(frozen=True, slots=True)
class Parity:
    """Largest absolute differences, with the largest values they are of."""

    same_ids: bool
    features: float
    features_of: float
    logits: float
    logits_of: float
    same_choices: bool  # the best class at every position of the prompt
    unused_logits: float  # of rows that no character has: 0 as stored

    @property
    def holds(self) -> bool:
        """Within the tolerances."""
        near = self.features <= MOST_FEATURES and self.logits <= MOST_LOGITS
        return self.same_ids and near and self.unused_logits == 0

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "holds": self.holds}


def compare(folder: Path, sources: Sources, prompt: str) -> Parity:
    """Load an exported checkpoint both ways and run a held-out block through the prefill of each."""
    request = Request(Kind.BLOCK, 336, 140, spoiled=False, held_text=True, held_fonts=True)
    pixels = pictures.make(Random(42), request, sources).pixels
    encoder = PromptEncoder((folder / "tokenizer.json").read_text(encoding="utf-8"))
    features, logits, ids = _torch(exporting.load(folder), pixels, encoder.ids(prompt))
    mlx_features, mlx_logits, mlx_ids = _mlx(folder, pixels, prompt)
    classes = mlx_logits[:, list(CLASS_IDS)]
    return Parity(
        same_ids=ids == mlx_ids,
        features=float(np.abs(features - mlx_features).max()),
        features_of=float(np.abs(features).max()),
        logits=float(np.abs(logits - classes).max()) if ids == mlx_ids else float("inf"),
        logits_of=float(np.abs(logits).max()),
        same_choices=bool(ids == mlx_ids and (logits.argmax(-1) == classes.argmax(-1)).all()),
        unused_logits=float(np.abs(np.delete(mlx_logits[-1], list(CLASS_IDS))).max()),
    )


@torch.no_grad()
def _torch(
    model: TinyModel, pixels: np.ndarray, prompt: list[int]
) -> tuple[np.ndarray, np.ndarray, list[int]]:
    rows, columns = (side // PATCH_PX for side in pixels.shape)
    features = model.vision_tower(torch.from_numpy(patchify(pixels))[None], rows, columns)
    hidden, _ = model.read(model.question(features, prompt))
    before = [SPECIAL_ID["<|user|>"], SPECIAL_ID["<|img|>"]]
    after = [SPECIAL_ID["<|endofimg|>"], *prompt, SPECIAL_ID["<|endofuser|>"], SPECIAL_ID["<|assistant|>"]]
    ids = [*before, *[IMAGE_ID] * features.shape[1], *after]
    assert len(before) == IMAGE_AT
    return features[0].numpy(), model.logits(hidden)[0].numpy(), ids


def _mlx(folder: Path, pixels: np.ndarray, prompt: str) -> tuple[np.ndarray, np.ndarray, list[int]]:
    loaded = loading.load(folder)
    page = inputs.prepare(loaded, prompt, Image.fromarray(pixels).convert("RGB"))
    features = inputs.encode(loaded, page)
    output = loaded.model(page.ids, pixel_values=page.pixels, **page.extra)
    return np.array(features), np.array(output.logits[0]), [int(id_) for id_ in page.ids[0].tolist()]
