"""How this model spells characters that do not count in alignment: quotes, dashes, entities, learned as it writes."""

from __future__ import annotations

from pipeline.reference.scanner import Mode

_QUOTES = {"’": "'", "‘": "'", "“": '"', "”": '"'}


class Spelling:
    """Replacements of single characters, kept apart for tables of HTML, where entities are usual."""

    def __init__(self) -> None:
        self._maps: dict[Mode, dict[int, str]] = {mode: {} for mode in Mode}

    def apply(self, text: str, mode: Mode) -> str:
        """`text` as the model writes it."""
        known = self._maps[mode]
        return text.translate(known) if known else text

    def learn(self, mode: Mode, gap: str, run: str) -> None:
        """The draft had `gap` between two characters where the output has `run`; no border in it."""
        known = self._maps[mode]
        if gap == run:
            for char in gap:
                known.pop(ord(char), None)
        elif len(gap) == len(run):
            for mine, theirs in zip(gap, run, strict=True):
                if mine != theirs and not mine.isspace() and not theirs.isspace():
                    self._replace(known, mine, theirs)
        else:
            mine, theirs = gap.strip(), run.strip()
            if len(mine) == 1 and theirs.startswith("&") and theirs.endswith(";"):
                self._replace(known, mine, theirs)

    def _replace(self, known: dict[int, str], mine: str, theirs: str) -> None:
        if _QUOTES.get(mine) == theirs:  # one straight quote means straight quotes
            known.update({ord(curly): straight for curly, straight in _QUOTES.items()})
        else:
            known[ord(mine)] = theirs
