"""Tesseract, in this process: layout, lines and words with confidences."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pipeline.engines import tessdata
from pipeline.engines.base import EngineReading, PageImage
from storage.errors import EngineError, EngineUnavailableError
from storage.records import Box, Direction, Line, PageText, Word

if TYPE_CHECKING:
    from storage.settings import Settings

# One thread: workers are processes, and Tesseract's threads cost more than they bring
# (https://github.com/tesseract-ocr/tesseract/issues/3109). Read when the library is loaded.
os.environ.setdefault("OMP_THREAD_LIMIT", "1")

_MIN_DPI, _MAX_DPI = 70, 2400  # what Tesseract accepts as a source resolution
# A row reaches from descender to ascender; this much of the font size in common faces (measured: 0.93…0.97).
_ROW_PER_EM = 0.95


class TesseractEngine:
    """Reads pages with the languages of the settings."""

    name = "tesseract"

    def __init__(self, settings: Settings) -> None:
        self.languages = settings.languages or ("eng",)
        self._places = tessdata.folders([settings.tessdata, settings.home / "tessdata"], os.environ)
        self._api: Any = None

    def version(self) -> str:
        """Name, library version and languages, for the provenance."""
        try:
            import tesserocr
        except ImportError:
            return "tesseract (not installed)"
        return f"{tesserocr.tesseract_version().splitlines()[0]} ({'+'.join(self.languages)})"

    def read(self, page: PageImage, *, hint: Sequence[Line] = ()) -> EngineReading:
        """The page's lines. Raises: `EngineUnavailableError` (no library or data), `EngineError`."""
        started = time.perf_counter()
        api = self.api()
        grey = page.image if page.image.mode == "L" else page.image.convert("L")
        try:
            api.SetImageBytes(grey.tobytes(), grey.width, grey.height, 1, grey.width)
            api.SetSourceResolution(min(max(round(page.dpi), _MIN_DPI), _MAX_DPI))
            if not api.Recognize():
                raise EngineError("Tesseract gave up on this page", page=page.page)
            text = _page_text(api, page)
        except RuntimeError as error:
            raise EngineError(f"Tesseract failed: {error}", page=page.page) from error
        finally:
            api.Clear()
        return EngineReading(
            lines=text,
            confidence=mean_confidence(text.lines),
            seconds={self.name: time.perf_counter() - started},
        )

    def close(self) -> None:
        """Free the library's memory."""
        if self._api is not None:
            self._api.End()
            self._api = None

    def api(self) -> Any:
        """The library's handle, set up at the first call."""
        if self._api is None:
            self._api = start(self.languages, self._places)
        return self._api


def start(languages: Sequence[str], places: Sequence[Any], *, psm: int | None = None) -> Any:
    """A Tesseract handle for these languages. Raises: `EngineUnavailableError`."""
    try:
        import tesserocr
    except ImportError as error:
        raise EngineUnavailableError(
            "tesserocr is not installed", remedy="run `pip install tesserocr`"
        ) from error
    with tessdata.as_one_folder(languages, places) as folder:
        try:
            api = tesserocr.PyTessBaseAPI(
                path=str(folder), lang="+".join(languages), psm=tesserocr.PSM.AUTO if psm is None else psm
            )
        except RuntimeError as error:
            raise EngineUnavailableError(
                f"Tesseract does not start with {'+'.join(languages)} from {folder}: {error}"
            ) from error
    api.SetVariable("debug_file", os.devnull)
    return api


def mean_confidence(lines: Sequence[Line]) -> float | None:
    """Mean confidence over the characters of lines, 0…1; None without any."""
    pairs = [(line.confidence, len(line.text)) for line in lines if line.confidence is not None]
    total = sum(length for _, length in pairs)
    return sum(value * length for value, length in pairs) / total if total else None


@dataclass(slots=True)
class _OpenLine:
    """A line being gathered."""

    box: Box
    region: int
    size_pt: float
    direction: Direction
    words: list[Word] = field(default_factory=list)


def _page_text(api: Any, page: PageImage) -> PageText:
    pictures, rules = _other_blocks(api, page)
    lines = tuple(_close(line) for line in _lines(api, page) if line.words)
    return PageText(page.width_pt, page.height_pt, lines, rules=rules, pictures=pictures)


def _other_blocks(api: Any, page: PageImage) -> tuple[tuple[Box, ...], tuple[Box, ...]]:
    """Boxes of pictures and of ruled lines."""
    from tesserocr import PT, RIL

    kinds: dict[int, list[Box]] = {}
    blocks = api.GetIterator()
    while blocks is not None:
        box = blocks.BoundingBox(RIL.BLOCK)
        if box is not None:
            kinds.setdefault(blocks.BlockType(), []).append(_points(box, page))
        if not blocks.Next(RIL.BLOCK):
            break
    pictures = [
        box for kind in (PT.FLOWING_IMAGE, PT.HEADING_IMAGE, PT.PULLOUT_IMAGE) for box in kinds.get(kind, [])
    ]
    rules = [box for kind in (PT.HORZ_LINE, PT.VERT_LINE) for box in kinds.get(kind, [])]
    return tuple(pictures), tuple(rules)


def _lines(api: Any, page: PageImage) -> Iterator[_OpenLine]:
    from tesserocr import RIL

    words = api.GetIterator()
    if words is None:
        return
    region, line = -1, None
    while True:
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
    row = words.RowAttributes() or {}
    height = row.get("row_height", 0.0) / page.scale_y
    _, direction, _, _ = words.Orientation()
    vertical = direction == WritingDirection.TOP_TO_BOTTOM
    return _OpenLine(
        _points(box, page), region, height / _ROW_PER_EM, Direction.TTB if vertical else Direction.LTR
    )


def _word(words: Any, page: PageImage) -> Word | None:
    from tesserocr import RIL

    box = words.BoundingBox(RIL.WORD)
    text = (words.GetUTF8Text(RIL.WORD) or "").strip() if box is not None else ""
    if not text:
        return None
    return Word(text, _points(box, page), max(0.0, min(1.0, words.Confidence(RIL.WORD) / 100)))


def _points(box: tuple[int, int, int, int], page: PageImage) -> Box:
    left, top, right, bottom = box
    return (left / page.scale_x, top / page.scale_y, right / page.scale_x, bottom / page.scale_y)


def _close(line: _OpenLine) -> Line:
    words = tuple(line.words)
    made = Line(
        " ".join(word.text for word in words), line.box, words, round(line.size_pt, 1), line.direction
    )
    return replace(made, region=line.region, confidence=mean_confidence_of_words(words))


def mean_confidence_of_words(words: Sequence[Word]) -> float | None:
    """Mean confidence over the characters of words, 0…1; None without any."""
    pairs = [(word.confidence, len(word.text)) for word in words if word.confidence is not None]
    total = sum(length for _, length in pairs)
    return sum(value * length for value, length in pairs) / total if total else None
