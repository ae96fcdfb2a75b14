"""Fold text for search: one spelling for accents, widths, ligatures and case, and bigrams for unspaced scripts.

`pages_fts` tokenises page text as it stands (unicode61, which folds case and Latin accents). Three things it cannot
do, so a page that needs one of them has a row in `page_grams` with its whole text folded here:
runs of scripts written without spaces, which unicode61 takes for one word (and glues to an adjoining Latin word);
compatibility characters (full width, ligatures) and soft hyphens; and letters whose case or marks it does not know.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cache, lru_cache

# Scripts written without spaces, and Hangul, whose words carry particles: searched by substring.
_HAN_KANA = (
    "\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3105-\u312f"
    "\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua000-\ua48c\uf900-\ufaff\U0001b000-\U0001b16f"
    "\U00020000-\U000323af"
)
_HANGUL = "\u1100-\u11ff\ua960-\ua97c\uac00-\ud7a3\ud7b0-\ud7fb"
_SOUTH_EAST_ASIAN = (
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ecd\u0edc-\u0edf\u1000-\u103f\u1050-\u108f\u1780-\u17d3"
)
_SOLID = _HAN_KANA + _HANGUL + _SOUTH_EAST_ASIAN
_BEFORE_SOLID = "\u0e00"  # no such character comes earlier in Unicode
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
_WORD = re.compile(r"[^\W_]+")


@cache
def _pattern(text: str) -> re.Pattern[str]:
    # Classes of many ranges take milliseconds to compile: only once a text needs them.
    return re.compile(text.replace("SOLID", _SOLID).replace("HAN_KANA", _HAN_KANA))


_PIECE = "[SOLID]+|[^\\W_SOLID]+"
_BROKEN_LINE = "(?<=[HAN_KANA])\\n(?=[HAN_KANA])"
# Row marker: the page has words that `pages_fts` spells otherwise. No query makes a token of three such characters.
RESPELT = "異異異"
_END = "終終終"  # between the text and the list of single characters, so that no phrase reaches across
# Letters that people without the keyboard for them write so, and Unicode does not take apart.
_STROKED = {"ł": "l", "ø": "o", "đ": "d", "ħ": "h", "ŧ": "t", "ı": "i", "œ": "oe", "æ": "ae"}
_DROPPED = frozenset("\u00ad\u2060\ufeff")  # soft hyphen, word joiner, byte order mark


def normal(text: str) -> str:
    """The text in NFC: what offsets of `fold` refer to."""
    return unicodedata.normalize("NFC", text)


class _Table(dict[int, str]):
    """Character → folded string, filled as characters turn up (for `str.translate`)."""

    def __missing__(self, code: int) -> str:
        folded = self[code] = _fold_character(chr(code))
        return folded


def _fold_character(character: str) -> str:
    if character in _DROPPED:
        return ""
    if unicodedata.category(character) == "Mn" and unicodedata.combining(character) >= 10:
        return ""  # a mark on a letter; vowel signs and viramas (0…9) are spelling, not decoration
    if not character.isalnum():
        return " " if character.isspace() and character != "\n" else character
    decomposition = unicodedata.decomposition(character)
    if decomposition.startswith("<super>") and character.isdigit():
        return " " + unicodedata.normalize("NFKC", character)  # a footnote mark is no part of its word
    lowered = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", character).lower())
    return "".join(_strip_marks(letter) for letter in lowered)


def _strip_marks(letter: str) -> str:
    """Without accents, for Latin and Greek letters and Cyrillic ё; й or が are letters of their own."""
    if letter.isascii():
        return letter
    if letter in _STROKED:
        return _STROKED[letter]
    base = unicodedata.normalize("NFD", letter)[0]
    if base.isascii() or "\u0370" <= base <= "\u03ff" or letter == "ё":
        return "σ" if base == "ς" else base
    return "" if unicodedata.category(letter) == "Mn" and unicodedata.combining(letter) >= 10 else letter


_TABLE = _Table()


@lru_cache(maxsize=20_000)
def is_solid(character: str) -> bool:
    """Whether a character is of a script written without spaces (or Hangul)."""
    return character >= _BEFORE_SOLID and _pattern("[SOLID]").match(character) is not None


def is_word_character(character: str) -> bool:
    """Whether a folded character continues a word that stands beside it."""
    return character.isalnum() and not is_solid(character)


def fold(text: str) -> str:
    """The folded text of `normal(text)`. Where no character changes its length, offsets agree (see `fold_mapped`)."""
    return _translate(normal(text))


_FEW = 12  # so many different characters are replaced one after the other


def _translate(text: str) -> str:
    if len(text.encode("utf-8", "replace")) > 1.2 * len(text):
        return text.translate(_TABLE)
    # Mostly ASCII: faster to look up only the rest (0.02 ms against 0.1 ms for a page).
    odd = set(_NOT_ASCII.findall(text))
    if len(odd) > _FEW or not all(_TABLE[ord(character)].isascii() for character in odd):
        return _NOT_ASCII.sub(lambda match: _TABLE[ord(match[0])], text).lower()
    for character in odd:  # what takes its place is ASCII, and so no other of them
        text = text.replace(character, _TABLE[ord(character)])
    return text.lower()


def fold_mapped(text: str) -> tuple[str, list[int] | None]:
    """Folded text of a text in NFC, and for each folded offset the offset it came from; None = the same.

    The list has one entry more than the folded text: the end.
    """
    if text.isascii():
        return text.lower(), None
    folded = _translate(text)
    if len(folded) == len(text) and not _change_length(set(text) - _EVEN):
        return folded, None
    offsets: list[int] = []
    for position, character in enumerate(text):
        offsets.extend([position] * len(_TABLE[ord(character)]))
    offsets.append(len(text))
    return folded, offsets


_EVEN: set[str] = set(map(chr, range(128)))  # characters seen that fold to one


def _change_length(characters: set[str]) -> bool:
    """Whether any of the characters folds to none or several; those that do not are remembered."""
    even = {character for character in characters if len(_TABLE[ord(character)]) == 1}
    _EVEN.update(even)
    return len(even) < len(characters)


def pieces(folded: str) -> Iterator[tuple[str, bool]]:
    """The words and unspaced runs of folded text in order, each with whether it is an unspaced run."""
    if max(folded, default="") < _BEFORE_SOLID:
        for match in _WORD.finditer(folded):
            yield match[0], False
        return
    for match in _pattern(_PIECE).finditer(folded):
        piece = match[0]
        if is_solid(piece[0]):
            piece = "".join(c for c in piece if unicodedata.category(c)[0] != "M")
            if piece:
                yield piece, True
        else:
            yield piece, False


def bigrams(run: str) -> list[str]:
    """Overlapping pairs of an unspaced run; a phrase of them occurs where the run does."""
    return [run[i : i + 2] for i in range(len(run) - 1)]


def grams(text: str) -> str:
    """What `page_grams` keeps for a page's text; "" where `pages_fts` finds everything by itself.

    Unspaced runs become their bigrams and last character, so that a phrase of bigrams means the run itself and that
    of a following word still adjoins; words stay words. All single characters follow, each once.
    """
    if text.isascii():
        return ""
    composed = normal(text)
    if not any(map(_folds_to_solid, set(composed))) and not _is_respelt(text):
        return ""
    folded = _pattern(_BROKEN_LINE).sub("", _translate(composed))
    stream: list[str] = [RESPELT] if _is_respelt(text) else []
    single: dict[str, None] = {}
    for piece, solid in pieces(folded):
        if solid:
            stream += bigrams(piece)
            stream.append(piece[-1])
            single.update(dict.fromkeys(piece))
        else:
            stream.append(piece)
    return " ".join([*stream, _END, *single] if single else stream)


def _folds_to_solid(character: str) -> bool:
    return any(map(is_solid, _TABLE[ord(character)]))


_GLUED = "[^\\W_SOLID][SOLID]|[SOLID][^\\W_SOLID]"
_MARKED = re.compile(r"[^A-Za-z\u0300-\u036f][\u0300-\u036f]+")


def _is_respelt(text: str) -> bool:
    """Whether `pages_fts` makes other words of the text than folding does. `text` as stored, not composed."""
    odd = [c for c in set(text) if not c.isascii() and _is_odd(c)]
    symbols = "".join(re.escape(c) for c in odd if not c.isalnum() and _TABLE[ord(c)] != "")
    if any(c.isalnum() or _TABLE[ord(c)] == "" for c in odd):
        return True
    if symbols and re.search(rf"\w[{symbols}]|[{symbols}]\w", text):
        return True
    glued = any(map(is_solid, set(text))) and _pattern(_GLUED).search(text)
    return bool(glued) or _MARKED.search(text) is not None


# The combining marks unicode61 drops; it splits words at others.
_FOLDED_MARKS = re.compile(
    "[\u0300-\u0304\u0306-\u030c\u030f\u0311\u031b\u0323-\u0328\u032d\u032e\u0330\u0331]"
)
_ODD: dict[str, bool] = {}


def _is_odd(character: str) -> bool:
    known = _ODD.get(character)
    if known is None:
        known = _ODD[character] = not is_solid(character) and _differs_from_unicode61(character)
    return known


def _differs_from_unicode61(character: str) -> bool:
    """Whether unicode61 may fold the character otherwise than we do (its tables are those of Unicode 6)."""
    folded = _TABLE[ord(character)]
    is_new = unicodedata.ucd_3_2_0.category(character) == "Cn" or unicodedata.category(character) == "Co"
    if is_new or character in "ǠǡͿ\u0344":
        return True
    if not character.isalnum():
        return folded == "" and not _FOLDED_MARKS.match(character)
    if unicodedata.decomposition(character)[:1] == "<":
        return folded != character
    lowered = character.lower()
    if unicodedata.ucd_3_2_0.category(lowered[0]) == "Cn":
        return True
    # Latin accents are folded there too; accents of other scripts are not.
    return folded != lowered and not (folded.isascii() and unicodedata.normalize("NFD", lowered)[0] == folded)
