"""The plain records every package shares: words, lines, blocks, a page's reading. Pure data, no behaviour.

Geometry: a `Box` is (left, top, right, bottom) in PDF points (1/72 inch), origin at the top left of the page
*as displayed* (CropBox and /Rotate applied), so a box lies on what a viewer shows. For images, the size in
points follows from the resolution stored in the file where it is believable, else from 200 dpi (see
`pipeline.image_source`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

Box = tuple[float, float, float, float]


class Direction(StrEnum):
    """How the characters of a line follow each other."""

    LTR = "ltr"
    RTL = "rtl"
    TTB = "ttb"  # vertical: top to bottom, columns from right to left


class Category(StrEnum):
    """What a block is; docling's labels, which dots.ocr's categories map to one to one."""

    TITLE = "title"
    SECTION_HEADER = "section_header"
    TEXT = "text"
    LIST_ITEM = "list_item"
    TABLE = "table"
    FORMULA = "formula"
    CODE = "code"
    PICTURE = "picture"
    CAPTION = "caption"
    FOOTNOTE = "footnote"
    PAGE_HEADER = "page_header"
    PAGE_FOOTER = "page_footer"
    PAGE_NUMBER = "page_number"


# Kept with their boxes, but no part of the running text.
FURNITURE = frozenset({Category.PAGE_HEADER, Category.PAGE_FOOTER, Category.PAGE_NUMBER})


class LayerVerdict(StrEnum):
    """What the text layer of a page is worth."""

    ABSENT = "absent"
    GOOD = "good"
    BAD = "bad"
    IGNORED = "ignored"  # --text-layer ignore


class StopReason(StrEnum):
    """Why the reading of a page ended."""

    COMPLETE = "complete"
    BLANK = "blank"
    LENGTH = "length"  # the token budget was spent: the page is cut short
    REPETITION = "repetition"  # the guard cut a loop: the good prefix is kept
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Word:
    """A run of characters without white space, in logical order."""

    text: str
    box: Box
    confidence: float | None = None  # 0…1; None where the source has none (a text layer)


@dataclass(frozen=True, slots=True)
class Line:
    """One printed line of one column, in logical order."""

    text: str  # with the spaces a reader sees; none between CJK characters
    box: Box
    words: tuple[Word, ...] = ()
    size_pt: float = 0.0  # font size, or the engine's estimate of it; 0 = unknown
    direction: Direction = Direction.LTR
    bold: bool = False
    italic: bool = False
    mono: bool = False
    confidence: float | None = None
    region: int | None = None  # the engine's own block number: lines of one region belong together
    angle: float = 0.0  # degrees clockwise the line is turned on the displayed page; TTB lines are not turned


@dataclass(frozen=True, slots=True)
class PageText:
    """What a reader (text layer or classic engine) found on a page, before structure is made of it."""

    width_pt: float
    height_pt: float
    lines: tuple[Line, ...]
    rules: tuple[Box, ...] = ()  # ruled lines, as thin boxes: what table detection goes by
    pictures: tuple[Box, ...] = ()
    links: tuple[tuple[Box, str], ...] = ()  # (area, URI)


@dataclass(frozen=True, slots=True)
class Block:
    """A structural unit of a page, in reading order."""

    category: Category
    box: Box
    text: str  # plain running text: no Markdown, hyphens at line ends joined
    markdown: str
    level: int | None = None  # headings: 1…6
    confidence: float | None = None
    lines: tuple[Line, ...] = ()  # where the words are; empty where the source has blocks only


@dataclass(frozen=True, slots=True)
class PageWarning:
    """Something a person may want to know about a page that was read all the same."""

    code: str  # low_confidence, repetition, xfa, portfolio, attachments, page_failed, reduced_dpi, …
    message: str = ""


@dataclass(frozen=True, slots=True)
class DecodeStats:
    """What a vision-language model's decoding of a page took."""

    tokens: int = 0
    target_passes: int = 0
    drafted: int = 0
    accepted: int = 0


@dataclass(frozen=True, slots=True)
class ReadingAttempt:
    """One way in which a page was tried that its first reading did not finish; the last one gave the text."""

    rung: str  # page, task, regions, dpi, classic
    stop_reason: StopReason
    tokens: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class PageReading:
    """Everything known about a page once it has been read."""

    page: int  # from 1
    width_pt: float
    height_pt: float
    blocks: tuple[Block, ...]
    text: str
    markdown: str
    stop_reason: StopReason
    source: str  # "text-layer", "engine" or "blank"
    engine: str | None = None  # the engine that read it; None for text layer and blank
    label: str | None = None  # printed page label, where the PDF has one
    layer: LayerVerdict = LayerVerdict.ABSENT
    layer_reason: str = ""
    model: str | None = None
    revision: str | None = None
    prompt: str | None = None  # id and hash of the prompt
    dpi: float | None = None  # what the page was rasterised at; None where it was not
    width_px: int | None = None
    height_px: int | None = None
    confidence: float | None = None
    decode: DecodeStats | None = None
    warnings: tuple[PageWarning, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)  # stage name → seconds
    attempts: tuple[ReadingAttempt, ...] = ()  # empty where the first reading was complete

    @property
    def is_blank(self) -> bool:
        """Whether nothing is printed on the page."""
        return self.stop_reason is StopReason.BLANK


@dataclass(frozen=True, slots=True)
class DocumentInfo:
    """What opening a file tells, before any page is read."""

    media_type: str  # "application/pdf", "image/png", …
    pages: int
    labels: tuple[str | None, ...] = ()  # printed page labels; empty = none differs from the number
    title: str | None = None
    attachments: tuple[str, ...] = ()  # names of embedded files
    warnings: tuple[PageWarning, ...] = ()  # xfa, portfolio, attachments, …
    encrypted: bool = False
