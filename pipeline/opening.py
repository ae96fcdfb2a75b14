"""Open a model for reading: load it, measure it once on this machine, and make its reader."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from pipeline import calibration, checkpoint, vision
from pipeline.adapter import loading
from pipeline.model_reader import DecodeSettings, ModelReader
from storage.errors import OcrdError
from storage.features import FeatureStore

if TYPE_CHECKING:
    from pipeline.adapter.loading import LoadedModel
    from pipeline.calibration import Calibration
    from pipeline.model_files import ModelLocation
    from storage.settings import Settings

log = logging.getLogger(__name__)


def open_reader(settings: Settings, location: ModelLocation) -> ModelReader:
    """The model at `location`, ready to read. Raises: `ModelError`, `OutOfMemoryError`."""
    loaded, fingerprint = load(settings, location)
    store = FeatureStore(settings.features_path, settings.features_bytes)
    encoder = vision.VisionEncoder(loaded, fingerprint, store, location.preset.name)
    decoding = DecodeSettings(settings.mode, settings.max_draft, settings.max_tokens or None, settings.verify)
    measured = calibrate(settings, loaded, fingerprint) if decoding.mode != "none" else None
    return ModelReader(loaded, location.preset, encoder, decoding, measured)


def load(settings: Settings, location: ModelLocation) -> tuple[LoadedModel, str]:
    """The model, and the fingerprint of what makes its vision features. Raises: `ModelError`, `OutOfMemoryError`."""
    loaded = loading.load(location.folder, trusted=settings.trusted_models)
    settings.features_path.mkdir(parents=True, exist_ok=True, mode=0o700)
    weights = checkpoint.weights_hash(loaded.checkpoint, settings.features_path / "weights.json")
    return loaded, vision.encoder_fingerprint(loaded, weights, location.revision)


def calibrate(
    settings: Settings, loaded: LoadedModel, fingerprint: str, *, again: bool = False
) -> Calibration | None:
    """What was measured of the model on this machine, now if it never was; None where that is switched off or fails.

    A calibration makes decoding faster, not right: pages are read without one, too.
    """
    if not (settings.calibrate or again):
        return None

    def take() -> Calibration:
        log.info("measuring the model's passes, once on this machine")
        return calibration.measure(loaded, now=time.time())

    try:
        name = calibration.key(loaded, fingerprint)
        return calibration.load_or_measure(settings.calibration_path, name, take, again=again)
    except (OcrdError, OSError) as error:
        if again:
            raise
        log.warning("the model could not be measured, the defaults serve: %s", error)
        return None
