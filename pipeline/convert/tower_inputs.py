"""A page as the vision tower's one input: pixels, rotary tables and mask side by side, padded to a length.

One array, since Core ML below iOS 18 takes one input of several shapes only, and since its rows belong together:
row i is patch i. Tables are made here in float64: inside the program, float16 would round the angles (a patch in row
200 by up to 0.06 rad) before it takes their cosine.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.convert.tower_config import TowerConfig

Array = NDArray[np.float32]
THETA = 10_000.0
# Added to the attention scores of padding. Its exponential is exactly 0 beside any real score, and two of it fit
# into float16, where -inf would make NaN of a row that is masked as a whole.
MASKED = -3e4


def positions(rows: int, columns: int, merge: int) -> NDArray[np.float64]:
    """(rows · columns, 2) row and column of every patch in the processor's order: merge × merge squares together."""
    row, column = np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij")
    grid = np.stack([row, column], axis=-1).astype(np.float64)
    squares = grid.reshape(rows // merge, merge, columns // merge, merge, 2)
    return squares.transpose(0, 2, 1, 3, 4).reshape(-1, 2)


def rotary_tables(rows: int, columns: int, config: TowerConfig) -> tuple[Array, Array]:
    """Cosines and sines, each (patches, rotary_width) float32: first half by the row, second by the column."""
    width = config.rotary_width
    frequencies = THETA ** -(np.arange(0, width, 2, dtype=np.float64) / width)  # (width / 2,)
    angles = (positions(rows, columns, config.merge)[..., None] * frequencies).reshape(-1, width)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def pack(pixels: Array, rows: int, columns: int, length: int, config: TowerConfig) -> Array:
    """(length, input_width) float32 of a page's (rows · columns, pixel_width) pixels; what is added is masked.

    Raises: ValueError where pixels, grid and length do not agree.
    """
    count = rows * columns
    if pixels.shape != (count, config.pixel_width):
        raise ValueError(f"pixels of shape {pixels.shape} for {rows} x {columns} patches")
    if count > length or length % config.merged or rows % config.merge or columns % config.merge:
        raise ValueError(f"{rows} x {columns} patches do not go into {length}")
    packed = np.zeros((length, config.input_width), dtype=np.float32)
    cosines, sines = rotary_tables(rows, columns, config)
    packed[:count, :-1] = np.concatenate([pixels, cosines, sines], axis=1)
    packed[count:, -1] = MASKED
    return packed
