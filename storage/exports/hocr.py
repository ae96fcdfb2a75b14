"""hOCR (http://kba.github.io/hocr-spec/1.2/): words with their boxes in pixels of the page as it was read.

A file per page: readers such as OCRmyPDF's take the first page of a file only. Where a reading has blocks but no words,
words are spread over the block by their length, and marked as certain of nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from html import escape

from storage.exports import Pieces
from storage.records import Block, Box, Direction, Line, PageReading, Word
from storage.results import DocumentResult, FailedPage

DPI = 200.0  # where a page was not rasterised
_UNWRITABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff\ufffe\uffff]")  # no characters of XML
_HEAD = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Transitional//EN" "http://www.w3.org/TR/xhtml1/DTD/xhtml1-transitional.dtd">
<html xmlns="http://www.w3.org/1999/xhtml" xml:lang="en" lang="en">
<head>
<title>{title}</title>
<meta http-equiv="Content-Type" content="text/html;charset=utf-8"/>
<meta name="ocr-system" content="ocrd"/>
<meta name="ocr-capabilities" content="ocr_page ocr_carea ocr_par ocr_line ocrx_word"/>
</head>
<body>
"""
_END = "</body>\n</html>\n"


def write(result: DocumentResult, name: str, path: str) -> Pieces:
    """A file per page, numbered where there are several."""
    for page in result.pages:
        suffix = ".hocr" if result.page_count == 1 else f".{page.page:04d}.hocr"
        yield suffix, _HEAD.format(title=_text(name)) + _page(page, name) + _END


def _page(page: PageReading | FailedPage, name: str) -> str:
    if not isinstance(page, PageReading):
        return (
            f'<div class="ocr_page" id="page_{page.page}" title="bbox 0 0 1 1; ppageno {page.page - 1}"/>\n'
        )
    scale = page.width_px / page.width_pt if page.width_px and page.width_pt > 0 else DPI / 72
    frame = _Frame(scale, max(1, round(page.width_pt * scale)), max(1, round(page.height_pt * scale)))
    dpi = round(72 * scale)
    place = f"bbox 0 0 {frame.width} {frame.height}; ppageno {page.page - 1}; scan_res {dpi} {dpi}"
    areas = "".join(_area(block, f"{page.page}_{n}", frame) for n, block in enumerate(page.blocks, 1))
    return f'<div class="ocr_page" id="page_{page.page}" title="image {_quoted(name)}; {place}">\n{areas}</div>\n'


class _Frame:
    """Points to pixels inside the page."""

    def __init__(self, scale: float, width: int, height: int) -> None:
        self.scale, self.width, self.height = scale, width, height

    def bbox(self, box: Box) -> str:
        """`bbox l t r b`: whole numbers, no smaller than a pixel, inside the page."""
        left, right = self._span(box[0], box[2], self.width)
        top, bottom = self._span(box[1], box[3], self.height)
        return f"bbox {left} {top} {right} {bottom}"

    def _span(self, first: float, last: float, size: int) -> tuple[int, int]:
        start = min(max(0, math.floor(first * self.scale)), size - 1)
        return start, min(max(start + 1, math.ceil(last * self.scale)), size)


def _area(block: Block, number: str, frame: _Frame) -> str:
    lines = block.lines if any(line.words for line in block.lines) else tuple(_spread(block))
    written = "".join(_line(line, f"{number}_{n}", frame) for n, line in enumerate(lines, 1) if line.words)
    if not written:
        return ""
    box = frame.bbox(block.box)
    paragraph = f'<p class="ocr_par" id="par_{number}" title="{box}">\n{written}</p>\n'
    return f'<div class="ocr_carea" id="block_{number}" title="{box}">\n{paragraph}</div>\n'


def _line(line: Line, number: str, frame: _Frame) -> str:
    title = frame.bbox(line.box)
    if line.angle:
        title += f"; textangle {-line.angle % 360:.1f}"  # counter-clockwise there
    if line.size_pt:
        title += f"; x_size {line.size_pt * frame.scale:.1f}"
    direction = ' dir="rtl"' if line.direction is Direction.RTL else ""
    words = " ".join(_word(word, f"{number}_{n}", frame) for n, word in enumerate(line.words, 1))
    return f'<span class="ocr_line" id="line_{number}"{direction} title="{title}">{words}</span>\n'


def _word(word: Word, number: str, frame: _Frame) -> str:
    sure = round(
        100 * (1.0 if word.confidence is None else word.confidence)
    )  # a text layer's words are certain
    title = f"{frame.bbox(word.box)}; x_wconf {min(100, max(0, sure))}"
    return f'<span class="ocrx_word" id="word_{number}" title="{title}">{_text(word.text)}</span>'


def _spread(block: Block) -> Iterator[Line]:
    """The block's text as lines and words whose boxes are guessed."""
    rows = [row.split() for row in block.text.splitlines() if row.split()]
    left, top, right, bottom = block.box
    height = (bottom - top) / max(1, len(rows))
    for n, words in enumerate(rows):
        step = (right - left) / (sum(len(word) + 1 for word in words) - 1)
        at, upper = left, top + n * height
        found = []
        for word in words:
            found.append(Word(word, (at, upper, at + len(word) * step, upper + height), 0.0))
            at += (len(word) + 1) * step
        yield Line(" ".join(words), (left, upper, right, upper + height), tuple(found))


def _text(text: str) -> str:
    return escape(_UNWRITABLE.sub("\ufffd", text))


def _quoted(name: str) -> str:
    """A name in a property of a title attribute: no quote, semicolon or line end leaves it."""
    return _text('"' + re.sub(r'["\\;\s]', "_", name) + '"')
