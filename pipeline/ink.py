"""Ink and paper: how much each pixel differs from the paper around it, and which inked spots hang together."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image

    Bytes = np.ndarray[Any, np.dtype[np.uint8]]
    Grey = np.ndarray[Any, np.dtype[np.int16]]
    Mask = np.ndarray[Any, np.dtype[np.bool_]]

CELL = 4  # pixels of a cell in which ink is counted; letters of a word touch each other's cells
# Pages are looked at in about this many pixels: 100 dpi for A4, where letters still have strokes and noise is halved.
_WORK_PX = 1_000_000
_TILE = 16  # pixels of a tile in which the paper's brightness is taken
_PAPER_REACH = 2  # tiles: dark things up to twice this wide lie on the paper, wider ones are the paper

# Grey levels (of 255) that ink differs from the paper around it.
_LEAST_CONTRAST = 20
_LEAST_CONTRAST_CLEAN = 12  # without any noise: drawn, not scanned
_CLEAN_SIGMA = 0.75
_SIGMAS = 5.0

_BAND_SHARE = 0.08  # of the page: shadows of a scanner's edge reach this far in
_LARGE_CELLS = 15  # both sides longer: no hole, no speck, no streak


@dataclass(frozen=True, slots=True)
class Spot:
    """Cells of ink that touch: their box in cells, right and bottom exclusive."""

    left: int
    top: int
    right: int
    bottom: int
    is_large: bool  # too large for dirt; the box may not be complete


def contrast_of(picture: Image.Image) -> Grey:
    """How much darker (or, below 0, lighter) than the paper around it each pixel is; about `_WORK_PX` of them."""
    import numpy as np
    from PIL import Image

    picture = picture if picture.mode == "L" else picture.convert("L")
    factor = max(1, round(math.sqrt(picture.width * picture.height / _WORK_PX)))
    if factor > 1:
        picture = picture.reduce(factor)
    grey = np.asarray(picture)
    rows, columns = grey.shape
    padded = np.pad(grey, ((0, -rows % _TILE), (0, -columns % _TILE)), mode="edge")
    tiles = padded.reshape(padded.shape[0] // _TILE, _TILE, padded.shape[1] // _TILE, _TILE)
    samples = tiles[:, ::2, :, ::2].swapaxes(1, 2).reshape(tiles.shape[0], tiles.shape[2], -1)
    median = np.partition(samples, samples.shape[2] // 2, axis=2)[:, :, samples.shape[2] // 2]
    paper = Image.fromarray(_close(median)).resize(padded.shape[::-1], Image.Resampling.BILINEAR)
    contrast: Grey = np.asarray(paper)[:rows, :columns].astype(np.int16) - grey
    return contrast


def _close(tiles: Bytes) -> Bytes:
    """Dark tiles up to `2 * _PAPER_REACH` wide take the brightness around them (a morphological closing).

    Beyond the edges there is paper, so that a dark band along an edge is no paper of its own.
    """
    import numpy as np

    reach = 2 * _PAPER_REACH
    padded = np.pad(tiles, reach, constant_values=np.uint8(np.median(tiles)))
    for extreme in (np.maximum, np.minimum):
        for axis in (0, 1):
            length = padded.shape[axis] - reach
            padded = extreme.reduce([padded.take(range(at, at + length), axis) for at in range(reach + 1)])
    return padded


def ink_threshold(contrast: Grey) -> float:
    """The contrast from which on a pixel is ink, by the noise of this page."""
    import numpy as np

    sample = contrast[::3, ::3]
    sigma = 1.4826 * float(np.median(abs(sample - np.median(sample))))
    return max(_SIGMAS * sigma, _LEAST_CONTRAST_CLEAN if sigma < _CLEAN_SIGMA else _LEAST_CONTRAST)


def inked_cells(ink: Mask) -> Mask:
    """Cells with at least two pixels of ink, without bands along the edges (shadows of lid and glass)."""
    import numpy as np

    rows, columns = (-(-side // CELL) for side in ink.shape)
    padded = np.zeros((rows * CELL, columns * CELL), np.uint8)
    padded[: ink.shape[0], : ink.shape[1]] = ink
    by_row = padded.reshape(rows, CELL, columns * CELL).sum(axis=1, dtype=np.uint8)
    cells: Mask = by_row.reshape(rows, columns, CELL).sum(axis=2, dtype=np.uint8) >= 2
    for _ in range(2):  # again, for the corner where two bands meet
        cells &= ~_edge_bands(cells)
    return cells


def _edge_bands(cells: Mask) -> Mask:
    """Cells that are joined to an edge in a straight run too short to reach the print area."""
    import numpy as np

    bands = np.zeros_like(cells)
    for view, band in (
        (cells, bands),
        (cells[:, ::-1], bands[:, ::-1]),
        (cells.T, bands.T),
        (cells.T[:, ::-1], bands.T[:, ::-1]),
    ):
        run = np.logical_and.accumulate(view, axis=1)
        short = run.sum(axis=1) <= max(1, _BAND_SHARE * view.shape[1])
        band |= run & short[:, None]
    return bands


def spots(cells: Mask) -> Iterator[Spot]:
    """Connected cells, those nearest to the middle of the page first: print is there, dirt is at the edges."""
    import numpy as np

    rows, columns = cells.shape
    at_rows, at_columns = np.nonzero(cells)
    from_middle = np.maximum(abs(at_rows / rows - 0.5), abs(at_columns / columns - 0.5))
    stride = columns + 2  # with a margin, so that every cell has eight neighbours
    seeds = ((at_rows + 1) * stride + at_columns + 1)[np.argsort(from_middle, kind="stable")]
    left = bytearray(np.pad(cells, 1).tobytes())
    for seed in seeds.tolist():
        if left[seed]:
            yield _grow(seed, left, stride)


def _grow(seed: int, left: bytearray, stride: int) -> Spot:
    """The spot that cell `seed` is part of; its cells are taken out of `left`, row by row of `stride` cells."""
    around = (-stride - 1, -stride, -stride + 1, -1, 1, stride - 1, stride, stride + 1)
    open_cells = [seed]
    left[seed] = 0
    top, start = bottom, end = divmod(seed, stride)
    is_large = False
    while open_cells and not is_large:
        cell = open_cells.pop()
        row, column = divmod(cell, stride)
        top, bottom, start, end = min(top, row), max(bottom, row), min(start, column), max(end, column)
        is_large = min(bottom - top, end - start) >= _LARGE_CELLS
        for step in around:
            if left[cell + step]:
                left[cell + step] = 0
                open_cells.append(cell + step)
    return Spot(start - 1, top - 1, end, bottom, is_large)  # without the margin
