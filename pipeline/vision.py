"""Vision features of a page: from the store where they are, else from the tower and then kept.

A feature depends on the page's pixels and on everything between them and the language model: the encoder. Both are
in the key, so that a changed file, model, setting or adapter is a miss by construction.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipeline.adapter import inputs as page_inputs
from pipeline.adapter.inputs import PageInputs
from pipeline.adapter.loading import ADAPTER_VERSION, LoadedModel
from storage.features import Features, FeatureStore

if TYPE_CHECKING:
    from PIL import Image

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
    folder = loaded.checkpoint.folder
    settings = {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest()
        for name in _PROCESSOR_FILES
        if (folder / name).is_file()
    }
    parts = {
        "architecture": loaded.architecture,
        "revision": revision,
        "weights": weights_sha256,
        "processor": settings,
        "dtype": loaded.dtype,
        "adapter": ADAPTER_VERSION,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def feature_key(image: Image.Image, fingerprint: str, options: Mapping[str, Any]) -> str:
    """SHA-256 over the pixels, the encoder and the processor's arguments."""
    digest = hashlib.sha256(f"{image.mode}{image.size}".encode())
    digest.update(image.tobytes())
    digest.update(fingerprint.encode())
    digest.update(json.dumps(dict(options), sort_keys=True).encode())
    return digest.hexdigest()


class VisionEncoder:
    """Encodes pages with one model, through a store if there is one."""

    def __init__(self, loaded: LoadedModel, fingerprint: str, store: FeatureStore | None, name: str) -> None:
        self.loaded = loaded
        self.fingerprint = fingerprint
        self.store = store
        self.name = name  # of the model, for the store's statistics
        self.tower_runs = 0

    def encode(
        self, page: PageInputs, image: Image.Image, options: Mapping[str, Any] | None = None
    ) -> Encoded:
        """The page's features; the tower runs only on a miss. Raises: `EngineError`, `OutOfMemoryError`."""
        started = time.perf_counter()
        key = feature_key(image, self.fingerprint, options or {})
        stored = self.store.get(key, time.time()) if self.store is not None else None
        hit = stored is not None and stored.shape[0] == len(page.positions)
        if stored is not None and hit:
            features = to_array(stored)
        else:
            features = page_inputs.encode(self.loaded, page)
            self.tower_runs += 1
            if self.store is not None:
                self.store.put(key, to_bytes(features), model=self.name, now=time.time())
        if self.store is not None:
            self.store.save_counters()
        return Encoded(features, hit, time.perf_counter() - started)


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
