"""Headers, footers and page numbers: small things at the margins, set apart from the text."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pipeline.fragments import Fragment
from storage.records import Box, Category

# Of the page's height: what lies further in is text. A lone number may stand well above the edge, as TeX sets it.
_MARGIN = 0.12
_NUMBER_MARGIN = 0.25
_ROMAN = r"[ivxlc]{1,7}|[IVXLC]{1,7}"
_OF = r"(?:of|/|von|de|sur|di|van|из|\|)"
_NUMBER = re.compile(
    rf"(?:[-–—|•\[(]\s*)?(?:(?:page|seite|p\.|pg\.|s\.|pág\.|página|pagina|стр\.)\s*)?"
    rf"(?:\d{{1,4}}|{_ROMAN}|\d{{1,4}}\s*{_OF}\s*\d{{1,5}})(?:\s*[-–—|•\])])?",
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
        ordered = bands if top else bands[::-1]
        for _ in range(2):
            count = _outer_group(items, ordered, rules, height, em, top)
            if not count or len(ordered) - count < 3:
                break
            for band in ordered[:count]:
                found.update((at, _category(items[at], top)) for at in band)
            ordered = ordered[count:]
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


def _outer_group(
    items: Sequence[Fragment],
    bands: Sequence[list[int]],
    rules: Sequence[Box],
    height: float,
    em: float,
    top: bool,
) -> int:
    """How many of the outermost rows are furniture."""
    for count in (1, 2, 3):
        if count >= len(bands):
            return 0
        group = [items[at] for band in bands[:count] for at in band]
        inner = [items[at] for at in bands[count]]
        number = count == 1 and all(is_page_number(item.line.text) for item in group)
        if not _in_margin(group, height, top, _NUMBER_MARGIN if number else _MARGIN):
            return 0
        upper, lower = (group, inner) if top else (inner, group)
        gap = min(item.t for item in lower) - max(item.b for item in upper)
        numbered = any(is_page_number(item.line.text) for item in group)
        large = any(item.size > 1.2 * em for item in group)
        if _ruled_off(group, inner, rules, items, top) and (numbered or not large):
            return count
        if large and not number:
            return 0
        if gap >= 0.8 * em and count == 1 and _looks_like_furniture(group, em, gap, top):
            return count
    return 0


def _in_margin(group: Sequence[Fragment], height: float, top: bool, margin: float) -> bool:
    if top:
        return max(item.b for item in group) <= margin * height
    return min(item.t for item in group) >= (1 - margin) * height


def _looks_like_furniture(row: Sequence[Fragment], em: float, gap: float, top: bool) -> bool:
    texts = [item.line.text.strip() for item in row]
    if any(is_page_number(text) for text in (*texts, " ".join(texts))):
        return True
    if any(_PRINTED.fullmatch(text) for text in texts):
        return True
    small = all(item.size < 0.85 * em for item in row)
    return top and small and gap >= 1.5 * em


def _ruled_off(
    group: Sequence[Fragment],
    inner: Sequence[Fragment],
    rules: Sequence[Box],
    items: Sequence[Fragment],
    top: bool,
) -> bool:
    left, right = min(item.l for item in items), max(item.r for item in items)
    if top:
        upper, lower = max(item.b for item in group), min(item.t for item in inner)
    else:
        upper, lower = max(item.b for item in inner), min(item.t for item in group)
    wide = [rule for rule in rules if rule[3] - rule[1] <= 4 and rule[2] - rule[0] >= 0.6 * (right - left)]
    between = [rule for rule in wide if upper - 2 <= (rule[1] + rule[3]) / 2 <= lower + 2]
    if not between:
        return False
    # The rules of a table come in numbers; a header or footer has one.
    return len(wide) <= 2
