"""Draft lines from the lines of a text layer or a classic engine: put in reading order, tables row by row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from pipeline import structure
from pipeline.reference.draft import Break, DraftLine
from storage.records import FURNITURE, Block, Box, Category, PageText

ToModel = Callable[[Box], Box]


def from_page(page: PageText, to_model: ToModel | None = None) -> list[DraftLine]:
    """The page's lines; boxes through `to_model` (page points to the space the model answers in), if given."""
    return from_blocks(structure.structure(page), to_model)


def from_blocks(blocks: Iterable[Block], to_model: ToModel | None = None) -> list[DraftLine]:
    """The lines of blocks in reading order: those of a page read before are the best draft of all."""
    return [line for block in blocks for line in _of_block(block, to_model)]


def _of_block(block: Block, to_model: ToModel | None) -> Iterator[DraftLine]:
    box = to_model(block.box) if to_model is not None else None
    level = block.level or 0
    furniture = block.category in FURNITURE
    if block.category is Category.TABLE:
        parts = _cells(block.text)
    elif block.lines:
        parts = [(line.text, Break.WRAP) for line in block.lines]
    else:
        parts = [(text, Break.WRAP) for text in block.text.split("\n")]
    for at, (text, before) in enumerate(parts):
        mark = before if at else Break.PARAGRAPH
        yield DraftLine(text, mark, box, block.category, level if not at else 0, furniture)


def _cells(text: str) -> list[tuple[str, Break]]:
    """The cells of a table's plain text, in which a row is a line and tabs part its cells."""
    return [
        (cell, Break.ROW if column == 0 else Break.CELL)
        for row in text.split("\n")
        for column, cell in enumerate(row.split("\t"))
    ]
