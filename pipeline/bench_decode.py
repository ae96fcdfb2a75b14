"""`ocrd bench decode`: the same pages through the same model under several proposers, ids compared with `none`'s."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from storage.errors import EngineError, SettingsError

if TYPE_CHECKING:
    from pipeline.document import Prepared
    from pipeline.engines.vlm import VlmEngine
    from pipeline.model_reader import ImageReading
    from storage.settings import Settings

BASELINE = "none"


@dataclass(frozen=True, slots=True)
class ModeFigures:
    """One proposer's figures over all pages."""

    mode: str
    tokens: int
    tokens_per_s: float  # of decoding, prefill and vision left out
    tokens_per_pass: float
    mean_accept_len: float  # draft tokens accepted per pass, the model's own not counted
    ttft_ms: float  # per picture, vision features computed: preprocessing, vision, prefill
    ttft_hit_ms: float  # the same with features from the store
    vision_ms: float  # per picture, computed
    identical: bool  # ids equal those of `none`
    peak_mb: float  # MLX's own peak


def run(
    settings: Settings, files: Sequence[Path], modes: Sequence[str], *, page: int | None = None
) -> dict[str, Any]:
    """The figures of `modes` as the JSON of `ocrd bench decode`; `none` is measured first whether asked for or not.

    Raises: the errors of `storage.errors`.
    """
    from pipeline.engines.vlm import VlmEngine

    engine = VlmEngine(settings)
    try:
        prepared = [p for path in files for p in _prepare(path, settings, engine, page)]
        _warm_up(engine, prepared)
        order = [BASELINE, *(mode for mode in modes if mode != BASELINE)]
        measured = {mode: _measure(engine, prepared, mode) for mode in order}
        baseline = measured[BASELINE][1]
        figures = [replace(f, identical=ids == baseline) for f, ids in measured.values() if f.mode in modes]
        loaded = engine.reader().loaded
        device = f"{loaded.device}, {loaded.dtype}"
        return {"model": engine.preset.name, "device": device, "modes": [asdict(f) for f in figures]}
    finally:
        engine.close()


def _prepare(path: Path, settings: Settings, engine: VlmEngine, page: int | None) -> list[Prepared]:
    from pipeline.document import DocumentReader

    with DocumentReader(path, settings, engine) as reader:
        numbers = [page] if page is not None else range(1, reader.info.pages + 1)
        found = [reader.prepare(number) for number in numbers]
    return [p for p in found if p.image is not None and not p.is_blank]


def _warm_up(engine: VlmEngine, prepared: Sequence[Prepared]) -> None:
    """The first pass pays for set-up that no page should be charged with."""
    if not prepared:
        raise EngineError("there is no printed page to measure with")
    image = prepared[0].image
    assert image is not None  # as `_prepare` leaves them
    for _ in zip(engine.stream(image, hint=prepared[0].hint), range(3), strict=False):
        pass


def _measure(
    engine: VlmEngine, prepared: Sequence[Prepared], mode: str
) -> tuple[ModeFigures, list[tuple[int, ...]]]:
    """Figures and ids: every page once with features computed, then once from a store."""
    import mlx.core as mx

    reader = engine.reader()
    if not reader.can_decode(mode):
        raise SettingsError(
            f"no drafter {mode} is loaded", remedy="name its folder with the setting `drafter`"
        )
    reader.settings = replace(reader.settings, mode=mode)
    store, reader.encoder.store = reader.encoder.store, None
    try:
        mx.reset_peak_memory()
        cold = _read_all(engine, prepared)
        peak = mx.get_peak_memory() / 1e6
    finally:
        reader.encoder.store = store
    _read_all(engine, prepared)  # fills the store
    warm = _read_all(engine, prepared)
    if store is not None and not all(reading.hit for reading in warm):
        raise EngineError("the feature store did not keep the features; is its budget too small?")
    tokens = sum(len(r.outcome.ids) for r in cold)
    passes = sum(r.outcome.passes for r in cold)
    decode_s = min(_total(cold, "decode"), _total(warm, "decode"))
    figures = ModeFigures(
        mode=mode,
        tokens=tokens,
        tokens_per_s=tokens / decode_s if decode_s else 0.0,
        tokens_per_pass=tokens / passes if passes else 0.0,
        mean_accept_len=sum(r.outcome.accepted for r in cold) / passes if passes else 0.0,
        ttft_ms=_first_token_ms(cold),
        ttft_hit_ms=_first_token_ms(warm),
        vision_ms=1000 * _total(cold, "vision") / len(cold),
        identical=True,
        peak_mb=peak,
    )
    return figures, [tuple(r.outcome.ids) for r in cold]


def _read_all(engine: VlmEngine, prepared: Sequence[Prepared]) -> list[ImageReading]:
    engine.keep = []
    turn = time.monotonic_ns()  # a document of its own: no n-grams from the turn before
    for page in prepared:
        assert page.image is not None
        image = replace(page.image, document=f"{page.image.document}#{turn}")
        engine.read(image, hint=page.hint)
    kept, engine.keep = engine.keep, None
    return kept


def _total(readings: Sequence[ImageReading], stage: str) -> float:
    return sum(reading.seconds.get(stage, 0.0) for reading in readings)


def _first_token_ms(readings: Sequence[ImageReading]) -> float:
    return 1000 * sum(_total(readings, stage) for stage in ("inputs", "vision", "prefill")) / len(readings)
