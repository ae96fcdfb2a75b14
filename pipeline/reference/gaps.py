"""What stands between two characters of the draft as the model writes it, and what of that is still missing."""

from __future__ import annotations

from pipeline.reference.page import DraftedPage
from pipeline.reference.separators import Border

_QUOTES = str.maketrans("’‘“”", "''\"\"")


class Gaps:
    """Spells the draft's text and borders in the form that a page has had so far."""

    def __init__(self, page: DraftedPage) -> None:
        self._page = page

    def segment(self, begin: int, end: int, math: bool) -> str:
        """`draft.text[begin:end]` (no border in it) as the model spells it; `math`: a formula is open."""
        text = self._page.draft.text[begin:end]
        return self.spell(self._page.formulas.inside(text) if math else self._page.formulas.outside(text))

    def spell(self, text: str) -> str:
        """Characters as the model writes them where the scanner stands."""
        text = self._page.spelling.apply(text, self._page.scanner.mode)
        if self._page.json:
            text = text.replace("\\", "\\\\").replace('"', '\\"')
        return text

    def missing(self, gap: str, found: Border | None, run: str) -> tuple[str, float | None]:
        """What is missing of the gap before the next character, `run` of it being written; and the chance of it."""
        mode = self._page.scanner.mode
        if found is None:
            return self._inline(gap, run), None
        if not run:
            guess = self._page.separators.guess(mode, found)
            return guess.text, guess.chance
        going_on = self._page.separators.going_on(mode, found, run)
        if going_on is not None:
            return going_on.text[len(run) :], going_on.chance
        guess = self._page.separators.guess(mode, found)
        if guess.text.startswith(run):
            return guess.text[len(run) :], guess.chance
        if not any(char.isspace() for char in run) and guess.text[:1].isspace() and run[-1] in "*_)$>":
            return guess.text, 0.6  # emphasis, a formula or a tag was closed; the border is still to come
        tail = self.spell(found.tail.strip())
        missing = "" if tail.translate(_QUOTES) in run.translate(_QUOTES) else tail
        if run[-1] in "#|-•*" and not (run[-1] == "*" and run.endswith("**")):
            missing = " " + missing
        return missing, 0.8

    def _inline(self, gap: str, run: str) -> str:
        written = self.spell(gap)
        if not run:
            return written
        if written.translate(_QUOTES).startswith(run.translate(_QUOTES)):
            return written[len(run) :]
        if not any(char.isspace() for char in run) and written[:1] == " " and run[-1] not in "{^_\\<([":
            return written  # emphasis or a formula was closed
        bare = written.strip()
        missing = "" if bare.translate(_QUOTES) in run.translate(_QUOTES) else bare
        return " " + missing if run[-1] in "#|" else missing
