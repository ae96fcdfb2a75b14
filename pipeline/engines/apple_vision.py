"""Apple Vision on macOS, through pyobjc (extra `vision`).

Not yet run on a Mac: what is tested is the mapping from Vision's results to ours, on objects made to look like them.
Everything Vision-specific happens in `_AppleVision`; the engine sees plain observations only.
"""

from __future__ import annotations

import io
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from pipeline.engines.base import EngineReading, PageImage
from pipeline.engines.lines import make_line, mean_confidence, spread
from storage.errors import EngineError, EngineUnavailableError
from storage.records import Box, Line, PageText

if TYPE_CHECKING:
    from storage.settings import Settings

# Tesseract's names (ours) → what Vision calls the language.
_LANGUAGES = {
    "eng": "en-US",
    "deu": "de-DE",
    "fra": "fr-FR",
    "ita": "it-IT",
    "spa": "es-ES",
    "por": "pt-BR",
    "nld": "nl-NL",
    "chi_sim": "zh-Hans",
    "chi_tra": "zh-Hant",
    "jpn": "ja-JP",
    "kor": "ko-KR",
    "rus": "ru-RU",
    "ukr": "uk-UA",
    "ara": "ar-SA",
    "tha": "th-TH",
    "vie": "vi-VT",
}
_TALL = 1.5  # a box this much higher than wide holds vertical text
_EM_PER_BOX = 0.9  # Vision's boxes reach from descender to ascender


@dataclass(frozen=True, slots=True)
class Observation:
    """A line as Vision reports it. `box`: (x, y, width, height), 0…1 of the image, origin at the bottom left."""

    text: str
    confidence: float
    box: tuple[float, float, float, float]


class Recognizer(Protocol):
    """What finds text in an encoded image."""

    def recognize(self, png: bytes, languages: Sequence[str]) -> Sequence[Observation]:
        """The lines of a PNG; `languages` as Vision names them, best first; none: it finds out itself."""
        ...


class VisionEngine:
    """Reads pages with Apple Vision's accurate text recognition."""

    name = "vision"

    def __init__(self, settings: Settings, recognizer: Recognizer | None = None) -> None:
        """`recognizer`: in place of Apple's, for tests."""
        self._languages = vision_languages(settings.languages)
        self._recognizer = recognizer

    def version(self) -> str:
        """Name and macOS version, which Vision's models come with."""
        import platform

        return f"Apple Vision (macOS {platform.mac_ver()[0] or 'unknown'})"

    def read(self, page: PageImage, *, hint: Sequence[Line] = ()) -> EngineReading:
        """The page's lines. Raises: `EngineUnavailableError` off macOS or without the extra, `EngineError`."""
        started = time.perf_counter()
        if self._recognizer is None:
            self._recognizer = _AppleVision()
        encoded = io.BytesIO()
        page.image.save(encoded, "PNG", compress_level=1)
        found = self._recognizer.recognize(encoded.getvalue(), self._languages)
        lines = tuple(line_of(item, page) for item in found if item.text.strip())
        return EngineReading(
            lines=PageText(page.width_pt, page.height_pt, lines),
            confidence=mean_confidence(lines),
            seconds={self.name: time.perf_counter() - started},
        )

    def close(self) -> None:
        """Nothing is held beyond Python objects."""
        self._recognizer = None


def vision_languages(languages: Sequence[str]) -> list[str]:
    """Vision's names of Tesseract languages; those it does not know are left out."""
    return [_LANGUAGES[language] for language in languages if language in _LANGUAGES]


def line_of(item: Observation, page: PageImage) -> Line:
    """A line in page points from an observation."""
    x, y, width, height = item.box
    box: Box = (
        x * page.width_pt,
        (1.0 - y - height) * page.height_pt,
        (x + width) * page.width_pt,
        (1.0 - y) * page.height_pt,
    )
    text = " ".join(item.text.split())
    is_vertical = box[3] - box[1] > _TALL * (box[2] - box[0]) and len(text) > 1
    thickness = (box[2] - box[0]) if is_vertical else (box[3] - box[1])
    words = spread(text, box, item.confidence, vertical=is_vertical)
    return make_line(words, box=box, size_pt=thickness * _EM_PER_BOX, vertical=is_vertical)


class _AppleVision:
    """The framework itself. Raises `EngineUnavailableError` where it is not there."""

    def __init__(self) -> None:
        try:
            import Foundation
            import Vision
        except ImportError as error:
            raise EngineUnavailableError(
                "Apple Vision is not available here",
                remedy="on macOS run `uv sync --extra vision` in ocrd's folder; elsewhere choose another with --engine",
            ) from error
        self._vision: Any = Vision
        self._foundation: Any = Foundation

    def recognize(self, png: bytes, languages: Sequence[str]) -> list[Observation]:
        """The lines of a PNG. Raises: `EngineError`."""
        request = self._vision.VNRecognizeTextRequest.alloc().init()
        request.setRecognitionLevel_(self._vision.VNRequestTextRecognitionLevelAccurate)
        request.setUsesLanguageCorrection_(True)
        if languages:
            request.setRecognitionLanguages_(list(languages))
        data = self._foundation.NSData.dataWithBytes_length_(png, len(png))
        handler = self._vision.VNImageRequestHandler.alloc().initWithData_options_(data, {})
        succeeded, error = handler.performRequests_error_([request], None)
        if not succeeded:
            raise EngineError(f"Apple Vision failed: {error}")
        return [found for item in request.results() or () if (found := _observed(item)) is not None]


def _observed(item: Any) -> Observation | None:
    candidates = item.topCandidates_(1)
    if not candidates:
        return None
    box = item.boundingBox()
    return Observation(
        str(candidates[0].string()),
        float(candidates[0].confidence()),
        (
            float(box.origin.x),
            float(box.origin.y),
            float(box.size.width),
            float(box.size.height),
        ),
    )
