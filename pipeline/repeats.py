"""How often may a piece of text stand on a page again and again before it is a loop?

The numbers are those that others' guards have settled on, and what a printed page can hold. A sentence: 4 times
(osaurus: 32 characters, 4 times). Something shorter within a line: 10 times (GLM-OCR: 10 characters, 10 times); a
syllable: 40 times (surya: a token, 40 times). But pages do hold equal lines: forms, columns of "0.00", tables
whose rows are empty or equal, leaders, rules. Those may fill a page and no more.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from enum import StrEnum

COPIES = 4  # of anything; fewer are never a loop
PHRASE_COPIES, SYLLABLE_COPIES = 10, 40
SENTENCE, PHRASE = 32, 10  # characters; wide ones (CJK) count twice
ROW_COPIES = 10  # of a table row with as much text as a sentence: receipts and price lists have equal rows
PAGE_LINES = 64  # lines of a form or column that fit on a page
_CONFIRMED_MORE = 3
FILLER_CHARACTERS = 2000  # of leaders and empty cells without a line's end: several lines' worth
_LINE_CHARACTERS = 100
_NO_LEADERS = frozenset("()[]{}<>:;,?!%$@")
_PER_BLANK = 64  # characters to a blank, at most, in a form

_TAG = re.compile(r"</?[A-Za-z][^<>]*>|<[|｜][^<>]*[|｜]>|&(?:nbsp|emsp|ensp|#160);")
_CUT_TAG = re.compile(r"\A[^<>\s]*>|<[^<>]*\Z")
_ESCAPE = re.compile(r"\\[nrt](?![a-z])")  # line ends within JSON strings, not \\nabla
_LATEX_BLANK = re.compile(
    r"\\(?:underline|hspace|vspace|quad|qquad|dotfill|hrulefill|[lcv]?dots|hline|_)\*?(?![A-Za-z])(?:\{[^{}]*\})?"
)
_ROW = re.compile(r"<t[drh]\b|</t[drh]>|^\s*\|", re.MULTILINE | re.IGNORECASE)
_ROW_END = re.compile(r"</tr\s*>", re.IGNORECASE)
# What a form leaves to be filled in: a line to write on, a box to tick, an empty cell, a label's colon before nothing.
_BLANK = re.compile(
    r"_{3,}|(?:\\_){3,}|\.{5,}|(?:\. ){4,}|…{2,}|(?:·\s?){5,}"
    r"|[□☐☑☒◻○◯❑❏]|\[\s*\]|<td[^<>]*>\s*</td>|\|[ \t]*\||:\s*(?:\n|$)"
)


class Kind(StrEnum):
    """What a repeated unit is."""

    FILLER = "filler"  # no word in it: leaders, rules, empty cells
    FORM = "form"  # words, and a blank to fill in
    ROW = "row"  # of a table
    LINE = "line"  # a short line or several
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class Unit:
    """A repeated unit, and how many copies of it in a row are a loop."""

    kind: Kind
    copies: int

    @property
    def counts(self) -> bool:
        """Whether many runs of it, each too short to be a loop, are a sign of one: what pages do not hold often."""
        return self.kind in (Kind.TEXT, Kind.ROW)


def judge(text: str, times: int = 1) -> Unit:
    """The unit that `text` holds `times` times over; wherever in the unit the first copy begins."""
    plain = _LATEX_BLANK.sub(" ", _ESCAPE.sub("\n", text))
    bare = _TAG.sub(" ", _CUT_TAG.sub(" ", plain))
    if not any(map(str.isalnum, bare)):
        odd = not _NO_LEADERS.isdisjoint(bare)  # nobody prints a line of these
        return Unit(Kind.FILLER, SYLLABLE_COPIES if odd else _filler_copies(plain, times))
    width = sum(map(_width, bare)) / times
    ends = max(len(_ROW_END.findall(plain)), len(re.findall(r"\n\s*", plain)))
    lines = round(ends / times)
    if len(_BLANK.findall(text)) / times * _PER_BLANK >= width:
        return Unit(Kind.FORM, _share(PAGE_LINES, max(lines, 1, width // _LINE_CHARACTERS)))
    if _ROW.search(plain):
        most = ROW_COPIES if width >= SENTENCE else PAGE_LINES
        return Unit(Kind.ROW, _share(most, max(lines, 1)))
    if width >= SENTENCE:
        return Unit(Kind.TEXT, COPIES)
    if lines:
        return Unit(Kind.LINE, _share(PAGE_LINES, lines))
    return Unit(Kind.TEXT, PHRASE_COPIES if width >= PHRASE else SYLLABLE_COPIES)


def _filler_copies(plain: str, times: int) -> int:
    ends = max(len(_ROW_END.findall(plain)), plain.count("\n"))
    lines = round(ends / times)
    if lines:
        return _share(PAGE_LINES, lines)
    return _share(FILLER_CHARACTERS, max(1.0, len(plain) / times))


def _share(total: int, each: float) -> int:
    return max(COPIES, -int(-total // each))


def _width(char: str) -> int:
    if char.isspace():
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def allowed(confirmed: int) -> int:
    """The fewest copies that are a loop although another reading has `confirmed`; 0 if it has no repetition."""
    return confirmed + _CONFIRMED_MORE if confirmed > 1 else 0


def skeleton(text: str) -> str:
    """What any two readings of the same print have in common: letters and digits, case folded, tags left out."""
    return "".join(char for char in _TAG.sub("", text).casefold() if char.isalnum())
