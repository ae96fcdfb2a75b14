"""What a PDF page draws besides text: ruled lines and pictures, as boxes on the displayed page."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c

from pipeline.pdf_chars import Transform
from storage.records import Box

_MAX_OBJECTS = 6_000  # a map or a plot may have a million; tables do not
_MAX_SEGMENTS = 400  # of one path: more is a drawing
_MAX_DEPTH = 4  # form objects within form objects
_THIN_PT = 2.6
_SHORT_PT = 8.0
_SMALL_PICTURE_PT2 = 100.0


@dataclass(slots=True)
class Graphics:
    """Ruled lines (thin boxes), pictures, and the number of small filled shapes, which may be letters."""

    rules: list[Box] = field(default_factory=list)
    pictures: list[Box] = field(default_factory=list)
    shapes: int = 0


def read_graphics(page: pdfium.PdfPage, transform: Transform, width_pt: float, height_pt: float) -> Graphics:
    """Rules and pictures of a page, clipped to it, in the order they are drawn."""
    found = Graphics()
    page_box = (0.0, 0.0, width_pt, height_pt)
    objects = _page_objects(page, transform)
    for item, kind, place in itertools.islice(objects, _MAX_OBJECTS):
        if kind == pdfium_c.FPDF_PAGEOBJ_IMAGE:
            box = _clip(_bounds(item, place), page_box)
            if (box[2] - box[0]) * (box[3] - box[1]) >= _SMALL_PICTURE_PT2:
                found.pictures.append(box)
        elif kind == pdfium_c.FPDF_PAGEOBJ_PATH:
            bounds = _bounds(item, place)
            found.shapes += _may_be_letter(item, bounds)
            for rule in _rules(item, bounds, place):
                box = _clip(rule, page_box)
                if max(box[2] - box[0], box[3] - box[1]) >= _SHORT_PT:
                    found.rules.append(box)
    return found


def coverage(boxes: list[Box], width_pt: float, height_pt: float) -> float:
    """Share of the page that the boxes cover together, on a grid of 64 × 64."""
    grid = np.zeros((64, 64), dtype=bool)
    for left, top, right, bottom in boxes:
        columns = slice(round(left / width_pt * 64), round(right / width_pt * 64))
        grid[round(top / height_pt * 64) : round(bottom / height_pt * 64), columns] = True
    return float(grid.mean())


def _page_objects(page: pdfium.PdfPage, transform: Transform) -> Iterator[tuple[Any, int, Transform]]:
    """Objects with their kind and how their space maps to the displayed page; those in form objects too."""
    for i in range(pdfium_c.FPDFPage_CountObjects(page.raw)):
        yield from _with_children(pdfium_c.FPDFPage_GetObject(page.raw, i), transform, 0)


def _with_children(item: Any, place: Transform, depth: int) -> Iterator[tuple[Any, int, Transform]]:
    kind = pdfium_c.FPDFPageObj_GetType(item)
    if kind != pdfium_c.FPDF_PAGEOBJ_FORM:
        yield item, kind, place
        return
    if depth < _MAX_DEPTH:
        inner = _within(place, item)
        for i in range(pdfium_c.FPDFFormObj_CountObjects(item)):
            yield from _with_children(pdfium_c.FPDFFormObj_GetObject(item, i), inner, depth + 1)


def _within(place: Transform, item: Any) -> Transform:
    """The place of what is given in an object's own space."""
    m = pdfium_c.FS_MATRIX()
    if not pdfium_c.FPDFPageObj_GetMatrix(item, m):
        return place
    return Transform(
        ax=place.ax * m.a + place.bx * m.b,
        bx=place.ax * m.c + place.bx * m.d,
        tx=place.ax * m.e + place.bx * m.f + place.tx,
        ay=place.ay * m.a + place.by * m.b,
        by=place.ay * m.c + place.by * m.d,
        ty=place.ay * m.e + place.by * m.f + place.ty,
    )


def _bounds(item: Any, place: Transform) -> Box:
    left, bottom, right, top = (ctypes.c_float() for _ in range(4))
    pdfium_c.FPDFPageObj_GetBounds(item, left, bottom, right, top)
    return _around((place.point(left.value, bottom.value), place.point(right.value, top.value)))


def _around(points: Iterable[tuple[float, float]]) -> Box:
    xs, ys = zip(*points, strict=True)
    return round(min(xs), 2), round(min(ys), 2), round(max(xs), 2), round(max(ys), 2)


def _clip(box: Box, limits: Box) -> Box:
    left, right = (min(max(x, limits[0]), limits[2]) for x in (box[0], box[2]))
    top, bottom = (min(max(y, limits[1]), limits[3]) for y in (box[1], box[3]))
    return left, top, right, bottom


def _may_be_letter(path: Any, box: Box) -> bool:
    """Whether a path has the size and the many corners of a glyph, and is filled only."""
    if not (1.0 < box[3] - box[1] < 40.0 and 0.5 < box[2] - box[0] < 60.0):
        return False
    fill, stroke = ctypes.c_int(0), ctypes.c_int(0)
    pdfium_c.FPDFPath_GetDrawMode(path, fill, stroke)
    return bool(fill.value and not stroke.value and pdfium_c.FPDFPath_CountSegments(path) > 6)


def _rules(path: Any, box: Box, place: Transform) -> Iterator[Box]:
    """Straight horizontal and vertical lines of a path: thin rectangles, strokes, and the sides of stroked boxes."""
    width, height = box[2] - box[0], box[3] - box[1]
    if max(width, height) < _SHORT_PT or not _shows(path):
        return
    if min(width, height) <= _THIN_PT:
        yield box
        return
    segments = pdfium_c.FPDFPath_CountSegments(path)
    if not 2 < segments <= _MAX_SEGMENTS:
        return
    fill, stroke = ctypes.c_int(0), ctypes.c_int(0)
    pdfium_c.FPDFPath_GetDrawMode(path, fill, stroke)
    for points in _subpaths(path, segments, _within(place, path)):
        box = _around(points)
        if _is_rule(box):
            yield box
        elif stroke.value:
            yield from filter(_is_rule, map(_around, itertools.pairwise(points)))


def _is_rule(box: Box) -> bool:
    width, height = box[2] - box[0], box[3] - box[1]
    return min(width, height) <= _THIN_PT and max(width, height) >= _SHORT_PT


def _shows(path: Any) -> bool:
    """Whether the path is drawn in something else than transparent or white."""
    fill, stroke = ctypes.c_int(0), ctypes.c_int(0)
    pdfium_c.FPDFPath_GetDrawMode(path, fill, stroke)
    red, green, blue, alpha = (ctypes.c_uint(0) for _ in range(4))
    for used, get in (
        (stroke.value, pdfium_c.FPDFPageObj_GetStrokeColor),
        (fill.value, pdfium_c.FPDFPageObj_GetFillColor),
    ):
        if used:
            known = get(path, red, green, blue, alpha)
            if not known or (alpha.value and min(red.value, green.value, blue.value) < 250):
                return True
    return False


def _subpaths(path: Any, segments: int, place: Transform) -> Iterator[list[tuple[float, float]]]:
    """Corner points of each subpath on the displayed page; those with curves are left out."""
    points: list[tuple[float, float]] = []
    curved = False
    x, y = ctypes.c_float(), ctypes.c_float()
    for i in range(segments):
        segment = pdfium_c.FPDFPath_GetPathSegment(path, i)
        kind = pdfium_c.FPDFPathSegment_GetType(segment)
        if kind == pdfium_c.FPDF_SEGMENT_MOVETO:
            if len(points) > 1 and not curved:
                yield points
            points, curved = [], False
        curved = curved or kind == pdfium_c.FPDF_SEGMENT_BEZIERTO
        pdfium_c.FPDFPathSegment_GetPoint(segment, x, y)
        points.append(place.point(x.value, y.value))
        if pdfium_c.FPDFPathSegment_GetClose(segment) and points[-1] != points[0]:
            points.append(points[0])
    if len(points) > 1 and not curved:
        yield points
