"""What a chunk of lines is (heading, paragraph, list item, caption, code, …), as a block with its Markdown."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from pipeline import markdown
from pipeline.fragments import Fragment, Frame, clean_box, union
from pipeline.joining import join_lines, tidy, vocabulary
from pipeline.paragraphs import Chunk
from pipeline.rows import Row
from pipeline.tables import Table
from storage.records import Block, Box, Category, Line, PageText

_CAPTION = re.compile(
    r"(?:figure|fig\.|table|tab\.|listing|algorithm|abbildung|abb\.|tabelle|figura|tabla|tableau|图|圖|表|図)"
    r"\s*[\dIVX][\d.]*\s*(?:[:.–—-]|$)",
    re.IGNORECASE,
)
_REFERENCE = re.compile(r"(?:\[?\d{1,3}\]?[.)]?|[*†‡§¶]{1,2}|[⁰¹²³⁴-⁹]{1,3})\s?[^\W\d_\"“„(\[]")
_MATH = re.compile(r"[=≤≥≈≠∑∫√±×÷∈∀∃∂∇→⇒]")
_WORD = re.compile(r"[^\W\d_]{3,}")


@dataclass(frozen=True, slots=True)
class Context:
    """What is known of the page when its blocks are made."""

    page: PageText
    frame: Frame
    em: float  # usual font size, in points
    words: frozenset[str]  # see `joining.vocabulary`
    is_ocr: bool  # sizes are estimates, weights unknown
    is_mono: bool  # a typewritten page: type of one width says nothing there


def context_of(page: PageText, frame: Frame, em: float) -> Context:
    """The context of a page whose running text is set in `em` points."""
    return Context(
        page,
        frame,
        em,
        vocabulary(line.text for line in page.lines),
        any(line.confidence is not None for line in page.lines),
        _mono_share(page.lines) > 0.6,
    )


def _mono_share(lines: Sequence[Line]) -> float:
    mono = sum(len(line.text) for line in lines if line.mono)
    return mono / max(1, sum(len(line.text) for line in lines))


def _block(
    category: Category, lines: Sequence[Line], text: str, written: str, level: int | None = None
) -> Block:
    return Block(
        category,
        union(clean_box(line.box) for line in lines),
        text,
        written,
        level,
        confidence(lines),
        tuple(lines),
    )


def confidence(lines: Sequence[Line]) -> float | None:
    """The lines' mean confidence, weighted by their length; None where none has one."""
    known = [(line.confidence, len(line.text)) for line in lines if line.confidence is not None]
    weight = sum(length for _, length in known)
    return sum(value * length for value, length in known) / weight if weight else None


def furniture_block(item: Fragment, category: Category) -> Block:
    """A header, footer or page number."""
    text = tidy(item.line.text)
    return _block(category, [item.line], text, markdown.paragraph([text]))


def picture_block(box: Box) -> Block:
    """A picture: a place on the page without text."""
    return Block(Category.PICTURE, box, "", "")


def table_block(table: Table, context: Context) -> Block:
    """A table; in plain text a row is a line, its cells parted by tabs."""
    texts = table.texts(context.words)
    plain = "\n".join("\t".join(row) for row in texts)
    return _block(Category.TABLE, [item.line for item in table.items], plain, markdown.table(texts))


def blocks_of(parts: Sequence[Chunk | Block], context: Context) -> list[Block]:
    """The blocks of a page's body from its chunks, among which tables and pictures are blocks already."""
    blocks: list[Block] = []
    indents: list[tuple[float, int]] = []  # left edges of the open list items, and where their text starts
    for at, part in enumerate(parts):
        if isinstance(part, Block):
            indents.clear()
            blocks.append(part)
            continue
        if part.marker is None or part.starts_zone:
            indents.clear()
        after = parts[at + 1] if at + 1 < len(parts) else None
        blocks.append(_block_of(part, after, indents, context))
    return blocks


def _block_of(
    chunk: Chunk, after: Chunk | Block | None, indents: list[tuple[float, int]], context: Context
) -> Block:
    lines = [line for row in chunk.rows for line in row.lines]
    if chunk.mono:
        text = _code(chunk.rows)
        return _block(Category.CODE, lines, text, markdown.code(text))
    texts = [tidy(row.text) for row in chunk.rows]
    level = _heading_level(chunk, after, context)
    if level is not None:
        text = join_lines(texts, context.words)
        category = Category.TITLE if level == 1 else Category.SECTION_HEADER
        return _block(category, lines, text, markdown.heading(text, level), level)
    if _is_footnote(chunk, context):
        text = join_lines(texts, context.words)
        return _block(Category.FOOTNOTE, lines, text, markdown.paragraph([text]))
    if chunk.marker is not None:
        return _list_block(chunk, lines, texts, indents, context)
    if chunk.keep_lines:
        return _block(Category.TEXT, lines, "\n".join(texts), markdown.paragraph(texts))
    text = join_lines(texts, context.words)
    return _block(_category(chunk, text), lines, text, markdown.paragraph([text]))


def _is_footnote(chunk: Chunk, context: Context) -> bool:
    """Small type with a reference mark, in the lower half of the page."""
    row = chunk.rows[0]
    small = median(row.size for row in chunk.rows) <= 0.9 * context.em
    return small and row.mid > 0.5 * context.frame.height and _REFERENCE.match(row.text) is not None


def _category(chunk: Chunk, text: str) -> Category:
    if _CAPTION.match(text):
        return Category.CAPTION
    if len(chunk.rows) <= 2 and len(text) <= 120 and _MATH.search(text) and len(_WORD.findall(text)) <= 1:
        return Category.FORMULA
    return Category.TEXT


def _heading_level(chunk: Chunk, after: Chunk | Block | None, context: Context) -> int | None:
    rows = chunk.rows
    text = " ".join(row.text for row in rows)
    if len(rows) > 3 or len(text) > 200 or not _WORD.search(text) or _CAPTION.match(text):
        return None
    if chunk.marker is not None and chunk.marker.certain:
        return None
    if len(rows) > 1 and text[-1] in ".,;:":
        return None  # sentences, whatever their size
    level = _level_of_size(median(row.size for row in rows), after, context)
    if level is not None:
        return level
    bold = all(row.bold for row in rows) and not (
        isinstance(after, Chunk) and all(row.bold for row in after.rows)
    )
    if bold and len(rows) <= 2 and text[-1] not in ".,;:" and after is not None:
        return 3
    return None


def _level_of_size(size: float, after: Chunk | Block | None, context: Context) -> int | None:
    ratio = size / context.em
    if ratio < 1.1:
        return None
    if (
        isinstance(after, Chunk)
        and len(after.rows) > 1
        and median(row.size for row in after.rows) > 0.93 * size
    ):
        return None  # no larger than the text it stands over
    if ratio >= 1.6:
        return 1
    if ratio >= 1.28:
        return 2
    return 3 if after else None


def _list_block(
    chunk: Chunk,
    lines: Sequence[Line],
    texts: Sequence[str],
    indents: list[tuple[float, int]],
    context: Context,
) -> Block:
    marker = chunk.marker
    if marker is None:  # for the type checker: the caller has looked
        raise ValueError("not a list item")
    left, size = chunk.rows[0].l, chunk.rows[0].size
    while indents and left <= indents[-1][0] + 0.4 * size:
        indents.pop()
    indent = indents[-1][1] if indents else 0
    text = join_lines(texts, context.words)
    written = markdown.list_item(marker.text, text[len(marker.text) :].strip(), indent)
    width = len(marker.text) + 1 if marker.text[:-1].isdigit() else 2
    indents.append((left, indent + width))
    return _block(Category.LIST_ITEM, lines, text, written)


def _code(rows: Sequence[Row]) -> str:
    left = min(row.l for row in rows)
    widths = [(row.r - row.l) / len(row.text) for row in rows if row.text and row.r > row.l]
    width = median(widths) if widths else 1.0
    pitch = median(b.mid - a.mid for a, b in itertools.pairwise(rows)) if len(rows) > 1 else 0.0
    out: list[str] = []
    for at, row in enumerate(rows):
        if at and pitch > 0 and row.mid - rows[at - 1].mid > 1.6 * pitch:
            out.append("")
        out.append(" " * min(80, round((row.l - left) / max(width, 0.1))) + row.text)
    return "\n".join(out)
