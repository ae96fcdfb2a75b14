"""Splits what a model writes into characters that count and the mark-up before each, as it comes in."""

from __future__ import annotations

import html
from enum import StrEnum
from typing import NamedTuple

from pipeline.reference.skeleton import FUNCTIONS, GREEK, folded, is_skeleton

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
_OF_FORMULAS = frozenset("()[]{}")  # after a backslash these are mark-up
_ENTITY = 8  # longest entity name that occurs on pages


class Mode(StrEnum):
    """What surrounds a character: it decides how lines are separated."""

    TEXT = "text"
    HTML = "html"  # inside <table>
    PIPE = "pipe"  # a Markdown table row


class _Inside(StrEnum):
    TEXT = "text"
    TAG = "tag"
    COMMAND = "command"
    ENTITY = "entity"
    KEY = "key"  # before the text of a cell: JSON keys, labels and boxes in special tokens


# A JSON cell's text begins, or the box that DeepSeek-OCR and Unlimited-OCR write before a text is complete.
_KEY_ENDS = ('"text": "', '"text":"', "<|/det|>")
_OPENS = {"<": _Inside.TAG, "\\": _Inside.COMMAND, "&": _Inside.ENTITY}


class Mark(NamedTuple):
    """A character of the output that counts, the raw mark-up since the last one, and where it stands."""

    char: str
    run: str
    mode: Mode
    math: bool


class OutputScanner:
    """Fed the output piece by piece. `json`: an array of cells, of which only the strings called "text" are text."""

    def __init__(self, json: bool = False) -> None:
        self.run = ""  # raw mark-up since the last character that counts
        self.mode = Mode.TEXT
        self.math = False
        self._json = json
        self._inside = _Inside.KEY if json else _Inside.TEXT
        self._name = ""  # of the tag, command or entity under way
        self._from = 0  # where in `run` it began
        self.key_from = 0  # where in `run` the part between two texts began
        self._escaped = False
        self._line_empty = True
        self._found: list[Mark] = []

    @property
    def in_keys(self) -> bool:
        """Whether the output is between two texts, where labels and boxes stand."""
        return self._inside is _Inside.KEY

    @property
    def in_markup(self) -> bool:
        """Whether a tag, a command, an entity or an escape has begun and not ended."""
        return self._escaped or self._inside in (_Inside.TAG, _Inside.COMMAND, _Inside.ENTITY)

    @property
    def command(self) -> str:
        """The LaTeX command under way, backslash and all; empty where there is none."""
        return self._name if self._inside is _Inside.COMMAND else ""

    def feed(self, text: str) -> list[Mark]:
        """The characters that count in `text`."""
        self._found = []
        for char in text:
            if self._inside is _Inside.KEY:
                self._key(char)
            elif self._json:
                self._unescape(char)
            else:
                self._take(char, char)
        return self._found

    # --- JSON ----------------------------------------------------------------------------------------

    def _key(self, char: str) -> None:
        self.run += char
        if char in '">' and self.run.endswith(_KEY_ENDS):
            self._inside = _Inside.TEXT
            self.mode, self.math, self._line_empty = Mode.TEXT, False, True

    def _unescape(self, char: str) -> None:
        if self._escaped:
            self._escaped = False
            self._take(_ESCAPES.get(char, char), "\\" + char)
        elif char == "\\":
            self._escaped = True
        elif char == '"':
            self._inside, self.key_from = _Inside.KEY, len(self.run)
            self.run += char
        else:
            self._take(char, char)

    # --- mark-up -------------------------------------------------------------------------------------

    def _take(self, char: str, raw: str) -> None:
        """One character of page text; `raw` is how the output spells it."""
        inside = self._inside
        if inside is _Inside.TEXT:
            pass
        elif inside is _Inside.TAG:
            if self._tag(char, raw):
                return
        elif inside is _Inside.COMMAND:
            if self._command(char, raw):
                return
        elif self._entity(char, raw):
            return
        if char in _OPENS:
            self._inside, self._name, self._from = _OPENS[char], char, len(self.run)
            self.run += raw
        else:
            self._plain(char, raw)

    def _plain(self, char: str, raw: str) -> None:
        if char == "\n":
            self._new_line()
        elif self._line_empty and self.mode is not Mode.HTML and not char.isspace():
            self.mode = Mode.PIPE if char == "|" else Mode.TEXT
        if char == "$" and not self.run.endswith("$"):
            self.math = not self.math
        if not char.isspace():
            self._line_empty = False
        for one in folded(char):
            if is_skeleton(one):
                self._count(one, self.run)
                raw = ""
        self.run += raw

    def _count(self, char: str, run: str) -> None:
        self._found.append(Mark(char, run, self.mode, self.math))
        self.run = ""

    def _new_line(self) -> None:
        if self._line_empty:
            self.math = False  # no formula runs over an empty line: a lone "$" was money
            if self.mode is Mode.PIPE:
                self.mode = Mode.TEXT
        self._line_empty = True

    def _tag(self, char: str, raw: str) -> bool:
        if self._name == "<" and not (char.isalpha() or char in "/!|"):
            self._inside = _Inside.TEXT  # a less-than sign
            return False
        self._name += char
        self.run += raw
        if char == ">":
            self._inside, self._line_empty = _Inside.TEXT, False
            if self._name.startswith("<table"):
                self.mode = Mode.HTML
            elif self._name.startswith("</table"):
                self.mode = Mode.TEXT
            elif self._name in ("<|ref|>", "<|det|>"):
                self._inside, self.key_from = _Inside.KEY, self._from
        return True

    def _command(self, char: str, raw: str) -> bool:
        if char.isascii() and char.isalpha():
            self._name += char
            self.run += raw
            return True
        self._inside = _Inside.TEXT
        if self._name == "\\":
            if char not in _OF_FORMULAS and char != "\\":
                return False  # an escaped character
            if char in "([)]":
                self.math = char in "(["
            self.run += raw
            return True
        name, before = self._name[1:], self.run[: self._from]
        for letter in name if name in FUNCTIONS else GREEK.get(name, ""):
            self._count(letter, before)
            before = ""
        return False

    def _entity(self, char: str, raw: str) -> bool:
        if char == "#" or (char.isascii() and char.isalnum() and len(self._name) < _ENTITY):
            self._name += char
            self.run += raw
            return True
        self._inside = _Inside.TEXT
        name, before = self._name, self.run[: self._from]
        if char == ";" and len(name) > 2:
            self.run += raw
            for one in html.unescape(name + ";"):
                for part in folded(one):
                    if is_skeleton(part):
                        self._count(part, before)
            return True
        self.run = before
        for one in name:
            self._plain(one, one)
        return False
