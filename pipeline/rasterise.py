"""A page to pixels: which resolution, within which budget, and the rendering itself."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from pipeline.engines.base import PageImage
from storage.errors import CorruptError, TooLargeError
from storage.records import PageWarning

if TYPE_CHECKING:
    from PIL import Image

    from pipeline.source import SourcePage

# A page shorter than this on its long side is rendered larger than asked for: text on a stamp-sized page is small.
MIN_LONG_SIDE_PX = 1400
# No page is rendered finer than this for being small, unless it is one picture that has more.
MAX_PAGE_DPI = 600.0
MAX_ENLARGEMENT = 4.0  # of an image's own pixels: more adds nothing to see


def rasterise(page: SourcePage, *, dpi: float, max_pixels: int) -> PageImage:
    """`page` as pixels at `dpi`; finer where the page is tiny, coarser (with a warning) where `max_pixels` is short.

    Raises: `CorruptError` when the page cannot be drawn, `TooLargeError` when memory does not suffice.
    """
    width, height, wanted = _size(page, dpi, max_pixels)
    image = _render(page, width, height) if page.native_px is None else page.decode((width, height))
    used = 72 * math.sqrt(width * height / (page.width_pt * page.height_pt))
    warnings: tuple[PageWarning, ...] = ()
    if used < wanted * 0.98 and page.native_px is None:
        warnings = (PageWarning("reduced_dpi", f"read at {used:.0f} dpi: the page is {_inches(page)}"),)
    return PageImage(page.number, image, page.width_pt, page.height_pt, used, warnings)


def _inches(page: SourcePage) -> str:
    return f"{page.width_pt / 72:.0f} x {page.height_pt / 72:.0f} inches"


def _size(page: SourcePage, dpi: float, max_pixels: int) -> tuple[int, int, float]:
    """Width and height in pixels, and the resolution that was wanted."""
    wanted = dpi
    if page.native_px is None:
        long_in = max(page.width_pt, page.height_pt) / 72
        wanted = max(dpi, min(MIN_LONG_SIDE_PX / long_in, MAX_PAGE_DPI))
        width, height = page.width_pt * wanted / 72, page.height_pt * wanted / 72
    else:
        width, height = (float(side) for side in page.native_px)
        if max(width, height) < MIN_LONG_SIDE_PX:
            enlarge = min(MIN_LONG_SIDE_PX / max(width, height), MAX_ENLARGEMENT)
            width, height = width * enlarge, height * enlarge
    return (*fit(width, height, max_pixels), wanted)


def fit(width: float, height: float, max_pixels: int) -> tuple[int, int]:
    """Whole pixels for a picture of `width` by `height`, scaled down to at most `max_pixels`; each side at least 1."""
    shrink = min(1.0, math.sqrt(max_pixels / (width * height)))
    columns = max(1, min(round(width * shrink), max_pixels))
    rows = max(1, round(height * shrink))
    if columns * rows > max_pixels:  # rounding up, or a side that cannot shrink below one pixel
        rows = max(1, max_pixels // columns)
    return columns, rows


def _render(page: SourcePage, width: int, height: int) -> Image.Image:
    """The PDF page drawn as a viewer would: annotations and filled form fields included."""
    import pypdfium2
    import pypdfium2.raw as pdfium

    source: Any = page.pdf
    try:
        bitmap = pypdfium2.PdfBitmap.new_native(
            width, height, format=pdfium.FPDFBitmap_BGRx, rev_byteorder=True
        )
    except (pypdfium2.PdfiumError, MemoryError):
        raise TooLargeError(f"no memory for {width} x {height} pixels", page=page.number) from None
    try:
        bitmap.fill_rect((255, 255, 255, 255), 0, 0, width, height)
        place = (bitmap, source, 0, 0, width, height, 0)
        flags = pdfium.FPDF_ANNOT | pdfium.FPDF_REVERSE_BYTE_ORDER
        pdfium.FPDF_RenderPageBitmap(*place, flags)
        if source.formenv:
            pdfium.FPDF_FFLDraw(source.formenv, *place, flags)
        image: Image.Image = bitmap.to_pil().convert("RGB")
        return image
    except pypdfium2.PdfiumError:
        raise CorruptError("the page cannot be drawn", page=page.number) from None
    finally:
        bitmap.close()
