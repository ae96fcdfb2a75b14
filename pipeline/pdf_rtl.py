"""Words of a line with right-to-left letters: characters sorted by place, put into reading order."""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Sequence

from pipeline import bidi

_GAP = 0.18  # em between two glyphs that part words
_ALEF = frozenset("اأإآٱ")
_LAM = "ل"


def rtl_words(
    chars: Sequence[str],
    start: Sequence[float],
    end: Sequence[float],
    size: Sequence[float],
    *,
    rtl: bool,
) -> list[tuple[str, list[int]]]:
    """(text, members) of each word in reading order. The characters come from left to right, " " for a space.

    `start`, `end`: where each lies along the line; `size`: its font size; `rtl`: the line runs right to left.
    """
    visual, members = _clusters(chars, start, end, size)
    visual, members = _scripts_apart(visual, members)
    words: list[tuple[str, list[int]]] = []
    text, places = "", []
    for i in [*bidi.reading_order(visual, rtl=rtl), -1]:
        if i >= 0 and members[i]:
            text += visual[i]
            places += members[i]
        elif places:
            words.append((text, places))
            text, places = "", []
    return words


def _scripts_apart(visual: Sequence[str], members: Sequence[list[int]]) -> tuple[list[str], list[list[int]]]:
    """A space wherever a Latin letter meets an Arabic or Hebrew one.

    Word sets the space after an embedded Latin word on its wrong side, and an index that takes both for one word
    finds neither.
    """
    texts: list[str] = []
    places: list[list[int]] = []
    previous = ""
    for text, place in zip(visual, members, strict=True):
        kind = unicodedata.bidirectional(text[:1])
        if {kind, previous} in ({"L", "R"}, {"L", "AL"}):
            texts.append(" ")
            places.append([])
        texts.append(text)
        places.append(place)
        previous = kind
    return texts, places


def _clusters(
    chars: Sequence[str], start: Sequence[float], end: Sequence[float], size: Sequence[float]
) -> tuple[list[str], list[list[int]]]:
    """A letter with its marks, or a ligature, each as one; " " with no members between words."""
    letters = [i for i, char in enumerate(chars) if char != " " and not unicodedata.combining(char)]
    marks = _marks(chars, letters, start, end)
    spaced = _after_space(chars, letters, start, end)
    visual: list[str] = []
    members: list[list[int]] = []
    reached = 0.0
    for group in _glyphs(chars, letters, start, end):
        first = group[0]
        if visual and (first in spaced or start[first] - reached > _GAP * size[first]):
            visual.append(" ")
            members.append([])
        hanging = [mark for letter in group for mark in marks.get(letter, [])]
        visual.append(_ligature([chars[i] for i in group]) + "".join(chars[i] for i in hanging))
        members.append(group + hanging)
        reached = max(end[i] for i in group)
    return visual, members


def _after_space(
    chars: Sequence[str], letters: Sequence[int], start: Sequence[float], end: Sequence[float]
) -> set[int]:
    """Letters with a space to their left. One under the leftmost letter does not count: Word ends lines so."""
    found: set[int] = set()
    for before, after in itertools.pairwise(letters):
        for i in range(before + 1, after):
            under = before == letters[0] and (start[i] + end[i]) / 2 < end[before]
            if chars[i] == " " and not under:
                found.add(after)
    return found


def _marks(
    chars: Sequence[str], letters: Sequence[int], start: Sequence[float], end: Sequence[float]
) -> dict[int, list[int]]:
    """Combining marks by the letter each stands over."""
    found: dict[int, list[int]] = {}
    for i, char in enumerate(chars):
        if unicodedata.combining(char) and letters:
            middle = (start[i] + end[i]) / 2
            near = [letter for letter in letters if abs(letter - i) <= 6] or letters
            over = min(near, key=lambda letter: max(start[letter] - middle, middle - end[letter]))
            found.setdefault(over, []).append(i)
    return found


def _glyphs(
    chars: Sequence[str], letters: Sequence[int], start: Sequence[float], end: Sequence[float]
) -> list[list[int]]:
    """Letters grouped by the glyph they come from: the pieces of a ligature share its place."""
    groups: list[list[int]] = []
    for i in letters:
        last = groups[-1][-1] if groups else -1
        same = last >= 0 and abs(start[last] - start[i]) < 1e-3 and abs(end[last] - end[i]) < 1e-3
        if same and bidi.is_rtl(chars[i]):
            groups[-1].append(i)
        else:
            groups.append([i])
    return groups


def _ligature(pieces: Sequence[str]) -> str:
    """The letters of one glyph in reading order.

    PDFium turns right-to-left stretches round character by character, and with them the letters that a font's
    ToUnicode map gives for one glyph: lam-alef comes out as alef-lam. Ligatures that are characters of their own
    (U+FEFB) it takes apart after that, in their right order.
    """
    if len(pieces) == 2 and pieces[0] == _LAM and pieces[1] in _ALEF:
        return "".join(pieces)
    return "".join(reversed(pieces))
