"""dots.ocr's vision tower as a Core ML package at run time: pages padded, predicted, cut to their own features.

What `predict` is, is given: Core ML on a Mac; in tests, the package's own program run op by op. Everything else is
the same on any system. Where a package does not load or does not agree with the model, MLX goes on encoding.
"""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pipeline.adapter import inputs as page_inputs
from pipeline.adapter.inputs import PageInputs
from pipeline.convert import coreml_package, extra, page_shapes, tower_inputs
from pipeline.convert.coreml_package import INPUT, OUTPUT, ComputeUnits, Package
from storage.errors import (
    EngineError,
    EngineUnavailableError,
    ModelError,
    OcrdError,
    SettingsError,
    first_line,
)

if TYPE_CHECKING:
    from pipeline.adapter.loading import LoadedModel
    from storage.settings import Settings

log = logging.getLogger(__name__)

COREML = "coreml"
Array = NDArray[np.float32]
# (length, input_width) float32 → (length / 4, hidden_size): one page through the package.
Predict = Callable[[Array], Array]
# Least cosine between features of Core ML and MLX on the picture that is tried at the start, in the mean over image
# tokens. Another model's package is near 0; float16 above .9999 and int8 above .999 on the tiny checkpoint.
LEAST_COSINE = 0.9


class CoreMLEncoder:
    """Encodes pages with a package. `fingerprint`: what its features are kept under, never MLX's own."""

    def __init__(self, package: Package, predict: Predict, fingerprint: str) -> None:
        self.package = package
        self.predict = predict
        self.fingerprint = fingerprint
        self._told = False

    def takes(self, page: PageInputs) -> bool:
        """Whether the page fits; one that is larger than the package's largest goes to MLX."""
        rows, columns = page_inputs.grid_of(page)
        fits = page_shapes.fit(rows * columns, self.package.lengths) is not None
        if not fits and not self._told:
            self._told = True
            log.warning(
                "a page of %d patches is larger than the Core ML package takes (%d): MLX encodes those",
                rows * columns,
                self.package.lengths[-1],
            )
        return fits

    def encode(self, page: PageInputs) -> Array:
        """(image tokens, hidden_size) float32. Raises: `EngineError` where Core ML fails or gives no numbers."""
        rows, columns = page_inputs.grid_of(page)
        config = self.package.config
        length = page_shapes.fit(rows * columns, self.package.lengths)
        if length is None:
            raise EngineError(f"the Core ML package does not take {rows * columns} patches")
        pixels = page_inputs.as_float32(page.pixels).reshape(rows * columns, -1)
        packed = tower_inputs.pack(pixels, rows, columns, length, config)
        try:
            predicted = np.asarray(self.predict(packed), dtype=np.float32)
        except Exception as error:  # Core ML's own, through coremltools: anything
            raise EngineError(f"Core ML failed on the page ({first_line(error)})") from error
        if predicted.shape != (length // config.merged, config.hidden_size):
            raise EngineError(f"Core ML gave features of shape {predicted.shape}")
        features = predicted[: rows * columns // config.merged]
        if not np.isfinite(features).all():
            raise EngineError("Core ML gave features that are no numbers")
        return features


def open_encoder(settings: Settings, loaded: LoadedModel) -> CoreMLEncoder | None:
    """The encoder that the settings ask for; None, with a warning, where MLX has to do. Raises: nothing of Core ML."""
    if settings.vision_backend != COREML:
        return None
    if loaded.architecture != "dots_ocr":
        log.warning("Core ML encodes dots.ocr only: MLX encodes for %s", loaded.architecture)
        return None
    try:
        if settings.vision_package is None:
            raise SettingsError("vision_backend is coreml, but vision_package names no package")
        extra.require("coremltools")
        package = coreml_package.read(settings.vision_package)
        content = package.content_hash(settings.features_path / "weights.json")
        predict = load(package, settings.compiled_path, content)
        encoder = CoreMLEncoder(package, predict, fingerprint(loaded, package, content))
        check(encoder, loaded)
    except (OcrdError, OSError) as error:
        log.warning("the vision encoder stays MLX's: %s", error)
        return None
    log.info("pages are encoded by Core ML on %s", package.compute_units)
    return encoder


def fingerprint(loaded: LoadedModel, package: Package, content_sha256: str) -> str:
    """What makes features of two packages interchangeable; differs from any that MLX's features have."""
    from pipeline.adapter.loading import ADAPTER_VERSION
    from pipeline.vision import processor_hashes

    parts = {
        "encoder": COREML,
        "package": content_sha256,
        "compute_units": str(package.compute_units),
        "processor": processor_hashes(loaded.checkpoint.folder),
        "adapter": ADAPTER_VERSION,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def check(encoder: CoreMLEncoder, loaded: LoadedModel) -> float:
    """The mean cosine between the package's and MLX's features of a small picture.

    Raises: `ModelError` where the package is of another model or does not compute what it should here, and as
    `CoreMLEncoder.encode`.
    """
    from pipeline import startup_check

    config, width = encoder.package.config, loaded.model.config.text_config.hidden_size
    if config.hidden_size != width:
        raise ModelError(
            f"its features are {config.hidden_size} wide, the model's {width}", file=encoder.package.path
        )
    page = page_inputs.prepare(loaded, "read", startup_check.picture(20, 504))
    if not encoder.takes(page):
        raise ModelError("the package does not even take a small picture", file=encoder.package.path)
    ours, theirs = encoder.encode(page), page_inputs.as_float32(page_inputs.encode(loaded, page))
    norms = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
    cosine = float(np.mean((ours * theirs).sum(axis=1) / np.maximum(norms, 1e-12)))
    if cosine < LEAST_COSINE:
        raise ModelError(
            f"its features are not the model's own (cosine {cosine:.3f})", file=encoder.package.path,
            remedy="convert the model that is read with: `ocrd convert coreml`",
        )  # fmt: skip
    log.info("features of Core ML and MLX agree to a cosine of %.5f", cosine)
    return cosine


def load(package: Package, cache: Path, name: str, units: ComputeUnits | None = None) -> Predict:
    """The package in Core ML, compiled once into `cache` under `name`.

    `units`: where it runs, by default what it is labelled with. Raises: `EngineUnavailableError`, `ModelError`.
    """
    if sys.platform != "darwin":
        raise EngineUnavailableError("Core ML is on macOS only", remedy="set vision_backend to mlx")
    ct = extra.coremltools()
    try:
        compiled = _compiled(package, cache, name)
        model = ct.models.CompiledMLModel(str(compiled), _unit(units or package.compute_units))
    except Exception as error:  # of Core ML, through coremltools: anything
        raise ModelError(
            f"Core ML does not load the package ({first_line(error)})", file=package.path
        ) from error

    def predict(packed: Array) -> Array:
        output: Array = model.predict({INPUT: packed})[OUTPUT]
        return output

    return predict


def _compiled(package: Package, cache: Path, name: str) -> Path:
    """The compiled model: made once, since Core ML takes minutes to compile a gigabyte, and keyed by content."""
    place = cache / f"{name[:32]}.mlmodelc"
    if not place.exists():
        cache.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = cache / f".{secrets.token_hex(6)}.mlmodelc"
        try:
            extra.coremltools().models.utils.compile_model(str(package.path), str(temporary))
            temporary.rename(place)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return place


def _unit(units: ComputeUnits) -> Any:
    ct = extra.coremltools()
    return {
        ComputeUnits.ALL: ct.ComputeUnit.ALL,
        ComputeUnits.CPU_AND_GPU: ct.ComputeUnit.CPU_AND_GPU,
        ComputeUnits.CPU_AND_NE: ct.ComputeUnit.CPU_AND_NE,
        ComputeUnits.CPU_ONLY: ct.ComputeUnit.CPU_ONLY,
    }[units]
