"""The default: Tesseract reads the page, RapidOCR reads again what Tesseract is unsure of or missed.

Three ways for a page after Tesseract's reading:
- nobody can believe it (mean confidence below `tesseract.DOUBTFUL`, as with a script its languages lack): RapidOCR
  reads the whole page, and the better reading stays;
- some lines hold a doubtful word: RapidOCR recognises that part of the line (20 to 90 ms, no detection) and its
  words replace the doubtful ones. Where that brings letters Tesseract does not know (é, ü, ß with English data), the
  page is in another language, and the bar for the rest of its lines rises. On pages with hardly any English word
  English data alone drop the accent of one-letter words (à, é, ó) and are sure of it: such lines are doubtful, too;
- ink is left that no word covers: RapidOCR's detector looks at the page, reduced, and what it finds uncovered is read.

Thresholds measured on 346 lines of 11 ground-truth pages (wrong characters: Tesseract 101, RapidOCR 37, of which
18 are hyphens at line ends that are none in the truth); words below 0.95 replaced in lines read again:

    lines with a word below   0.5   0.7   0.8   0.85  0.88  0.9   0.92  0.95  all
    lines read again          5 %   8 %   11 %  13 %  14 %  17 %  32 %  47 %  100 %
    wrong characters          77    63    55    50    48    45    44    43    41
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from pipeline.engines import leftover, tessdata
from pipeline.engines.base import EngineReading, PageImage
from pipeline.engines.fusion import MIN_SCORE, fuse, with_words
from pipeline.engines.lines import make_line, mean_confidence
from pipeline.engines.rapid import (
    UNKNOWN_SCRIPTS,
    RapidReader,
    Reread,
    line_in,
    rapid_version,
    read_lines,
    weight,
)
from pipeline.engines.tesseract import DOUBTFUL, TesseractEngine, UprightReading, script_warnings
from storage.records import Box, Direction, Line, Word

if TYPE_CHECKING:
    from storage.settings import Settings

_DOUBTFUL = 0.9  # a line with a word less sure than this is read again …
_SURE = 0.95  # … and its words below this may be replaced
# In a language Tesseract has no data for it is sure of wrong words: only these lines are left alone.
_DOUBTFUL_FOREIGN = 0.97
_SURE_FOREIGN = 1.01
_MIN_FOREIGN_LINES = 2
_MIN_FOREIGN_PART = 0.1
# The most frequent words of English prose: three in ten words of it are one of these.
_ENGLISH = frozenset(
    [
        "the",
        "of",
        "and",
        "to",
        "in",
        "is",
        "that",
        "it",
        "for",
        "was",
        "on",
        "are",
        "as",
        "with",
        "be",
        "by",
        "at",
    ]
)
_MIN_WORDS, _ENGLISH_PART = 12, 0.06
_ALONE = frozenset("aeouy")  # words of one letter that carry an accent in other languages
_MOST = 0.7  # of a line's width: beyond that all of it is read again
_GARBAGE = 0.35  # lines below this that RapidOCR cannot read either are no text
_GARBAGE_SHORT, _SHORT = 0.7, 3  # few characters are easily seen in anything
_ONE_COLUMN = 4  # tesserocr.PSM.SINGLE_COLUMN
_LITTLE = 20.0  # a reading of fewer sure characters than this is hardly one
_LOOK_PX = 736  # long side the detector sees when it looks for missed text
_MISSED = 0.6  # a detected line whose width words cover less than this was missed (read lines: 0.69 and more)
_PAD = 0.15  # of its height, around a line's box, for the recogniser


class ClassicEngine:
    """Tesseract first, RapidOCR where it is needed."""

    name = "classic"

    def __init__(self, settings: Settings) -> None:
        self._tesseract = TesseractEngine(settings)
        self._rapid = RapidReader()
        self._settings = settings
        self._others: dict[str, TesseractEngine] = {}  # language → an engine for pages in its script
        self._only_english = tuple(settings.languages) == ("eng",)

    def version(self) -> str:
        """Names and versions of both, for the provenance."""
        return f"{self._tesseract.version()} + {rapid_version()}"

    def read(self, page: PageImage, *, hint: Sequence[Line] = ()) -> EngineReading:
        """The page's lines. Raises: `EngineUnavailableError`, `EngineError`."""
        started = time.perf_counter()
        found = self._tesseract.read_upright(page)
        first_s = time.perf_counter() - started
        if (found.confidence or 0.0) < DOUBTFUL:
            lines = self._whole_page(found)
        else:
            lines = self._missed(found.image, self._doubtful(found.image, found.text.lines))
        confidence = mean_confidence(lines)
        return EngineReading(
            lines=replace(found.text, lines=tuple(lines)),
            frame=found.frame,
            confidence=confidence,
            warnings=script_warnings(found) if (confidence or 0.0) < DOUBTFUL else (),
            seconds={"tesseract": first_s, "rapidocr": time.perf_counter() - started - first_s},
        )

    def close(self) -> None:
        """Free both libraries' memory."""
        for engine in (self._tesseract, *self._others.values()):
            engine.close()
        self._rapid.close()

    def _whole_page(self, found: UprightReading) -> Sequence[Line]:
        """The reading that has most to say: RapidOCR's, or Tesseract's with installed data for the page's script; else
        Tesseract's first one without what nobody can read."""
        lines = [] if found.script in UNKNOWN_SCRIPTS else read_lines(self._rapid, found.image)
        if weight(lines) < _LITTLE:
            others = self._in_other_scripts(found)
            lines = lines if weight(lines) >= weight(others) else list(others)
        if weight(lines) > weight(found.text.lines):
            return lines
        return [line for line in found.text.lines if not _is_garbage(line)]

    def _in_other_scripts(self, found: UprightReading) -> Sequence[Line]:
        """The page by Tesseract in languages that are installed though not asked for: that of the page's script, or,
        where too little is printed to tell the script, the one that makes most of it."""
        known = tessdata.LANGUAGE_OF_SCRIPT
        codes = set(known.values()) if found.script is None else {known.get(found.script, "")}
        wanted = sorted(code for code in codes if self._tesseract.has_data(code))
        readings = [
            self._read_in(code, found.image) for code in wanted if code not in self._tesseract.languages
        ]
        believed = [lines for lines in readings if (mean_confidence(lines) or 0.0) >= DOUBTFUL]
        return max(believed, key=weight, default=())

    def _read_in(self, code: str, page: PageImage) -> Sequence[Line]:
        if code not in self._others:
            # As one column: what brings us here is mostly sparse, and finding blocks in it fails (Hangul: nothing).
            only = replace(self._settings, languages=(code,))
            self._others[code] = TesseractEngine(only, psm=_ONE_COLUMN)
        reading = self._others[code].read(page)
        return reading.lines.lines if reading.lines is not None and reading.frame is None else ()

    def _doubtful(self, page: PageImage, lines: Sequence[Line]) -> list[Line]:
        """The lines, those with a doubtful word read again."""

        @cache
        def second(box: Box) -> Reread:
            margin = _PAD * min(box[3] - box[1], box[2] - box[0])
            return self._rapid.recognise(page.cut(box, (margin, margin)))

        doubtful = [at for at, line in enumerate(lines) if doubt(line) < _DOUBTFUL]
        merged = {at: reread(lines[at], second, doubtful_part(lines[at]), _SURE) for at in doubtful}
        if self._only_english and is_other_language(lines):
            bare = [at for at, line in enumerate(lines) if any(w.text.lower() in _ALONE for w in line.words)]
            merged |= {at: reread(lines[at], second, slice(None), _SURE_FOREIGN) for at in bare}
        foreign = sum(_has_more_foreign_letters(line, lines[at]) for at, line in merged.items() if line)
        if foreign >= max(_MIN_FOREIGN_LINES, _MIN_FOREIGN_PART * len(lines)):
            rest = [at for at, line in enumerate(lines) if doubt(line) < _DOUBTFUL_FOREIGN]
            merged |= {at: reread(lines[at], second, slice(None), _SURE_FOREIGN) for at in rest}
        kept = [merged.get(at, line) for at, line in enumerate(lines)]
        return [line for line in kept if line is not None]

    def _missed(self, page: PageImage, lines: list[Line]) -> list[Line]:
        """The lines, and those that only RapidOCR's detector finds."""
        if not leftover.is_worth_a_look(page, lines):
            return lines
        for place in self._rapid.detect(page.image, long_side=_LOOK_PX):
            box = page.to_points(place)
            if leftover.covered(box, lines) >= _MISSED:
                continue
            second = self._rapid.recognise(page.cut(box))
            if second.score < MIN_SCORE or not second.text:
                continue
            lines = [*_without(lines, box), line_in(box, second.text, second.score)]
        return lines


def doubt(line: Line) -> float:
    """The confidence of the line's least sure word that has a letter or digit (of any, where none has)."""
    words = [word for word in line.words if any(char.isalnum() for char in word.text)] or line.words
    return min((word.confidence or 0.0 for word in words), default=0.0)


def is_other_language(lines: Sequence[Line]) -> bool:
    """Whether a text of some length has hardly any of the words that English cannot do without."""
    words = [word.text.lower() for line in lines for word in line.words if word.text.isalpha()]
    return len(words) >= _MIN_WORDS and sum(word in _ENGLISH for word in words) < _ENGLISH_PART * len(words)


def reread(line: Line, second: Callable[[Box], Reread], part: slice, sure: float) -> Line | None:
    """The line with some of its words read again; None if it is nothing to either engine.

    `second` reads a box of the page; `sure`: words at least this confident stay.
    """
    words = line.words[part]
    if len(words) == len(line.words):
        found = second(line.box)
        return None if found.score < MIN_SCORE and _is_garbage(line) else fuse(line, found, sure)
    own = make_line(words, size_pt=line.size_pt)
    again = fuse(own, second((own.box[0], line.box[1], own.box[2], line.box[3])), sure)
    if again is own:
        return line
    return with_words(line, (*line.words[: part.start], *again.words, *line.words[part.stop :]))


def doubtful_part(line: Line) -> slice:
    """The words from the first to the last doubtful one and a neighbour on each side; all where that is most.

    The recogniser's time goes with the width of what it reads.
    """
    unsure = [at for at, word in enumerate(line.words) if (word.confidence or 0.0) < _DOUBTFUL]
    if not unsure or line.direction is not Direction.LTR:
        return slice(None)
    start, stop = max(0, unsure[0] - 1), min(len(line.words), unsure[-1] + 2)
    width = line.words[stop - 1].box[2] - line.words[start].box[0]
    return slice(start, stop) if width < _MOST * (line.box[2] - line.box[0]) else slice(None)


def _is_garbage(line: Line) -> bool:
    """Whether a line that RapidOCR cannot read is no text at all: shades and strokes of a picture, dirt."""
    return (line.confidence or 0.0) < (_GARBAGE_SHORT if len(line.text) <= _SHORT else _GARBAGE)


def _has_more_foreign_letters(line: Line, before: Line) -> bool:
    """Whether the line has letters beyond ASCII that it lacked before."""
    return _beyond_ascii(line.text) > _beyond_ascii(before.text)


def _beyond_ascii(text: str) -> int:
    return sum(char.isalpha() and not char.isascii() for char in text)


def _without(lines: Sequence[Line], box: Box) -> list[Line]:
    """The lines without the words whose middle lies in `box`."""
    kept = []
    for line in lines:
        words = tuple(word for word in line.words if not _holds(box, word))
        if len(words) == len(line.words):
            kept.append(line)
        elif words:
            shorter = make_line(words, size_pt=line.size_pt, region=line.region)
            kept.append(replace(shorter, direction=line.direction))
    return kept


def _holds(box: Box, word: Word) -> bool:
    x, y = (word.box[0] + word.box[2]) / 2, (word.box[1] + word.box[3]) / 2
    return box[0] <= x <= box[2] and box[1] <= y <= box[3]
