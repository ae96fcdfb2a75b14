"""The piece of a page's text that shows why it was found, matches marked; for any script."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice

from storage.folding import fold_mapped, is_solid, normal
from storage.query import Term

_MATCHES_PER_TERM = 200
_SPACE = re.compile(r"\s+")
# Control characters, and those that reorder what a terminal or browser shows.
_UNSAFE = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufff9-\ufffb]")
_ELLIPSIS = "…"
Span = tuple[int, int, int]  # start, end in the composed text; which term


def clean(text: str) -> str:
    """One line without control characters or direction overrides."""
    return _UNSAFE.sub("", _SPACE.sub(" ", text))


class Finder:
    """Finds the terms of one query in many texts."""

    def __init__(self, terms: Sequence[Term]) -> None:
        self._terms = [(term, term.compile()) for term in terms]

    def find(self, text: str, at_most: int | None = None) -> list[Span]:
        """Where the terms occur in `text` (in NFC), in order; of each term the first `at_most`."""
        folded, offsets = fold_mapped(text)
        spans: list[Span] = []
        for number, (term, pattern) in enumerate(self._terms):
            for start, end in islice(term.spans(pattern, folded), at_most):
                if offsets is None:
                    spans.append((start, end, number))
                else:
                    spans.append((offsets[start], offsets[end - 1] + 1, number))
        return sorted(spans)


def make(text: str, finder: Finder | None, marks: tuple[str, str], width: int = 160) -> str:
    """About `width` characters of `text` around the densest group of matches, each between `marks`.

    Without any match, the beginning of the text.
    """
    composed = normal(text)
    spans = finder.find(composed, _MATCHES_PER_TERM) if finder else []
    first, last = _densest(spans, width) if spans else (0, 0)
    begin, end = _window(composed, first, last, width)
    parts: list[str] = []
    at = begin
    for start, stop, _ in spans:
        if start < begin or stop > end or stop <= at:
            continue
        parts += [composed[at : max(at, start)], marks[0], composed[max(at, start) : stop], marks[1]]
        at = stop
    parts.append(composed[at:end])
    body = "".join(part if i % 4 in (1, 3) else clean(part) for i, part in enumerate(parts)).strip()
    return (_ELLIPSIS if begin > 0 else "") + body + (_ELLIPSIS if end < len(composed) else "")


def _densest(spans: list[Span], width: int) -> tuple[int, int]:
    """Start and end of the run of matches within `width` with most different terms, then most matches."""
    best = (0, 0, spans[0][0], spans[0][1])
    for i, (start, _, _) in enumerate(spans):
        within = [span for span in spans[i : i + 20] if span[1] - start <= width] or [spans[i]]
        rank = (len({term for _, _, term in within}), len(within))
        if rank > best[:2]:
            best = (*rank, start, max(stop for _, stop, _ in within))
    return best[2], best[3]


def _window(text: str, first: int, last: int, width: int) -> tuple[int, int]:
    """`width` characters around `first`…`last`, at word boundaries where there are any near."""
    spare = max(0, width - (last - first))
    begin = max(0, min(first - spare // 2, len(text) - width))
    end = min(len(text), max(begin + width, last))
    if begin > 0:
        near = range(begin, min(first, begin + 30))
        begin = next((i for i in near if text[i].isspace() or is_solid(text[i])), begin)
    if end < len(text):
        cut = max(text.rfind(" ", max(last, end - 30), end), text.rfind("\n", max(last, end - 30), end))
        end = cut if cut > 0 else end
    return begin, end
