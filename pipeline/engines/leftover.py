"""Ink that no word covers: what a first reading missed."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING

from storage.records import Box, Line

if TYPE_CHECKING:
    from pipeline.engines.base import PageImage

_LONG_SIDE_PX = (
    1100  # of the image the ink is looked for in: letters of 6 pt on a letter page are 5 pixels high
)
_CONTRAST = 60  # grey levels between paper and ink
# A component is a letter if its height is between these parts of the usual font size …
_MIN_EM, _MAX_EM = 0.45, 5.0  # (a bullet has 0.41, x-height letters 0.47 and more)
_DEFAULT_EM_PT = 11.0  # where no line says how large letters are
_MAX_WIDE = (
    12.0  # … and it is not much wider than high: rules and frames are (letters that touch are less so)
)
_MAX_FILL = 0.8  # of a component's box; squares and discs fill it, letters (but I and l) do not
_MARGIN_EM = 0.2  # accents, descenders and commas reach out of word boxes by about this
_MIN_LETTERS = 2  # fewer are dirt, a page's edge, a punched hole


def letters_missed(page: PageImage, lines: Sequence[Line]) -> int:
    """How many components of a letter's size no word covers.

    Measured: 5 to 10 ms a page, where looking for text with a model takes 150 ms and more.
    """
    import cv2
    import numpy as np

    em = median(line.size_pt for line in lines) if lines else _DEFAULT_EM_PT
    grey = np.asarray(page.image.convert("L").reduce(max(1, max(page.image.size) // _LONG_SIDE_PX)))
    paper = int(np.median(grey))
    ink = (np.abs(grey.astype(np.int16) - paper) > _CONTRAST).astype(np.uint8)
    across, down, margin = ink.shape[1] / page.width_pt, ink.shape[0] / page.height_pt, _MARGIN_EM * em
    for line in lines:
        for word in line.words:
            left, top, right, bottom = word.box
            ink[
                max(0, int((top - margin) * down)) : max(0, int((bottom + margin) * down) + 1),
                max(0, int((left - margin) * across)) : max(0, int((right + margin) * across) + 1),
            ] = 0
    _, _, found, _ = cv2.connectedComponentsWithStats(ink, connectivity=8)
    widths, heights = found[1:, cv2.CC_STAT_WIDTH] / across, found[1:, cv2.CC_STAT_HEIGHT] / down
    fill = found[1:, cv2.CC_STAT_AREA] / (found[1:, cv2.CC_STAT_WIDTH] * found[1:, cv2.CC_STAT_HEIGHT])
    is_solid = (fill > _MAX_FILL) & (widths > 0.6 * heights)
    is_letter = (
        ~is_solid & (heights >= _MIN_EM * em) & (heights <= _MAX_EM * em) & (widths <= _MAX_WIDE * heights)
    )
    return int(np.count_nonzero(is_letter))


def is_worth_a_look(page: PageImage, lines: Sequence[Line]) -> bool:
    """Whether enough ink was missed to look for text there."""
    return letters_missed(page, lines) >= _MIN_LETTERS


def covered(box: Box, lines: Sequence[Line]) -> float:
    """How much of a text line's width, 0…1, words cover that lie on it."""
    left, top, right, bottom = box
    spans = sorted(
        (max(left, word.box[0]), min(right, word.box[2]))
        for line in lines
        for word in line.words
        if top < (word.box[1] + word.box[3]) / 2 < bottom and word.box[0] < right and word.box[2] > left
    )
    total, reach = 0.0, left
    for start, end in spans:
        total += max(0.0, end - max(start, reach))
        reach = max(reach, end)
    return total / max(right - left, 1e-6)
