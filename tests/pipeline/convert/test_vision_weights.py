"""The vision tower as an .npz: the very values, under stable names, whole or not at all."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest

from pipeline.convert import plan, vision_weights
from pipeline.convert.names import Part
from storage import failpoints
from storage.errors import DiskFullError, ModelError, VanishedError
from tests.pipeline.convert import small

FC2 = "vision_tower.blocks.0.mlp.fc2.weight"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return small.make(tmp_path / "model")


def test_every_tensor_of_the_tower_is_there_with_its_values(folder: Path, tmp_path: Path) -> None:
    found = plan.examine(folder)
    written = vision_weights.write(found, tmp_path / "vision.npz")
    with np.load(tmp_path / "vision.npz") as archive:
        for entry in found.of(Part.VISION, Part.PROJECTOR):
            values = archive[entry.expected.stable]
            assert values.dtype == np.float32 and values.shape == entry.expected.shape
            np.testing.assert_array_equal(values, entry.read())
        exported = {
            entry.expected.source for entry in found.entries.values() if entry.expected.stable in archive
        }
        assert exported | set(written.left_out) == set(found.entries)
        assert len(archive.files) == written.tensors == 24
        assert archive["projector.weight"].shape[0] == written.projector_out == written.hidden == 64


def test_a_conversion_for_mlx_gives_the_same_file(tmp_path: Path) -> None:
    mx = pytest.importorskip("mlx.core", reason="mlx has no wheel for this machine")
    source = plan.examine(small.make(tmp_path / "model"))
    other = tmp_path / "mlx"
    other.mkdir()
    for path in source.checkpoint.folder.glob("*.json"):
        if "index" not in path.name:
            (other / path.name).write_bytes(path.read_bytes())
    arrays = mx.load(str(small.weights(source.checkpoint.folder)))
    arrays[small.PATCH] = arrays[small.PATCH].transpose(0, 2, 3, 1)  # channels last, as MLX has it
    spelt = {
        k.replace("model.", "language_model.model.").replace("lm_head", "language_model.model.lm_head"): v
        for k, v in arrays.items()
    }
    mx.save_safetensors(str(other / "model.safetensors"), spelt)
    vision_weights.write(source, tmp_path / "a.npz")
    vision_weights.write(plan.examine(other), tmp_path / "b.npz")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_float16_is_half_the_size_and_rounded(folder: Path, tmp_path: Path) -> None:
    found = plan.examine(folder)
    whole = vision_weights.write(found, tmp_path / "whole.npz")
    half = vision_weights.write(found, tmp_path / "half.npz", "float16")
    assert half.size_bytes < 0.6 * whole.size_bytes
    with np.load(tmp_path / "half.npz") as archive:
        np.testing.assert_array_equal(
            archive["vision.blocks.0.mlp.fc2.weight"], found.values(FC2).astype(np.float16)
        )


def test_a_value_beyond_float16_is_told_and_nothing_written(folder: Path, tmp_path: Path) -> None:
    small.poke(folder, FC2, b"\x80\x47")  # 65,536
    out = tmp_path / "out" / "vision.npz"
    out.parent.mkdir()
    with pytest.raises(ModelError, match=f"{FC2} has a value of 6.55e\\+04, which float16 cannot hold"):
        vision_weights.write(plan.examine(folder), out, "float16")
    assert list(out.parent.iterdir()) == []


@pytest.mark.parametrize("place", ["staging.opened", "staging.synced", "staging.rename"])
def test_a_disk_that_fills_up_leaves_what_was_there(
    place: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out" / "vision.npz"
    out.parent.mkdir()
    out.write_bytes(b"an earlier one")
    monkeypatch.setattr(failpoints, "_armed", failpoints.parse(f"{place}=error:ENOSPC"))
    with pytest.raises(DiskFullError, match="Nothing was written; free some space") as caught:
        vision_weights.write(plan.examine(folder), out)
    assert caught.value.file == out
    assert [(path.name, path.read_bytes()) for path in out.parent.iterdir()] == [
        ("vision.npz", b"an earlier one")
    ]


def test_a_disk_too_small_is_told_beforehand(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=0)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    out = tmp_path / "out" / "vision.npz"
    out.parent.mkdir()
    with pytest.raises(DiskFullError, match=r"MB are needed and 0 MB are free. Free some space"):
        vision_weights.write(plan.examine(folder), out)
    assert list(out.parent.iterdir()) == []


def test_a_folder_that_is_not_there_is_told(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(VanishedError, match="make its folder first"):
        vision_weights.write(plan.examine(folder), tmp_path / "no" / "vision.npz")


def test_a_plain_zip_program_reads_it(folder: Path, tmp_path: Path) -> None:
    vision_weights.write(plan.examine(folder), tmp_path / "vision.npz")
    with zipfile.ZipFile(tmp_path / "vision.npz") as archive:
        assert archive.testzip() is None
