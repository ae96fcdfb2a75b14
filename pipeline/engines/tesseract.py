"""Tesseract, in this process: layout, lines and words with confidences, on a page set upright first."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.engines import orientation, tessdata
from pipeline.engines.base import EngineReading, PageImage
from pipeline.engines.bullets import with_bullet
from pipeline.engines.frame import Frame
from pipeline.engines.lines import is_spaceless, join_syllables, make_line, mean_confidence
from storage.errors import EngineError, EngineUnavailableError
from storage.records import Box, Direction, Line, PageText, PageWarning, Word

if TYPE_CHECKING:
    from storage.settings import Settings

# One thread: workers are processes, and Tesseract's threads cost more than they bring
# (https://github.com/tesseract-ocr/tesseract/issues/3109). Read when the library is loaded.
os.environ.setdefault("OMP_THREAD_LIMIT", "1")

# The source resolution Tesseract is told. It accepts 70 to 2400, but takes print for noise beyond 300 where a tiny
# page was drawn large (measured on a 1.7-inch page at 600 dpi: character error 0.090 instead of 0.012).
_MIN_DPI, _MAX_DPI = 70, 300
_ROW_PER_EM = 0.95  # a row reaches from descender to ascender: this much of the font size in common faces
# Mean confidence below which a reading is not believed: upright pages in a known script have 0.83 and more,
# pages upside down or in an unknown script 0.45 and less (measured).
DOUBTFUL = 0.65
_MIN_SCRIPT_CONFIDENCE = 2.5  # right answers on test pages: 3.3 (Hebrew), 28 (Arabic); wrong ones: 1 and less
_NOISE_WORD = 0.3  # words without letter or digit below this are specks
_NOISE_LINE = 0.25  # short lines below this are specks, too
_SHORT = 3  # characters


@dataclass(frozen=True, slots=True)
class UprightReading:
    """A page set upright and what was read on it; `frame` leads back to the page as displayed."""

    image: PageImage
    frame: Frame | None
    text: PageText
    confidence: float | None
    script: str | None = None  # what it seems to be written in, where the reading is not to be believed


class TesseractEngine:
    """Reads pages with the languages of the settings."""

    name = "tesseract"

    def __init__(self, settings: Settings, *, psm: int | None = None) -> None:
        self._psm = psm  # how Tesseract looks for text; None: it finds columns and blocks itself
        self.languages = settings.languages or ("eng",)
        self._places = tessdata.folders([settings.tessdata, settings.home / "tessdata"], os.environ)
        self._turns = orientation.TurnDetector(self._places)
        self._api: Any = None

    def version(self) -> str:
        """Name, library version and languages, for the provenance."""
        try:
            import tesserocr
        except ImportError:
            return "tesseract (not installed)"
        return f"{tesserocr.tesseract_version().splitlines()[0]} ({'+'.join(self.languages)})"

    def has_data(self, language: str) -> bool:
        """Whether data for a language are found, asked for or not."""
        return language in tessdata.available(self._places)

    def read(self, page: PageImage, *, hint: Sequence[Line] = ()) -> EngineReading:
        """The page's lines. Raises: `EngineUnavailableError` (no library or data), `EngineError`."""
        started = time.perf_counter()
        found = self.read_upright(page)
        return EngineReading(
            lines=found.text,
            frame=found.frame,
            confidence=found.confidence,
            warnings=script_warnings(found),
            seconds={self.name: time.perf_counter() - started},
        )

    def read_upright(self, page: PageImage) -> UprightReading:
        """The page levelled and, where the reading is not to be believed, turned. Raises: as `read`."""
        skew = orientation.skew_degrees(page.image)
        if abs(skew) < orientation.MIN_SKEW:
            skew = 0.0
        first = self._read_turned(page, skew)
        if first.confidence is not None and first.confidence >= DOUBTFUL:
            return first
        found = self._turns.detect(first.image)
        if found is None:
            return first
        if orientation.is_turned(found):
            so_far = first.frame.degrees if first.frame is not None else 0.0
            second = self._read_turned(page, so_far + found.degrees)
            if (second.confidence or 0.0) > (first.confidence or 0.0):
                first = second
        if (first.confidence or 0.0) >= DOUBTFUL or found.script_confidence < _MIN_SCRIPT_CONFIDENCE:
            return first
        return replace(first, script=found.script)

    def _read_turned(self, page: PageImage, degrees: float) -> UprightReading:
        """The page read after a counter-clockwise turn."""
        image, frame = orientation.turn(page, degrees) if degrees else (page, None)
        lines, pictures, rules = self._recognise(image)
        if _is_sideways(lines) and (mean_confidence(lines) or 0.0) >= DOUBTFUL:
            # Tesseract took upright text lying on its side for vertical writing, and read it all the same.
            quarter = Frame(90.0, image.width_pt, image.height_pt)
            image, frame = orientation.turn(page, degrees + 90.0)
            lines = [_lying(line, quarter) for line in lines]
            pictures, rules = ([quarter.from_page(box) for box in boxes] for boxes in (pictures, rules))
        text = PageText(image.width_pt, image.height_pt, tuple(lines), tuple(rules), tuple(pictures))
        return UprightReading(image, frame, text, mean_confidence(lines))

    def _recognise(self, page: PageImage) -> tuple[list[Line], list[Box], list[Box]]:
        """Lines, boxes of pictures and boxes of ruled lines."""
        api = self._start()
        grey = page.image if page.image.mode == "L" else page.image.convert("L")
        try:
            api.SetImageBytes(grey.tobytes(), grey.width, grey.height, 1, grey.width)
            api.SetSourceResolution(min(max(round(page.dpi), _MIN_DPI), _MAX_DPI))
            if not api.Recognize():
                raise EngineError("Tesseract gave up on this page", page=page.page)
            lines = [with_bullet(line, page) for line in _lines(api, page)]
            return lines, *_other_blocks(api, page)
        except RuntimeError as error:
            raise EngineError(f"Tesseract failed: {error}", page=page.page) from error
        finally:
            api.Clear()

    def _start(self) -> Any:
        if self._api is None:
            self._api = start(self.languages, self._places, psm=self._psm)
        return self._api

    def close(self) -> None:
        """Free the library's memory."""
        self._turns.close()
        if self._api is not None:
            self._api.End()
            self._api = None


def script_warnings(found: UprightReading) -> tuple[PageWarning, ...]:
    """What to tell a person about a page in a script that none of the languages covers."""
    if found.script is None or found.script == "Latin":
        return ()
    message = f"the page seems to be in {found.script} script; add Tesseract data for its language"
    return (PageWarning("unknown_script", message),)


def start(languages: Sequence[str], places: Sequence[Path], *, psm: int | None = None) -> Any:
    """A Tesseract handle for these languages. Raises: `EngineUnavailableError`."""
    try:
        import tesserocr
    except ImportError as error:
        raise EngineUnavailableError(
            "tesserocr is not installed", remedy="run `uv sync` in ocrd's folder"
        ) from error
    psm = tesserocr.PSM.AUTO if psm is None else psm
    with tessdata.as_one_folder(languages, places) as folder:
        try:
            api = tesserocr.PyTessBaseAPI(path=str(folder), lang="+".join(languages), psm=psm)
        except RuntimeError as error:
            raise EngineUnavailableError(
                f"Tesseract does not start with {'+'.join(languages)} from {folder}: {error}"
            ) from error
    api.SetVariable("debug_file", os.devnull)
    return api


def _is_sideways(lines: Sequence[Line]) -> bool:
    """Whether most text is said to run downwards though its script never does."""
    vertical = [line for line in lines if line.direction is Direction.TTB]
    if 2 * sum(len(line.text) for line in vertical) <= sum(len(line.text) for line in lines):
        return False
    return not is_spaceless("".join(line.text for line in vertical))


def _lying(line: Line, frame: Frame) -> Line:
    turned = frame.line_from_page(line)
    return make_line(turned.words, box=turned.box, size_pt=line.size_pt, region=line.region)


# --- from the library's iterators to records -------------------------------------------------------------


@dataclass(slots=True)
class _OpenLine:
    """A line being gathered."""

    box: Box
    region: int
    size_pt: float
    is_vertical: bool
    words: list[Word] = field(default_factory=list)


def _lines(api: Any, page: PageImage) -> Iterator[Line]:
    for found in _open_lines(api, page):
        words = join_syllables([word for word in found.words if not _is_speck(word)])
        if not words:
            continue
        line = make_line(
            words, box=found.box, size_pt=found.size_pt, vertical=found.is_vertical, region=found.region
        )
        if len(line.text) > _SHORT or (line.confidence or 0.0) >= _NOISE_LINE:
            yield line


def _is_speck(word: Word) -> bool:
    return (word.confidence or 0.0) < _NOISE_WORD and not any(char.isalnum() for char in word.text)


def _open_lines(api: Any, page: PageImage) -> Iterator[_OpenLine]:
    from tesserocr import RIL

    words = api.GetIterator()
    region, line = -1, None
    while words is not None:
        if words.IsAtBeginningOf(RIL.BLOCK):
            region += 1
        if line is None or words.IsAtBeginningOf(RIL.TEXTLINE):
            if line is not None:
                yield line
            line = _open(words, region, page)
        if line is not None and (word := _word(words, page)) is not None:
            line.words.append(word)
        if not words.Next(RIL.WORD):
            break
    if line is not None:
        yield line


def _open(words: Any, region: int, page: PageImage) -> _OpenLine | None:
    from tesserocr import RIL, WritingDirection

    box = words.BoundingBox(RIL.TEXTLINE)
    if box is None:
        return None
    height = (words.RowAttributes() or {}).get("row_height", 0.0) / page.scale_y
    is_vertical = words.Orientation()[1] == WritingDirection.TOP_TO_BOTTOM
    return _OpenLine(page.to_points(box), region, height / _ROW_PER_EM, is_vertical)


def _word(words: Any, page: PageImage) -> Word | None:
    from tesserocr import RIL

    box = words.BoundingBox(RIL.WORD)
    text = (words.GetUTF8Text(RIL.WORD) or "").strip() if box is not None else ""
    if not text:
        return None
    return Word(text, page.to_points(box), max(0.0, min(1.0, words.Confidence(RIL.WORD) / 100)))


def _other_blocks(api: Any, page: PageImage) -> tuple[list[Box], list[Box]]:
    """Boxes of pictures and of ruled lines."""
    from tesserocr import PT, RIL

    pictures: list[Box] = []
    rules: list[Box] = []
    kinds = {PT.FLOWING_IMAGE: pictures, PT.HEADING_IMAGE: pictures, PT.PULLOUT_IMAGE: pictures}
    kinds |= {PT.HORZ_LINE: rules, PT.VERT_LINE: rules}
    blocks = api.GetIterator()
    while blocks is not None:
        box = blocks.BoundingBox(RIL.BLOCK)
        if box is not None and (kind := kinds.get(blocks.BlockType())) is not None:
            kind.append(page.to_points(box))
        if not blocks.Next(RIL.BLOCK):
            break
    return pictures, rules
