"""Is anything printed on a page? Decided from its pixels before an engine is asked, and from what an engine found.

The test leans to "printed": a page read in vain costs a second, one taken for blank loses its text.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import TYPE_CHECKING

from pipeline.ink import CELL, Spot, contrast_of, ink_threshold, inked_cells, spots
from storage.records import Word

if TYPE_CHECKING:
    from pipeline.engines.base import PageImage
    from pipeline.ink import Grey, Mask
    from storage.records import PageText

# Below this contrast only sharp things are print: what shows through from the other side is blurred by the paper.
# Steepest step from pixel to pixel as a share of the contrast, measured: show-through 0.5 at most, print 0.75 at least.
_STRONG_CONTRAST = 70
_SHARP = 0.65
# Above this resolution the picture itself is the blurred part: it was small, and has been enlarged.
_TELLING_DPI = 200

_SPECK_PX, _SPECK_AREA = 6, 8  # dust: neither as long nor as large as the smallest digit
_SMALL_PX = 14  # a digit or two: believed unless the page is full of specks
_SPECKS_PER_SMALL = 50
_SOLID = 0.6  # share of its box that a blot fills; letters fill less, or have thin strokes
_BLOT_PX = 9  # blots up to here are dust wherever they lie
_HOLE_PX = 50  # punched holes: 5 to 8 mm, some torn
_EDGE_SHARE = 0.2  # of the page: holes lie this near to an edge
_STREAK_SHARE = 0.3  # of the page: a straight thin line that long is a fold, a streak, or ruled paper
_STREAK_PX = 4  # its thickness

_BELIEVED = 0.5  # confidence from which on a word, a number or an ideograph is believed
_BELIEVED_ANYWAY = 0.8  # and from which on anything is that has a letter or digit
_FEW_CHARACTERS, _MANY_CHARACTERS = 20, 60  # letters and digits
_NEARLY_BLANK = 0.003  # share of ink; a line of text has some 0.001, a page of text 0.05
_WORD = re.compile(r"(?=[^\W\d_]*[aeiouyà-öø-ÿ])[a-zà-öø-ÿ]{3,}", re.I)
_NUMBER = re.compile(r"[^\w\s]*\d+(?:[.,:/-]?\d+)*[^\w\s]*")
# Two letters of another alphabet than Latin, or one ideograph, kana or hangul syllable.
_FOREIGN = re.compile(r"[^\W\d_\u0000-\u024f]{2,}|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


def is_blank(image: PageImage) -> bool:
    """Whether nothing is printed: paper, noise, dust, holes, shadows, folds and show-through do not count."""
    contrast = contrast_of(image.image)
    ink = abs(contrast) > ink_threshold(contrast)
    if not ink.any():
        return True
    telling = image.dpi * ink.shape[1] / image.image.width <= _TELLING_DPI
    specks = small = 0
    for spot in spots(inked_cells(ink)):
        kind = _judge(spot, contrast, ink, blur_tells=telling)
        if kind is _Kind.PRINT:
            return False
        specks += kind is _Kind.SPECK
        small += kind is _Kind.SMALL
    return specks >= _SPECKS_PER_SMALL * small


class _Kind(Enum):
    """What a spot may be."""

    PRINT = auto()
    SMALL = auto()  # print, if the page has not too many specks
    SPECK = auto()
    DIRT = auto()  # holes, streaks, show-through


def _judge(spot: Spot, contrast: Grey, ink: Mask, *, blur_tells: bool) -> _Kind:
    """What a spot is, by its size, its strokes and its sharpness."""
    import numpy as np

    place = np.s_[spot.top * CELL : spot.bottom * CELL, spot.left * CELL : spot.right * CELL]
    inside, levels = ink[place], abs(contrast[place])
    in_rows, in_columns = (np.flatnonzero(np.count_nonzero(inside, axis=axis)) for axis in (1, 0))
    box = np.s_[in_rows[0] : in_rows[-1] + 1, in_columns[0] : in_columns[-1] + 1]
    longest = max(inside[box].shape)
    if longest < _SPECK_PX or np.count_nonzero(inside) < _SPECK_AREA:
        return _Kind.SPECK
    if blur_tells and _shows_through(inside, levels):
        return _Kind.DIRT
    if spot.is_large:
        return _Kind.PRINT
    if _is_solid(inside[box], levels[box]):
        if longest <= _BLOT_PX:
            return _Kind.SPECK
        middle = ((spot.top + spot.bottom) / 2 * CELL, (spot.left + spot.right) / 2 * CELL)
        return _Kind.DIRT if longest <= _HOLE_PX and _is_near_edge(middle, ink.shape) else _Kind.PRINT
    if _is_streak(inside[box], ink.shape):
        return _Kind.DIRT
    return _Kind.SMALL if longest <= _SMALL_PX else _Kind.PRINT


def _is_solid(inside: Mask, levels: Grey) -> bool:
    """Whether a spot is a blot: about as wide as high, filled, and thicker than a stroke of a letter."""
    import numpy as np

    if max(inside.shape) >= 2 * min(inside.shape):
        return False
    dark = inside & (levels > np.percentile(levels[inside], 90) / 2)  # without the grey of its outline
    if np.count_nonzero(dark) < _SOLID * dark.size:
        return False
    core: Mask = dark[:-2] & dark[1:-1] & dark[2:]
    return bool(np.any(core[:, :-2] & core[:, 1:-1] & core[:, 2:]))


def _shows_through(inside: Mask, levels: Grey) -> bool:
    """Whether a spot is weak and blurred."""
    import numpy as np

    steps = [abs(np.diff(levels, axis=axis)) for axis in (0, 1) if levels.shape[axis] > 1]
    weak = levels[inside]
    if weak.max() < _STRONG_CONTRAST and max(step.max() for step in steps) < _SHARP * weak.mean():
        return True  # most of what shows through, without the cost of percentiles
    peak = float(np.percentile(weak, 90))
    if peak >= _STRONG_CONTRAST:
        return False
    steepest = max(
        (float(np.percentile(step[step > 0], 98)) for step in steps if (step > 0).any()), default=0.0
    )
    return steepest < _SHARP * peak


def _is_near_edge(middle: tuple[float, float], shape: tuple[int, ...]) -> bool:
    return any(
        at < _EDGE_SHARE * side or at > (1 - _EDGE_SHARE) * side
        for at, side in zip(middle, shape, strict=True)
    )


def _is_streak(inside: Mask, shape: tuple[int, ...]) -> bool:
    """Whether a spot is one long line of even thickness: text of that length is of uneven height."""
    import numpy as np

    axis = 0 if inside.shape[1] >= inside.shape[0] else 1  # along which thickness is counted
    if inside.shape[1 - axis] < _STREAK_SHARE * shape[1 - axis]:
        return False
    thickness = np.count_nonzero(inside, axis=axis)
    return bool(np.count_nonzero(thickness > _STREAK_PX) < 0.02 * thickness.size)


def is_noise(page: PageText, image: PageImage) -> bool:
    """Whether what an engine read is dirt, not text: a few characters, and no word or number to believe in.

    The emptier the page, the more characters may be dirt. Words without confidence are believed.
    """
    words = [
        word for line in page.lines for word in line.words or (Word(line.text, line.box, line.confidence),)
    ]
    if any(_is_believable(word) for word in words):
        return False
    characters = sum(char.isalnum() for word in words for char in word.text)
    if characters <= _FEW_CHARACTERS:
        return True
    if characters > _MANY_CHARACTERS:
        return False
    contrast = contrast_of(image.image)
    return float((abs(contrast) > ink_threshold(contrast)).mean()) < _NEARLY_BLANK


def _is_believable(word: Word) -> bool:
    """Whether a word looks like one (a number, a syllable, an ideograph) and the engine is sure of it."""
    if word.confidence is None:
        return any(char.isalnum() for char in word.text)
    if word.confidence < _BELIEVED:
        return False
    if word.confidence >= _BELIEVED_ANYWAY and any(char.isalnum() for char in word.text):
        return True
    if len(word.text) == 1 and word.text.isascii():  # any stroke can be taken for a 1 or a 4
        return False
    return bool(_WORD.search(word.text) or _NUMBER.fullmatch(word.text) or _FOREIGN.search(word.text))
