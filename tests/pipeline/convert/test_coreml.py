"""From a checkpoint to a Core ML package: what was saved is run op by op and compared with PyTorch."""

from __future__ import annotations

import errno
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed (extra `convert`)")
pytest.importorskip("coremltools", reason="coremltools is not installed (extra `convert`)")

from typer.testing import CliRunner

from daemon.cli import app
from pipeline import blas, startup_check
from pipeline.convert import coreml, coreml_package, mil_proof, plan, tower_weights
from pipeline.convert.coreml import Compression, Options, Precision, Target
from pipeline.convert.mil_program import MilProgram
from pipeline.convert.page_shapes import Shapes
from pipeline.convert.tower_config import TowerConfig
from pipeline.presets import TINY_FOLDER
from storage.errors import DiskFullError, ExistsError, ModelError, SettingsError, StorageError
from tests.pipeline.convert import small

EXACT = Options(precision=Precision.FLOAT32)
# Widths that leave coremltools' k-means enough to cluster in a test of seconds.
WIDE = {"embed_dim": 192, "intermediate_size": 192, "num_attention_heads": 4}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small checkpoint that takes pictures of up to 2,000 patches."""
    made = small.make(tmp_path_factory.mktemp("coreml") / "src", vision=WIDE)
    path = made / "preprocessor_config.json"
    budget = {"min_pixels": 3136, "max_pixels": 500 * 784, "size": {}}
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | budget), "utf-8")
    return made


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "vision.mlpackage"


@pytest.mark.parametrize("target", Target)
@pytest.mark.parametrize("shapes", Shapes)
def test_float32_is_proved_for_every_target_and_shape(
    folder: Path, out: Path, target: Target, shapes: Shapes
) -> None:
    examined = plan.examine(folder)
    options = Options(precision=Precision.FLOAT32, target=target, shapes=shapes)
    report = coreml.convert(examined, out, options)
    proof = mil_proof.prove(out, examined)
    assert proof.holds
    assert proof.patches < proof.length  # padding is proved with it
    assert proof.spread > 0.01
    ops = MilProgram(out).ops()
    native = ops["scaled_dot_product_attention"]
    assert (native, ops["softmax"]) == ((2, 0) if target is Target.IOS18 else (0, 2))
    package = coreml_package.read(out)
    assert package.lengths == report.lengths
    assert len(report.lengths) == 1 if shapes is Shapes.FIXED else len(report.lengths) > 3
    assert package.config.parameters() == report.parameters
    assert {page.length for page in report.pages if page.length} <= set(report.lengths)


@pytest.mark.parametrize(
    ("compression", "target", "within", "share"),
    [
        (None, Target.IOS18, 0.02, 0.56),
        (None, Target.IOS17, 0.02, 0.56),
        (Compression.INT8, Target.IOS18, 0.1, 0.33),
        (Compression.INT8, Target.IOS17, 0.1, 0.33),
        (Compression.INT4, Target.IOS18, 0.5, 0.25),
        (Compression.INT4, Target.IOS17, 0.5, 0.25),
    ],
)
def test_float16_and_compressed_weights_are_smaller_and_near(
    folder: Path, out: Path, compression: Compression | None, target: Target, within: float, share: float
) -> None:
    """`within`: mean difference in standard deviations of the features; `share`: of four bytes a parameter."""
    examined = plan.examine(folder)
    report = coreml.convert(examined, out, Options(compression=compression, target=target))
    proof = mil_proof.prove(out, examined)
    assert 0 < proof.mean < within * proof.spread
    assert not proof.holds or compression is None  # bounds are for float32
    assert report.size_bytes < share * 4 * report.parameters + 100_000  # program text


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model's tower in float32."""
    out = tmp_path_factory.mktemp("tiny") / "tiny.mlpackage"
    coreml.convert(plan.examine(TINY_FOLDER), out, EXACT)
    return out


def test_a_real_picture_through_the_tiny_models_package_is_what_pytorch_makes_of_it(exact: Path) -> None:
    blas.preload()
    pytest.importorskip("mlx.core", reason="mlx has no wheel for this machine")
    from pipeline.adapter import inputs, loading

    loaded = loading.load(TINY_FOLDER)
    page = inputs.prepare(loaded, "read", startup_check.picture(20, 504))
    rows, columns = (int(n) for n in page.grid.reshape(-1).tolist()[1:])
    tower = tower_weights.load_tower(plan.examine(TINY_FOLDER))
    pixels = inputs.as_float32(page.pixels)
    proof = mil_proof.compare(coreml_package.read(exact), tower, pixels, rows, columns)
    assert proof.largest <= mil_proof.MAX_DIFFERENCE
    assert proof.mean <= mil_proof.MEAN_DIFFERENCE
    assert proof.spread > 1


def test_a_page_larger_than_all_lengths_is_refused_with_both_numbers(exact: Path) -> None:
    package = coreml_package.read(exact)
    tower = tower_weights.load_tower(plan.examine(TINY_FOLDER))
    rows = package.lengths[-1] // 2 + 2
    pixels = np.zeros((rows * 2, tower.config.pixel_width), np.float32)
    with pytest.raises(ModelError, match=f"{package.lengths[-1]} patches.*{rows * 2}"):
        mil_proof.compare(package, tower, pixels, rows, 2)


def test_a_table_of_16_values_serves_as_few_channels_as_can_be_clustered() -> None:
    full = TowerConfig(1536, 1536, 4224, 42, 12, 3, 14, 2, 1e-5, False, True)
    assert coreml.channels_per_table(full) == 32
    assert (
        coreml.channels_per_table(replace(full, embed_dim=192, intermediate_size=384, hidden_size=128)) == 64
    )
    assert coreml.channels_per_table(replace(full, hidden_size=1540)) is None


# --- what may go wrong -------------------------------------------------------------------------------


def test_a_destination_that_is_there_or_cannot_be_is_refused(folder: Path, out: Path, tmp_path: Path) -> None:
    examined = plan.examine(folder)
    with pytest.raises(SettingsError, match="does not end in"):
        coreml.convert(examined, tmp_path / "vision", EXACT)
    with pytest.raises(StorageError):
        coreml.convert(examined, tmp_path / "no" / "vision.mlpackage", EXACT)
    out.mkdir()
    (out / "theirs").write_text("kept")
    with pytest.raises(ExistsError):
        coreml.convert(examined, out, EXACT)
    assert (out / "theirs").read_text() == "kept"
    with pytest.raises(SettingsError, match="float16 only"):
        coreml.convert(
            examined,
            tmp_path / "x.mlpackage",
            Options(precision=Precision.FLOAT32, compression=Compression.INT4),
        )
    assert [path.name for path in tmp_path.iterdir()] == [out.name]


class FullDisk:
    """A model that writes a part and then finds no space."""

    def save(self, path: str) -> None:
        Path(path).mkdir()
        (Path(path) / "Manifest.json").write_text("{")
        raise OSError(errno.ENOSPC, "no space")


def test_a_full_disk_leaves_nothing(out: Path, tmp_path: Path) -> None:
    with pytest.raises(DiskFullError):
        coreml.save(FullDisk(), out)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda package: (package / "Manifest.json").unlink(),
        lambda package: next(package.rglob("*.mlmodel")).write_bytes(b"nonsense"),
        lambda package: shutil.rmtree(package),
    ],
)
def test_a_damaged_package_is_an_error_of_the_package(exact: Path, tmp_path: Path, change: Any) -> None:
    package = Path(shutil.copytree(exact, tmp_path / "damaged.mlpackage"))
    change(package)
    with pytest.raises(ModelError):
        coreml_package.read(package)


def test_the_content_decides_the_hash_and_not_the_saving(exact: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(exact, tmp_path / "copy.mlpackage"))
    (copy / "Manifest.json").write_text((copy / "Manifest.json").read_text().replace("A", "B"))
    first, second = coreml_package.read(exact), coreml_package.Package(copy, *packaged(exact))
    assert first.content_hash() == second.content_hash()
    weights = next(copy.rglob("weight.bin"))
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    assert first.content_hash() != second.content_hash()


def packaged(path: Path) -> Any:
    package = coreml_package.read(path)
    return package.config, package.lengths, package.compute_units, package.weights


# --- the command -------------------------------------------------------------------------------------


def test_the_command_converts_proves_and_says_what_is_next(folder: Path, out: Path) -> None:
    words = ["convert", "coreml", str(folder), str(out), "--precision", "float32", "--shapes", "fixed"]
    done = CliRunner().invoke(app, [*words, "--paper", "a8", "--compute-units", "cpu-only", "--json"])
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert said["proof"]["holds"]
    assert said["options"]["shapes"] == "fixed"
    assert said["size_bytes"] == coreml_package.read(out).size_bytes
    assert coreml_package.read(out).compute_units is coreml_package.ComputeUnits.CPU_ONLY
    again = CliRunner().invoke(app, words)
    assert again.exit_code == ExistsError.exit_code
    shutil.rmtree(out)
    shown = CliRunner().invoke(app, words)
    assert "proved" in shown.stdout
    assert 'vision_backend = "coreml"' in shown.stdout


def test_an_option_that_is_none_of_the_known_is_a_usage_error(folder: Path, out: Path) -> None:
    for option, value in (("--precision", "bf16"), ("--quantize", "int2"), ("--target", "ios16")):
        done = CliRunner().invoke(app, ["convert", "coreml", str(folder), str(out), option, value])
        assert done.exit_code == 2
    assert not out.exists()
