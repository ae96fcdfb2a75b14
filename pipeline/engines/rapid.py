"""RapidOCR (PP-OCR models on ONNX Runtime) with the models of its wheel; nothing is ever fetched.

The bundled recogniser knows Latin letters with diacritics, Chinese and Japanese; no Hangul, Arabic or Hebrew: such
lines come out empty or below the score at which they are dropped.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.engines import orientation, tessdata
from pipeline.engines.base import EngineReading, PageImage
from pipeline.engines.lines import hull, is_spaceless, make_line, mean_confidence, spread
from storage.errors import EngineError, EngineUnavailableError
from storage.records import Box, Direction, Line, PageText, Word

if TYPE_CHECKING:
    from PIL import Image

    from storage.settings import Settings

# Long side the text detector sees. Measured on six test pages: the same errors as at 2000, in a fifth of the time
# (0.6 s for a letter page on one core); recognition works on the full-size crops either way.
DETECT_PX = 1280
_ENLARGE_PX = 736  # smaller images are enlarged to this, which is what the detector was trained for
MIN_SCORE = 0.5  # lines below this are dropped
# Scripts (as Tesseract's model names them) of which the recogniser has no letter.
UNKNOWN_SCRIPTS = frozenset(
    {"Arabic", "Hebrew", "Hangul", "Korean", "Thai", "Devanagari", "Bengali", "Tamil"}
)
_TALL = 1.5  # a box this much higher than wide holds vertical text
# The detector grows its boxes beyond the ink; this much of the box's height is the font size (measured).
_EM_PER_BOX = 0.85
_DOUBTFUL = 0.8


@dataclass(frozen=True, slots=True)
class Reread:
    """What the recogniser makes of one crop."""

    text: str
    score: float  # 0…1


class RapidReader:
    """The models behind the engine: detection and recognition, usable apart."""

    def __init__(self) -> None:
        self._model: Any = None

    def read(self, image: Image.Image) -> list[tuple[list[tuple[float, float]], str, float, Any]]:
        """(corners in pixels, text, score, word pieces) of the lines found, top down.

        Raises: `EngineUnavailableError`, `EngineError`.
        """
        pixels, scale = _pixels(image, _enlarged(image))
        found = self._call(pixels, use_det=True, use_rec=True, return_word_box=True, text_score=0.0)
        if getattr(found, "txts", None) is None or getattr(found, "boxes", None) is None:
            return []
        pieces = list(found.word_results or ())
        if len(pieces) != len(found.txts):
            pieces = [()] * len(found.txts)
        return [
            (
                [(float(x) / scale, float(y) / scale) for x, y in corners],
                text,
                float(score),
                _scaled(own, scale),
            )
            for corners, text, score, own in zip(found.boxes, found.txts, found.scores, pieces, strict=True)
        ]

    def detect(self, image: Image.Image, *, long_side: int) -> list[Box]:
        """Boxes around text lines, in pixels. Raises: `EngineUnavailableError`, `EngineError`."""
        pixels, scale = _pixels(image, min(_enlarged(image), long_side / max(image.size)))
        found = self._call(pixels, use_det=True, use_rec=False)
        corners = getattr(found, "boxes", None)
        if corners is None:
            return []
        return [hull([(float(x) / scale, float(y) / scale) * 2 for x, y in quad]) for quad in corners]

    def recognise(self, crop: Image.Image) -> Reread:
        """The text of a crop that holds one line. Raises: `EngineUnavailableError`, `EngineError`."""
        from PIL import Image

        if crop.height > _TALL * crop.width:
            crop = crop.transpose(Image.Transpose.ROTATE_90)
        pixels, _ = _pixels(crop, 1.0)
        found = self._call(pixels, use_det=False, use_rec=True, return_word_box=False)
        texts = getattr(found, "txts", None) or ("",)
        scores = getattr(found, "scores", None) or (0.0,)
        return Reread(str(texts[0]).strip(), float(scores[0]))

    def _call(self, pixels: Any, **options: Any) -> Any:
        if self._model is None:
            self._model = _load()
        try:
            return self._model(pixels, use_cls=False, **options)
        except Exception as error:  # RapidOCR has no base class of its own: ONNX, cv2 and numpy errors pass
            raise EngineError(f"RapidOCR failed: {type(error).__name__}: {error}") from error

    def close(self) -> None:
        """Free the models."""
        self._model = None


class RapidEngine:
    """Reads pages with RapidOCR alone."""

    name = "rapidocr"

    def __init__(self, settings: Settings) -> None:
        self._reader = RapidReader()
        self._turns = orientation.TurnDetector(tessdata.folders([settings.tessdata]))

    def version(self) -> str:
        """Name, library version and recognition model, for the provenance."""
        return rapid_version()

    def read(self, page: PageImage, *, hint: Sequence[Line] = ()) -> EngineReading:
        """The page's lines, top down. Raises: `EngineUnavailableError`, `EngineError`."""
        started = time.perf_counter()
        skew = orientation.skew_degrees(page.image)
        skew = skew if abs(skew) >= orientation.MIN_SKEW else 0.0
        image, frame = orientation.turn(page, skew) if skew else (page, None)
        lines = read_lines(self._reader, image)
        if looks_turned(lines):
            found = self._turns.detect(image)
            if found is not None and orientation.is_turned(found):
                turned, turned_frame = orientation.turn(page, skew + found.degrees)
                again = read_lines(self._reader, turned)
                if weight(again) > weight(lines):
                    image, frame, lines = turned, turned_frame, again
        return EngineReading(
            lines=PageText(image.width_pt, image.height_pt, tuple(lines)),
            frame=frame,
            confidence=mean_confidence(lines),
            seconds={self.name: time.perf_counter() - started},
        )

    def close(self) -> None:
        """Free the models."""
        self._reader.close()
        self._turns.close()


def read_lines(reader: RapidReader, page: PageImage) -> list[Line]:
    """The lines of a page, top down, or right to left where most are vertical. Raises: as `RapidReader.read`."""
    lines = []
    for corners, text, score, pieces in reader.read(page.image):
        if score >= MIN_SCORE and text.strip():
            box = page.to_points(hull((x, y, x, y) for x, y in corners))
            own = [(piece, page.to_points(place)) for piece, place in pieces]
            lines.append(line_in(box, text.strip(), score, own))
    if 2 * sum(line.direction is Direction.TTB for line in lines) > len(lines):
        lines.sort(key=lambda line: (-line.box[2], line.box[1]))
    return lines


def line_in(box: Box, text: str, score: float, pieces: Sequence[tuple[str, Box]] = ()) -> Line:
    """A line from a detected box (points); `pieces`: parts of the text with their boxes, where they are known."""
    is_vertical = box[3] - box[1] > _TALL * (box[2] - box[0]) and len(text) > 1
    thickness = (box[2] - box[0]) if is_vertical else (box[3] - box[1])
    words = _words(text, pieces, score) or spread(text, box, score, vertical=is_vertical)
    return make_line(words, box=box, size_pt=thickness * _EM_PER_BOX, vertical=is_vertical)


def weight(lines: Sequence[Line]) -> float:
    """How much was read with what confidence: what two readings of a page are compared by."""
    return sum(len(line.text) * (line.confidence or 0.0) ** 4 for line in lines)


def looks_turned(lines: Sequence[Line]) -> bool:
    """Whether a reading is what content that is not upright gives: nothing, doubt, or Latin text running down."""
    vertical = [line for line in lines if line.direction is Direction.TTB]
    if 2 * len(vertical) > len(lines) and not is_spaceless("".join(line.text for line in vertical)):
        return True
    return (mean_confidence(lines) or 0.0) < _DOUBTFUL


def rapid_version() -> str:
    """Library version and recognition model."""
    try:
        return f"rapidocr {version('rapidocr')} ({_bundled('rec').stem})"
    except (PackageNotFoundError, EngineUnavailableError):
        return "rapidocr (not installed)"


def _load() -> Any:
    try:
        from rapidocr import RapidOCR
    except ImportError as error:
        raise EngineUnavailableError(
            "rapidocr is not installed", remedy="run `uv sync` in ocrd's folder"
        ) from error
    logging.getLogger("RapidOCR").setLevel(logging.ERROR)
    return RapidOCR(
        params={
            "Global.log_level": "error",
            "Global.use_cls": False,
            # Workers are processes: more threads in each would only contend for the cores.
            "EngineConfig.onnxruntime.intra_op_num_threads": 1,
            "EngineConfig.onnxruntime.inter_op_num_threads": 1,
            # With explicit paths nothing is looked for on the network.
            "Det.model_path": str(_bundled("det")),
            "Rec.model_path": str(_bundled("rec")),
            "Det.limit_type": "max",
            "Det.limit_side_len": DETECT_PX,
        }
    )


def _bundled(task: str) -> Path:
    """The wheel's own model for a task. Raises: `EngineUnavailableError`."""
    spec = find_spec("rapidocr")
    folders = [Path(place) / "models" for place in (spec.submodule_search_locations or ())] if spec else []
    for folder in folders:
        for file in sorted(folder.glob(f"*_{task}_*.onnx")):
            return file
    raise EngineUnavailableError(
        f"RapidOCR has no model for {task} in its package", remedy="reinstall rapidocr"
    )


def _enlarged(image: Image.Image) -> float:
    return max(1.0, _ENLARGE_PX / max(image.size))


def _pixels(image: Image.Image, wanted: float) -> tuple[Any, float]:
    """`(H, W, 3)` uint8, blue first as the models want it, scaled by `wanted`; and the exact scale."""
    import numpy as np
    from PIL import Image

    size = max(1, round(image.width * wanted)), max(1, round(image.height * wanted))
    scale = size[0] / image.width
    if size != image.size:
        image = image.resize(size, Image.Resampling.BICUBIC, reducing_gap=2.0)
    return np.ascontiguousarray(np.asarray(image.convert("RGB"))[:, :, ::-1]), scale


def _scaled(pieces: Any, scale: float) -> list[tuple[str, Box]]:
    return [
        (str(text), hull((float(x) / scale, float(y) / scale) * 2 for x, y in corners))
        for text, _, corners in pieces or ()
    ]


def _words(text: str, pieces: Sequence[tuple[str, Box]], score: float) -> tuple[Word, ...]:
    """The line's words with the boxes of the pieces they are made of; none where the pieces do not fit."""
    words, left = [], list(pieces)
    for token in text.split():
        used, rest = [], token
        while rest and left and rest.startswith(left[0][0]):
            piece, place = left.pop(0)
            rest = rest[len(piece) :]
            used.append(place)
        if rest or not used:
            return ()
        words.append(Word(token, hull(used), score))
    return tuple(words)
