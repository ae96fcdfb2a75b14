"""Headers, footers and page numbers: small things at the margins, set apart from the text.

One page is all that is known, so only what shows itself counts: a page number in its place, what browsers print, what a
rule across the page cuts off. In doubt it is text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.fragments import Fragment
from storage.records import Box, Category

# Of the page's height: what lies further in is text. A lone number may stand well above the edge, as TeX sets it.
_MARGIN = 0.12
_NUMBER_MARGIN = 0.25
_SMALL_ROMAN = r"(?=[ivxlc])c{0,3}(?:xc|xl|l?x{0,3})(?:ix|iv|v?i{0,3})"
_LARGE_ROMAN = rf"(?=[IVXLC]{{2}}){_SMALL_ROMAN.split(')', 1)[1].upper()}"  # a lone capital is something else
_ROMAN = rf"(?-i:{_SMALL_ROMAN}|{_LARGE_ROMAN})"
_OF = r"(?:of|/|von|de|sur|di|van|из|\|)"
_NUMBER = re.compile(
    rf"(?:[-–—|•\[(]\s*)?(?:(?:page|seite|p\.|pg\.|s\.|pág\.|página|pagina|стр\.)\s*)?"
    rf"(?:{_ROMAN}|\d{{1,4}}|\d{{1,4}}\s*{_OF}\s*\d{{1,5}})(?:\s*[-–—|•\])])?",
    re.IGNORECASE,
)
_PRINTED = re.compile(
    r"https?://\S+|www\.\S+|\d{1,2}[/.]\d{1,2}[/.]\d{2,4},? \d{1,2}:\d\d(?: [AP]M)?", re.IGNORECASE
)


def is_page_number(text: str) -> bool:
    """Whether `text` is nothing but a page number: `7`, `– xii –`, `Page 3 of 12`."""
    return _NUMBER.fullmatch(text.strip()) is not None


def find_furniture(
    items: Sequence[Fragment], rules: Sequence[Box], height: float, em: float
) -> dict[int, Category]:
    """The category of each of `items` (by position in it) that is furniture. `rules` in the frame of the items."""
    bands = _page_rows(items)
    found: dict[int, Category] = {}
    if len(bands) < 5:
        return found  # a page of a few lines is all text
    for top in (True, False):
        edge = _Edge(items, bands if top else bands[::-1], rules, height, em, top)
        for band in edge.furniture():
            found.update((at, _category(items[at], top)) for at in band)
    return found


def _page_rows(items: Sequence[Fragment]) -> list[list[int]]:
    """Positions in `items` by rows that are clear of each other vertically."""
    bands: list[list[int]] = []
    bottom = float("-inf")
    for at, item in enumerate(items):
        if bands and item.mid < bottom:
            bands[-1].append(at)
        else:
            bands.append([at])
            bottom = float("-inf")
        bottom = max(bottom, item.b)
    return bands


def _category(item: Fragment, top: bool) -> Category:
    if is_page_number(item.line.text):
        return Category.PAGE_NUMBER
    return Category.PAGE_HEADER if top else Category.PAGE_FOOTER


@dataclass(frozen=True, slots=True)
class _Edge:
    """The rows of a page from its top or its bottom edge inwards."""

    items: Sequence[Fragment]
    bands: Sequence[list[int]]  # outermost first
    rules: Sequence[Box]
    height: float
    em: float
    top: bool

    def furniture(self) -> Sequence[list[int]]:
        """The outermost rows that are furniture."""
        ruled = self._ruled_off()
        if ruled:
            return self.bands[:ruled]
        count = 0
        while count < 2 and len(self.bands) - count > 3 and self._is_furniture(count):
            count += 1
        return self.bands[:count]

    def _row(self, at: int) -> list[Fragment]:
        return [self.items[number] for number in self.bands[at]]

    def _gap(self, at: int) -> tuple[float, float]:
        """Where the space between a row and the next one inwards begins and ends."""
        outer, inner = self._row(at), self._row(at + 1)
        upper, lower = (outer, inner) if self.top else (inner, outer)
        return max(item.b for item in upper), min(item.t for item in lower)

    def _in_margin(self, row: Sequence[Fragment], margin: float) -> bool:
        if self.top:
            return max(item.b for item in row) <= margin * self.height
        return min(item.t for item in row) >= (1 - margin) * self.height

    def _ruled_off(self) -> int:
        """How many of the outermost rows (three at most) a rule across the page cuts off."""
        width = max(item.r for item in self.items) - min(item.l for item in self.items)
        wide = [rule for rule in self.rules if rule[3] - rule[1] <= 4 and rule[2] - rule[0] >= 0.6 * width]
        if not wide or len(wide) > 2:
            return 0  # the rules of a table come in numbers
        for count in range(1, min(4, len(self.bands) - 2)):
            rows = [item for at in range(count) for item in self._row(at)]
            if not self._in_margin(rows, _MARGIN):
                return 0
            start, end = self._gap(count - 1)
            if any(start - 2 <= (rule[1] + rule[3]) / 2 <= end + 2 for rule in wide):
                numbered = any(is_page_number(item.line.text) for item in rows)
                large = any(item.size > 1.2 * self.em for item in rows)
                return count if numbered or not large else 0
        return 0

    def _is_furniture(self, at: int) -> bool:
        row = self._row(at)
        start, end = self._gap(at)
        texts = [item.line.text.strip() for item in row]
        numbers = [item for item in row if is_page_number(item.line.text) and self._in_place(item)]
        if len(numbers) == len(row) and end - start >= 0.8 * self.em:
            return self._in_margin(row, _NUMBER_MARGIN)
        if not self._in_margin(row, _MARGIN) or len(row) > 4 or sum(map(len, texts)) > 120:
            return False
        if end - start < 0.8 * self.em or any(item.size > 1.2 * self.em for item in row):
            return False
        if numbers or is_page_number(" ".join(texts)) or any(_PRINTED.fullmatch(text) for text in texts):
            return True
        if not self.top or any(item.size >= 0.85 * self.em for item in row):
            return False
        return end - start >= 1.5 * self.em or self._at_both_edges(row)

    def _at_both_edges(self, row: Sequence[Fragment]) -> bool:
        """Whether a row begins and ends where the text does and has nothing between: title left, section right."""
        left, right = min(item.l for item in self.items), max(item.r for item in self.items)
        ends = sorted(row, key=lambda item: item.l)
        return (
            len(row) == 2
            and ends[0].l - left < 2 * self.em
            and right - ends[1].r < 2 * self.em
            and ends[1].l - ends[0].r > 0.4 * (right - left)
        )

    def _in_place(self, item: Fragment) -> bool:
        """Whether a number stands where page numbers do: at a side of the text or in the middle."""
        left, right = min(other.l for other in self.items), max(other.r for other in self.items)
        off_centre = abs((item.l + item.r) - (left + right)) / 2
        near = 2 * self.em
        return item.l - left < near or right - item.r < near or off_centre < near + 0.03 * (right - left)
