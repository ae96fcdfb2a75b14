"""Turns a page's lines into blocks in reading order: furniture, tables, columns, paragraphs, headings."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.blocks import Context, block_of, furniture_block, table_block
from pipeline.fragments import Fragment, fragments_of, frame_of
from pipeline.furniture import find_furniture
from pipeline.joining import vocabulary
from pipeline.layout import Zone, ZoneKind, zones_of
from pipeline.markdown import render_markdown, render_text
from pipeline.paragraphs import Chunk, chunks_of, rows_from
from pipeline.tables import aligned_table
from storage.records import Block, PageText

__all__ = ["render_markdown", "render_text", "structure"]


def structure(page: PageText) -> tuple[Block, ...]:
    """The blocks of `page` in reading order; headers first and footers last, as furniture.

    Every line ends in exactly one block (a line that runs over several columns is cut). Raises nothing,
    whatever the geometry.
    """
    frame = frame_of(page)
    items = fragments_of(page, frame)
    if not items:
        return ()
    em = usual_size(items)
    rules = [frame.place(rule) for rule in page.rules]
    furniture = find_furniture(items, rules, frame.height, em)
    body = [item for at, item in enumerate(items) if at not in furniture]
    context = Context(page, frame, em, vocabulary(line.text for line in page.lines))
    blocks = _body_blocks(zones_of(body, em), context)
    margin = [furniture_block(items[at], category) for at, category in furniture.items()]
    head = [block for block, at in zip(margin, furniture, strict=True) if items[at].mid < frame.height / 2]
    foot = [block for block, at in zip(margin, furniture, strict=True) if items[at].mid >= frame.height / 2]
    return (*head, *blocks, *foot)


def usual_size(items: Sequence[Fragment]) -> float:
    """The font size most characters have, in points."""
    sizes = sorted((item.size, len(item.line.text)) for item in items)
    half = sum(weight for _, weight in sizes) / 2
    for size, weight in sizes:
        half -= weight
        if half <= 0:
            return size
    return sizes[-1][0]


def _body_blocks(zones: Sequence[Zone], context: Context) -> list[Block]:
    blocks: list[Block] = []
    for zone in zones:
        if zone.kind is ZoneKind.TABLE:
            table = aligned_table(zone.items, context.em)
            if table is not None:
                blocks.append(table_block(table, context))
                continue
        rows = rows_from(zone.items, context.page.lines, context.frame)
        chunks = chunks_of(rows, keep_lines=zone.kind is not ZoneKind.TEXT)
        blocks.extend(_chunk_blocks(chunks, context))
    return blocks


def _chunk_blocks(chunks: Sequence[Chunk], context: Context) -> list[Block]:
    blocks: list[Block] = []
    indents: list[tuple[float, int]] = []  # left edges of the open list items, and where their text starts
    for at, chunk in enumerate(chunks):
        if chunk.marker is None:
            indents.clear()
        after = chunks[at + 1] if at + 1 < len(chunks) else None
        blocks.append(block_of(chunk, after, indents, context))
    return blocks
