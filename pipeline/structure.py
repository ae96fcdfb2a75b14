"""Turns a page's lines into blocks in reading order: furniture, tables, columns, paragraphs, headings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pipeline.blocks import Context, block_of, context_of, furniture_block, picture_block, table_block
from pipeline.fragments import Fragment, clean_box, fragments_of, frame_of
from pipeline.furniture import find_furniture
from pipeline.layout import Zone, ZoneKind, zones_of
from pipeline.markdown import render_markdown, render_text
from pipeline.objects import Placed, find_objects
from pipeline.paragraphs import Chunk, chunks_of
from pipeline.rows import rows_from, steady
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
    rules = [frame.place(clean_box(rule)) for rule in page.rules]
    furniture = find_furniture(items, rules, frame.height, em)
    body = [item for at, item in enumerate(items) if at not in furniture]
    context = context_of(page, frame, em)
    blocks = _body_blocks(body, context)
    margin = [(items[at].mid, furniture_block(items[at], category)) for at, category in furniture.items()]
    head = [block for mid, block in margin if mid < frame.height / 2]
    foot = [block for mid, block in margin if mid >= frame.height / 2]
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


def _body_blocks(body: Sequence[Fragment], context: Context) -> list[Block]:
    objects, rest = find_objects(context.page, context.frame, body, context.em)
    items = sorted(
        [*rest, *(placed.place for placed in objects)], key=lambda f: (f.t, f.l, f.b, f.r, f.line.text)
    )
    blocks: list[Block] = []
    for zone in zones_of(items, context.em):
        for part in _around_objects(zone):
            if part.items[0].source < 0:
                blocks.extend(_object_blocks(objects[part.items[0].part], context))
            else:
                blocks.extend(_zone_blocks(part, context))
    return blocks


def _around_objects(zone: Zone) -> Iterator[Zone]:
    """The zone cut at the objects in it, each object a zone of its own."""
    text = [item for item in zone.items if item.source >= 0]
    for place in (item for item in zone.items if item.source < 0):
        before = [item for item in text if item.mid < place.mid]
        if before:
            yield Zone(zone.kind, tuple(before))
        yield Zone(ZoneKind.TEXT, (place,))
        text = [item for item in text if item.mid >= place.mid]
    if text:
        yield Zone(zone.kind, tuple(text))


def _object_blocks(placed: Placed, context: Context) -> list[Block]:
    if placed.table is not None:
        return [table_block(placed.table, context)]
    if not placed.cells:
        return [picture_block(placed.box)]
    return [block for cell in placed.cells for block in _zone_blocks(Zone(ZoneKind.TEXT, cell), context)]


def _zone_blocks(zone: Zone, context: Context) -> list[Block]:
    if zone.kind is ZoneKind.TABLE:
        table = aligned_table(zone.items, context.em)
        if table is not None:
            return [table_block(table, context)]
    rows = rows_from(zone.items, context.page.lines, context.frame)
    if context.is_ocr:
        rows = steady(rows)
    return _chunk_blocks(chunks_of(rows, context.em, keep_lines=zone.kind is not ZoneKind.TEXT), context)


def _chunk_blocks(chunks: Sequence[Chunk], context: Context) -> list[Block]:
    blocks: list[Block] = []
    indents: list[tuple[float, int]] = []  # left edges of the open list items, and where their text starts
    for at, chunk in enumerate(chunks):
        if chunk.marker is None:
            indents.clear()
        after = chunks[at + 1] if at + 1 < len(chunks) else None
        blocks.append(block_of(chunk, after, indents, context))
    return blocks
