"""What is refused before anything is converted, and what it is called."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pipeline.convert import plan
from storage.errors import ModelError, UntrustedModelError
from tests.pipeline.convert import small
from tests.pipeline.convert.small import Header

NORM = "vision_tower.blocks.1.norm1.weight"
EMBED = "model.embed_tokens.weight"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return small.make(tmp_path / "model")


def _drop(*names: str) -> Callable[[Header], None]:
    return lambda header: [header.pop(name) for name in names] and None


def _set(name: str, **entries: object) -> Callable[[Header], None]:
    return lambda header: header[name].update(entries)


def _rename(name: str, other: str) -> Callable[[Header], None]:
    return lambda header: header.update({other: header.pop(name)})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_drop(NORM), f"the tensor {NORM} is missing"),
        (_drop(NORM, EMBED), f"2 tensors, as {NORM}, are missing"),
        (_rename(NORM, "vision_tower.blocks.1.norm9.weight"), f"the tensor {NORM} is missing"),
        (_set(NORM, shape=[8, 8]), rf"{NORM} has shape \[8, 8\]; by config.json it is \[64\]"),
        (_set(NORM, shape=[63]), "128 bytes, which is no bfloat16 array"),
        (_set(NORM, shape="x"), "says nothing usable"),
        (_set(NORM, dtype="F8_E4M3", shape=[128]), f"{NORM} is stored as F8_E4M3; read are F32, F16, BF16"),
        (_set(NORM, dtype="U32", shape=[32]), f"{NORM} is stored as U32"),
        (_set(EMBED, shape=[64, 256]), rf"{EMBED} has shape \[64, 256\]; by config.json it is \[256, 64\]"),
        (lambda h: h.update(extra=dict(h[NORM])), "the tensor extra is unknown"),
        (
            lambda h: h.update({f"model.{NORM}": dict(h[NORM])}),
            f"(model.{NORM} and {NORM}|{NORM} and model.{NORM}) are the same tensor",
        ),
    ],
)  # fmt: skip
def test_a_checkpoint_that_is_not_whole_is_told_by_tensor(
    change: Callable[[Header], None], said: str, folder: Path
) -> None:
    small.edit(folder, change)
    with pytest.raises(ModelError, match=said) as caught:
        plan.examine(folder)
    assert caught.value.file == folder and caught.value.remedy


def test_a_tensor_in_two_files_is_told(folder: Path) -> None:
    (folder / "model.safetensors.index.json").unlink()
    path = small.weights(folder)
    (folder / "other.safetensors").write_bytes(path.read_bytes())
    with pytest.raises(ModelError, match=r"is in .*\.safetensors and in other\.safetensors"):
        plan.examine(folder)


def test_another_architecture_is_told(folder: Path) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | {"model_type": "glm_ocr"}), "utf-8")
    with pytest.raises(ModelError, match=r"this is glm_ocr, and only dots\.ocr"):
        plan.examine(folder)


def test_a_folder_with_code_is_refused_unless_trusted(folder: Path) -> None:
    path = folder / "config.json"
    auto_map = {"AutoModel": "modeling_dots_ocr.DotsOCR"}
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | {"auto_map": auto_map}), "utf-8")
    plan.examine(folder)  # what it names is not there: nothing can run
    (folder / "modeling_dots_ocr.py").write_text("raise SystemExit('code of the folder was run')", "utf-8")
    with pytest.raises(UntrustedModelError, match="auto_map"):
        plan.examine(folder)
    plan.examine(folder, trusted=[folder])


def test_buffers_that_follow_from_the_configuration_are_named_as_left_out(folder: Path) -> None:
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    small.edit(folder, lambda h: h.update({name: dict(h[NORM])}))
    assert plan.examine(folder).left_out == (name,)


def test_values_are_exactly_what_is_stored(folder: Path) -> None:
    small.poke(folder, NORM, b"\x80\x3f\x00\xc0\x01\x00")  # 1.0, -2.0, the least subnormal, in bfloat16
    values = plan.examine(folder).values(NORM)
    assert values.dtype == np.float32 and values.shape == (64,)
    assert values[:3].tolist() == [1.0, -2.0, float(np.array(1 << 16, np.uint32).view(np.float32))]


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ({"quantization": {"group_size": 128, "bits": 3}}, "quantised in a way"),
        ({"quantization": {"group_size": 128, "bits": 2, "mode": "mxfp4"}}, "quantised in a way"),
        ({"quantization": {"group_size": 64, "bits": 2}}, "has shape"),
        ({"quantization": {"group_size": 128, "bits": 4}}, r"has shape \[151666, 64\]; by config.json"),
        ({"quantization": {}, "quantization_config": {}}, "quantised in a way"),
    ],
)
def test_quantised_weights_must_fit_their_settings(
    entries: dict[str, object], said: str, tmp_path: Path
) -> None:
    folder = tmp_path / "tiny"
    folder.mkdir()
    for path in small.TINY.iterdir():
        (folder / path.name).symlink_to(path)
    config = json.loads((small.TINY / "config.json").read_text("utf-8"))
    (folder / "config.json").unlink()
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": None} | entries), "utf-8")
    with pytest.raises(ModelError, match=said):
        plan.examine(folder)
