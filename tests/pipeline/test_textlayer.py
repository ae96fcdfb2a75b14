"""The text layer as a whole: annotations, rules, pictures and links, and every real file there is."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline import structure, textlayer
from pipeline.source import open_source
from storage.errors import OcrdError
from storage.records import LayerVerdict
from tests.elsewhere import NO_CORPUS, corpus
from tests.pdf_factory import Page, pdf, picture, rule, scan, text
from tests.pipeline.layers import corpus_rows, read, texts

ROWS = {name: row for name, row in corpus_rows().items() if name.endswith(".pdf")}
# Born digital: the layer is the text of these pages. All other PDFs of the corpus are scans, broken or empty.
GOOD = [
    "minimal-document",
    "pdflatex-4-pages",
    "GeoTopo-komprimiert",
    "multicolumn",
    "code_and_formula",
    "edgar",
    "pdflatex-forms",
    "pdf2image-memory-error-test-400p",
    "form_dd0293",
    "xfa_issue14315",
    "invisible_text_layer",
    "sandwich",
    "rotation",
    "hello_world_rotated",
    "habibi-rotated",
    "inherited-rotate",
    "rotated-page-90",
    "boxes",
    "boundingBox_invalid",
    "copy_paste_ligatures",
    "G_200inch",
    "libreoffice-writer-password",
    "encrypted",
    "aes-256-r6",
    "enc-R3,V2,O=master",
    "issue6010_2",
    "auth-event-ef-open",
    "helloworld-bad",
    "xref_command_missing",
    "zen_of_python_corrupted",
    "leading-junk",
    "pages-loop",
    "Pages-tree-refs",
    "G_incremental_2pages",
    "G_incremental_prefix_1page",
    "G_no_eof_extra_tail",
    "vertical",
    "noembed-sjis",
    "issue11656",
    "right_to_left_01",
    "issue13226",
    "with-attachment",
    "attachments",
    "G_portfolio",
    "annotated_pdf",
    "annotation-freetext",
    "blendmode",
    "G_1200pages",
]
BAD = [
    "truetype_font_nomapping",
    "type3_font_nomapping",
    "G_wrong_hidden_layer",
    "graph_ocred",
]
ABSENT = [
    "table-multi-row-column-cells",
    "acroform",
    "livecycle",
    "c02-22",
    "ccitt",
    "jbig2",
    "lichtenstein",
    "cardinal",
    "rotated_skew",
    "francais",
    "2400dpi",
    "loremipsum-flat",
    "vector",
    "sample_with_rotation_mismatch",
    "nemotron_multipage",
    "enormous",
    "G_cjk_image",
    "empty#hash",
    "blank",
    "no_contents",
]


# --- the corpus ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", GOOD)
def test_born_digital_page_is_good_and_says_what_it_must(name: str, tmp_path: Path) -> None:
    path = corpus(f"{name}.pdf")
    expected = ROWS[path.name].get("text", [])
    for number in {1, *(page for page, _ in expected)}:
        layer = read(path, tmp_path, number)
        assert layer.verdict is LayerVerdict.GOOD, layer.reason
        # A sentence may go on in the next line, which structure puts together.
        flowing = " ".join(" ".join(texts(layer)).split())
        for page, string in expected:
            assert page != number or string in flowing
        for page, *ordered in ROWS[path.name].get("order", []):
            places = [flowing.find(string) for string in ordered if page == number]
            assert -1 not in places
            assert places == sorted(places)


@pytest.mark.parametrize("name", BAD)
def test_false_layer_is_bad(name: str, tmp_path: Path) -> None:
    layer = read(corpus(f"{name}.pdf"), tmp_path)
    assert layer.verdict is LayerVerdict.BAD
    assert layer.reason


@pytest.mark.parametrize("name", ABSENT)
def test_page_without_text_has_no_layer(name: str, tmp_path: Path) -> None:
    assert read(corpus(f"{name}.pdf"), tmp_path).verdict is LayerVerdict.ABSENT


@pytest.mark.skipif(not ROWS, reason=NO_CORPUS)
def test_every_pdf_of_the_corpus_that_opens_gets_a_verdict(tmp_path: Path) -> None:
    judged = 0
    for name in ROWS:
        try:
            layer = read(corpus(name), tmp_path)
        except OcrdError:
            continue
        judged += 1
        assert layer.reason
        assert (layer.text is None) == (not texts(layer))
    assert judged > 60


def test_turned_pages_read_in_their_own_direction(tmp_path: Path) -> None:
    found = texts(read(corpus("rotated-page-90.pdf"), tmp_path))
    assert found == ["Rotated page fixture", "Second line of text here", "Hello World Test Text"]


# --- annotations -----------------------------------------------------------------------------------------


def test_text_of_a_free_text_note_is_read(tmp_path: Path) -> None:
    found = texts(read(corpus("annotation-freetext.pdf"), tmp_path))
    assert "FreeText content" in found


def test_value_of_a_form_field_is_read_where_it_is_drawn(tmp_path: Path) -> None:
    layer = read(filled_form(), tmp_path)
    assert texts(layer) == ["Name: Ada Lovelace"]
    assert layer.text is not None
    left, top, right, bottom = layer.text.lines[0].words[1].box
    assert 72 <= left < right <= 300
    assert 172 <= top < bottom <= 192


def test_hidden_form_field_is_not(tmp_path: Path) -> None:
    assert texts(read(filled_form(flags=2), tmp_path)) == ["Name:"]


def test_reading_annotations_leaves_the_page_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "form.pdf"
    path.write_bytes(filled_form())
    with open_source(path) as source, source.page(1) as page:
        first = textlayer.read_text_layer(page)
        assert textlayer.read_text_layer(page) == first


def filled_form(flags: int = 4) -> bytes:
    appearance = "BT /Helv 12 Tf 2 5 Td (Ada Lovelace) Tj ET"
    form = (
        "<</Type /XObject /Subtype /Form /BBox [0 0 228 20] /Resources <</Font <</Helv <</Type /Font /Subtype /Type1"
        f" /BaseFont /Helvetica>>>>>> /Length {len(appearance)}>> stream\n{appearance}\nendstream"
    )
    widget = (
        f"<</Type /Annot /Subtype /Widget /FT /Tx /T (name) /V (Ada Lovelace) /F {flags} /Rect [72 600 300 620]"
        " /AP <</N {form}>>>>"
    )
    return pdf(Page(text("Name:", 30, 605), annotations=[widget], forms=[form]))


def test_links_are_kept_with_their_area(tmp_path: Path) -> None:
    link = (
        "<</Type /Annot /Subtype /Link /Rect [72 695 172 715] /A <</S /URI /URI (https://example.org/a)>>>>"
    )
    layer = read(pdf(Page(text("a link to follow", 72, 700), annotations=[link])), tmp_path)
    assert layer.text is not None
    assert layer.text.links == (((72, 77, 172, 97), "https://example.org/a"),)


# --- rules and pictures ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "drawn",
    [
        rule(72, 600, 300, 600),  # a stroke
        "72 599.5 228 1 re f\n",  # a thin rectangle
        "q 1 0 0 1 0 100 cm 72 500 m 300 500 l S Q\n",  # moved by a matrix
    ],
)
def test_ruled_line_is_a_thin_box(tmp_path: Path, drawn: str) -> None:
    layer = read(pdf(Page(text("under a rule", 72, 580) + drawn)), tmp_path)
    assert layer.text is not None
    ((left, top, right, bottom),) = layer.text.rules
    assert (left, right) == (pytest.approx(72, abs=1), pytest.approx(300, abs=1))
    assert top == pytest.approx(192, abs=1.5)
    assert bottom - top <= 2.6


def test_stroked_box_has_four_sides_and_a_filled_one_none(tmp_path: Path) -> None:
    content = text("a cell", 80, 605) + "72 600 100 20 re S\n" + "0.9 g 72 500 100 20 re f\n"
    layer = read(pdf(Page(content)), tmp_path)
    assert layer.text is not None
    assert len(layer.text.rules) == 4


def test_curves_white_lines_and_short_strokes_are_no_rules(tmp_path: Path) -> None:
    content = text("text", 72, 700) + "100 100 m 150 200 250 200 300 100 c S\n" + "1 G 72 600 m 300 600 l S\n"
    layer = read(pdf(Page(content + "0 G 72 500 m 76 500 l S\n")), tmp_path)
    assert layer.text is not None
    assert layer.text.rules == ()


def test_pictures_are_boxes_clipped_to_the_page(tmp_path: Path) -> None:
    content = text("text beside the picture", 72, 700) + picture(0, 500, 100, 300, 50)
    layer = read(pdf(Page(content, images=[scan([], 30, 30)])), tmp_path)
    assert layer.text is not None
    assert layer.text.pictures == ((500, 642, 612, 692),)


def test_turned_page_has_turned_rules(tmp_path: Path) -> None:
    layer = read(pdf(Page(text("text", 72, 700) + rule(72, 600, 300, 600), rotate=90)), tmp_path)
    assert layer.text is not None
    ((left, top, right, bottom),) = layer.text.rules
    assert right - left <= 2.6
    assert (top, bottom) == (pytest.approx(72, abs=1), pytest.approx(300, abs=1))
    assert left == pytest.approx(600, abs=1.5)


# --- the rest --------------------------------------------------------------------------------------------


def test_picture_files_have_no_layer(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    scan([("printed", 20, 20, 12)], 100, 50).save(path)
    assert read(path, tmp_path).verdict is LayerVerdict.ABSENT


def test_same_page_gives_the_same_layer_again(tmp_path: Path) -> None:
    data = pdf(Page("".join(text(f"line number {i}", 72, 700 - 14 * i) for i in range(20))))
    assert read(data, tmp_path) == read(data, tmp_path)


def test_handles_are_closed(tmp_path: Path) -> None:
    # PDFium would crash or leak if a text page outlived its page: many pages, one after the other.
    path = tmp_path / "many.pdf"
    path.write_bytes(pdf(*(Page(text(f"page {i}", 72, 700)) for i in range(50))))
    with open_source(path) as source:
        for number in range(1, 51):
            with source.page(number) as page:
                assert texts(textlayer.read_text_layer(page)) == [f"page {number - 1}"]


@pytest.mark.parametrize("rotate", [0, 90, 180, 270])
def test_turned_page_is_read_from_its_first_line_to_its_last(tmp_path: Path, rotate: int) -> None:
    words = ["first", "second", "third", "fourth"]
    content = "".join(text(f"the {word} line of it all", 72, 700 - 14 * i) for i, word in enumerate(words))
    layer = read(pdf(Page(content, rotate=rotate)), tmp_path)
    assert layer.text is not None
    read_out = structure.render_text(structure.structure(layer.text))
    places = [read_out.find(word) for word in words]
    assert places == sorted(places)
    assert -1 not in places
