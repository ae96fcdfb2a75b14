"""Checkpoints of dots.ocr small enough to be made for a test, and ways to spoil them."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools import full_size

if TYPE_CHECKING:
    from pipeline.convert.tower import VisionTower
    from pipeline.convert.tower_config import TowerConfig

Header = dict[str, dict[str, Any]]
TINY = full_size.TINY
PATCH = "vision_tower.patch_embed.patchifier.proj.weight"


def config(**changes: Any) -> dict[str, Any]:
    """Widths of 64, two blocks each; `changes` go to the top level, `vision=…` into vision_config."""
    made = full_size.config(2, 2)
    made |= {
        "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2,
        "vocab_size": 256,
    }  # fmt: skip
    made["vision_config"] |= {
        "embed_dim": 64, "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4
    } | changes.pop("vision", {})  # fmt: skip
    return made | changes


def make(folder: Path, **changes: Any) -> Path:
    """A checkpoint in `folder`: its weights in one file, bfloat16."""
    return full_size.make(folder, config(**changes))


def random_tower(config: TowerConfig, seed: int) -> VisionTower:
    """A tower of random weights that keeps activations near 1: where content does not matter. Needs torch."""
    import torch

    from pipeline.convert.tower_weights import empty_tower

    generator = torch.Generator().manual_seed(seed)
    tower = empty_tower(config)
    state = {}
    for name, parameter in tower.named_parameters():
        if parameter.ndim > 1:
            values = torch.randn(parameter.shape, generator=generator)
            state[name] = values * (parameter.numel() / parameter.shape[0]) ** -0.5
        else:
            state[name] = torch.full(parameter.shape, float(name.endswith("weight")))
    tower.load_state_dict(state, assign=True)
    return tower


def weights(folder: Path) -> Path:
    """The weight file."""
    (path,) = folder.glob("*.safetensors")
    return path


def edit(folder: Path, change: Callable[[Header], None]) -> None:
    """Change the weight file's header; the bytes after it stay."""
    path = weights(folder)
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])
    index = folder / "model.safetensors.index.json"
    places = {name: path.name for name in header if name != "__metadata__"}
    index.write_text(json.dumps({"metadata": {}, "weight_map": places}), "utf-8")


def poke(folder: Path, name: str, value: bytes) -> None:
    """Put bytes at the begin of a tensor."""
    path = weights(folder)
    data = bytearray(path.read_bytes())
    (length,) = struct.unpack("<Q", data[:8])
    start = 8 + length + json.loads(data[8 : 8 + length])[name]["data_offsets"][0]
    data[start : start + len(value)] = value
    path.write_bytes(data)
