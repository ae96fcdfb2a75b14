"""Turns a page's lines into blocks in reading order: furniture, tables, columns, paragraphs, headings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from pipeline.blocks import Context, blocks_of, context_of, furniture_block, picture_block, table_block
from pipeline.fragments import Fragment, clean_box, fragments_of, frame_of, runs_aside
from pipeline.furniture import find_furniture
from pipeline.layout import Zone, ZoneKind, zones_of
from pipeline.markdown import render_markdown, render_text
from pipeline.objects import Placed, find_objects
from pipeline.paragraphs import Chunk, chunks_of, goes_on
from pipeline.rows import proportional, rows_from, steady
from pipeline.tables import aligned_table
from storage.records import Block, PageText

__all__ = ["render_markdown", "render_text", "structure"]


def structure(page: PageText) -> tuple[Block, ...]:
    """The blocks of `page` in reading order; headers first and footers last, as furniture.

    Every line ends in exactly one block (a line that runs over several columns is cut). Raises nothing,
    whatever the geometry.
    """
    frame = frame_of(page)
    found = fragments_of(page, frame)
    if not found:
        return ()
    aside = [item for item in found if runs_aside(item.line, frame)]
    items = [item for item in found if not runs_aside(item.line, frame)] if aside else found
    context = context_of(page, frame, usual_size(items or found))
    rules = [frame.place(clean_box(rule)) for rule in page.rules]
    furniture = find_furniture(items, rules, frame.height, context.em)
    body = [item for at, item in enumerate(items) if at not in furniture]
    margin = [(items[at].mid, furniture_block(items[at], furniture[at])) for at in sorted(furniture)]
    head = [block for mid, block in margin if mid < frame.height / 2]
    foot = [block for mid, block in margin if mid >= frame.height / 2]
    return (*head, *_body_blocks(body, aside, context), *foot)


def usual_size(items: Sequence[Fragment]) -> float:
    """The font size most characters have, in points."""
    sizes = sorted((item.size, len(item.line.text)) for item in items)
    half = sum(weight for _, weight in sizes) / 2
    for size, weight in sizes:
        half -= weight
        if half <= 0:
            return size
    return sizes[-1][0]


def _body_blocks(body: Sequence[Fragment], aside: Sequence[Fragment], context: Context) -> list[Block]:
    objects, rest = find_objects(context.page, context.frame, body, context.em)
    items = sorted(
        [*rest, *(placed.place for placed in objects)], key=lambda f: (f.t, f.l, f.b, f.r, f.line.text)
    )
    parts: list[Chunk | Block] = []
    for zone in zones_of(items, context.em):
        for part in _around_objects(zone):
            if part.items[0].source < 0:
                parts.extend(_object_parts(objects[part.items[0].part], context))
            else:
                parts.extend(_zone_parts(part, context))
    for item in aside:
        parts.extend(_text_chunks([item], ZoneKind.TEXT, context))
    return blocks_of(list(_joined_over_columns(parts)), context)


def _joined_over_columns(parts: Iterable[Chunk | Block]) -> Iterator[Chunk | Block]:
    """Paragraphs that a column's end cuts in two made whole."""
    last: Chunk | Block | None = None
    for part in parts:
        if isinstance(last, Chunk) and isinstance(part, Chunk) and part.starts_zone and goes_on(last, part):
            last = replace(last, rows=(*last.rows, *part.rows))
            continue
        if last is not None:
            yield last
        last = part
    if last is not None:
        yield last


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


def _object_parts(placed: Placed, context: Context) -> list[Chunk | Block]:
    if placed.table is not None:
        return [table_block(placed.table, context)]
    if not placed.cells:
        return [picture_block(placed.box)]
    return [chunk for cell in placed.cells for chunk in _text_chunks(cell, ZoneKind.TEXT, context)]


def _zone_parts(zone: Zone, context: Context) -> list[Chunk | Block]:
    if zone.kind is ZoneKind.TABLE:
        aligned = aligned_table(zone.items, context.em)
        if aligned is not None:
            above, below = (
                _text_chunks(lines, ZoneKind.TEXT, context) for lines in (aligned.above, aligned.below)
            )
            return [*above, table_block(aligned.table, context), *below]
    return [*_text_chunks(zone.items, zone.kind, context)]


def _text_chunks(items: Sequence[Fragment], kind: ZoneKind, context: Context) -> list[Chunk]:
    rows = rows_from(items, context.page.lines, context.frame)
    if context.is_ocr:
        rows = steady(rows)
    if context.is_mono:
        rows = proportional(rows)
    return chunks_of(rows, context.em, keep_lines=kind is ZoneKind.LINES)
