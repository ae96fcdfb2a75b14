"""Trained weights to a folder in dots.ocr's on-disk layout, and back into the torch model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file, save_file

from tools.tiny.charset import CLASS_IDS, DENSE
from tools.tiny.model import TinyModel
from tools.tiny.packing import pack, unpack
from tools.tiny.recipe import PATCH_PX, Shape
from tools.tiny.released import files_for

_PATCHES = "vision_tower.patch_embed.patchifier.proj.weight"
_TABLES = ("model.embed_tokens", "lm_head")
_TRAINING_ONLY = ("aux.", "head", "model.embed_tokens.")


def export(model: TinyModel, tokenizer: str, folder: Path, *, half: bool = False) -> Path:
    """Write the checkpoint; the folder is made. `half`: the weights beside the tables in float16."""
    folder.mkdir(parents=True, exist_ok=True)
    dtype = np.float16 if half else np.float32
    state = {name: value.detach().float().cpu().numpy() for name, value in model.state_dict().items()}
    weights = {
        name: _three_channels(value) if name == _PATCHES else value
        for name, value in state.items()
        if not name.startswith(_TRAINING_ONLY)
    }
    weights = {name: np.ascontiguousarray(value.astype(dtype)) for name, value in weights.items()}
    embedding = state["model.embed_tokens.weight"]
    rows = (
        {id_: embedding[id_] for id_ in range(DENSE)},
        {id_: state["head"][class_] for class_, id_ in enumerate(CLASS_IDS)},
    )
    for table, used in zip(_TABLES, rows, strict=True):
        weights |= {f"{table}.{part}": array for part, array in pack(used).items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    for name, body in files_for(model.shape, "float16" if half else "float32").items():
        (folder / name).write_text(json.dumps(body, indent=1), encoding="utf-8")
    (folder / "tokenizer.json").write_text(tokenizer, encoding="utf-8")
    return folder


def _three_channels(patches: np.ndarray) -> np.ndarray:
    """(D, 196) grey → (D, 3, 14, 14): a third for each of three equal channels."""
    grey = patches.reshape(-1, 1, PATCH_PX, PATCH_PX) / 3
    return np.repeat(grey, 3, axis=1)


def load(folder: Path) -> TinyModel:
    """The torch model of an exported checkpoint, for evaluation. Its auxiliary head is untrained."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    weights = load_file(folder / "model.safetensors")
    model = TinyModel(shape_of(config), as_stored=True)
    state = {name: torch.from_numpy(_dense(name, weights)) for name in model.state_dict() if _is_stored(name)}
    ids = {"model.embed_tokens.weight": range(DENSE), "head": CLASS_IDS}
    for (name, used), table in zip(ids.items(), _TABLES, strict=True):
        parts = {part: weights[f"{table}.{part}"] for part in ("weight", "scales", "biases")}
        state[name] = torch.from_numpy(unpack(parts, used))
    missing, _ = model.load_state_dict(state, strict=False)
    if {name.split(".")[0] for name in missing} - {"aux"}:
        raise ValueError(f"{folder}: weights are missing: {missing[:3]}")
    return model.eval().requires_grad_(False)


def _is_stored(name: str) -> bool:
    return not name.startswith(_TRAINING_ONLY)


def _dense(name: str, weights: dict[str, np.ndarray]) -> np.ndarray:
    value = weights[name].astype(np.float32)
    return value.sum(1).reshape(len(value), -1) if name == _PATCHES else value


def shape_of(config: dict[str, Any]) -> Shape:
    """The sizes that a config.json tells."""
    vision = config["vision_config"]
    return Shape(
        vision_dim=vision["embed_dim"],
        vision_layers=vision["num_hidden_layers"],
        vision_heads=vision["num_attention_heads"],
        vision_inner=vision["intermediate_size"],
        vision_epsilon=vision["rms_norm_eps"],
        dim=config["hidden_size"],
        layers=config["num_hidden_layers"],
        heads=config["num_attention_heads"],
        inner=config["intermediate_size"],
        epsilon=config["rms_norm_eps"],
        rope_theta=config["rope_theta"],
        guided={},
    )
