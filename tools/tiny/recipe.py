"""How the tiny model is trained, as data: shape, looks, curriculum, learning rate. Nothing here runs anything."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

TILE_PX = 28  # an image token sees so many pixels squared: 2 x 2 patches
PATCH_PX = 14


class Kind(StrEnum):
    """What is on a picture."""

    LINE = "line"
    BLOCK = "block"
    PAGE = "page"


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of the network; names follow dots.ocr's config.json where they end up there."""

    vision_dim: int = 192
    vision_layers: int = 4
    vision_heads: int = 6
    vision_inner: int = 384
    vision_epsilon: float = 1e-5
    dim: int = 128  # also the group size the stored 2-bit tables are quantised in
    layers: int = 4
    heads: int = 4
    inner: int = 256
    epsilon: float = 1e-6
    rope_theta: float = 10_000.0
    guided: Mapping[int, tuple[int, ...]] = field(
        default_factory=lambda: {2: (0, 1), 3: (0,)}
    )  # layer → heads
    slots: tuple[int, int] = (1, 7)  # rows, columns an image token is divided into for the auxiliary loss


@dataclass(frozen=True, slots=True)
class Looks:
    """How text is drawn and spoiled. Sizes are pixels of the finished picture."""

    text_px: tuple[int, int] = (17, 27)
    page_text_px: tuple[int, int] = (17, 24)
    heading_px: int = 44  # headings are 1.3 to 1.8 times the text, and at most this
    least_pitch_px: int = 28  # line to line
    resample: tuple[float, float] = (0.93, 1.07)  # drawn at this scale, then brought to size
    resampled: float = 0.30  # share of pictures
    noisy: float = 0.35
    blurred: float = 0.12
    turned: float = 0.08
    inverted: float = 0.03


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of the run: up to `until` (share of all steps)."""

    until: float
    shares: Mapping[Kind, float]  # of batches; they sum to 1
    random_strings: float  # share of texts without any language to guess from
    auxiliary: float = 1.0  # weight of the dense loss over character centres
    guidance: float = 0.3  # weight of the loss on the guided heads
    line_tiles: tuple[tuple[int, ...], tuple[int, int]] = ((1, 1, 2, 2, 3), (4, 18))  # heights, widths
    block_tiles: tuple[tuple[int, int], tuple[int, int]] = ((2, 12), (7, 16))
    page_tiles: tuple[tuple[int, int], tuple[int, int]] = ((12, 20), (12, 18))


@dataclass(frozen=True, slots=True)
class Recipe:
    """A whole run."""

    name: str
    phases: tuple[Phase, ...]
    shape: Shape = Shape()
    looks: Looks = Looks()
    steps: int = 19_000
    patches: int = 800  # per batch; a batch has pictures of one size and one prompt
    batches: int = 2  # averaged in one step
    most_pictures: int = 64  # per batch
    learning_rate: float = 1.5e-3
    warm_up: int = 150
    constant_until: float = 0.25
    floor: float = 0.02  # of the learning rate, at the end
    betas: tuple[float, float] = (0.9, 0.97)
    weight_decay: float = 0.02
    clip: float = 1.0
    average: float = 0.998  # decay of the averaged weights, which are what is exported

    def phase(self, step: int, steps: int) -> Phase:
        """The phase that `step` of `steps` belongs to."""
        progress = step / steps
        return next((phase for phase in self.phases if progress < phase.until), self.phases[-1])

    def rate(self, step: int, steps: int) -> float:
        """Learning rate: linear warm-up, constant, then half a cosine down to `floor`."""
        progress = step / steps
        warm = min(1.0, (step + 1) / max(1, min(self.warm_up, steps // 20)))
        if progress < self.constant_until:
            return self.learning_rate * warm
        along = (progress - self.constant_until) / (1 - self.constant_until)
        fall = 0.5 * (1 + math.cos(math.pi * along))
        return self.learning_rate * warm * (self.floor + (1 - self.floor) * fall)

    def decay(self, step: int) -> float:
        """Decay of the averaged weights; shorter at the start, when old weights say little."""
        return min(self.average, (step + 1) / (step + 30))

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for the record of a run."""
        return asdict(self)


def _curriculum() -> tuple[Phase, ...]:
    """Lines, then blocks as well, then ever more pages.

    The shares of the run are those of the shipped checkpoint's segments laid end to end. There the two weights were
    halved in the middle of the first segments; here where pages come in.
    """
    line, block, page = Kind.LINE, Kind.BLOCK, Kind.PAGE
    later: dict[str, Any] = {"random_strings": 0.2, "auxiliary": 0.5, "guidance": 0.15}
    return (
        Phase(0.06, {line: 1.0}, 0.5, line_tiles=((1, 1, 2), (5, 16))),
        Phase(0.25, {line: 0.35, block: 0.65}, 0.3, block_tiles=((2, 7), (7, 16))),
        Phase(0.38, {line: 0.20, block: 0.68, page: 0.12}, **later),
        Phase(0.78, {line: 0.13, block: 0.55, page: 0.32}, **later),
        Phase(1.0, {line: 0.08, block: 0.37, page: 0.55}, **later),
    )


SHIPPED = Recipe("shipped", _curriculum())
# For a machine with more to give: small and large print, resampled as regions of scans are, a deeper network.
# Not trained yet: see docs/tiny-model.md.
WIDE = Recipe(
    "wide",
    _curriculum(),
    shape=Shape(vision_layers=6, layers=6, inner=384, guided={3: (0, 1), 4: (0,)}, slots=(2, 7)),
    looks=Looks(
        text_px=(12, 40),
        page_text_px=(12, 28),
        least_pitch_px=15,
        resample=(0.55, 1.8),
        resampled=0.6,
        blurred=0.2,
    ),
    steps=60_000,
    patches=6_400,
)
RECIPES = {recipe.name: recipe for recipe in (SHIPPED, WIDE)}
