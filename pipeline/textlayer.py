"""The text layer of a PDF page: its lines with boxes, and a verdict on what they are worth."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipeline.pdfium_lock import in_pdfium
from storage.records import Box, LayerVerdict, PageText

if TYPE_CHECKING:
    from PIL import Image

    from pipeline.layer_ink import Ink
    from pipeline.layer_quality import SampleReader
    from pipeline.source import SourcePage

log = logging.getLogger(__name__)

_INK_LONG_SIDE_PX = 1200
_INK_MAX_SCALE = 4.0  # pixels per point, on tiny pages
_SAMPLE_DPI = 200
_SAMPLE_MARGIN_PT = 4.0
_SAMPLE_LONG_SIDE_PX = 3000


@dataclass(frozen=True, slots=True)
class TextLayer:
    """A page's own text. `text` is None where there is none; a BAD layer's lines may still serve as a hint."""

    text: PageText | None
    verdict: LayerVerdict
    reason: str  # in plain words, for the page's row and the sidecar


@in_pdfium
def read_text_layer(page: SourcePage, *, sample_reader: SampleReader | None = None) -> TextLayer:
    """Lines, rules, pictures and links of a page and whether they can stand for it.

    `sample_reader` reads a small picture of a line; it is asked about layers that nothing else can settle. Call it
    from the thread that opened the source.
    """
    if page.pdf is None:
        return TextLayer(None, LayerVerdict.ABSENT, "a picture has no text layer")
    import pypdfium2 as pdfium

    try:
        return _read(page, sample_reader)
    except pdfium.PdfiumError as error:
        log.warning("page %d: no text layer: %s", page.number, error)
        return TextLayer(None, LayerVerdict.ABSENT, f"its text layer cannot be read ({error})")


def _read(page: SourcePage, sample_reader: SampleReader | None) -> TextLayer:
    from pipeline.layer_quality import Evidence, judge
    from pipeline.pdf_annotations import read_annotations
    from pipeline.pdf_chars import display_transform, read_characters
    from pipeline.pdf_graphics import coverage, read_graphics
    from pipeline.pdf_words import to_lines

    width, height = page.width_pt, page.height_pt
    transform = display_transform(page.pdf, width, height)
    links, shows_text = read_annotations(page.pdf, transform)
    with _content(page, shows_text) as content:
        characters = read_characters(content, transform, width, height)
        graphics = read_graphics(content, transform, width, height)
    lines = to_lines(characters)
    evidence = Evidence(
        codes=characters.codes.tolist(),
        lines=lines,
        outside=characters.outside,
        pictures_cover=coverage(graphics.pictures, width, height),
        shapes=graphics.shapes,
        ink=lambda: _ink(page),
        crop=lambda box: _crop(page, box),
    )
    judgement = judge(evidence, sample_reader)
    text = PageText(
        width_pt=width,
        height_pt=height,
        lines=tuple(item.line for item in judgement.lines),
        rules=tuple(graphics.rules),
        pictures=tuple(graphics.pictures),
        links=tuple(links),
    )
    return TextLayer(text if text.lines else None, judgement.verdict, judgement.reason)


@contextmanager
def _content(page: SourcePage, shows_text: bool) -> Iterator[Any]:
    """The page, or a copy with its annotations drawn into it."""
    if not shows_text:
        yield page.pdf
        return
    from pipeline.pdf_annotations import flattened

    with flattened(page.pdf, page.number) as copy:
        yield copy


def _ink(page: SourcePage) -> Ink:
    from pipeline.layer_ink import Ink

    scale = min(_INK_LONG_SIDE_PX / max(page.width_pt, page.height_pt), _INK_MAX_SCALE)
    image = _render(page, scale, None)
    import numpy as np

    grey = np.asarray(image, dtype=np.uint8)
    return Ink(grey, grey.shape[1] / page.width_pt, grey.shape[0] / page.height_pt)


def _crop(page: SourcePage, box: Box) -> Image.Image:
    scale = min(_SAMPLE_DPI / 72, _SAMPLE_LONG_SIDE_PX / max(box[2] - box[0], box[3] - box[1]))
    return _render(page, scale, box)


def _render(page: SourcePage, scale: float, box: Box | None) -> Image.Image:
    """The page, or what lies about `box`, in grey, `scale` pixels per point."""
    cut = (0.0, 0.0, 0.0, 0.0)
    if box is not None:
        left, top = max(0.0, box[0] - _SAMPLE_MARGIN_PT), max(0.0, box[1] - _SAMPLE_MARGIN_PT)
        right = max(0.0, page.width_pt - box[2] - _SAMPLE_MARGIN_PT)
        cut = (left, max(0.0, page.height_pt - box[3] - _SAMPLE_MARGIN_PT), right, top)
    pdf: Any = page.pdf
    bitmap = pdf.render(scale=scale, crop=cut, grayscale=True)
    try:
        image: Image.Image = bitmap.to_pil().convert("L").copy()
        return image
    finally:
        bitmap.close()
