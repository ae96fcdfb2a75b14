"""Annotations of a PDF page: links, and whether there is text that only annotations show.

PDFium's text page reads page content only. What form fields, free-text notes and stamps show lies in their own
appearance streams, so the page is copied into a scratch document and flattened there: its annotations become
content, with the place, font and order a viewer gives them. The open document is not touched.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c

from pipeline.pdf_chars import Transform
from storage.records import Box

_HIDDEN = pdfium_c.FPDF_ANNOT_FLAG_HIDDEN | pdfium_c.FPDF_ANNOT_FLAG_NOVIEW
_MAX_LINKS = 2000
_SHOW_TEXT = frozenset(
    {
        pdfium_c.FPDF_ANNOT_WIDGET,
        pdfium_c.FPDF_ANNOT_FREETEXT,
        pdfium_c.FPDF_ANNOT_STAMP,
        pdfium_c.FPDF_ANNOT_WATERMARK,
        pdfium_c.FPDF_ANNOT_REDACT,
    }
)


def read_annotations(page: pdfium.PdfPage, transform: Transform) -> tuple[list[tuple[Box, str]], bool]:
    """Links as (area, URI), and whether any annotation may show text of its own."""
    links: list[tuple[Box, str]] = []
    shows_text = False
    document = page.pdf.raw
    for i in range(pdfium_c.FPDFPage_GetAnnotCount(page.raw)):
        annotation = pdfium_c.FPDFPage_GetAnnot(page.raw, i)
        if not annotation:
            continue
        try:
            kind = pdfium_c.FPDFAnnot_GetSubtype(annotation)
            if kind == pdfium_c.FPDF_ANNOT_LINK and len(links) < _MAX_LINKS:
                links += _link(annotation, document, transform)
            elif kind in _SHOW_TEXT and not pdfium_c.FPDFAnnot_GetFlags(annotation) & _HIDDEN:
                shows_text = True
        finally:
            pdfium_c.FPDFPage_CloseAnnot(annotation)
    return links, shows_text


def _link(annotation: Any, document: Any, transform: Transform) -> list[tuple[Box, str]]:
    action = pdfium_c.FPDFLink_GetAction(pdfium_c.FPDFAnnot_GetLink(annotation))
    length = pdfium_c.FPDFAction_GetURIPath(document, action, None, 0) if action else 0
    rect = pdfium_c.FS_RECTF()
    if length <= 1 or not pdfium_c.FPDFAnnot_GetRect(annotation, rect):
        return []
    buffer = ctypes.create_string_buffer(length)
    pdfium_c.FPDFAction_GetURIPath(document, action, buffer, length)
    corners = np.array([[rect.left, rect.bottom, rect.right, rect.top]])
    left, top, right, bottom = transform.rectangles(corners)[0].round(2).tolist()
    return [((left, top, right, bottom), buffer.value.decode("utf-8", "replace"))]


@contextmanager
def flattened(page: pdfium.PdfPage, number: int) -> Iterator[pdfium.PdfPage]:
    """A copy of page `number` (from 1) with its annotations drawn into its content.

    Raises: `pdfium.PdfiumError` if PDFium cannot copy or flatten it.
    """
    scratch = pdfium.PdfDocument.new()
    try:
        scratch.import_pages(page.pdf, [number - 1])
        before = scratch[0]
        done = pdfium_c.FPDFPage_Flatten(before.raw, pdfium_c.FLAT_NORMALDISPLAY)
        before.close()
        if done == pdfium_c.FLATTEN_FAIL:
            raise pdfium.PdfiumError("cannot draw the annotations into the page")
        after = scratch[0]
        try:
            yield after
        finally:
            after.close()
    finally:
        scratch.close()
