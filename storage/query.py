"""What a person typed, as terms: safe full-text expressions, and patterns that find the terms in a page's text.

Words are ANDed; "…" is a phrase, a trailing * a prefix; a word with inner punctuation (state-of-the-art) is the phrase
of its parts. There are no other operators: AND, NEAR( or ^ are words or nothing, so any string is a safe query.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from storage.folding import RESPELT, bigrams, fold, is_word_character, pieces

MAX_TOKENS = 64  # of a query: each costs an open cursor per index segment
_QUOTES = str.maketrans("“”„‟＂", '"""""')  # what keyboards and word processors make of "
_TERM = re.compile(r'"(?P<phrase>[^"]*)"(?P<star>\*?)|(?P<word>[^\s"]+)')


@dataclass(frozen=True, slots=True)
class Term:
    """A word, phrase or unspaced run to be found."""

    pieces: tuple[tuple[str, bool], ...]  # (folded text, is it an unspaced run)
    prefix: bool

    @property
    def is_solid(self) -> bool:
        """Whether it contains a run of a script written without spaces."""
        return any(solid for _, solid in self.pieces)

    @property
    def expression(self) -> str:
        """The term in FTS5 syntax, over the tokens of `folding.grams` (plain words: over `pages_fts` as well)."""
        tokens: list[str] = []
        prefix = self.prefix
        last = len(self.pieces) - 1
        for i, (piece, solid) in enumerate(self.pieces):
            if not solid:
                tokens.append(piece)
            elif i < last:  # what follows adjoins the run's last character
                tokens += [*bigrams(piece), piece[-1]]
            else:
                tokens += bigrams(piece) or [piece]
                # Alone, a character is looked up in the list of single ones; after a word it may begin a bigram.
                prefix = len(piece) == 1 and i > 0
        return f'"{" ".join(tokens)}"{" *" if prefix else ""}'

    def compile(self) -> re.Pattern[str]:
        """Finds the term in folded text, but for word boundaries (see `spans`)."""
        parts: list[str] = []
        for i, (piece, solid) in enumerate(self.pieces):
            if i:
                parts.append(r"[\W_]*" if solid or self.pieces[i - 1][1] else r"[\W_]+")
            parts.append(_run_pattern(piece) if solid else re.escape(piece))
        return re.compile("".join(parts))

    def spans(self, pattern: re.Pattern[str], folded: str) -> Iterator[tuple[int, int]]:
        """Where the term occurs in folded text, as the index finds it. `pattern` is what `compile` returned."""
        bounded_before, bounded_after = not self.pieces[0][1], not (self.pieces[-1][1] or self.prefix)
        for match in pattern.finditer(folded):
            start, end = match.span()
            if bounded_before and start and is_word_character(folded[start - 1]):
                continue
            if bounded_after and end < len(folded) and is_word_character(folded[end]):
                continue
            yield start, end


def _run_pattern(run: str) -> str:
    # A line may break anywhere in the run; vowel signs of South-East Asian scripts are no part of bigrams.
    return r"(?:\n|[^\w\s]{0,3})".join(map(re.escape, run))


@dataclass(frozen=True, slots=True)
class Query:
    """A parsed query."""

    terms: tuple[Term, ...]
    note: str = ""  # what a person should know: nothing to search for, or cut short

    @property
    def grams_match(self) -> str:
        """Expression for `page_grams_fts`."""
        return " AND ".join(term.expression for term in self.terms)

    @property
    def words_match(self) -> str | None:
        """Expression for `pages_fts`; None where only `page_grams_fts` can tell."""
        return None if any(term.is_solid for term in self.terms) else self.grams_match

    @property
    def respelt_match(self) -> str:
        """Expression for `page_grams_fts`, of the pages whose words `pages_fts` spells otherwise."""
        return f'"{RESPELT}" AND {self.grams_match}'


def parse(text: str) -> Query:
    """The terms of any string. Without any letter or digit there are none, and the note says so."""
    readable = text.encode("utf-8", "replace").decode().translate(_QUOTES)  # lone surrogates become "?"
    terms: dict[Term, None] = {}
    left = MAX_TOKENS
    for match in _TERM.finditer(readable):
        raw = match["word"] if match["phrase"] is None else match["phrase"]
        found = list(pieces(fold(raw)))
        if not found:
            continue
        if left <= 0:
            return Query(
                tuple(terms), f"the query is long: only its first {MAX_TOKENS} words or characters count"
            )
        kept, left, cut = _within(found, left)
        star = match["star"] == "*" or raw.endswith("*")
        terms[Term(tuple(kept), star and not cut and not kept[-1][1])] = None
    if not terms:
        return Query((), "nothing to search for: the query has no letter or digit")
    return Query(
        tuple(terms),
        f"the query is long: only its first {MAX_TOKENS} words or characters count" if left <= 0 else "",
    )


def _within(found: list[tuple[str, bool]], left: int) -> tuple[list[tuple[str, bool]], int, bool]:
    """As many pieces as fit into `left` tokens, what is left then, and whether any was cut."""
    kept: list[tuple[str, bool]] = []
    for piece, solid in found:
        if left <= 0:
            return kept, left, True
        part = piece[:left] if solid else piece[:500]
        kept.append((part, solid))
        left -= len(part) if solid else 1
        if part != piece:
            return kept, 0, True
    return kept, left, False
