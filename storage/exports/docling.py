"""A DoclingDocument, made and checked by docling-core's own types (extra `docling`)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from storage.errors import EngineUnavailableError
from storage.exports import Pieces
from storage.records import FURNITURE, Block, Category, PageReading
from storage.results import DocumentResult

if TYPE_CHECKING:
    from docling_core.types.doc import DoclingDocument, ProvenanceItem, TableData

_ITEM = re.compile(r"(\d{1,9}[.)]|[•▪◦‣·*–—-])\s+")
_FENCE = re.compile(r"\A```[^\n]*\n(.*)\n```\s*\Z", re.DOTALL)
_MATH = re.compile(r"\A(\$\$?|\\\[)(.*?)(\$\$?|\\\])\Z", re.DOTALL)


def write(result: DocumentResult, name: str, path: str) -> Pieces:
    """One file. Raises: `EngineUnavailableError` where docling-core is not installed."""
    yield ".docling.json", json.dumps(convert(result, name).export_to_dict(), ensure_ascii=False) + "\n"


def convert(result: DocumentResult, name: str) -> DoclingDocument:
    """The document: pages with their sizes, blocks with their boxes, headers and footers as furniture.

    Raises: `EngineUnavailableError` where docling-core is not installed.
    """
    try:
        from docling_core.types.doc import DoclingDocument, DocumentOrigin, Size
    except ImportError as error:
        raise EngineUnavailableError(
            "the format docling needs docling-core",
            remedy="install ocrd with the extra: uv tool install '.[docling]'",
        ) from error
    name = name.encode("utf-8", "replace").decode()
    document = DoclingDocument(name=PurePath(name).stem or name)
    document.origin = DocumentOrigin(
        mimetype=result.media_type, binary_hash=int(result.sha256[:16], 16), filename=name
    )
    for page in result.pages:
        if isinstance(page, PageReading):
            document.add_page(page_no=page.page, size=Size(width=page.width_pt, height=page.height_pt))
            _add_page(document, page)
    return document


def _add_page(document: DoclingDocument, page: PageReading) -> None:
    items: Any = None  # the list that is being written
    for block in page.blocks:
        place = _place(block, page.page)
        if block.category is not Category.LIST_ITEM:
            items = None
            _add(document, block, place, page)
            continue
        items = items if items is not None else document.add_list_group()
        marker, text = _marked(block.text)
        enumerated = marker[:1].isdigit()
        document.add_list_item(
            text, enumerated=enumerated, marker=marker, orig=block.text, prov=place, parent=items
        )


def _add(document: DoclingDocument, block: Block, place: ProvenanceItem, page: PageReading) -> None:
    from docling_core.types.doc import ContentLayer

    match block.category:
        case Category.TITLE:
            document.add_title(block.text, prov=place)
        case Category.SECTION_HEADER:
            document.add_heading(block.text, level=max(1, (block.level or 2) - 1), prov=place)
        case Category.TABLE:
            document.add_table(_table(block), prov=place)
        case Category.PICTURE:
            document.add_picture(prov=place)
        case Category.FORMULA:
            document.add_formula(_inside(_MATH, block.markdown, 2), orig=block.text, prov=place)
        case Category.CODE:
            document.add_code(_inside(_FENCE, block.markdown, 1), orig=block.text, prov=place)
        case _:
            layer = ContentLayer.FURNITURE if block.category in FURNITURE else ContentLayer.BODY
            document.add_text(_label(block, page), block.text, prov=place, content_layer=layer)


def _label(block: Block, page: PageReading) -> Any:
    """docling's name of the category; it has no page numbers: they are part of header or footer."""
    from docling_core.types.doc import DocItemLabel

    if block.category is Category.PAGE_NUMBER:
        upper = block.box[1] < page.height_pt / 2
        return DocItemLabel.PAGE_HEADER if upper else DocItemLabel.PAGE_FOOTER
    return DocItemLabel(block.category.value)


def _place(block: Block, page: int) -> ProvenanceItem:
    from docling_core.types.doc import BoundingBox, CoordOrigin, ProvenanceItem

    left, top, right, bottom = block.box
    box = BoundingBox(l=left, t=top, r=right, b=bottom, coord_origin=CoordOrigin.TOPLEFT)
    return ProvenanceItem(page_no=page, bbox=box, charspan=(0, len(block.text)))


def _marked(text: str) -> tuple[str, str]:
    """`1. First` → (1., First)."""
    match = _ITEM.match(text)
    return (match[1], text[match.end() :]) if match else ("-", text)


def _inside(pattern: re.Pattern[str], text: str, group: int) -> str:
    match = pattern.match(text.strip())
    return match[group].strip() if match else text


# --- tables ------------------------------------------------------------------------------------------------


def _table(block: Block) -> TableData:
    """The cells: of HTML with their spans, else of the text, where tabs part them and the first row is the head."""
    from docling_core.types.doc import TableCell, TableData

    has_markup = block.markdown.lstrip().lower().startswith("<table")
    rows = _markup_rows(block.markdown) if has_markup else _text_rows(block.text)
    cells: list[Any] = []
    width = 0
    for top, left, height, breadth, text, header in _placed(rows):
        width = max(width, left + breadth)
        cells.append(
            TableCell(
                text=text, row_span=height, col_span=breadth, start_row_offset_idx=top, end_row_offset_idx=top + height,
                start_col_offset_idx=left, end_col_offset_idx=left + breadth, column_header=header,
            )
        )  # fmt: skip
    return TableData(table_cells=cells, num_rows=len(rows), num_cols=width)


_Cell = tuple[str, int, int, bool]  # text, rows, columns, header


def _text_rows(text: str) -> list[list[_Cell]]:
    return [[(cell, 1, 1, n == 0) for cell in row.split("\t")] for n, row in enumerate(text.split("\n"))]


def _placed(rows: list[list[_Cell]]) -> Iterator[tuple[int, int, int, int, str, bool]]:
    """Row, column, rows, columns, text, header of each cell; cells that reach down push those below aside."""
    taken: set[tuple[int, int]] = set()
    for top, row in enumerate(rows):
        left = 0
        for text, height, breadth, header in row:
            while (top, left) in taken:
                left += 1
            height = max(1, min(height, len(rows) - top))
            taken |= {(top + y, left + x) for y in range(height) for x in range(breadth)}
            yield top, left, height, breadth, text, header
            left += breadth


def _markup_rows(markup: str) -> list[list[_Cell]]:
    reader = _Rows()
    reader.feed(markup)
    reader.close()
    return reader.rows


class _Rows(HTMLParser):
    """Rows of cells of one HTML table."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[_Cell]] = []
        self._inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            if not self.rows:
                self.rows.append([])
            spans = {name: int(value) for name, value in attrs if value and re.fullmatch(r"[1-9]\d?", value)}
            self.rows[-1].append(("", spans.get("rowspan", 1), spans.get("colspan", 1), tag == "th"))
            self._inside = True

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside and tag not in ("td", "th", "tr")

    def handle_data(self, data: str) -> None:
        if self._inside:
            text, height, breadth, header = self.rows[-1][-1]
            self.rows[-1][-1] = (" ".join((text + data).split()), height, breadth, header)
