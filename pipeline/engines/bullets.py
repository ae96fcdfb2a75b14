"""A round bullet that Tesseract took for a letter: told from the letter by its ink."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pipeline.engines.lines import join_words
from storage.records import Line, Word

if TYPE_CHECKING:
    from pipeline.engines.base import PageImage

BULLET = "•"
# A disc fills π/4 of its box; the letters it is taken for (e, ©, ¢, ®, *) have holes and fill 0.6 at most.
_MIN_FILL, _MAX_FILL = 0.66, 0.95
_MAX_LOPSIDED = 1.35
_MAX_CONFUSED = 2  # characters
_NEVER = frozenset(".,-–—_■▪•·:'`|")  # marks that are solid by nature


def with_bullet(line: Line, page: PageImage) -> Line:
    """The line, with its first word replaced by a bullet where the ink there is a disc."""
    if len(line.words) < 2 or not _is_disc(line.words[0], page):
        return line
    first = replace(line.words[0], text=BULLET)
    words = (first, *line.words[1:])
    return replace(line, words=words, text=join_words(word.text for word in words))


def _is_disc(word: Word, page: PageImage) -> bool:
    import numpy as np

    if len(word.text) > _MAX_CONFUSED or set(word.text) & _NEVER:
        return False
    left, top, right, bottom = word.box
    place = (left * page.scale_x, top * page.scale_y, right * page.scale_x, bottom * page.scale_y)
    grey = np.asarray(page.image.crop([round(edge) for edge in place]).convert("L"))  # type: ignore[arg-type]
    if min(grey.shape) < 4 or int(grey.max()) - int(grey.min()) < 64:
        return False
    ink = grey < (int(grey.max()) + int(grey.min())) / 2
    rows, columns = np.flatnonzero(ink.any(axis=1)), np.flatnonzero(ink.any(axis=0))
    height, width = int(rows[-1] - rows[0]) + 1, int(columns[-1] - columns[0]) + 1
    if max(height, width) > _MAX_LOPSIDED * min(height, width):
        return False
    return _MIN_FILL <= float(ink.sum()) / (height * width) <= _MAX_FILL
