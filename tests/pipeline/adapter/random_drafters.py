"""Drafters of every kind with random weights, laid out on disk as released ones are, made to fit a tiny checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten

from pipeline.adapter import drafters
from pipeline.adapter.loading import LoadedModel, embedding_rows
from pipeline.adapter.taps import layer_count

DRAFT_VOCABULARY = 300  # of eagle3: smaller than the model's, with a table between the two


def make(kind: str, loaded: LoadedModel, folder: Path, *, seed: int = 0, **changes: Any) -> Path:
    """Write the drafter into `folder`; `changes` go into its configuration."""
    language_model = loaded.model.language_model
    width = int(drafters._text_config(language_model).hidden_size)
    rows, layers = embedding_rows(loaded.model), layer_count(language_model)
    config = _MAKERS[kind](width, rows, layers)
    _change(config, changes)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    mx.random.seed(seed)
    weights = {name: _random(name, array) for name, array in tree_flatten(_module(config).parameters())}
    if "d2t" in weights:  # draft id i is the model's id 1 + i
        weights["d2t"] = mx.ones((DRAFT_VOCABULARY,), dtype=mx.int32)
    mx.eval(weights)
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
    return folder


def _change(config: dict[str, Any], changes: dict[str, Any]) -> None:
    for path, value in changes.items():
        *parents, name = path.split("__")
        place = config
        for parent in parents:
            place = place[parent]
        place[name] = value


def _module(config: dict[str, Any]) -> Any:
    from mlx_vlm.utils import get_model_and_args

    config = json.loads(json.dumps(config))
    module, _ = get_model_and_args(config)
    return module.Model(module.ModelConfig.from_dict(config))


def _random(name: str, array: Any) -> Any:
    if "norm" in name and name.endswith("weight"):
        return mx.ones(array.shape)
    fan_in = array.shape[-1] if array.ndim > 1 else 1
    return mx.random.normal(array.shape) * (1.4 / fan_in**0.5 if array.ndim > 1 else 0.02)


def _attention(width: int) -> dict[str, Any]:
    return {
        "hidden_size": width, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 16, "rms_norm_eps": 1e-5, "max_position_embeddings": 8192,
        "rope_theta": 10000.0,
    }  # fmt: skip


def _dflash(width: int, rows: int, layers: int) -> dict[str, Any]:
    return {
        **_attention(width), "model_type": "qwen3", "architectures": ["DFlashDraftModel"], "vocab_size": rows,
        "block_size": 8, "num_hidden_layers": 2, "num_target_layers": layers,
        "dflash_config": {"mask_token_id": 3, "target_layer_ids": [0, layers - 1]},
    }  # fmt: skip


def _dspark(width: int, rows: int, layers: int) -> dict[str, Any]:
    config = _dflash(width, rows, layers)
    config["architectures"] = ["Qwen3DSparkModel"]
    config["dflash_config"] |= {"projector_type": "dspark", "markov_rank": 8, "num_target_layers": layers}
    return config


def _eagle3(width: int, rows: int, layers: int) -> dict[str, Any]:
    return {
        "model_type": "eagle3", "speculators_model_type": "eagle3", "draft_vocab_size": DRAFT_VOCABULARY,
        "target_hidden_size": width, "block_size": 5, "capture_layer_ids": [0, layers // 2, layers - 1],
        "target_layer_ids": [1, layers // 2 + 1, layers], "norm_before_residual": True,
        "transformer_layer_config": {**_attention(width), "vocab_size": rows},
    }  # fmt: skip


def _mtp(width: int, rows: int, layers: int) -> dict[str, Any]:
    text = {
        **_attention(width), "model_type": "qwen3_5_text", "vocab_size": rows, "mtp_num_hidden_layers": 1,
        "linear_num_value_heads": 2, "linear_num_key_heads": 2, "linear_key_head_dim": 16,
        "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4, "tie_word_embeddings": False,
        "rope_parameters": {
            "rope_theta": 10000.0, "partial_rotary_factor": 0.5, "mrope_section": [2, 1, 1], "type": "default",
        },
    }  # fmt: skip
    return {"model_type": "qwen3_5_mtp", "text_config": text, "block_size": 4}


_MAKERS = {"dflash": _dflash, "dspark": _dspark, "eagle3": _eagle3, "mtp": _mtp}
