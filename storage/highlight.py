"""Where on a page the words searched for stand: boxes of words, or of the block where its words have none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from storage.folding import is_solid, normal
from storage.query import Query
from storage.records import FURNITURE, Block, Box, Direction, Line
from storage.snippet import Finder

MOST_BOXES = 2_000  # of a page


@dataclass(frozen=True, slots=True)
class Marked:
    """Boxes of the matches in one block."""

    block: int  # its position
    boxes: tuple[Box, ...]


def marked(blocks: Sequence[Block], query: Query) -> list[Marked]:
    """The blocks of a page in which something of the query stands, in reading order; furniture is never searched."""
    finder = Finder(query.terms)
    found: list[Marked] = []
    left = MOST_BOXES
    for position, block in enumerate(blocks):
        if block.category in FURNITURE or left <= 0 or not query.terms:
            continue
        boxes = tuple(_in_lines(block.lines, finder))[:left]
        if not boxes and finder.find(normal(block.text), 1):
            boxes = (block.box,)
        if boxes:
            found.append(Marked(position, boxes))
            left -= len(boxes)
    return found


@dataclass(frozen=True, slots=True)
class _Placed:
    """A word and where it stands in the text of its lines."""

    line: int
    start: int
    end: int
    box: Box
    is_divisible: bool  # a run of a script without spaces, on a line that runs to the right


def _in_lines(lines: Sequence[Line], finder: Finder) -> dict[Box, None]:
    """A box per line of each match, each once."""
    boxes: dict[Box, None] = {}
    for joins_hyphens in (False, True):
        text, words = _laid_out(lines, joins_hyphens)
        for start, end, _ in finder.find(text):
            for part in _touched(words, start, end):
                boxes[_around(part, start, end)] = None
    return boxes


def _laid_out(lines: Sequence[Line], joins_hyphens: bool) -> tuple[str, list[_Placed]]:
    """The lines as one text, and its words; with words broken at line ends as they are or put together."""
    parts: list[str] = []
    words: list[_Placed] = []
    length = 0
    for number, line in enumerate(lines):
        text = normal(line.text)
        broken = joins_hyphens and text.endswith(("-", "\u00ad", "\u2010")) and number + 1 < len(lines)
        at = 0
        for word in line.words:
            spelt = normal(word.text)
            start = text.find(spelt, at)
            if start < 0 or not spelt:
                continue
            at = start + len(spelt)
            divisible = line.direction is Direction.LTR and all(map(is_solid, spelt))
            words.append(_Placed(number, length + start, length + at, word.box, divisible))
        parts.append(text[:-1] if broken else text + "\n")
        length += len(parts[-1])
    return "".join(parts), words


def _under(words: list[_Placed], start: int, end: int) -> list[_Placed]:
    return [word for word in words if word.start < end and word.end > start]


def _touched(words: list[_Placed], start: int, end: int) -> Iterator[list[_Placed]]:
    """The words under a span, line by line."""
    under = _under(words, start, end)
    for line in dict.fromkeys(word.line for word in under):
        yield [word for word in under if word.line == line]


def _around(words: list[_Placed], start: int, end: int) -> Box:
    boxes = [_part(word, start, end) for word in words]
    return (
        min(box[0] for box in boxes),
        min(box[1] for box in boxes),
        max(box[2] for box in boxes),
        max(box[3] for box in boxes),
    )


def _part(word: _Placed, start: int, end: int) -> Box:
    """The word's box, or of a run of characters the part that is meant: they are equally wide."""
    if not word.is_divisible:
        return word.box
    left, top, right, bottom = word.box
    one = (right - left) / (word.end - word.start)
    first, last = max(start, word.start) - word.start, min(end, word.end) - word.start
    return left + one * first, top, left + one * last, bottom
