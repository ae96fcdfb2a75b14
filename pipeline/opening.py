"""Open a model for reading: load it, measure it once on this machine, and make its reader."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from pipeline import calibration, checkpoint, startup_check, vision, vision_coreml
from pipeline.adapter import loading
from pipeline.beside import Beside
from pipeline.model_reader import DecodeSettings, ModelReader
from pipeline.proposers import registry
from pipeline.proposers.neural import NEURAL
from pipeline.reference.draft import DraftLine
from pipeline.reference.source import ReadyDraft
from storage.errors import ModelError, OcrdError
from storage.features import FeatureStore

if TYPE_CHECKING:
    from pipeline.adapter.drafters import Drafter
    from pipeline.adapter.loading import LoadedModel
    from pipeline.calibration import Calibration
    from pipeline.model_files import ModelLocation
    from pipeline.startup_check import Outcome, Verdict
    from storage.settings import Settings

log = logging.getLogger(__name__)


def open_reader(settings: Settings, location: ModelLocation) -> ModelReader:
    """The model at `location`, ready to read. Raises: `ModelError`, `OutOfMemoryError`."""
    loaded, fingerprint = load(settings, location)
    store = FeatureStore(settings.features_path, settings.features_bytes)
    coreml = vision_coreml.open_encoder(settings, loaded)
    encoder = vision.VisionEncoder(loaded, fingerprint, store, location.preset.name, coreml)
    decoding = DecodeSettings(settings.mode, settings.max_draft, settings.max_tokens or None, settings.verify)
    drafter = _drafter(settings, loaded, location)
    measured = calibrate(settings, loaded, fingerprint) if decoding.mode != "none" else None
    reader = ModelReader(loaded, location.preset, encoder, decoding, measured, drafter)
    if settings.calibrate and decoding.mode != "none":
        _check(settings, reader)
    return reader


def _check(settings: Settings, reader: ModelReader) -> None:
    """Switch off what drafts wrongly, or in vain."""
    mode = reader.settings.mode
    if mode == registry.AUTO and reader.drafter is not None:
        verdict = check(settings, reader, reader.drafter.kind)
        if not verdict.ok:
            log.warning("the drafter %s is left aside: %s", reader.drafter.kind, verdict.reason)
            reader.drafter = None
    verdict = check(settings, reader, mode)
    if not verdict.ok:
        reader.switch_off(verdict.reason)


def _drafter(settings: Settings, loaded: LoadedModel, location: ModelLocation) -> Drafter | None:
    """The neural drafter that the settings ask for, else the preset's own: for its mode, and for `auto`.

    Raises: as `pipeline.adapter.drafters.load`.
    """
    own = location.preset.drafters
    mode = next(iter(own), "") if settings.mode == registry.AUTO else settings.mode
    if mode not in NEURAL:
        return None
    from pipeline.adapter import drafters

    folder = own.get(mode) if settings.mode == registry.AUTO else settings.drafter or own.get(mode)
    try:
        return drafters.load(loaded, mode, folder, trusted=settings.trusted_models)
    except ModelError as error:
        if settings.mode != registry.AUTO:
            raise
        log.warning("%s", error.message)  # of another model in a folder labelled as the preset's
        return None


def _mark(drafter: Drafter | None) -> str:
    """What tells one drafter from another, or from what its folder held before."""
    if drafter is None:
        return ""
    files = sorted(drafter.folder.glob("*"))
    return repr([str(drafter.folder), *((file.name, file.stat().st_mtime_ns) for file in files)])


def check(settings: Settings, reader: ModelReader, mode: str) -> Verdict:
    """Whether drafts are right and pay with this model on this machine, tried now if it never was.

    Raises: `EngineError`, `OutOfMemoryError` of the model.
    """
    proposer = registry.resolve(mode)
    region = reader.preset.max_region_px
    image = startup_check.picture(reader.preset.text_height_px, region[0] if region else None)

    lines = [DraftLine(line) for line in startup_check.LINES]

    def read(mode: str) -> tuple[Outcome, float]:
        checked = reader.with_mode(mode, startup_check.MAX_TOKENS)
        reading = checked.read(image, beside=Beside(reference=lambda _: ReadyDraft(lines)))
        return reading.outcome, reading.seconds.get("decode", 0.0)

    def take() -> Verdict:
        log.info("checking what %s drafts, once on this machine", proposer)
        return startup_check.check(proposer, lambda: read("none"), lambda: read(mode))

    name = calibration.key(reader.loaded, reader.encoder.fingerprint, proposer + _mark(reader.drafter))
    return startup_check.load_or_check(settings.calibration_path / f"{name}.check.json", take)


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


def forget_checks(settings: Settings) -> None:
    """Have drafts checked again at each model's next load."""
    for path in settings.calibration_path.glob("*.check.json"):
        path.unlink(missing_ok=True)
