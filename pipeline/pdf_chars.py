"""The characters of a PDF page as arrays, straight from PDFium's text page.

The one place that talks to PDFium character by character. PDFium's own line breaks and generated spaces are left
out: `pipeline.pdf_words` decides about words and lines from positions.

The calls take well under a microsecond each and there are five for every character, so they are made through
`ctypes.PYFUNCTYPE`, which keeps the interpreter lock: released and taken again for each of 20,000 calls, the lock
could cost up to its switch interval (5 ms) every time while another thread computes.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_FLAG_FIXED_PITCH = 1
_FLAG_ITALIC = 1 << 6
_FLAG_FORCE_BOLD = 1 << 18
_PALE = 230  # of 255: a fill colour from here on is hard to see on white paper
_STROKED = frozenset(
    {pdfium_c.FPDF_TEXTRENDERMODE_FILL_STROKE, pdfium_c.FPDF_TEXTRENDERMODE_FILL_STROKE_CLIP}
)
_INVISIBLE = frozenset({pdfium_c.FPDF_TEXTRENDERMODE_INVISIBLE, pdfium_c.FPDF_TEXTRENDERMODE_CLIP})
_BOLD_NAMES = ("bold", "black", "heavy", "demi", "-medi", "cmbx", "cmssbx", "sfbx", "sfsx")
_ITALIC_NAMES = ("italic", "oblique", "cmti", "cmsl", "sfti", "slanted")
_MONO_NAMES = ("mono", "courier", "consol", "typewriter", "cmtt", "sftt", "menlo", "lettergothic")


@dataclass(frozen=True, slots=True)
class Style:
    """What the characters of a text object share."""

    size_pt: float
    angle: float  # degrees clockwise the text is turned on the displayed page, -180 < angle <= 180
    bold: bool = False
    italic: bool = False
    mono: bool = False
    invisible: bool = False  # render mode 3 or 7, or fully transparent
    pale: bool = False  # filled with white or nearly so
    unmapped: bool = False  # PDFium found no way from the glyph code to Unicode


@dataclass(frozen=True, slots=True)
class Characters:
    """The characters of a page in the order PDFium gives them, N of them; points on the displayed page.

    `codes` (N,) Unicode code points (or UTF-16 surrogates); `boxes` (N, 4) left, top, right, bottom: advance width
    by ascent and descent of the font; `origins` (N, 2): where the glyph sits on its baseline; `style_of` (N,) index
    into `styles`; `object_of` (N,) number of the text object; `spaced` (N,) whether PDFium, which knows the font's
    widths, sees a space before the character where the file has none. Characters outside the page are left out and
    counted.
    """

    codes: npt.NDArray[np.uint32]
    boxes: Floats
    origins: Floats
    style_of: Ints
    object_of: Ints
    spaced: Bools
    styles: tuple[Style, ...]
    outside: int = 0

    def __len__(self) -> int:
        return len(self.codes)


@dataclass(frozen=True, slots=True)
class Transform:
    """From PDF user space to points on the displayed page: `x' = ax·x + bx·y + tx`, `y' = ay·x + by·y + ty`."""

    ax: float
    bx: float
    tx: float
    ay: float
    by: float
    ty: float

    def point(self, x: float, y: float) -> tuple[float, float]:
        """One point, transformed."""
        return self.ax * x + self.bx * y + self.tx, self.ay * x + self.by * y + self.ty

    def points(self, xy: Floats) -> Floats:
        """Points (N, 2), transformed."""
        x, y = xy[:, 0], xy[:, 1]
        return np.stack((self.ax * x + self.bx * y + self.tx, self.ay * x + self.by * y + self.ty), axis=1)

    def rectangles(self, ltrb: Floats) -> Floats:
        """Rectangles (N, 4) of two opposite corners each, transformed to left, top, right, bottom."""
        one, two = self.points(ltrb[:, :2]), self.points(ltrb[:, 2:])
        return np.concatenate((np.minimum(one, two), np.maximum(one, two)), axis=1)

    def angle(self, dx: float, dy: float) -> float:
        """Degrees clockwise, on the displayed page, of a direction in user space; right angles come out exactly."""
        x, y = self.ax * dx + self.bx * dy, self.ay * dx + self.by * dy
        angle = math.degrees(math.atan2(y, x))
        near = round(angle / 90) * 90
        angle = near if abs(angle - near) < 0.5 else round(angle)
        return 180.0 if angle == -180 else float(angle)

    @property
    def scale(self) -> float:
        """Displayed points per unit of user space."""
        return math.hypot(self.ax, self.ay)


def display_transform(page: pdfium.PdfPage, width_pt: float, height_pt: float) -> Transform:
    """How user space maps to the page as displayed, `width_pt` × `height_pt`, /Rotate and CropBox applied."""
    bounds = pdfium_c.FS_RECTF()
    if not pdfium_c.FPDF_GetPageBoundingBox(page.raw, bounds):
        bounds.left, bounds.bottom, bounds.right, bounds.top = 0, 0, width_pt, height_pt
    left, bottom, right, top = bounds.left, bounds.bottom, bounds.right, bounds.top
    width, height = (right - left) or 1.0, (top - bottom) or 1.0
    turns = pdfium_c.FPDFPage_GetRotation(page.raw) % 4
    if turns % 2:
        sx, sy = width_pt / height, height_pt / width
    else:
        sx, sy = width_pt / width, height_pt / height
    if turns == 0:
        return Transform(sx, 0, -left * sx, 0, -sy, top * sy)
    if turns == 1:
        return Transform(0, sx, -bottom * sx, sy, 0, -left * sy)
    if turns == 2:
        return Transform(-sx, 0, right * sx, 0, sy, -bottom * sy)
    return Transform(0, -sx, top * sx, -sy, 0, right * sy)


def read_characters(
    page: pdfium.PdfPage, transform: Transform, width_pt: float, height_pt: float
) -> Characters:
    """All characters drawn on a page, visible or not; generated ones are left out."""
    with _text_page(page) as handle:
        count = max(0, pdfium_c.FPDFText_CountChars(handle))
        address = ctypes.cast(handle, ctypes.c_void_p).value
        call = _calls()
        objects = [call.text_object(address, i) or 0 for i in range(count)]
        codes = np.array([call.unicode(address, i) for i in range(count)], dtype=np.uint32)
        boxes, origins = _geometry(address, count, transform)
        # Spaces and line ends that PDFium generated have no extent, and mostly no text object.
        drawn = (np.array(objects, dtype=np.uint64) != 0) & ((codes != 32) | (boxes[:, 2] > boxes[:, 0]))
        kept = np.flatnonzero(drawn)
        unique, first, object_of = np.unique(
            np.array(objects, dtype=np.uint64)[kept], return_index=True, return_inverse=True
        )
        styles = _StyleReader(handle, transform)
        style_of_object = np.array([styles.index(i) for i in kept[first].tolist()], dtype=np.int64)
        style_of = style_of_object[object_of] if len(unique) else np.zeros(0, dtype=np.int64)
    middle = (boxes[kept, :2] + boxes[kept, 2:]) / 2
    inside = (middle > -0.5).all(axis=1) & (middle < (width_pt + 0.5, height_pt + 0.5)).all(axis=1)
    kept = kept[inside]
    after_space = np.zeros(count, dtype=bool)
    after_space[1:] = ~drawn[:-1] & (codes[:-1] == 32)
    return Characters(
        codes=codes[kept],
        boxes=boxes[kept],
        origins=origins[kept],
        style_of=style_of[inside],
        object_of=object_of.astype(np.int64)[inside],
        spaced=after_space[kept],
        styles=tuple(styles.found),
        outside=int((~inside).sum()),
    )


@contextmanager
def _text_page(page: pdfium.PdfPage) -> Iterator[Any]:
    handle = pdfium_c.FPDFText_LoadPage(page.raw)
    if not handle:
        raise pdfium.PdfiumError("cannot load the text of the page")
    try:
        yield handle
    finally:
        pdfium_c.FPDFText_ClosePage(handle)


@dataclass(frozen=True, slots=True)
class _Calls:
    unicode: Any
    text_object: Any
    loose_box: Any
    origin: Any


@functools.cache
def _calls() -> _Calls:
    index, pointer = ctypes.c_int, ctypes.c_void_p

    def bind(name: str, *types: Any) -> Any:
        address = ctypes.cast(getattr(pdfium_c, name), ctypes.c_void_p).value or 0
        return ctypes.PYFUNCTYPE(*types)(address)

    return _Calls(
        unicode=bind("FPDFText_GetUnicode", ctypes.c_uint, pointer, index),
        text_object=bind("FPDFText_GetTextObject", pointer, pointer, index),
        loose_box=bind("FPDFText_GetLooseCharBox", ctypes.c_int, pointer, index, pointer),
        origin=bind("FPDFText_GetCharOrigin", ctypes.c_int, pointer, index, pointer, pointer),
    )


def _geometry(address: int | None, count: int, transform: Transform) -> tuple[Floats, Floats]:
    call = _calls()
    loose = np.zeros((count, 4), dtype=np.float32)  # FS_RECTF: left, top, right, bottom
    origins = np.zeros((count, 2), dtype=np.float64)
    at_box, at_origin = loose.ctypes.data, origins.ctypes.data
    for i in range(count):
        call.loose_box(address, i, at_box + 16 * i)
        call.origin(address, i, at_origin + 16 * i, at_origin + 16 * i + 8)
    boxes, origins = transform.rectangles(loose.astype(np.float64)), transform.points(origins)
    lost = ~np.isfinite(origins).all(axis=1)
    origins[lost] = boxes[lost][:, (0, 3)]
    return boxes, origins


@dataclass(slots=True)
class _StyleReader:
    """Reads the style of a text object from its first character; equal styles share an index."""

    text_page: Any
    transform: Transform
    found: list[Style] = field(default_factory=list)
    _indices: dict[tuple[float, ...], int] = field(default_factory=dict)  # by what PDFium says, rounded
    _fonts: dict[int, tuple[bool, bool, bool]] = field(default_factory=dict)
    _matrix: Any = field(default_factory=pdfium_c.FS_MATRIX)
    _colour: Any = field(
        default_factory=lambda: [ctypes.c_uint() for _ in range(4)]
    )  # red, green, blue, alpha

    def index(self, char: int) -> int:
        """Index into `found` of the style of character `char`. Most objects of a page look like another."""
        item = pdfium_c.FPDFText_GetTextObject(self.text_page, char)
        matrix = self._matrix
        pdfium_c.FPDFText_GetMatrix(self.text_page, char, matrix)
        size = pdfium_c.FPDFText_GetFontSize(self.text_page, char)
        mode = pdfium_c.FPDFTextObj_GetTextRenderMode(item)
        filled = pdfium_c.FPDFPageObj_GetFillColor(item, *self._colour)
        red, green, blue, alpha = (part.value for part in self._colour) if filled else (0, 0, 0, 255)
        font = pdfium_c.FPDFTextObj_GetFont(item)
        address = ctypes.cast(font, ctypes.c_void_p).value or 0
        unmapped = pdfium_c.FPDFText_HasUnicodeMapError(self.text_page, char) == 1
        axes = (round(matrix.a, 3), round(matrix.b, 3), round(matrix.c, 3), round(matrix.d, 3))
        pale = min(red, green, blue) >= _PALE
        key = (address, round(size, 2), *axes, mode, pale, alpha == 0, unmapped)
        if key not in self._indices:
            if address not in self._fonts:
                self._fonts[address] = _font_traits(font) if address else (False, False, False)
            bold, italic, mono = self._fonts[address]
            self._indices[key] = len(self.found)
            self.found.append(
                Style(
                    size_pt=self._size(size, matrix),
                    angle=self.transform.angle(matrix.a, matrix.b),
                    bold=bold or mode in _STROKED,
                    italic=italic or (abs(matrix.b) < 1e-6 and abs(matrix.c) > 0.15 * abs(matrix.d) > 0),
                    mono=mono,
                    invisible=mode in _INVISIBLE or alpha == 0,
                    pale=pale,
                    unmapped=unmapped,
                )
            )
        return self._indices[key]

    def _size(self, size: float, matrix: Any) -> float:
        height = math.hypot(matrix.c, matrix.d) or math.hypot(matrix.a, matrix.b) or 1.0
        return round(abs(size) * height * self.transform.scale, 2)


def _font_traits(font: Any) -> tuple[bool, bool, bool]:
    """Bold, italic, monospaced: from the font's flags, else from what its name says."""
    length = pdfium_c.FPDFFont_GetBaseFontName(font, None, 0)
    buffer = ctypes.create_string_buffer(max(1, length))
    pdfium_c.FPDFFont_GetBaseFontName(font, buffer, length)
    name = buffer.value.decode("utf-8", "replace").lower()
    flags = max(0, pdfium_c.FPDFFont_GetFlags(font))
    slant = ctypes.c_int(0)
    pdfium_c.FPDFFont_GetItalicAngle(font, slant)
    # Not FPDFFont_GetWeight: it guesses from stem widths, and calls Georgia and slanted Helvetica bold.
    bold = bool(flags & _FLAG_FORCE_BOLD) or any(part in name for part in _BOLD_NAMES)
    italic = bool(flags & _FLAG_ITALIC) or slant.value != 0 or any(part in name for part in _ITALIC_NAMES)
    mono = bool(flags & _FLAG_FIXED_PITCH) or any(part in name for part in _MONO_NAMES)
    return bold, italic, mono
