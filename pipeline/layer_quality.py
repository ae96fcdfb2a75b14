"""What the text layer of a page is worth: absent, good or bad, and why in plain words.

Most pages are settled by their text alone. Only where a layer is invisible, pale, suspicious, or thin beside a
large picture, the page is rendered small and the words compared with the ink. Where that cannot tell, a few lines
are read by the `sample_reader`, a cheap engine, and compared.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipeline import layer_text
from pipeline.layer_ink import Ink
from pipeline.pdf_words import LayerLine
from storage.records import Box, Direction, LayerVerdict

if TYPE_CHECKING:
    from PIL import Image

log = logging.getLogger(__name__)

SampleReader = Callable[["Image.Image"], str]

_WHITE = frozenset({9, 10, 11, 12, 13, 32, 0xA0, 0x3000})
_UNREADABLE = 0.10
_SYMBOLS = 0.55
_IMPLAUSIBLE = 0.45
_UNMAPPED = 0.30
_PICTURE_PAGE = 0.5  # of the page covered by pictures: may be a scan
_DRAWN_PAGE = 100  # small filled shapes: may be letters drawn as curves
_FEW_CHARACTERS = 400  # a stamp, a header or page number; more than this is the text of a page
_SHOWN = 0.6  # of the invisible characters must lie on ink
_SAMPLES = 3
_SAMPLE_LETTERS = 8
_SIMILAR = 55.0  # of 100, rapidfuzz ratio of a line and what the sample reader makes of it


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of a page and its layer before it is judged."""

    codes: list[int]  # of all characters within the page
    lines: list[LayerLine]
    outside: int  # characters beyond the page's edges
    pictures_cover: float  # share of the page
    shapes: int  # small filled paths with curves or many corners, as letters are
    ink: Callable[[], Ink]  # renders the page, small; asked for only if needed
    crop: Callable[[Box], Image.Image]  # a piece of the page, sharp enough to read


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict, the reason for people, and the lines that a reader of the page can see."""

    verdict: LayerVerdict
    reason: str
    lines: list[LayerLine]


def judge(evidence: Evidence, sample_reader: SampleReader | None = None) -> Judgement:
    """Whether the layer can stand for what is printed on the page."""
    absent = _absent(evidence)
    if absent:
        return Judgement(LayerVerdict.ABSENT, absent, [])
    wrong = _unreadable(evidence)
    if wrong:
        return Judgement(LayerVerdict.BAD, wrong, evidence.lines)
    ink = _Once(evidence.ink)
    shown, left_out = _shown_lines(evidence.lines, ink)
    if not shown:
        return Judgement(LayerVerdict.BAD, "its text is invisible and nothing is printed where it stands", [])
    wrong = _mismatch(evidence, shown, ink)
    doubt = None if wrong else _doubt(shown)
    if not wrong and (doubt or _is_hidden(shown)):
        wrong = _sampled(shown, evidence.crop, sample_reader, doubt)
    if wrong:
        return Judgement(LayerVerdict.BAD, wrong, shown)
    return Judgement(LayerVerdict.GOOD, _praise(shown, left_out), shown)


class _Once:
    """Renders at the first question only."""

    def __init__(self, make: Callable[[], Ink]) -> None:
        self._make = make
        self._ink: Ink | None = None

    def __call__(self) -> Ink:
        if self._ink is None:
            self._ink = self._make()
        return self._ink


def _absent(evidence: Evidence) -> str | None:
    if any(code not in _WHITE for code in evidence.codes):
        return None
    if evidence.outside:
        return "all of its text lies outside the page"
    return "the page has no text layer" if not evidence.codes else "its text layer is white space"


def _unreadable(evidence: Evidence) -> str | None:
    share = layer_text.unreadable_share(evidence.codes)
    if share > _UNREADABLE or not evidence.lines:
        return f"{share:.0%} of its characters are control codes or have no Unicode value"
    return None


def _shown_lines(lines: list[LayerLine], ink: Callable[[], Ink]) -> tuple[list[LayerLine], int]:
    """Lines that can be seen, or lie on something that can; and how many cannot."""
    visible = [item for item in lines if not item.style.invisible and not item.style.pale]
    if len(visible) == len(lines):
        return lines, 0
    shown = []
    for item in lines:
        if item.style.invisible or item.style.pale:
            hides = item.style.invisible and any(
                _overlap(item.line.box, seen.line.box) > 0.5 for seen in visible
            )
            if hides or not ink().shows(item.line.box):
                continue
            if item.style.pale and not item.style.invisible and not ink().is_dark(item.line.box):
                continue
        shown.append(item)
    return shown, len(lines) - len(shown)


def _overlap(box: Box, other: Box) -> float:
    """Share of `box` that lies in `other`."""
    width = min(box[2], other[2]) - max(box[0], other[0])
    height = min(box[3], other[3]) - max(box[1], other[1])
    area = (box[2] - box[0]) * (box[3] - box[1])
    return max(0.0, width) * max(0.0, height) / area if area else 0.0


def _length(lines: Sequence[LayerLine]) -> int:
    return sum(len(item.line.text) - item.line.text.count(" ") for item in lines)


def _is_hidden(lines: Sequence[LayerLine]) -> bool:
    """Whether a good part of the text is invisible, laid under or over a picture of it."""
    return _length([item for item in lines if item.style.invisible]) > 0.3 * _length(lines)


def _is_level(item: LayerLine) -> bool:
    return abs(item.line.angle) < 3 and item.line.direction is not Direction.TTB


def _mismatch(evidence: Evidence, shown: list[LayerLine], ink: Callable[[], Ink]) -> str | None:
    """What speaks against the layer when it is held against the pixels."""
    hidden = _is_hidden(shown)
    characters = _length(shown)
    scan = evidence.pictures_cover >= _PICTURE_PAGE and characters < _FEW_CHARACTERS
    drawn = evidence.shapes >= max(_DRAWN_PAGE, characters) and characters < _FEW_CHARACTERS
    if not (hidden or scan or drawn):
        return None
    lines = [item.line for item in shown]
    if hidden:
        invisible = _length([item for item in evidence.lines if item.style.invisible])
        kept = [item for item in shown if item.style.invisible]
        if _length(kept) < _SHOWN * invisible:
            return "its invisible text mostly lies where nothing is printed"
        level = [item.line for item in kept if _is_level(item)]
        if ink().spaces_are_filled(level):
            return "its invisible words do not lie on the printed ones"
    uncovered = ink().uncovered_characters(lines)
    allowed = 40 + 0.5 * characters if hidden or scan else 200 + 2.0 * characters
    if uncovered > allowed:
        return f"it holds {characters} characters, and about {uncovered:.0f} more are printed on the page"
    return None


def _doubt(lines: Sequence[LayerLine]) -> str | None:
    """What makes the text look like the work of a font that maps its glyphs wrongly."""
    text = "\n".join(item.line.text for item in lines)
    symbols = layer_text.symbol_share(text)
    if symbols > _SYMBOLS:
        return f"{symbols:.0%} of its characters are symbols"
    implausible = layer_text.implausible_share(text)
    if implausible > _IMPLAUSIBLE:
        return f"{implausible:.0%} of its words look like no language"
    return None


def _sampled(
    lines: Sequence[LayerLine],
    crop: Callable[[Box], Image.Image],
    reader: SampleReader | None,
    doubt: str | None,
) -> str | None:
    """What speaks against the layer once a few lines have been read from the pixels; `doubt` if none could be."""
    if reader is None:
        return doubt
    from rapidfuzz import fuzz

    scores = []
    for item in _samples(lines, strict=doubt is None):
        read = _letters(reader(crop(item.line.box)))
        if len(read) >= min(3, len(_letters(item.line.text))):
            scores.append(fuzz.ratio(read, _letters(item.line.text)))
    log.debug("sampled %d lines of a text layer: %s", len(scores), scores)
    if not scores:
        return doubt
    mean = sum(scores) / len(scores)
    if mean >= _SIMILAR:
        return None
    return f"sampled lines read otherwise on the page ({mean:.0f} of 100 alike)" + (
        f"; {doubt}" if doubt else ""
    )


def _samples(lines: Sequence[LayerLine], *, strict: bool) -> list[LayerLine]:
    """The longest level lines, a few; `strict`: in Latin letters, which any engine reads."""
    level = [item for item in lines if _is_level(item) and item.line.box[2] - item.line.box[0] > 4]
    if strict:
        level = [item for item in level if _is_latin(item.line.text)]
        if any(item.style.invisible for item in level):
            level = [item for item in level if item.style.invisible]
    return sorted(level, key=lambda item: -len(item.line.text))[:_SAMPLES]


def _is_latin(text: str) -> bool:
    letters = [char for char in text if char.isalpha()]
    return len(letters) >= _SAMPLE_LETTERS and sum(char < "\u0250" for char in letters) > 0.8 * len(letters)


def _letters(text: str) -> str:
    """What counts when two readings are compared."""
    return "".join(char for char in text.casefold() if not char.isspace())


def _praise(lines: Sequence[LayerLine], left_out: int) -> str:
    what = (
        "its invisible text lies on what is printed"
        if _is_hidden(lines)
        else "its text is what the page shows"
    )
    return what + (f"; {left_out} lines that cannot be seen are left out" if left_out else "")
