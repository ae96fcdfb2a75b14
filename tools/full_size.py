"""Write a checkpoint of dots.ocr's full size (or of fewer layers) without its weights: random ones, or holes.

    python -m tools.full_size DIR [--layers N] [--vision-layers N] [--sparse]

Random weights are made as they are written, scaled so that activations neither die nor explode; --sparse leaves holes,
which take no disk and read as zeros. Tokenizer and processor are those of the tiny model, so the folder loads.
6.1 GB at full size. What it is for: mapping, memory and time of conversions, where no real weights can be had.
"""

from __future__ import annotations

import argparse
import json
import shutil
import struct
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.convert import names
from pipeline.convert.names import Expected

TINY = Path(__file__).parent.parent / "pipeline" / "models" / "tiny"
# config.json of the release (rednote-hilab/dots.ocr), as far as mlx-vlm and transformers read it.
CONFIG: dict[str, Any] = {
    "architectures": ["DotsOCRForCausalLM"], "model_type": "dots_ocr", "hidden_size": 1536,
    "intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12, "num_key_value_heads": 2,
    "max_position_embeddings": 131072, "rms_norm_eps": 1e-06, "rope_theta": 1000000, "rope_scaling": None,
    "attention_bias": True, "attention_dropout": 0.0, "hidden_act": "silu", "tie_word_embeddings": False,
    "use_cache": True, "vocab_size": 151936, "image_token_id": 151665, "video_token_id": 151656,
    "torch_dtype": "bfloat16",
    "vision_config": {
        "model_type": "dots_vit", "embed_dim": 1536, "hidden_size": 1536, "intermediate_size": 4224,
        "num_hidden_layers": 42, "num_attention_heads": 12, "num_channels": 3, "patch_size": 14, "post_norm": True,
        "rms_norm_eps": 1e-05, "spatial_merge_size": 2, "temporal_patch_size": 1, "use_bias": False,
        "is_causal": False,
    },
}  # fmt: skip
SHARD_BYTES = 4_300_000_000  # two files, as released
_CHUNK = 1 << 22  # values made at a time


def config(layers: int | None = None, vision_layers: int | None = None) -> dict[str, Any]:
    """The configuration, with fewer layers where numbers are given."""
    made = json.loads(json.dumps(CONFIG))
    made["num_hidden_layers"] = layers or made["num_hidden_layers"]
    made["vision_config"]["num_hidden_layers"] = vision_layers or made["vision_config"]["num_hidden_layers"]
    return dict(made)


def make(folder: Path, settings: dict[str, Any], *, sparse: bool = False) -> Path:
    """Write the checkpoint into `folder`, which is made."""
    folder.mkdir(parents=True)
    for path in TINY.glob("*.json"):
        if path.name not in ("config.json", "ocrd.json"):
            shutil.copy(path, folder)
    eos = json.loads((TINY / "config.json").read_text("utf-8"))["eos_token_id"]
    (folder / "config.json").write_text(json.dumps(settings | {"eos_token_id": eos}, indent=1), "utf-8")
    tensors = sorted(names.expected(names.dimensions(settings, folder)), key=lambda t: t.source)
    files = list(_distributed(tensors))
    places = {}
    for number, content in enumerate(files, 1):
        name = f"model-{number:05d}-of-{len(files):05d}.safetensors"
        _write(folder / name, content, sparse)
        places |= {tensor.source: name for tensor in content}
    index = {"metadata": {}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), "utf-8")
    return folder


def _distributed(tensors: Iterable[Expected]) -> Iterator[list[Expected]]:
    content: list[Expected] = []
    filled = 0
    for tensor in tensors:
        if content and filled + _bytes(tensor) > SHARD_BYTES:
            yield content
            content, filled = [], 0
        content.append(tensor)
        filled += _bytes(tensor)
    yield content


def _bytes(tensor: Expected) -> int:
    return 2 * int(np.prod(tensor.shape))


def _write(path: Path, content: list[Expected], sparse: bool) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for tensor in content:
        header[tensor.source] = {
            "dtype": "BF16", "shape": list(tensor.shape), "data_offsets": [end, end + _bytes(tensor)],
        }  # fmt: skip
        end += _bytes(tensor)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        if sparse:
            file.truncate(8 + len(text) + end)
            return
        for tensor in content:
            for values in _random(tensor):
                file.write((values.view(np.uint32) >> 16).astype("<u2").tobytes())  # bfloat16, cut


def _random(tensor: Expected) -> Iterator[np.ndarray]:
    """float32 values of a tensor, a chunk at a time, the same at every run."""
    rng = np.random.default_rng(zlib.crc32(tensor.source.encode()))
    left = int(np.prod(tensor.shape))
    is_norm = len(tensor.shape) == 1 and tensor.source.endswith("weight")
    fan_in = int(np.prod(tensor.shape[1:])) if len(tensor.shape) > 1 else 2500
    while left:
        count = min(left, _CHUNK)
        values = rng.standard_normal(count, np.float32) * np.float32(fan_in**-0.5)
        yield values + np.float32(1) if is_norm else values
        left -= count


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--layers", type=int, help="of the language model (28)")
    parser.add_argument("--vision-layers", type=int, help="of the vision tower (42)")
    parser.add_argument("--sparse", action="store_true", help="holes instead of weights")
    given = parser.parse_args()
    make(given.folder, config(given.layers, given.vision_layers), sparse=given.sparse)


if __name__ == "__main__":
    main()
