"""Proof that a saved package computes what the PyTorch tower computes: the same page through both.

The page is padded for the package and not for the tower, so that padding is proved in passing. Needs torch and
coremltools (extra `convert`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pipeline.convert import coreml_package, page_shapes, tower_inputs
from pipeline.convert.coreml_package import INPUT, Package
from pipeline.convert.mil_program import MilProgram
from pipeline.convert.plan import Plan
from pipeline.convert.tower import VisionTower
from pipeline.convert.tower_weights import load_tower
from storage.errors import ModelError

# What the account this follows reached with float32, and what must not be exceeded here.
MAX_DIFFERENCE = 0.006
MEAN_DIFFERENCE = 1.1e-5
_INK = 0.15  # share of dark pixels on the made-up page


@dataclass(frozen=True, slots=True)
class Proof:
    """Largest and mean absolute difference over features whose standard deviation is `spread`."""

    patches: int
    length: int
    largest: float
    mean: float
    spread: float

    @property
    def holds(self) -> bool:
        """Whether float32 was reproduced as well as it has been done before."""
        return self.largest <= MAX_DIFFERENCE and self.mean <= MEAN_DIFFERENCE


def prove(package: Path, examined: Plan, *, seed: int = 0) -> Proof:
    """A made-up page through the package and through the checkpoint's tower in float32, as small as they allow.

    Raises: `ModelError` where the package cannot be read.
    """
    found = coreml_package.read(package)
    rows, columns = grid_within(found.lengths[0], found.config.merge)
    pixels = speckled(rows * columns, found.config.pixel_width, seed)
    return compare(found, load_tower(examined), pixels, rows, columns)


def grid_within(length: int, merge: int) -> tuple[int, int]:
    """Rows and columns of a page that leaves a part of `length` to padding, longer than wide."""
    columns = max(merge, int(math.sqrt(length * 0.6)) // merge * merge)
    rows = max(merge, int(length * 0.9 / columns) // merge * merge)
    return rows, columns


def speckled(count: int, width: int, seed: int) -> NDArray[np.float32]:
    """(count, width) pixels as a processor normalises a page: bright paper, some dark ink."""
    random = np.random.default_rng(seed)
    return np.where(random.random((count, width)) < _INK, -1.0, 1.0).astype(np.float32)


def compare(
    package: Package, tower: VisionTower, pixels: NDArray[np.float32], rows: int, columns: int
) -> Proof:
    """The page's features by both. Raises: `ModelError` for a page that the package has no length for."""
    config, count = tower.config, rows * columns
    length = page_shapes.fit(count, package.lengths)
    if length is None:
        raise ModelError(f"the package takes up to {package.lengths[-1]} patches, the page has {count}")
    with torch.inference_mode():
        packed = torch.from_numpy(tower_inputs.pack(pixels, rows, columns, count, config))
        expected = tower(packed).numpy()
    program = MilProgram(package.path)
    found = program.run({INPUT: tower_inputs.pack(pixels, rows, columns, length, config)})
    difference: Any = np.abs(found[: count // config.merged].astype(np.float64) - expected)
    return Proof(count, length, float(difference.max()), float(difference.mean()), float(expected.std()))
