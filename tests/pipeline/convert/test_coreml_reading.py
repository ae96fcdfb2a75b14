"""Reading with a package: its saved program, run op by op, stands where Core ML's `predict` stands on a Mac."""

# ruff: noqa: E402 - what is skipped without the extra must not be imported before

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed (extra `convert`)")
pytest.importorskip("coremltools", reason="coremltools is not installed (extra `convert`)")

from pipeline import blas, model_files, startup_check

blas.preload()
pytest.importorskip("mlx.core", reason="mlx has no wheel for this machine")

from pipeline import opening, vision_coreml
from pipeline.convert import coreml, coreml_package, plan
from pipeline.convert.coreml import Compression, Options, Precision
from pipeline.convert.coreml_package import INPUT, Package
from pipeline.convert.mil_program import MilProgram
from pipeline.model_reader import ModelReader
from pipeline.presets import TINY_FOLDER
from storage.settings import Settings
from tests.pipeline.convert import small

PICTURE = startup_check.picture(20, 504)


def in_place(package: Package, *_: Any) -> vision_coreml.Predict:
    program = MilProgram(package.path)
    return lambda packed: program.run({INPUT: packed})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The tiny model's packages."""
    folder = tmp_path_factory.mktemp("packages")
    examined = plan.examine(TINY_FOLDER)
    kinds = {
        "float32": Options(precision=Precision.FLOAT32),
        "float16": Options(),
        "int8": Options(compression=Compression.INT8),
    }
    for name, options in kinds.items():
        coreml.convert(examined, folder / f"{name}.mlpackage", options)
    return {name: folder / f"{name}.mlpackage" for name in kinds}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(tmp_path, mode="none", calibrate=False, max_tokens=32, vision_backend="coreml")


def opened(settings: Settings) -> ModelReader:
    return opening.open_reader(settings, model_files.locate("tiny", settings))


@pytest.mark.parametrize("kind", ["float32", "float16", "int8"])
def test_the_text_is_that_of_mlxs_own_features(
    kind: str,
    made: dict[str, Path],
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    truth = opened(replace(settings, vision_backend="mlx", features_gb=0)).read(PICTURE)
    monkeypatch.setattr(vision_coreml, "load", in_place)
    with caplog.at_level(logging.INFO):
        reader = opened(replace(settings, vision_package=made[kind]))
    assert reader.encoder.coreml is not None, caplog.text
    assert "agree to a cosine of 0.999" in caplog.text or "of 1.0000" in caplog.text
    first, second = reader.read(PICTURE), reader.read(PICTURE)
    assert "Coffee" in truth.text
    assert first.text == truth.text
    assert (first.hit, second.hit) == (False, True)
    assert reader.encoder.tower_runs == 1


def test_on_this_system_core_ml_is_missing_and_mlx_reads(
    made: dict[str, Path], settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    if vision_coreml.sys.platform == "darwin":
        pytest.skip("Core ML is here")
    with caplog.at_level(logging.WARNING):
        reader = opened(replace(settings, vision_package=made["float32"]))
    assert reader.encoder.coreml is None
    assert "Core ML is on macOS only" in caplog.text


def test_another_models_package_is_not_used(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Of the same widths, with other weights: nothing but its features tells."""
    import torch

    from pipeline.convert import tower_weights

    examined = plan.examine(TINY_FOLDER)
    other = small.random_tower(tower_weights.load_tower(examined).config, 1)
    out = tmp_path / "other.mlpackage"
    with torch.inference_mode():
        coreml.save(coreml.build(other, (512, 1024), Options(precision=Precision.FLOAT32), "other"), out)
    monkeypatch.setattr(vision_coreml, "load", in_place)
    with caplog.at_level(logging.WARNING):
        reader = opened(replace(settings, vision_package=out))
    assert reader.encoder.coreml is None
    assert "its features are not the model's own" in caplog.text


def test_a_package_of_other_widths_is_not_used(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    out = tmp_path / "small.mlpackage"
    coreml.convert(plan.examine(small.make(tmp_path / "src")), out, Options(precision=Precision.FLOAT32))
    assert coreml_package.read(out).config.hidden_size == 64
    monkeypatch.setattr(vision_coreml, "load", in_place)
    with caplog.at_level(logging.WARNING):
        assert opened(replace(settings, vision_package=out)).encoder.coreml is None
    assert "64 wide, the model's 128" in caplog.text
