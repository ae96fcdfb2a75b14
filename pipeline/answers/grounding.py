"""Answers with boxes in special tokens: DeepSeek-OCR's `<|ref|>…<|det|>` and Unlimited-OCR's `<|det|>label [box]`.

Boxes count from 0 to 999 on both axes (deepseek-ai/DeepSeek-OCR-2, its scripts divide by 999). Numbers are parsed,
never evaluated.
"""

from __future__ import annotations

import re

from pipeline.answers.cells import Answer, AnswerSpace, Cell, to_block
from storage.records import Category

SPAN = 999.0
CATEGORIES = {
    "title": Category.TITLE,
    "sub_title": Category.SECTION_HEADER,
    "section_header": Category.SECTION_HEADER,
    "header": Category.PAGE_HEADER,
    "footer": Category.PAGE_FOOTER,
    "page_header": Category.PAGE_HEADER,
    "page_footer": Category.PAGE_FOOTER,
    "page_number": Category.PAGE_NUMBER,
    "table": Category.TABLE,
    "image": Category.PICTURE,
    "figure": Category.PICTURE,
    "equation": Category.FORMULA,
    "formula": Category.FORMULA,
    "isolate_formula": Category.FORMULA,
    "image_caption": Category.CAPTION,
    "figure_caption": Category.CAPTION,
    "table_caption": Category.CAPTION,
    "footnote": Category.FOOTNOTE,
    "table_footnote": Category.FOOTNOTE,
    "list": Category.LIST_ITEM,
    "list_item": Category.LIST_ITEM,
    "code": Category.CODE,
}
_BOX = r"\[\s*(-?\d+(?:\.\d+)?(?:\s*,\s*-?\d+(?:\.\d+)?){3})\s*\]"
_REF = re.compile(r"<\|ref\|>(?P<label>.*?)<\|/ref\|>\s*<\|det\|>(?P<boxes>.*?)<\|/det\|>", re.DOTALL)
_DET = re.compile(rf"<\|det\|>\s*(?P<label>[^\[<]*?)\s*(?P<boxes>{_BOX})\s*<\|/det\|>", re.DOTALL)
_MARKUP = re.compile(r"<\|/?(?:ref|det|grounding)\|>|<PAGE>|<｜[^｜]*｜>")


def parse_ref(text: str, space: AnswerSpace) -> Answer:
    """DeepSeek-OCR and DeepSeek-OCR-2 under a grounding prompt: label, boxes, then the text they belong to."""
    return _parse(text, _REF, space)


def parse_det(text: str, space: AnswerSpace) -> Answer:
    """Unlimited-OCR: label and box in one mark, then the text."""
    return _parse(text, _DET, space)


def _parse(text: str, mark: re.Pattern[str], space: AnswerSpace) -> Answer:
    marks = list(mark.finditer(text))
    first = marks[0].start() if marks else len(text)
    cells = [Cell(None, "text", before)] if (before := _clean(text[:first])) else []
    for at, found in enumerate(marks):
        end = marks[at + 1].start() if at + 1 < len(marks) else len(text)
        cells += _cells(found, _clean(text[found.end() : end]))
    blocks = tuple(to_block(cell, _category(cell), space) for cell in cells)
    return Answer(tuple(b for b in blocks if b.text or b.category is Category.PICTURE))


def _cells(found: re.Match[str], text: str) -> list[Cell]:
    """One cell a mark; of several boxes the hull, since the text is not divided among them."""
    boxes = [tuple(float(n) for n in m.group(1).split(",")) for m in re.finditer(_BOX, found.group("boxes"))]
    hull = None
    if boxes:
        lefts, tops, rights, bottoms = zip(*boxes, strict=True)
        hull = (min(lefts), min(tops), max(rights), max(bottoms))
    label = found.group("label").strip()
    known = label.lower() in CATEGORIES or label.lower() == "text"
    # "OCR this image" puts the words themselves where other prompts put a label.
    return [Cell(hull, label if known else "text", text or (None if known else label))]


def _category(cell: Cell) -> Category:
    category = CATEGORIES.get(cell.label.lower(), Category.TEXT)
    if category is Category.TEXT and cell.text and cell.text.lstrip().startswith("#"):
        return Category.SECTION_HEADER
    return category


def _clean(text: str) -> str:
    return _MARKUP.sub("", text).strip()
