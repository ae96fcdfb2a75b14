"""Vision features of a page: from the store where they are, else from the tower and then kept.

A feature depends on the page's pixels and on everything between them and the language model: the encoder. Both are
in the key, so that a changed file, model, setting or adapter is a miss by construction.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.adapter import inputs as page_inputs
from pipeline.adapter.inputs import PageInputs
from pipeline.adapter.loading import ADAPTER_VERSION, LoadedModel
from storage.errors import EngineError
from storage.features import Features, FeatureStore

if TYPE_CHECKING:
    from PIL import Image

    from pipeline.vision_coreml import CoreMLEncoder

log = logging.getLogger(__name__)

# Files of a checkpoint that decide how pixels become patches.
_PROCESSOR_FILES = ("preprocessor_config.json", "processor_config.json")


@dataclass(frozen=True, slots=True)
class Encoded:
    """Embedded image tokens (image tokens, D), and what they cost."""

    features: Any  # mlx array
    hit: bool
    seconds: float


def encoder_fingerprint(loaded: LoadedModel, weights_sha256: str, revision: str | None) -> str:
    """What makes features of two encoders interchangeable: equal fingerprints, and only those."""
    parts = {
        "architecture": loaded.architecture,
        "revision": revision,
        "weights": weights_sha256,
        "processor": processor_hashes(loaded.checkpoint.folder),
        "dtype": loaded.dtype,
        "adapter": ADAPTER_VERSION,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def processor_hashes(folder: Path) -> dict[str, str]:
    """The SHA-256 of every file of a checkpoint that decides how pixels become patches."""
    return {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest()
        for name in _PROCESSOR_FILES
        if (folder / name).is_file()
    }


def feature_key(image: Image.Image, fingerprint: str, options: Mapping[str, Any]) -> str:
    """SHA-256 over the pixels, the encoder and the processor's arguments."""
    digest = hashlib.sha256(f"{image.mode}{image.size}".encode())
    digest.update(image.tobytes())
    digest.update(fingerprint.encode())
    digest.update(json.dumps(dict(options), sort_keys=True).encode())
    return digest.hexdigest()


class VisionEncoder:
    """Encodes pages with one model, through a store if there is one; on Core ML if there is a package for it."""

    def __init__(
        self,
        loaded: LoadedModel,
        fingerprint: str,
        store: FeatureStore | None,
        name: str,
        coreml: CoreMLEncoder | None = None,
    ) -> None:
        self.loaded = loaded
        self.fingerprint = fingerprint  # of MLX's tower; Core ML's features have their own
        self.store = store
        self.name = name  # of the model, for the store's statistics
        self.coreml = coreml
        self.tower_runs = 0

    def without_store(self) -> VisionEncoder:
        """The same, keeping nothing."""
        return VisionEncoder(self.loaded, self.fingerprint, None, self.name, self.coreml)

    def encode(
        self, page: PageInputs, image: Image.Image, options: Mapping[str, Any] | None = None
    ) -> Encoded:
        """The page's features; a tower runs only on a miss. Raises: `EngineError`, `OutOfMemoryError`."""
        started = time.perf_counter()
        features, hit = self._on_coreml(page, image, options) or self._features(
            page, image, options, self.fingerprint, lambda: page_inputs.encode(self.loaded, page)
        )
        if self.store is not None:
            self.store.save_counters()
        return Encoded(features, hit, time.perf_counter() - started)

    def _on_coreml(
        self, page: PageInputs, image: Image.Image, options: Mapping[str, Any] | None
    ) -> tuple[Any, bool] | None:
        """Features by Core ML; None where there is none, it does not take the page, or it fails, which ends it."""
        coreml = self.coreml
        if coreml is None or not coreml.takes(page):
            return None
        try:
            return self._features(
                page, image, options, coreml.fingerprint,
                lambda: page_inputs.as_features(self.loaded, coreml.encode(page)),
            )  # fmt: skip
        except EngineError as error:
            log.warning("MLX encodes from now on: %s", error.message)
            self.coreml = None
            return None

    def _features(
        self,
        page: PageInputs,
        image: Image.Image,
        options: Mapping[str, Any] | None,
        fingerprint: str,
        compute: Callable[[], Any],
    ) -> tuple[Any, bool]:
        """Features that are stored for the page and the encoder, else computed and stored; and whether they were."""
        key = feature_key(image, fingerprint, options or {})
        stored = self.store.get(key, time.time()) if self.store is not None else None
        if stored is not None and stored.shape[0] == len(page.positions):
            return to_array(stored), True
        features = compute()
        self.tower_runs += 1
        if self.store is not None:
            self.store.put(key, to_bytes(features), model=self.name, now=time.time())
        return features, False


def to_bytes(array: Any) -> Features:
    """An mlx array (rows, D) as bytes, bit for bit."""
    import mlx.core as mx
    import numpy as np

    names = {mx.float32: "F32", mx.float16: "F16", mx.bfloat16: "BF16"}
    raw = array.view(mx.uint32 if array.dtype == mx.float32 else mx.uint16)  # numpy knows no bfloat16
    return Features(names[array.dtype], tuple(array.shape), np.ascontiguousarray(np.array(raw)).tobytes())


def to_array(features: Features) -> Any:
    """The mlx array that `to_bytes` was given, bit for bit."""
    import mlx.core as mx
    import numpy as np

    dtypes = {
        "F32": (mx.float32, np.uint32),
        "F16": (mx.float16, np.uint16),
        "BF16": (mx.bfloat16, np.uint16),
    }
    dtype, raw = dtypes[features.dtype]
    return mx.array(np.frombuffer(features.data, dtype=raw).reshape(features.shape)).view(dtype)
