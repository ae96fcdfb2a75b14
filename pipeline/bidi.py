"""From the order characters stand in on a line to the order they are read in, for right-to-left scripts.

The inverse of what the Unicode bidirectional algorithm (UAX #9) does for display, as far as it can be told from
positions alone: numbers and left-to-right words keep their inner order, everything else follows the line.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

_RTL = frozenset({"R", "AL", "RLE", "RLO"})
_NUMBER = frozenset({"EN", "AN"})
_BETWEEN_DIGITS = frozenset({"ES", "CS", "ET"})
_MIRRORED = {ord(a): b for a, b in ("()", ")(", "[]", "][", "{}", "}{", "<>", "><", "«»", "»«")}
_PAIRS = {"(": ")", "[": "]", "{": "}", "«": "»"}


def is_rtl(text: str) -> bool:
    """Whether any character belongs to a right-to-left script."""
    return any(unicodedata.bidirectional(char) in _RTL for char in text)


def strong_counts(text: str) -> tuple[int, int]:
    """Letters written right to left, and left to right."""
    kinds = [unicodedata.bidirectional(char) for char in text]
    return sum(kind in _RTL for kind in kinds), sum(kind == "L" for kind in kinds)


def reading_order(visual: Sequence[str], *, rtl: bool) -> list[int]:
    """Indices of `visual` (characters from left to right) in reading order; `rtl`: the line runs right to left."""
    kinds = [unicodedata.bidirectional(cluster[:1]) for cluster in visual]  # a letter and its marks
    if not rtl:
        order: list[int] = []
        at = 0
        for start, end in _right_to_left_runs(kinds):
            order += range(at, start)
            inner = reading_order([visual[i] for i in range(start, end)], rtl=True)
            order += [start + i for i in inner]
            at = end
        return order + list(range(at, len(kinds)))
    order = []
    at = 0
    for start, end in _left_to_right_runs(kinds):
        order += range(at, start)
        order += range(end - 1, start - 1, -1)  # turned twice: keeps its own order
        at = end
    order += range(at, len(kinds))
    return order[::-1]


def mirror(text: str) -> str:
    """Brackets turned into their counterparts."""
    return text.translate(_MIRRORED)


def matched_brackets(text: str) -> int:
    """Pairs of brackets that open before they close, less those that close without having been opened."""
    matched = 0
    waiting: list[str] = []
    for char in text:
        if char in _PAIRS:
            waiting.append(_PAIRS[char])
        elif char in _PAIRS.values():
            if waiting and waiting[-1] == char:
                waiting.pop()
                matched += 1
            else:
                matched -= 1
    return matched


def _left_to_right_runs(kinds: Sequence[str]) -> list[tuple[int, int]]:
    """Runs, from left to right, that start and end with a letter or digit and hold no right-to-left letter."""
    runs: list[tuple[int, int]] = []
    start, end, has_letter = -1, -1, False
    for i, kind in enumerate(kinds):
        if kind == "L" or kind in _NUMBER:
            joins = start >= 0 and (has_letter or _joins_numbers(kinds[end:i]))
            if start >= 0 and not joins:
                runs.append((start, end))
                start = -1
            if start < 0:
                start, has_letter = i, False
            end, has_letter = i + 1, has_letter or kind == "L"
        elif kind in _RTL and start >= 0:
            runs.append((start, end))
            start = -1
    if start >= 0:
        runs.append((start, end))
    return runs


def _joins_numbers(between: Sequence[str]) -> bool:
    """Whether what lies between two numbers makes them one: nothing, or one separator as in 1,234.5 or 12/03."""
    return not between or (len(between) == 1 and between[0] in _BETWEEN_DIGITS)


def _right_to_left_runs(kinds: Sequence[str]) -> list[tuple[int, int]]:
    """Runs that start and end with a right-to-left letter and hold no left-to-right one."""
    runs: list[tuple[int, int]] = []
    start, end = -1, -1
    for i, kind in enumerate(kinds):
        if kind in _RTL:
            start = i if start < 0 else start
            end = i + 1
        elif kind == "L" and start >= 0:
            runs.append((start, end))
            start = -1
    if start >= 0:
        runs.append((start, end))
    return runs
