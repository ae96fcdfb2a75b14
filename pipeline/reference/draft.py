"""The draft of a page: its lines as one string with marks at their borders, and the skeleton of it to align with."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from pipeline.reference.skeleton import as_written, folded, is_skeleton, is_spaceless
from storage.records import Box

_SPACE = re.compile(r"\s+")
_BULLET = re.compile(r"(?:[•·▪◦○●■□➢✓❖*–—-]|\(?\d{1,3}[.)]|\(?[a-zA-Z][.)])\s")

_PAGE_NUMBER = re.compile(r"[-–—|\s]*(?:\d{1,4}|[ivxl]{1,6})[-–—|\s]*")
_EDGE = 2  # lines of the page's head and foot in which its number is looked for
_TITLE = 70  # most characters of a heading


class Break(StrEnum):
    """What stands between a line and the one before it; the values are the marks in `DraftText.text`."""

    WRAP = "\x01"  # the paragraph goes on
    PARAGRAPH = "\x02"
    CELL = "\x03"  # same row, further to the right
    ROW = "\x04"  # next row of a table


MARKS = frozenset(Break)


@dataclass(frozen=True, slots=True)
class DraftLine:
    """A line of the cheap reading; `box` in the model's own space (pixels or 0…999), where it is known."""

    text: str
    before: Break = Break.WRAP
    box: Box | None = None
    label: str = ""  # the kind of block, as `storage.records.Category` calls it; "" = unknown
    level: int = 0  # of a heading
    furniture: bool = False  # header, footer or page number: models often leave it out


@dataclass(frozen=True, slots=True)
class DraftText:
    """`text` with marks at borders. Skeleton character i is `chars[i]`, at `at[i]` in `text`, of line `line[i]`."""

    lines: tuple[DraftLine, ...]
    text: str
    chars: str
    at: tuple[int, ...]
    line: tuple[int, ...]
    starts: tuple[int, ...]  # per line, its first skeleton character
    kinds: tuple[str, ...]  # per line, how its first and the previous line's last words look: see `_kind`
    by_prefix: dict[str, list[int]] = field(default_factory=dict)  # first 2 skeleton characters → lines

    @property
    def size(self) -> int:
        """Skeleton characters in all."""
        return len(self.chars)

    def gap(self, index: int) -> str:
        """What stands in `text` between skeleton characters `index - 1` and `index`."""
        return self.text[self.at[index - 1] + 1 if index else 0 : self.at[index]]


def build(lines: Sequence[DraftLine]) -> DraftText:
    """The draft made of `lines`; those without a letter or digit are left out."""
    kept: list[DraftLine] = []
    parts: list[str] = []
    chars: list[str] = []
    at: list[int] = []
    line_of: list[int] = []
    starts: list[int] = []
    length = 0
    for line in lines:
        written = "".join(as_written(c) for c in _SPACE.sub(" ", line.text).strip())
        if not any(c.isalnum() for c in written):  # rules, dot leaders
            continue
        if kept:
            parts.append(line.before)
            length += 1
        starts.append(len(chars))
        for offset, char in enumerate(written):
            counted = folded(char)
            if is_skeleton(counted[0]):
                chars.append(counted[0])
                at.append(length + offset)
                line_of.append(len(kept))
        parts.append(written)
        length += len(written)
        kept.append(line)
    kept = [_marked(line, at, len(kept)) for at, line in enumerate(kept)]
    kinds = tuple(_kind(kept, at) for at in range(len(kept)))
    found = DraftText(
        tuple(kept), "".join(parts), "".join(chars), tuple(at), tuple(line_of), tuple(starts), kinds
    )
    for index, start in enumerate(starts):
        found.by_prefix.setdefault(found.chars[start : start + 2], []).append(index)
    return found


def _marked(line: DraftLine, at: int, count: int) -> DraftLine:
    """A lone number at the page's head or foot is its number, also where the source does not say so."""
    outside = at < _EDGE or at >= count - _EDGE
    if (
        outside
        and not line.label
        and line.before is Break.PARAGRAPH
        and _PAGE_NUMBER.fullmatch(line.text.strip())
    ):
        return replace(line, furniture=True)
    return line


def _kind(lines: Sequence[DraftLine], at: int) -> str:
    """How a border looks, for separators to be learned by: end of the line before, start of this one, its level."""
    line = lines[at]
    last = lines[at - 1].text.rstrip()[-1:] if at else ""
    end = (
        "stop"
        if last in ".?!:。"
        else "hyphen"
        if last in "-\u00ad"
        else "wide"
        if is_spaceless(last)
        else "word"
    )
    if end == "word" and at and _is_short(lines, at - 1):
        end = "short"
    return f"{end} {_start(lines, at)}" + (f" {line.level}" if line.level else "")


def _start(lines: Sequence[DraftLine], at: int) -> str:
    text = lines[at].text.lstrip()
    first = text[:1]
    if _BULLET.match(text):
        return "bullet"
    if first.islower():
        return "lower"
    if is_spaceless(first):
        return "wide"
    alone = at + 1 == len(lines) or lines[at + 1].before is not Break.WRAP
    if (
        alone
        and len(text) < _TITLE
        and text.rstrip()[-1:] not in ".,;:"
        and lines[at].before is Break.PARAGRAPH
    ):
        return "title"
    return "digit" if first.isdigit() else "upper"


def _is_short(lines: Sequence[DraftLine], at: int) -> bool:
    """Whether a line is well under the length of those around it: the last of a paragraph, a heading."""
    around = sorted(len(line.text) for line in lines[max(0, at - 3) : at + 4])
    return len(lines[at].text) < 0.75 * around[(3 * len(around)) // 4 - (len(around) == 4)]
