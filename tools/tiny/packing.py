"""The two token tables as a checkpoint stores them: two bits a weight, one scale a row, in MLX's affine layout.

A row is `scale * u + bias` with u in 0…3, sixteen of them in a uint32, the first in the lowest bits (MLX's
`quantize`, mode "affine"). Rows nobody uses are zero. Dense they would be 39 MB each in half precision; so 5.5 MB.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tools.tiny.charset import VOCABULARY

BITS = 2
_PER_WORD = 32 // BITS


def pack(rows: Mapping[int, np.ndarray]) -> dict[str, np.ndarray]:
    """id → row (D,) float32 as `weight` (V, D/16) uint32, `scales` and `biases` (V, 1) float16.

    The levels are those of `model.two_bit`; what differs is that a scale is stored in half precision.
    """
    dim = len(next(iter(rows.values())))
    weight = np.zeros((VOCABULARY, dim // _PER_WORD), np.uint32)
    scales = np.zeros((VOCABULARY, 1), np.float16)
    biases = np.zeros((VOCABULARY, 1), np.float16)
    shifts = BITS * np.arange(_PER_WORD, dtype=np.uint32)
    for id_, row in rows.items():
        deviation = max(float(row.std(ddof=1, dtype=np.float64)), 1e-8)
        levels = np.clip(np.rint(row / np.float32(deviation) - 0.5), -2, 1) + 2
        words = levels.astype(np.uint32).reshape(-1, _PER_WORD) << shifts
        weight[id_] = words.sum(1, dtype=np.uint32)
        scales[id_], biases[id_] = deviation, -1.5 * deviation
    return {"weight": weight, "scales": scales, "biases": biases}


def unpack(table: Mapping[str, np.ndarray], ids: range | tuple[int, ...]) -> np.ndarray:
    """The rows of those ids, (len(ids), D) float32."""
    chosen = list(ids)
    shifts = BITS * np.arange(_PER_WORD, dtype=np.uint32)
    levels = (table["weight"][chosen][:, :, None] >> shifts) & (2**BITS - 1)
    rows = levels.reshape(len(chosen), -1).astype(np.float32)
    return rows * table["scales"][chosen].astype(np.float32) + table["biases"][chosen].astype(np.float32)
