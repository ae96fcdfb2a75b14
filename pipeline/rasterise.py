"""A page to pixels: which resolution, within which budget, and the drawing of PDF pages."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from pipeline.engines.base import PageImage
from pipeline.pdfium_lock import in_pdfium
from storage.errors import CorruptError, TooLargeError
from storage.failpoints import reach
from storage.records import PageWarning

if TYPE_CHECKING:
    from PIL import Image

    from pipeline.source import SourcePage

# A page shorter than this on its long side is drawn finer than asked for: what is printed on a stamp-sized page is
# small. Engines are content from some 800 pixels on (measured on a 1.7-inch and a 3-inch page).
MIN_LONG_SIDE_PX = 1400
# No PDF page is drawn finer than this for being small: what needs more is no text.
MAX_FINE_DPI = 600.0
# Nor is a picture enlarged beyond this: interpolated pixels show nothing new.
MAX_ENLARGEMENT = 4.0
_NOTABLE = 0.98  # of the wanted resolution; less is worth a warning


def rasterise(page: SourcePage, *, dpi: float, max_pixels: int) -> PageImage:
    """`page` as pixels at `dpi`: finer where it is tiny, coarser (with warning `reduced_dpi`) beyond `max_pixels`.

    Raises: `CorruptError` when the page cannot be drawn or decoded, `TooLargeError` when memory does not suffice.
    """
    wanted = wanted_dpi(page, dpi)
    width, height = fit(page.width_pt * wanted / 72, page.height_pt * wanted / 72, max_pixels)
    reach("rasterise.draw")
    image = _draw(page, width, height) if page.native_px is None else page.decode((width, height))
    used = 72 * math.sqrt(width * height / (page.width_pt * page.height_pt))
    warnings: tuple[PageWarning, ...] = ()
    if used < wanted * _NOTABLE and width * height > max_pixels * _NOTABLE**2:
        warnings = (
            PageWarning("reduced_dpi", f"read at {used:.0f} dpi instead of {wanted:.0f}: {_extent(page)}"),
        )
    return PageImage(page.number, image, page.width_pt, page.height_pt, used, warnings)


def wanted_dpi(page: SourcePage, dpi: float) -> float:
    """The resolution `page` is worth when `dpi` is asked for, before any budget."""
    fine = MIN_LONG_SIDE_PX * 72 / max(page.width_pt, page.height_pt)
    if page.native_px is None:
        return max(dpi, min(fine, MAX_FINE_DPI))
    native = 72 * max(page.native_px[0] / page.width_pt, page.native_px[1] / page.height_pt)
    return min(max(dpi, fine), native * MAX_ENLARGEMENT)


def fit(width: float, height: float, max_pixels: int) -> tuple[int, int]:
    """Whole pixels for a picture of `width` by `height`, shrunk to at most `max_pixels` in all; no side below 1."""
    shrink = min(1.0, math.sqrt(max_pixels / width / height))
    columns, rows = (min(max(1, round(side * shrink)), max_pixels) for side in (width, height))
    if columns * rows > max_pixels:  # by rounding up, or because one side could not shrink below 1
        if columns > rows:
            columns = max(1, max_pixels // rows)
        else:
            rows = max(1, max_pixels // columns)
    return columns, rows


def _extent(page: SourcePage) -> str:
    if page.native_px is not None:
        return f"the picture has {page.native_px[0]} x {page.native_px[1]} pixels"
    return f"the page is {page.width_pt / 72:.0f} x {page.height_pt / 72:.0f} inches"


@in_pdfium
def _draw(page: SourcePage, width: int, height: int) -> Image.Image:
    """The PDF page as a viewer shows it: annotations and filled form fields included; RGB."""
    import pypdfium2
    import pypdfium2.raw as pdfium

    pdf_page: Any = page.pdf
    bitmap = None
    try:
        # BGR with the byte order turned round is RGB, and faster than the formats with a fourth byte.
        bitmap = pypdfium2.PdfBitmap.new_native(
            width, height, format=pdfium.FPDFBitmap_BGR, rev_byteorder=True
        )
        bitmap.fill_rect((255, 255, 255, 255), 0, 0, width, height)
        place = (bitmap, pdf_page, 0, 0, width, height, 0)
        flags = pdfium.FPDF_ANNOT | pdfium.FPDF_REVERSE_BYTE_ORDER
        pdfium.FPDF_RenderPageBitmap(*place, flags)
        if pdf_page.formenv:
            pdfium.FPDF_FFLDraw(pdf_page.formenv, *place, flags)
        image: Image.Image = bitmap.to_pil()
        return image
    except MemoryError as error:
        raise TooLargeError(
            f"not enough memory for {width} x {height} pixels", file=page.path, page=page.number
        ) from error
    except pypdfium2.PdfiumError as error:
        raise CorruptError("the page cannot be drawn", file=page.path, page=page.number) from error
    finally:
        if bitmap is not None:
            bitmap.close()
