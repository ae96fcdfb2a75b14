"""What the parsers of answers have in common: a cell of an answer, and how it becomes a block."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from pipeline import html_tables
from storage.records import Block, Box, Category

_HEADING = re.compile(r"\s*(#{1,6})\s+")
_MARKS = re.compile(r"(\*\*|__|`)")


@dataclass(frozen=True, slots=True)
class AnswerSpace:
    """How a model's coordinates map to the page: a box is scaled by `width_pt / width` and `height_pt / height`.

    `width`, `height`: of the space the model answers in, model-input pixels or 999.
    """

    width: float
    height: float
    width_pt: float
    height_pt: float

    def to_page(self, box: Sequence[float]) -> Box:
        """(left, top, right, bottom) in page points, sorted and clipped to the page."""
        x_scale, y_scale = self.width_pt / self.width, self.height_pt / self.height
        xs = sorted(min(max(x * x_scale, 0.0), self.width_pt) for x in (box[0], box[2]))
        ys = sorted(min(max(y * y_scale, 0.0), self.height_pt) for y in (box[1], box[3]))
        return (xs[0], ys[0], xs[1], ys[1])

    def to_model(self, box: Box) -> tuple[float, float, float, float]:
        """The inverse of `to_page`, for prompts and drafts that carry boxes."""
        x_scale, y_scale = self.width / self.width_pt, self.height / self.height_pt
        return (box[0] * x_scale, box[1] * y_scale, box[2] * x_scale, box[3] * y_scale)

    @property
    def whole(self) -> Box:
        """The page itself: the box of what has none."""
        return (0.0, 0.0, self.width_pt, self.height_pt)


@dataclass(frozen=True, slots=True)
class Cell:
    """One element as the model gave it: box in the model's space, its own label, its own text."""

    box: tuple[float, ...] | None  # four numbers, or None where the answer had fewer
    label: str
    text: str | None
    whole: bool = True  # False: salvaged from an answer that was cut short


@dataclass(frozen=True, slots=True)
class Answer:
    """A parsed answer. `blank`: the model says that nothing is there, which is not the same as saying nothing."""

    blocks: tuple[Block, ...]
    blank: bool = False
    whole: bool = True
    dropped: tuple[str, ...] = field(default_factory=tuple)  # what was left out, in words


def to_block(cell: Cell, category: Category, space: AnswerSpace) -> Block:
    """The block of a cell: heading marks become its level, HTML tables Markdown where that can hold them."""
    box = space.to_page(cell.box) if cell.box is not None else space.whole
    source = (cell.text or "").strip()
    if category is Category.PICTURE:
        return Block(category, box, "", "", confidence=None)
    if category is Category.TABLE:
        table = html_tables.convert(source)
        return Block(category, box, table.text, table.markdown)
    if category is Category.FORMULA:
        formula = unwrap_formula(source)
        return Block(category, box, formula, f"$$\n{formula}\n$$")
    if category in (Category.TITLE, Category.SECTION_HEADER):
        return _heading(source, category, box)
    return Block(category, box, plain(source), source)


def _heading(source: str, category: Category, box: Box) -> Block:
    marks = _HEADING.match(source)
    level = len(marks.group(1)) if marks else (1 if category is Category.TITLE else 2)
    text = _HEADING.sub("", source, count=1).strip() if marks else source
    return Block(category, box, plain(text), f"{'#' * level} {text}", level=level)


def plain(markdown: str) -> str:
    """Running text of inline Markdown: emphasis and code marks off, formulas as they stand."""
    return _MARKS.sub("", markdown).strip()


def unwrap_formula(source: str) -> str:
    """LaTeX without the marks around it: `$$…$$`, `\\[…\\]`, back-ticks."""
    text = source.strip().strip("`").strip()
    for start, end in (("$$", "$$"), ("\\[", "\\]"), ("$", "$")):
        if text.startswith(start) and text.endswith(end) and len(text) >= len(start) + len(end):
            return text[len(start) : len(text) - len(end)].strip()
    return text
