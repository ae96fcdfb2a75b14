"""Joins the lines of a paragraph into running text: hyphens at line ends, no spaces between CJK characters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_SOFT = "\u00ad"
_HYPHENS = "-\u2010"
# Parts that stand before a real hyphen far more often than before a broken word.
_COMPOUND = frozenset({"self", "half", "quasi", "well"})
# "Ein- und Ausgabe", "pre- and post-war": the hyphen hangs, the word does not go on.
_HANGING = frozenset(
    (
        "und",
        "oder",
        "bzw",
        "sowie",
        "and",
        "or",
        "to",
        "et",
        "ou",
        "y",
        "e",
        "o",
        "en",
        "of",
        "och",
        "og",
        "eller",
        "ja",
        "tai",
    )
)
_TAIL = re.compile(r"([^\W_]+(?:['’][^\W_]+)?)[-\u2010]$")
_HEAD = re.compile(r"[^\W_]+")
_NO_SPACE = re.compile(  # scripts written without spaces between words; Hangul has them
    "[\u2e80-\u303f\u3040-\u312f\u31a0-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff01-\uff60\U00020000-\U0003ffff"
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]"
)


def tidy(text: str) -> str:
    """`text` without soft hyphens and control characters, every run of white space one space."""
    if _SOFT in text:
        text = text.replace(_SOFT, "")
    return " ".join(text.replace("\0", "\ufffd").split())


def vocabulary(texts: Iterable[str]) -> frozenset[str]:
    """The words and hyphenated compounds of a page in lower case: what `join_lines` decides hyphens by."""
    return frozenset(
        word for text in texts for word in re.findall(r"[^\W_]+(?:[-\u2010][^\W_]+)*", text.lower())
    )


def join_lines(texts: Sequence[str], words: frozenset[str] = frozenset()) -> str:
    """The lines as one line of running text; `words` (see `vocabulary`) settles doubtful hyphens."""
    if not texts:
        return ""
    joined = texts[0].strip()
    for text in texts[1:]:
        joined = join_two(joined, text.strip(), words)
    return tidy(joined)


def join_two(first: str, second: str, words: frozenset[str] = frozenset()) -> str:
    """`second` put behind `first`, its next line."""
    if not first or not second:
        return first or second
    last, head = first[-1], second[0]
    if last == _SOFT:
        return first[:-1] + second
    if last in _HYPHENS:
        return _join_hyphen(first, second, words)
    if last == "—" and len(first) > 1 and not first[-2].isspace():
        return first + second  # an em dash set close
    if last == "/" and len(first) > 1 and first[-2].isalnum():
        return first + second
    if _NO_SPACE.match(last) and _NO_SPACE.match(head):
        return first + second
    return f"{first} {second}"


def _join_hyphen(first: str, second: str, words: frozenset[str]) -> str:
    # Only the end matters; a search through a whole paragraph for every line of it would add up.
    tail, head = _TAIL.search(first, max(0, len(first) - 80)), _HEAD.match(second)
    if tail is None:
        return f"{first} {second}"  # a dash with a space before it, or after punctuation
    if head is None or head.group() in _HANGING:
        return f"{first} {second}"
    if _keeps_hyphen(first[: tail.start()], tail.group(1), head.group(), words):
        return first + second
    return first[:-1] + second


def _keeps_hyphen(before: str, part: str, rest: str, words: frozenset[str]) -> bool:
    if not rest[0].islower() or not part[-1].islower():
        return True  # a name, an acronym, a number: "Gauß-Bonnet", "MIDI-based", "16-bit"
    if f"{part}{rest}".lower() in words:
        return False
    if f"{part}-{rest}".lower() in words:
        return True
    # "state-of-the-" goes on as it began; a single letter is never a broken syllable here ("e-mail").
    return before.endswith(tuple(_HYPHENS)) or len(part) == 1 or part.lower() in _COMPOUND


def is_unspaced(text: str) -> bool:
    """Whether `text` begins in a script written without spaces between words."""
    return _NO_SPACE.match(text) is not None
