"""Does the text of a layer look like text? Statistics that hold for any language, and a few for alphabets."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections import Counter

_VOWELS = frozenset("aeiouyäöüáéíóúàèìòùâêîôûãõåæøœı")
_LEADERS = re.compile(r"([.·_\-–—=*…•])(?:\s*\1){2,}")  # dot leaders, rules made of dashes
_MIN_WORDS = 12
_ALWAYS_WRONG = frozenset({"Cc", "Cn", "Co", "Cs"})


def unreadable_share(codes: list[int]) -> float:
    """Share of characters that are none: control, private use, unassigned, U+FFFD. White space does not count."""
    counts = Counter(codes)
    total = wrong = 0
    for code, count in counts.items():
        char = chr(code) if code <= 0x10FFFF else "\ufffd"
        if char.isspace() or code in (0, 2, 0xAD):  # 2: PDFium's hyphen at a line's end
            continue
        total += count
        # Bullets and bracket pieces of the Symbol font lie in the private-use area, in sound documents too.
        symbol = 0xF000 <= code <= 0xF8FF
        if code == 0xFFFD or (
            unicodedata.category(char) in _ALWAYS_WRONG and not symbol and not 0xD800 <= code <= 0xDFFF
        ):
            wrong += count
    return wrong / total if total else 0.0


def symbol_share(text: str) -> float:
    """Share of characters that are neither letters, marks nor digits; dot leaders and the like do not count."""
    chars = [char for char in _LEADERS.sub("", text) if not char.isspace()]
    if not chars:
        return 0.0
    return sum(unicodedata.category(char)[0] not in "LMN" for char in chars) / len(chars)


def implausible_share(text: str) -> float:
    """Share of words that no alphabet would write: mixed scripts, no vowel, capitals within; 0 for few words."""
    words = [word for word in re.findall(r"[^\W\d_]{4,}", text) if not word.isupper()]
    words = [word for word in words if _script(word[0]) in ("LATIN", "GREEK", "CYRILLIC")]
    if len(words) < _MIN_WORDS:
        return 0.0
    return sum(map(_is_implausible, words)) / len(words)


def _is_implausible(word: str) -> bool:
    if len({_script(char) for char in word}) > 1:
        return True
    if _script(word[0]) != "LATIN":
        return False
    lower = word.casefold()
    plain = unicodedata.normalize("NFD", lower)
    if not any(char in _VOWELS for char in plain + lower):
        return True
    changes = sum(a.islower() and b.isupper() for a, b in itertools.pairwise(word))
    return changes > 1 or bool(re.search(r"[^aeiouyäöüáéíóúàèìòùâêîôûãõåæøœ]{7}", lower))


def _script(char: str) -> str:
    return unicodedata.name(char, "?").split(" ", 1)[0]
