"""Two readings of a line into one: which words of the second replace those of the first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

from pipeline.engines.lines import hull, make_line, spread
from storage.records import Line, Word

if TYPE_CHECKING:
    from pipeline.engines.rapid import Reread

# Below this the second reading is no better than the first (RapidOCR's scores for right lines: 0.95 and more).
MIN_SCORE = 0.85
# Two readings that share less than this say different things: then the more confident one is taken whole.
_MIN_ALIKE = 0.5
_SURE = 0.9


def fuse(line: Line, second: Reread, sure: float) -> Line:
    """The line with the words replaced that the second reading has otherwise.

    Words the first reading is sure of (confidence ≥ `sure`) stay; where both differ in spaces only, the first
    is right: Tesseract sees gaps, RapidOCR often loses them.
    """
    if second.score < MIN_SCORE or not second.text:
        return line
    if SequenceMatcher(None, line.text, second.text, autojunk=False).ratio() < _MIN_ALIKE:
        return line if (line.confidence or 0.0) >= _SURE else replaced(line, second)
    words = tuple(_fused_words(line.words, second, sure))
    if [word.text for word in words] == [word.text for word in line.words]:
        return line
    return with_words(line, words)


def with_words(line: Line, words: Sequence[Word]) -> Line:
    """The line with other words in the same place."""
    made = make_line(words, box=line.box, size_pt=line.size_pt, region=line.region)
    return replace(made, direction=line.direction, bold=line.bold, italic=line.italic, mono=line.mono)


def replaced(line: Line, second: Reread) -> Line:
    """The second reading in the first one's place; words get boxes guessed from their length."""
    words = spread(second.text, line.box, second.score)
    return make_line(words, box=line.box, size_pt=line.size_pt, region=line.region)


def _fused_words(first: Sequence[Word], second: Reread, sure: float) -> Iterator[Word]:
    others = second.text.split()
    matcher = SequenceMatcher(None, [word.text for word in first], others, autojunk=False)
    for kind, start, end, other_start, other_end in matcher.get_opcodes():
        mine, theirs = first[start:end], others[other_start:other_end]
        if kind == "equal" or _says_the_same(mine, theirs) or _is_sure(mine, sure):
            yield from mine
        elif kind == "insert":
            yield from _between(first, start, theirs, second.score)
        elif len(mine) == len(theirs):
            for word, text in zip(mine, theirs, strict=True):
                is_kept = (word.confidence or 0.0) >= sure or _are_marks(word.text + text)
                yield word if is_kept or word.text == text else Word(text, word.box, second.score)
        elif theirs:
            yield from spread(" ".join(theirs), hull(word.box for word in mine), second.score)


def _says_the_same(mine: Sequence[Word], theirs: Sequence[str]) -> bool:
    return bool(mine) and "".join(word.text for word in mine) == "".join(theirs)


def _are_marks(text: str) -> bool:
    """Whether there is no letter or digit: a dash for a dot, say, where Tesseract is right more often."""
    return not any(char.isalnum() for char in text)


def _is_sure(mine: Sequence[Word], sure: float) -> bool:
    return bool(mine) and min(word.confidence or 0.0 for word in mine) >= sure


def _between(first: Sequence[Word], at: int, texts: Sequence[str], score: float) -> Iterator[Word]:
    """Words the first reading lacks, in the gap they must be in; none where there is no gap."""
    if not 0 < at < len(first):
        return
    before, after = first[at - 1].box, first[at].box
    gap = (before[2], min(before[1], after[1]), after[0], max(before[3], after[3]))
    if gap[2] - gap[0] > 0.5 * (gap[3] - gap[1]):
        yield from spread(" ".join(texts), gap, score)
