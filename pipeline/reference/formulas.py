"""Formulas: a draft has their letters only; learns how the model spaces them and which words it makes formulas of."""

from __future__ import annotations

import re
from collections import defaultdict

from pipeline.reference.skeleton import COMMANDS, FUNCTIONS

_TOKEN = re.compile(r"[^ ]+")
_WORD = re.compile(r"[^\W\d_]{3,}|\b(?:in|of|to|is|at|by|or|as|we|an|be|if|on|it|do|so|no|a|I)\b")
_NAMES = re.compile(rf"\b({'|'.join(sorted(FUNCTIONS))})\b")
_NUMBER = re.compile(r"[(\[]*\d[\d.,]*")
_PERCENT = re.compile(r"\d[\d.,]*%")
_ENOUGH = 2  # formulas of a class that were written before others are expected


class FormulaStyle:
    """How one page's formulas are spelt."""

    def __init__(self) -> None:
        self._spaced = 0  # letters with a space between them, minus those without
        self._classes: dict[str, float] = defaultdict(float)
        self._begun: str | None = None

    @property
    def is_spaced(self) -> bool:
        """Whether a space stands between the characters of a formula (`1 0 \\%`)."""
        return self._spaced > 0

    def learn_gap(self, gap: str, run: str) -> None:
        """Inside a formula the draft has `gap` where the output has `run`."""
        if not gap and run in ("", " "):
            self._spaced += 1 if run else -1

    def learn_word(self, word: str, opened: bool) -> None:
        """The output made `word` of the draft a formula, or did not."""
        found = _class_of(word)
        if found:
            score = self._classes[found] * 0.8 + (1 if opened else -1)
            self._classes[found] = max(-4.0, min(4.0, score))

    def inside(self, text: str) -> str:
        """`text` in a formula that is open, closed before the first word that belongs to none."""
        cut = next((found for found in _WORD.finditer(text) if found.group() not in FUNCTIONS), None)
        if cut is None:
            return self._written(text)
        before = text[: cut.start()]
        end = before.rfind(" ")
        if end < 0:
            return self._written(text)
        return self._written(before[:end]) + "$" + self.outside(text[end:])

    def outside(self, text: str) -> str:
        """`text` with those words as formulas that have been so of late."""
        if not any(score > _ENOUGH for score in self._classes.values()):
            return text
        return _TOKEN.sub(lambda match: self._maybe(match.group()), text)

    def _maybe(self, token: str) -> str:
        bare = token.strip("().,;:")
        found = _class_of(bare)
        if not found or self._classes[found] <= _ENOUGH:
            return token
        start = token.index(bare)
        return f"{token[:start]}${self._written(bare)}${token[start + len(bare) :]}"

    def _written(self, text: str) -> str:
        parts: list[str] = []
        for piece in _NAMES.split(text):
            if piece in FUNCTIONS:
                parts.append("\\" + piece)
            else:
                parts += [COMMANDS.get(c, "\\%" if c == "%" else c) for c in piece]
        if self.is_spaced:
            return " ".join(part for part in parts if part != " ")
        text = "".join(part + (" " if part[:1] == "\\" and part != "\\%" else "") for part in parts)
        return text.replace("  ", " ")


def _class_of(word: str) -> str:
    word = word.strip("().,;:")
    if _PERCENT.fullmatch(word):
        return "percent"
    if len(word) == 1 and word.isalpha() and word not in "aAI":
        return "letter"
    return "number" if _NUMBER.fullmatch(word) else ""
