"""A cheap rendering of a page, asked whether the words of its text layer are what is printed there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from storage.records import Box, Line

_INK = 60  # grey levels between paper and ink
_CONTRAST = 45  # grey levels within a box that shows anything
_DARK = 215  # grey level of a ground on which white shows
_MIN_GAPS = 12  # between words, to judge by


@dataclass(frozen=True, slots=True)
class Ink:
    """A page in grey, (H, W) uint8, `scale_x` and `scale_y` pixels per point."""

    grey: npt.NDArray[np.uint8]
    scale_x: float
    scale_y: float

    def shows(self, box: Box) -> bool:
        """Whether anything stands out within `box`."""
        patch = self._patch(box)
        if patch.size == 0:
            return False
        low, high = np.percentile(patch, (1, 99))
        return bool(high - low >= _CONTRAST)

    def is_dark(self, box: Box) -> bool:
        """Whether the ground within `box` is dark enough for white letters to show on."""
        patch = self._patch(box)
        return bool(patch.size) and float(np.median(patch)) < _DARK

    def _patch(self, box: Box) -> npt.NDArray[np.uint8]:
        columns, rows = self._slices(box)
        return self.grey[rows, columns]

    def _slices(self, box: Box, margin: float = 0.0) -> tuple[slice, slice]:
        left, top = (box[0] - margin) * self.scale_x, (box[1] - margin) * self.scale_y
        right, bottom = (box[2] + margin) * self.scale_x, (box[3] + margin) * self.scale_y
        return slice(max(0, int(left)), max(0, int(right) + 1)), slice(
            max(0, int(top)), max(0, int(bottom) + 1)
        )

    def mask(self) -> npt.NDArray[np.bool_]:
        """(H, W) where there is ink: anything unlike the paper, which is the commonest grey."""
        paper = int(np.bincount(self.grey.ravel() // 8, minlength=32).argmax()) * 8 + 4
        return np.asarray(np.abs(self.grey.astype(np.int16) - paper) > _INK)

    def uncovered_characters(self, lines: Sequence[Line]) -> float:
        """About how many characters are printed outside the lines, judged by strokes crossed from left to right."""
        mask = self.mask()
        strokes = mask[:, 1:] & ~mask[:, :-1]
        inside = np.zeros_like(strokes)
        for line in lines:
            columns, rows = self._slices(line.box, margin=1.5)
            inside[rows, columns] = True
        covered = sum(len(line.text.replace(" ", "")) for line in lines)
        each = 7.0 * self.scale_y  # strokes crossed by a letter of 10 pt
        if covered >= 40:
            each = min(max(float((strokes & inside).sum()) / covered, each / 2), each * 3)
        return float((strokes & ~inside).sum()) / each

    def spaces_are_filled(self, lines: Sequence[Line]) -> bool:
        """Whether there is about as much ink between the words as in them: the words stand somewhere else then."""
        total = np.cumsum(np.pad(self.mask().astype(np.int64), ((1, 0), (1, 0))), axis=0).cumsum(axis=1)
        between: list[tuple[float, float]] = []
        within: list[tuple[float, float]] = []
        for line in lines:
            for one, two in zip(line.words, line.words[1:], strict=False):
                gap = (one.box[2], line.box[1], two.box[0], line.box[3])
                inset = (gap[2] - gap[0]) * 0.2
                if (gap[2] - gap[0] - 2 * inset) * self.scale_x >= 1.0:
                    between.append(_sum(total, self._exact((gap[0] + inset, gap[1], gap[2] - inset, gap[3]))))
            within += [_sum(total, self._exact(word.box)) for word in line.words]
        if len(between) < _MIN_GAPS:
            return False
        return _density(between) > 0.6 * _density(within)

    def _exact(self, box: Box) -> tuple[int, int, int, int]:
        height, width = self.grey.shape
        left, right = (min(max(round(x * self.scale_x), 0), width) for x in (box[0], box[2]))
        top, bottom = (min(max(round(y * self.scale_y), 0), height) for y in (box[1], box[3]))
        return left, top, right, bottom


def _sum(total: npt.NDArray[np.int64], box: tuple[int, int, int, int]) -> tuple[float, float]:
    """Ink in a box of pixels, and its area."""
    left, top, right, bottom = box
    ink = total[bottom, right] - total[top, right] - total[bottom, left] + total[top, left]
    return float(ink), float((right - left) * (bottom - top))


def _density(parts: Sequence[tuple[float, float]]) -> float:
    area = sum(part[1] for part in parts)
    return sum(part[0] for part in parts) / area if area else 0.0
