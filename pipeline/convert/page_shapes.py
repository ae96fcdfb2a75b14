"""Which page sizes a Core ML package takes: patches of common papers at 200 dpi, and where a page fits in.

A vision tower sees a page as a list of patches and learns from the rotary tables alone how they lie, so that only
their number is a shape: A4 upright and A4 lying are one. Standard library only.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from storage.errors import ModelError

DPI = 200
_MM_PER_INCH = 25.4
# Width and height upright in mm. The small ones serve parts of pages and receipts: each halves the patches, so that
# padding at most doubles them.
PAPERS: Mapping[str, tuple[float, float]] = {
    "a8": (52, 74),
    "a7": (74, 105),
    "a6": (105, 148),
    "a5": (148, 210),
    "letter": (215.9, 279.4),
    "a4": (210, 297),
    "a3": (297, 420),
}


class Shapes(StrEnum):
    """Whether a package takes one size or several."""

    FIXED = "fixed"
    ENUMERATED = "enumerated"


@dataclass(frozen=True, slots=True)
class PixelBudget:
    """What a checkpoint's image processor makes of sizes: multiples of `factor`, within a number of pixels."""

    factor: int  # pixels of a merged patch: an image token covers factor × factor
    min_pixels: int
    max_pixels: int

    @property
    def max_patches(self) -> int:
        """Most patches a picture can have (2 × 2 of them are merged into an image token)."""
        return self.max_pixels // self.factor**2 * 4


def read_budget(folder: Path) -> PixelBudget:
    """The budget of the checkpoint in `folder`. Raises: `ModelError` where its preprocessor_config.json says none."""
    path = folder / "preprocessor_config.json"
    try:
        body: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        size = body.get("size") or {}
        least = int(body.get("min_pixels") or size["shortest_edge"])
        most = int(body.get("max_pixels") or size["longest_edge"])
        factor = int(body["patch_size"]) * int(body["merge_size"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(
            f"{path.name} does not say what sizes pictures get ({error})", file=folder
        ) from error
    if not (0 < least <= most and factor > 0 and most >= factor**2):
        raise ModelError(f"{path.name} allows {least} to {most} pixels: no picture fits", file=folder)
    return PixelBudget(factor, least, most)


def resized(width_px: int, height_px: int, budget: PixelBudget) -> tuple[int, int]:
    """Width and height the processor resizes a picture to (rule: `smart_resize` of Qwen2-VL's image processor)."""
    sides = [
        max(budget.factor, round(side / budget.factor) * budget.factor) for side in (width_px, height_px)
    ]
    if sides[0] * sides[1] > budget.max_pixels:
        shrink = math.sqrt(width_px * height_px / budget.max_pixels)
        sides = [
            max(budget.factor, math.floor(side / shrink / budget.factor) * budget.factor)
            for side in (width_px, height_px)
        ]
    elif sides[0] * sides[1] < budget.min_pixels:
        grow = math.sqrt(budget.min_pixels / (width_px * height_px))
        sides = [math.ceil(side * grow / budget.factor) * budget.factor for side in (width_px, height_px)]
    return sides[0], sides[1]


def paper_px(name: str, *, lying: bool = False) -> tuple[int, int]:
    """Width and height in pixels of a paper at 200 dpi."""
    width, height = (round(mm / _MM_PER_INCH * DPI) for mm in PAPERS[name])
    return (height, width) if lying else (width, height)


def patches(width_px: int, height_px: int, budget: PixelBudget) -> int:
    """Patches a picture becomes, four to an image token."""
    width, height = resized(width_px, height_px, budget)
    return width * height // budget.factor**2 * 4


def lengths(shapes: Shapes, budget: PixelBudget, paper: str = "a4") -> tuple[int, ...]:
    """The numbers of patches a package takes, ascending: of one paper, or of all and of the largest picture.

    Either way of holding a paper is among them; with `fixed` the larger of the two is taken.
    """
    names = [paper] if shapes is Shapes.FIXED else list(PAPERS)
    found = {patches(*paper_px(name, lying=lying), budget) for name in names for lying in (False, True)}
    if shapes is Shapes.FIXED:
        return (max(found),)
    return tuple(sorted(found | {budget.max_patches}))


def fit(count: int, taken: Sequence[int]) -> int | None:
    """The least of the lengths a package takes that holds `count` patches; None where the page is larger than all."""
    return min((length for length in taken if length >= count), default=None)
