"""Everything around Core ML's `predict`: padding, the store, what happens where a package fails or is another's."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pipeline import blas, model_files, startup_check
from pipeline.convert import names, tower_config, tower_inputs
from pipeline.convert.coreml_package import ComputeUnits, Package
from pipeline.presets import TINY_FOLDER
from storage.errors import EngineError, ModelError
from storage.features import FeatureStore
from storage.settings import Settings

blas.preload()
pytest.importorskip("mlx.core", reason="mlx has no wheel for this machine")

from pipeline import opening, vision_coreml  # noqa: E402
from pipeline.adapter import inputs, loading  # noqa: E402
from pipeline.adapter.inputs import PageInputs  # noqa: E402
from pipeline.adapter.loading import LoadedModel  # noqa: E402
from pipeline.vision import VisionEncoder, to_bytes  # noqa: E402
from pipeline.vision_coreml import CoreMLEncoder, Predict  # noqa: E402

PICTURE = startup_check.picture(20, 504)
OURS = "c" * 64


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    return loading.load(TINY_FOLDER)


@pytest.fixture(scope="module")
def page(loaded: LoadedModel) -> PageInputs:
    return inputs.prepare(loaded, "read", PICTURE)


@pytest.fixture(scope="module")
def package(loaded: LoadedModel) -> Package:
    """As `coreml_package.read` would describe it; nothing lies there."""
    config = tower_config.of(names.dimensions(loaded.checkpoint.config, TINY_FOLDER))
    return Package(Path("tiny.mlpackage"), config, (256, 512, 1024), ComputeUnits.ALL, "")


class Mlx:
    """Predicts with MLX's tower: of the padded array it takes the page's own rows, and of padding gives NaN."""

    def __init__(self, loaded: LoadedModel, page: PageInputs) -> None:
        self.loaded, self.page, self.seen = loaded, page, list[Any]()

    def __call__(self, packed: Any) -> Any:
        self.seen.append(packed)
        features = inputs.as_float32(inputs.encode(self.loaded, self.page))
        out = np.full((len(packed) // 4, features.shape[1]), np.nan, np.float32)
        out[: len(features)] = features
        return out


def encoder(
    loaded: LoadedModel, folder: Path | None, predict: Predict | None, package: Package
) -> VisionEncoder:
    store = FeatureStore(folder, 10**9) if folder is not None else None
    coreml = CoreMLEncoder(package, predict, OURS) if predict is not None else None
    return VisionEncoder(loaded, "m" * 64, store, "tiny", coreml)


def test_a_page_is_padded_to_the_next_length_and_cut_to_its_own_features(
    loaded: LoadedModel, page: PageInputs, package: Package
) -> None:
    predict = Mlx(loaded, page)
    features = CoreMLEncoder(package, predict, OURS).encode(page)
    (packed,) = predict.seen
    count = 12 * 36
    assert packed.shape == (512, package.config.input_width)
    np.testing.assert_array_equal(
        packed[:count, : package.config.pixel_width], inputs.as_float32(page.pixels)
    )
    assert (packed[:count, -1] == 0).all() and (packed[count:, -1] == tower_inputs.MASKED).all()
    assert features.shape == (len(page.positions), package.config.hidden_size)
    np.testing.assert_array_equal(features, inputs.as_float32(inputs.encode(loaded, page)))


def test_features_are_kept_under_the_packages_own_fingerprint(
    loaded: LoadedModel, page: PageInputs, package: Package, tmp_path: Path
) -> None:
    predict = Mlx(loaded, page)
    ours = encoder(loaded, tmp_path, predict, package)
    first, second = ours.encode(page, PICTURE), ours.encode(page, PICTURE)
    assert (first.hit, second.hit, len(predict.seen)) == (False, True, 1)
    assert to_bytes(first.features) == to_bytes(second.features)
    theirs = encoder(loaded, tmp_path, None, package).encode(page, PICTURE)
    assert not theirs.hit
    assert encoder(loaded, tmp_path, predict, package).encode(page, PICTURE).hit


def test_a_page_too_large_for_the_package_is_mlxs_and_the_next_one_is_not(
    loaded: LoadedModel, page: PageInputs, package: Package, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    small = replace(package, lengths=(128, 256))
    predict = Mlx(loaded, page)
    ours = encoder(loaded, tmp_path, predict, small)
    with caplog.at_level(logging.WARNING):
        assert not ours.encode(page, PICTURE).hit
        ours.encode(page, PICTURE)
    assert not predict.seen
    assert [record.message for record in caplog.records] == [
        "a page of 432 patches is larger than the Core ML package takes (256): MLX encodes those"
    ]
    assert ours.coreml is not None  # smaller pages still go there
    assert encoder(loaded, tmp_path, None, package).encode(page, PICTURE).hit  # kept as MLX's


def raising(packed: Any) -> Any:
    raise RuntimeError("Error computing NN outputs.\nmore")


@pytest.mark.parametrize(
    ("predict", "why"),
    [
        (raising, "Error computing NN outputs."),
        (lambda packed: np.full((len(packed) // 4, 128), np.nan), "no numbers"),
        (lambda packed: np.zeros((len(packed) // 4, 64)), "of shape"),
    ],
)
def test_where_predict_fails_mlx_encodes_from_then_on(
    loaded: LoadedModel,
    page: PageInputs,
    package: Package,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    predict: Predict,
    why: str,
) -> None:
    ours = encoder(loaded, tmp_path, predict, package)
    with caplog.at_level(logging.WARNING):
        encoded = ours.encode(page, PICTURE)
    assert "MLX encodes from now on" in caplog.text and why in caplog.text
    assert ours.coreml is None
    np.testing.assert_array_equal(
        inputs.as_float32(encoded.features), inputs.as_float32(inputs.encode(loaded, page))
    )
    with pytest.raises(EngineError):
        CoreMLEncoder(package, predict, OURS).encode(page)


def test_a_package_that_agrees_with_the_model_is_taken_and_anothers_is_not(
    loaded: LoadedModel, page: PageInputs, package: Package
) -> None:
    agreeing = CoreMLEncoder(package, Mlx(loaded, page), OURS)
    assert vision_coreml.check(agreeing, loaded) == pytest.approx(1)
    noise = np.random.default_rng(0)
    other = CoreMLEncoder(package, lambda x: noise.standard_normal((len(x) // 4, 128)), OURS)
    with pytest.raises(ModelError, match="not the model's own"):
        vision_coreml.check(other, loaded)
    wide = replace(package, config=replace(package.config, hidden_size=1536))
    with pytest.raises(ModelError, match="1536 wide, the model's 128"):
        vision_coreml.check(CoreMLEncoder(wide, Mlx(loaded, page), OURS), loaded)
    tiny = replace(package, lengths=(64,))
    with pytest.raises(ModelError, match="small picture"):
        vision_coreml.check(CoreMLEncoder(tiny, Mlx(loaded, page), OURS), loaded)


def test_fingerprints_differ_by_content_unit_and_encoder(loaded: LoadedModel, package: Package) -> None:
    found = {
        vision_coreml.fingerprint(loaded, package, "a"),
        vision_coreml.fingerprint(loaded, package, "b"),
        vision_coreml.fingerprint(loaded, replace(package, compute_units=ComputeUnits.CPU_ONLY), "a"),
        opening.vision.encoder_fingerprint(loaded, "a", None),
    }
    assert len(found) == 4


@pytest.mark.parametrize("named", [None, Path("nowhere.mlpackage")])
def test_without_a_package_that_loads_mlx_reads_and_a_warning_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, named: Path | None
) -> None:
    settings = Settings(tmp_path, mode="none", calibrate=False, vision_backend="coreml", vision_package=named)
    with caplog.at_level(logging.WARNING):
        reader = opening.open_reader(settings, model_files.locate("tiny", settings))
    assert reader.encoder.coreml is None
    (message,) = [record.message for record in caplog.records if "vision encoder" in record.message]
    assert message.startswith("the vision encoder stays MLX's: ")
    with caplog.at_level(logging.WARNING):
        caplog.clear()
        assert vision_coreml.open_encoder(replace(settings, vision_backend="mlx"), reader.loaded) is None
    assert not caplog.records


def test_spliced_features_are_read_as_mlxs_own(tmp_path: Path, package: Package) -> None:
    """A whole reading, features by what stands in for Core ML."""
    settings = Settings(tmp_path, mode="none", calibrate=False, max_tokens=24)
    reader = opening.open_reader(settings, model_files.locate("tiny", settings))
    truth = reader.read(PICTURE)
    prompt = reader.prompt(reader.preset.task)
    prepared = inputs.prepare(reader.loaded, prompt.text, PICTURE)
    predict = Mlx(reader.loaded, prepared)
    reader.encoder.coreml = CoreMLEncoder(package, predict, OURS)
    reading = reader.read(PICTURE)
    assert len(predict.seen) == 1
    assert (reading.outcome.ids, reading.hit) == (truth.outcome.ids, False)
    assert reader.with_mode("none", 4).encoder.coreml is reader.encoder.coreml


class FakeCoreML:
    """The part of coremltools that only a Mac has: what it is asked, and a compiled model that doubles its input."""

    def __init__(self, fails: bool = False) -> None:
        self.compiled, self.opened, self.fails = list[str](), list[tuple[str, str]](), fails
        self.ComputeUnit = SimpleNamespace(
            ALL="ALL", CPU_AND_GPU="GPU", CPU_AND_NE="NE", CPU_ONLY="CPU"
        )  # its own spelling
        self.models = SimpleNamespace(
            CompiledMLModel=self.open, utils=SimpleNamespace(compile_model=self.compile)
        )

    def compile(self, package: str, destination: str) -> None:
        self.compiled.append(package)
        Path(destination).mkdir()
        if self.fails:
            raise RuntimeError("Error compiling model.\nmore")

    def open(self, path: str, units: str) -> Any:
        self.opened.append((path, units))
        return SimpleNamespace(predict=lambda data: {"features": data["patches"] * 2})


def test_a_package_is_compiled_once_and_opened_on_the_units_it_is_labelled_with(
    package: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeCoreML()
    monkeypatch.setattr(vision_coreml.sys, "platform", "darwin")
    monkeypatch.setattr(vision_coreml.extra, "coremltools", lambda: fake)
    labelled = replace(package, compute_units=ComputeUnits.CPU_AND_NE)
    predict = vision_coreml.load(labelled, tmp_path / "coreml", "e" * 64)
    vision_coreml.load(labelled, tmp_path / "coreml", "e" * 64, ComputeUnits.CPU_ONLY)
    assert predict(np.ones((1, 1), np.float32)) == 2
    assert fake.compiled == [str(package.path)]
    (place,) = (tmp_path / "coreml").iterdir()
    assert fake.opened == [(str(place), "NE"), (str(place), "CPU")]


def test_a_package_that_does_not_compile_is_an_error_and_leaves_nothing(
    package: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vision_coreml.sys, "platform", "darwin")
    monkeypatch.setattr(vision_coreml.extra, "coremltools", lambda: FakeCoreML(fails=True))
    with pytest.raises(ModelError, match=r"does not load the package \(Error compiling model"):
        vision_coreml.load(package, tmp_path, "e" * 64)
    assert list(tmp_path.iterdir()) == []
