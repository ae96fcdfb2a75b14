"""Words to lines: spaces, direction, confidence; the same for every engine that gives words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from pipeline.bidi import strong_counts
from storage.records import Box, Direction, Line, Word

# Scripts written without spaces between words: Han, kana, their punctuation and full-width forms. Not Hangul.
_SPACELESS = "\u2e80-\u2fdf\u3000-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff00-\uffef"
_SPACELESS_END = re.compile(f"[{_SPACELESS}]$")
_SPACELESS_START = re.compile(f"^[{_SPACELESS}]")
_SPACELESS_ANY = re.compile(f"[{_SPACELESS}]")

_HANGUL = re.compile("[\uac00-\ud7a3\u1100-\u11ff\u3130-\u318f]")
_SYLLABLE_GAP = 0.34


def is_spaceless(text: str) -> bool:
    """Whether most letters belong to a script written without spaces."""
    letters = [char for char in text if char.isalpha()]
    return 2 * len(_SPACELESS_ANY.findall("".join(letters))) > len(letters)


def join_words(words: Iterable[str]) -> str:
    """Words as a line of text: a space between them, none between two characters of a spaceless script."""
    text = ""
    for word in words:
        glued = not text or (_SPACELESS_END.search(text) and _SPACELESS_START.search(word))
        text += word if glued else f" {word}"
    return text


def join_syllables(words: Sequence[Word]) -> list[Word]:
    """Words with Hangul ones put together that only a syllable's gap parts: Tesseract gives syllables as words.

    Gaps within words were up to 0.26, between words 0.42 and more of their height (measured on one page).
    """
    joined: list[Word] = []
    for before, word in zip([None, *words], words, strict=False):
        if before is None or not (_HANGUL.search(before.text) and _HANGUL.search(word.text)):
            joined.append(word)
            continue
        height = max(before.box[3] - before.box[1], word.box[3] - word.box[1])
        if (
            word.box[0] - before.box[2] >= _SYLLABLE_GAP * height
        ):  # boxes of syllables may reach over the next
            joined.append(word)
            continue
        both = (joined[-1], word)
        joined[-1] = Word(joined[-1].text + word.text, hull(part.box for part in both), mean_confidence(both))
    return joined


def mean_confidence(parts: Iterable[Line | Word]) -> float | None:
    """Mean confidence over the characters of lines or words, 0…1; None where none has any."""
    pairs = [(part.confidence, len(part.text)) for part in parts if part.confidence is not None]
    total = sum(length for _, length in pairs)
    return sum(value * length for value, length in pairs) / total if total else None


def hull(boxes: Iterable[Box]) -> Box:
    """The smallest box around boxes. Raises: `ValueError` for none."""
    lefts, tops, rights, bottoms = zip(*boxes, strict=True)
    return min(lefts), min(tops), max(rights), max(bottoms)


def make_line(
    words: Sequence[Word],
    *,
    box: Box | None = None,
    size_pt: float = 0.0,
    vertical: bool = False,
    region: int | None = None,
) -> Line:
    """A line of words in logical order. `box`: the engine's own, where it has one."""
    text = join_words(word.text for word in words)
    right, left = strong_counts(text)
    direction = Direction.TTB if vertical else Direction.RTL if right > left else Direction.LTR
    return Line(
        text=text,
        box=box or hull(word.box for word in words),
        words=tuple(words),
        size_pt=round(size_pt, 1),
        direction=direction,
        confidence=mean_confidence(words),
        region=region,
    )


def spread(text: str, box: Box, confidence: float | None, *, vertical: bool = False) -> tuple[Word, ...]:
    """The words of `text` with boxes guessed from their length; a spaceless run is one word.

    A character of a spaceless script counts as two others.
    """
    total = sum(_width(char) for char in text)
    if not total:
        return ()
    start, end = (box[1], box[3]) if vertical else (box[0], box[2])
    step = (end - start) / total
    if strong_counts(text)[0] > strong_counts(text)[1] and not vertical:
        start, step = end, -step  # logical order runs from the right
    words, at = [], 0
    for piece in re.findall(r"\s+|\S+", text):
        length = sum(_width(char) for char in piece)
        if not piece.isspace():
            near, far = sorted((start + at * step, start + (at + length) * step))
            place = (box[0], near, box[2], far) if vertical else (near, box[1], far, box[3])
            words.append(Word(piece, place, confidence))
        at += length
    return tuple(words)


def _width(char: str) -> int:
    return 2 if _SPACELESS_ANY.match(char) else 1
