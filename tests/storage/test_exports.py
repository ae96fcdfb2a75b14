"""What is exported is what was read, in forms that the readers of those forms take."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import EngineUnavailableError
from storage.exports import FORMATS
from storage.exports import docling as docling_export
from storage.records import Block, Category, Direction, Line, PageReading, StopReason, Word
from storage.results import DocumentResult, FailedPage

XHTML = "{http://www.w3.org/1999/xhtml}"
BOX = (72.0, 72.0, 216.0, 84.0)
HTML_TABLE = (
    "<table><tr><th>Year</th><th colspan=2>Ships &amp; boats</th></tr>"
    "<tr><td rowspan=2>1871</td><td>1</td><td>2</td></tr><tr><td>3</td><td>4</td></tr></table>"
)


def line(text: str, box: tuple[float, float, float, float] = BOX, **fields: object) -> Line:
    words = text.split()
    step = (box[2] - box[0]) / max(1, len(words))
    found = tuple(
        Word(word, (box[0] + n * step, box[1], box[0] + (n + 0.9) * step, box[3]), 0.5)
        for n, word in enumerate(words)
    )
    return Line(text, box, found, 10.0, **fields)  # type: ignore[arg-type]


def block(category: Category, text: str, markdown: str | None = None, **fields: object) -> Block:
    lines = fields.pop("lines", (line(text),))
    return Block(category, BOX, text, text if markdown is None else markdown, lines=lines, **fields)  # type: ignore[arg-type]


def page(number: int, *blocks: Block, **fields: object) -> PageReading:
    return PageReading(
        page=number, width_pt=595.0, height_pt=842.0, blocks=blocks, text="\n\n".join(b.text for b in blocks),
        markdown="\n\n".join(b.markdown for b in blocks), stop_reason=StopReason.COMPLETE, source="engine",
        **fields,  # type: ignore[arg-type]
    )  # fmt: skip


def document(*pages: PageReading | FailedPage, count: int | None = None) -> DocumentResult:
    many = len(pages) if count is None else count
    return DocumentResult(1, "ab" * 32, 10, "application/pdf", "A title", many, iter(pages))


FIRST = page(
    1,
    block(Category.TITLE, "Harbour & ledgers"),
    block(Category.SECTION_HEADER, "1 <Introduction>", "### 1 <Introduction>", level=3),
    block(Category.LIST_ITEM, "1. First"),
    block(Category.LIST_ITEM, "• Second", "- Second"),
    block(Category.TABLE, "a\tb\n1\t2", "| a | b |\n|---|---|\n| 1 | 2 |"),
    block(Category.TABLE, "Year\tShips", HTML_TABLE),
    block(Category.FORMULA, "E = mc2", "$$E = mc^2$$"),
    block(Category.CODE, "x = 1", "```\nx = 1\n```"),
    block(Category.PICTURE, ""),
    block(Category.PAGE_NUMBER, "7"),
    width_px=1653,
    height_px=2339,
)
SECOND = page(2, block(Category.TEXT, "words without boxes\non two lines", lines=()))
FAILED = FailedPage(3, "engine", "it failed", "try another")


def exported(kind: str, *pages: PageReading | FailedPage, **options: int) -> dict[str, str]:
    result = document(*pages, **options)
    return dict(FORMATS[kind].write(result, "report.pdf", "/scans/report.pdf"))


def test_text_has_a_form_feed_before_each_page_but_the_first() -> None:
    texts = exported("text", FIRST, FAILED, page(4, block(Category.TEXT, "last\fone")), count=4)[
        ".txt"
    ].split("\f")
    assert [len(texts), texts[1], texts[2], texts[3]] == [4, "", "", "last one\n"]
    assert texts[0].startswith("Harbour & ledgers")


def test_jsonl_has_a_page_per_line() -> None:
    rows = [json.loads(row) for row in exported("jsonl", FIRST, SECOND, FAILED)[".jsonl"].splitlines()]
    assert [(row["page"], row["path"], row["pages"]) for row in rows] == [
        (n, "/scans/report.pdf", 3) for n in (1, 2, 3)
    ]
    assert rows[2]["error"]["code"] == "engine" and rows[1]["text"] == SECOND.text


# --- hOCR --------------------------------------------------------------------------------------------------


def words_of(hocr: str) -> Iterator[tuple[str, list[int]]]:
    for element in ElementTree.fromstring(hocr.encode()).iter(XHTML + "span"):
        if element.get("class") == "ocrx_word":
            title = element.get("title") or ""
            yield element.text or "", [int(n) for n in re.findall(r"\d+", title.partition(";")[0])]


def test_hocr_has_the_words_with_boxes_in_pixels_a_file_per_page() -> None:
    files = exported("hocr", FIRST, SECOND, FAILED)
    assert list(files) == [".0001.hocr", ".0002.hocr", ".0003.hocr"]
    assert list(exported("hocr", SECOND)) == [".hocr"]
    found = list(words_of(files[".0001.hocr"]))
    assert [word for word, _ in found[:5]] == ["Harbour", "&", "ledgers", "1", "<Introduction>"]
    scale = 1653 / 595
    assert found[0][1] == [200, 200, int(72 * scale + 144 / 3 * 0.9 * scale) + 1, 234]
    assert 'bbox 0 0 1653 2339; ppageno 0; scan_res 200 200"' in files[".0001.hocr"]
    assert list(words_of(files[".0003.hocr"])) == []


def test_words_without_boxes_are_spread_over_their_block() -> None:
    found = list(words_of(exported("hocr", SECOND)[".hocr"]))
    assert [word for word, _ in found] == ["words", "without", "boxes", "on", "two", "lines"]
    boxes = [box for _, box in found]
    assert boxes[0][0] == boxes[3][0] == 200 and boxes[2][2] == boxes[5][2] == 600
    assert boxes[0][3] <= boxes[3][1] + 1
    assert "x_wconf 0" in exported("hocr", SECOND)[".hocr"]


def test_direction_and_angle_are_told() -> None:
    odd = page(1, block(Category.TEXT, "שלום", lines=(line("שלום", direction=Direction.RTL, angle=90.0),)))
    hocr = exported("hocr", odd)[".hocr"]
    assert 'dir="rtl"' in hocr and "textangle 270.0" in hocr


coordinates = st.floats(-50, 900, allow_nan=False)


@given(
    text=st.text(max_size=20), corners=st.tuples(*[coordinates] * 4), name=st.text(min_size=1, max_size=10)
)
def test_any_text_box_and_name_is_well_formed_and_inside_the_page(
    text: str, corners: tuple[float, float, float, float], name: str
) -> None:
    left, right = sorted(corners[::2])
    top, bottom = sorted(corners[1::2])
    box = (left, top, right, bottom)
    blocks = (
        Block(Category.TEXT, box, text, text, lines=(Line(text, box, (Word(text, box, 2.0),)),)),
        Block(Category.TEXT, box, text, text),
    )
    [(_, hocr)] = FORMATS["hocr"].write(document(page(1, *blocks)), name, "/x")
    for _, (x0, y0, x1, y1) in words_of(hocr):
        assert 0 <= x0 < x1 <= 1653 and 0 <= y0 < y1 <= 2339


@pytest.mark.skipif(find_spec("ocrmypdf") is None, reason="OCRmyPDF is not installed")
def test_ocrmypdf_reads_the_words_and_makes_a_searchable_pdf(tmp_path: Path) -> None:
    import pypdfium2
    from ocrmypdf.font import MultiFontManager
    from ocrmypdf.fpdf_renderer import Fpdf2PdfRenderer
    from ocrmypdf.hocrtransform import HocrParser

    (tmp_path / "page.hocr").write_text(exported("hocr", FIRST)[".hocr"], "utf-8")
    parsed = HocrParser(tmp_path / "page.hocr").parse()
    assert [word.text for word in parsed.words][:3] == ["Harbour", "&", "ledgers"]
    assert (parsed.bbox.right, parsed.bbox.bottom) == (1653, 2339)
    renderer = Fpdf2PdfRenderer(parsed, 200.0, MultiFontManager(), invisible_text=True)
    renderer.render(tmp_path / "page.pdf")
    pdf = pypdfium2.PdfDocument(tmp_path / "page.pdf")
    assert "ledgers" in pdf[0].get_textpage().get_text_range()
    pdf.close()


# --- docling -----------------------------------------------------------------------------------------------

needs_docling = pytest.mark.skipif(
    find_spec("docling_core") is None, reason="the extra `docling` is not installed"
)


def test_without_the_extra_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "docling_core.types.doc", None)
    with pytest.raises(EngineUnavailableError, match=r"\.\[docling\]"):
        exported("docling", FIRST)


@needs_docling
def test_docling_loads_what_was_exported_and_finds_everything_in_it() -> None:
    from docling_core.types.doc import DoclingDocument

    text = exported("docling", FIRST, SECOND, FAILED)[".docling.json"]
    loaded = DoclingDocument.model_validate_json(text)
    assert sorted(loaded.pages) == [1, 2] and loaded.pages[1].size.width == 595.0
    labels = [item.label.value for item, _ in loaded.iterate_items()]
    assert labels == [
        "title", "section_header", "list_item", "list_item", "table", "table", "formula", "code", "picture", "text",
    ]  # fmt: skip
    assert loaded.texts[0].prov[0].bbox.t == 72.0
    items = [item for item in loaded.texts if item.label == "list_item"]
    assert [(item.text, item.marker, item.enumerated) for item in items] == [
        ("First", "1.", True),
        ("Second", "•", False),
    ]
    assert [item.text for item in loaded.texts if item.label in ("formula", "code")] == ["E = mc^2", "x = 1"]
    [furniture] = [item for item in loaded.texts if item.content_layer == "furniture"]
    assert (furniture.text, furniture.label) == ("7", "page_header")
    assert loaded.origin is not None and loaded.origin.binary_hash == int("ab" * 8, 16)
    markdown = loaded.export_to_markdown()
    assert "# Harbour &amp; ledgers" in markdown and "### 1 " in markdown and "|   a |   b |" in markdown


@needs_docling
def test_tables_keep_their_cells_and_spans() -> None:
    loaded = docling_export.convert(document(FIRST), "report.pdf")
    plain, spanned = loaded.tables
    assert [[cell.text for cell in row] for row in plain.data.grid] == [["a", "b"], ["1", "2"]]
    assert [cell.column_header for cell in plain.data.table_cells] == [True, True, False, False]
    assert [[cell.text for cell in row] for row in spanned.data.grid] == [
        ["Year", "Ships & boats", "Ships & boats"], ["1871", "1", "2"], ["1871", "3", "4"],
    ]  # fmt: skip
