"""Lines to paragraphs, hyphens, lists, headings, code, captions; headers and footers kept out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipeline.furniture import is_page_number
from pipeline.joining import join_lines, vocabulary
from pipeline.lists import marker_of
from pipeline.structure import render_markdown, render_text, structure
from storage.records import Category, Line
from tests.pipeline.pages import PROSE, column, line, page, wrap

BODY = wrap(PROSE, 90)


def categories(lines: list[Line], **more: object) -> list[tuple[str, str]]:
    return [(block.category.value, block.text) for block in structure(page(lines, **more))]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("lines", "joined"),
    [
        (["the func-", "tion of"], "the function of"),
        (["a state-of-the-", "art tool"], "a state-of-the-art tool"),
        (["the 16-", "bit computer"], "the 16-bit computer"),
        (["der Satz von Gauß-", "Bonnet"], "der Satz von Gauß-Bonnet"),
        (["a MIDI-", "based device"], "a MIDI-based device"),
        (["Ein-", "und Ausgabe"], "Ein- und Ausgabe"),
        (["his self-", "esteem"], "his self-esteem"),
        (["an e-", "mail"], "an e-mail"),
        (["they re\u00adad un\u00ad", "til night"], "they read until night"),
        (["the sequence—", "when played"], "the sequence—when played"),
        (["he said —", "and left"], "he said — and left"),
        (["Incomplete/", "Terminated"], "Incomplete/Terminated"),
        (["人人生而自由", "在尊严上"], "人人生而自由在尊严上"),
        (["모든 인간은", "태어날 때부터"], "모든 인간은 태어날 때부터"),
        (["用 Python", "语言"], "用 Python 语言"),
        (["a - ", "b"], "a - b"),
        ([], ""),
        (["", "x", ""], "x"),
    ],
)
def test_lines_are_joined_as_a_reader_would(lines: list[str], joined: str):
    assert join_lines(lines) == joined


def test_hyphens_follow_what_the_page_writes_elsewhere():
    words = vocabulary(["A long-term plan and a database"])
    assert join_lines(["the long-", "term view"], words) == "the long-term view"
    assert join_lines(["the data-", "base"], words) == "the database"


@pytest.mark.parametrize(
    ("text", "marker"),
    [
        ("• one", "•"), ("– one", "–"), ("* one", "*"), ("1. one", "1."), ("a) one", "a)"), ("(iv) one", "(iv)"),
        ("12) one", "12)"), ("-one", None), ("1.5 metres", None), ("Then", None), ("", None), ("•", None),
        ("(see) one", None), ("1234. one", None),
    ],
)  # fmt: skip
def test_list_markers(text: str, marker: str | None):
    found = marker_of(text)
    assert (found.text if found else None) == marker


def test_gap_and_indent_and_short_line_end_a_paragraph():
    first = [
        "Indented first line of a paragraph that goes on in the next line,",
        "which is full as well, up to here",
    ]
    lines = [
        line(first[0], 80, 100),
        line(first[1] + " and yet some more words.", 60, 112),
        line("Another paragraph begins with an indent as the first one did, too,", 80, 124),
        line("and it ends early.", 60, 136),
        line("So this is a third one although it has no indent at all, just a full line", 60, 148),
        line("and one more.", 60, 160),
        line("Behind a gap there is a fourth.", 60, 184),
    ]
    assert len(structure(page(lines))) == 4


def test_ragged_lines_of_an_address_are_kept():
    address = ["Dr. P.N. Cundall,", "Mining Surveys Ltd.,", "Holroyd Road,", "Reading,", "Berks."]
    lines = column(address, 60, 100) + column(BODY, 60, 200)
    blocks = structure(page(lines))
    assert blocks[0].text == "\n".join(address)
    assert blocks[0].markdown == "  \n".join(address)
    assert blocks[1].text == PROSE.strip()


def test_lists_nest_by_indent():
    lines = [
        *column(BODY, 60, 100),
        line("• Fruit", 60, 180),
        line("– apples, which are red or green or yellow and which grow on trees that", 80, 192),
        line("must be pruned", 90, 204),
        line("– pears", 80, 216),
        line("• Bread", 60, 228),
    ]
    text = render_markdown(structure(page(lines)))
    assert text.endswith(
        "- Fruit\n"
        "  - apples, which are red or green or yellow and which grow on trees that must be pruned\n"
        "  - pears\n"
        "- Bread"
    )


def test_numbers_stay_as_printed():
    lines = column(["3. three", "4. four", "a) letter"], 60, 100)
    assert render_markdown(structure(page(lines))) == "3. three\n4. four\n- a) letter"


def test_a_number_inside_a_sentence_begins_no_list():
    lines = column(
        ["The war that had begun so long ago came to its end only in the spring of the year",
         "1945. The people who had lived through it did not speak about it for a long time,"], 60, 100
    )  # fmt: skip
    assert [block.category for block in structure(page(lines))] == [Category.TEXT]


def test_misread_bullets_are_bullets():
    texts = ["¢ Operation is similar to a tape", "e Each of the sequences", "© Optional remote control"]
    lines = [replace(made, confidence=0.9) for made in column(BODY, 60, 60) + column(texts, 60, 160)]
    blocks = structure(page(lines))[-3:]
    assert [block.text for block in blocks] == ["•" + text[1:] for text in texts]
    assert blocks[0].lines[0].text == texts[0]


def test_headings_by_size_and_weight():
    lines = [
        line("A Large Title", 60, 40, 20),
        line("A Chapter", 60, 80, 14),
        *column(BODY, 60, 110),
        line("A bold section", 60, 190, bold=True),
        *column(BODY, 60, 210),
    ]
    blocks = structure(page(lines))
    assert [(block.category.value, block.level) for block in blocks] == [
        ("title", 1), ("section_header", 2), ("text", None), ("section_header", 3), ("text", None),
    ]  # fmt: skip
    assert blocks[1].markdown == "## A Chapter"


def test_a_bold_paragraph_is_no_heading():
    lines = column(BODY, 60, 60) + column(BODY[:4], 60, 160, bold=True) + column(BODY, 60, 300)
    assert {block.category for block in structure(page(lines))} == {Category.TEXT}


def test_code_keeps_its_lines_and_indents():
    source = ["function add(a, b) {", "    return a + b;", "}", "console.log(add(3, 5));"]
    code = [
        line(text.strip(), 60 + 5 * (len(text) - len(text.lstrip())), 160 + 12 * at, mono=True)
        for at, text in enumerate(source)
    ]
    blocks = structure(page(column(BODY, 60, 60) + code + column(BODY, 60, 240)))
    assert blocks[1].category is Category.CODE
    assert blocks[1].text == "\n".join(source)
    assert blocks[1].markdown == "```\n" + "\n".join(source) + "\n```"


def test_captions_and_formulas_are_named():
    lines = [
        *column(BODY, 60, 60),
        line("a² + 8 = 12", 260, 150),
        line("Figure 3: A caption", 200, 190),
        *column(BODY, 60, 230),
    ]
    assert [name for name, _ in categories(lines)] == ["text", "formula", "caption", "text"]


def test_header_footer_and_page_number_are_kept_out_of_the_text():
    lines = [
        line("A Running Title", 60, 30, 8),
        line("iv", 540, 30, 8),
        *column(BODY, 60, 80),
        line("Page 3 of 12", 280, 750, 8),
    ]
    blocks = structure(page(lines))
    assert [block.category.value for block in blocks] == ["page_header", "page_number", "text", "page_number"]
    assert render_text(blocks) == PROSE.strip()
    assert "Running" not in render_markdown(blocks)


def test_a_small_row_at_both_edges_is_a_running_head_close_to_the_text_though():
    body = column(BODY, 60, 52)
    right = max(item.box[2] for item in body)
    head = line("The Journal", 0, 30, 8)
    width = head.box[2] - head.box[0]
    lines = [line("Notes on Paper", 60, 30, 8), line("The Journal", right - width, 30, 8), *body]
    assert [name for name, _ in categories(lines)] == ["page_header", "page_header", "text"]
    large = [line("Notes on Paper", 60, 30), line("The Journal", right - 1.3 * width, 30), *body]
    assert "page_header" not in {name for name, _ in categories(large)}


def test_header_above_a_rule():
    lines = [line("Part 2, Chapter 3", 60, 40), *column(BODY, 60, 80)]
    assert categories(lines, rules=[(60, 56, 552, 57)])[0] == ("page_header", "Part 2, Chapter 3")


@pytest.mark.parametrize(
    "texts", [["Page 0001 of 1200"], ["7"], ["Page 1", "of a very short page"], ["A", "B", "C", "D"]]
)
def test_a_page_of_few_lines_is_all_text(texts: list[str]):
    lines = [line(text, 60, 20 + at * 40, 8) for at, text in enumerate(texts)]
    assert render_text(structure(page(lines))).split() == " ".join(texts).split()


def test_first_and_last_lines_of_the_text_are_no_furniture():
    full = wrap(PROSE * 6, 90)[:38]
    lines = column(full, 60, 30, pitch=1.9)
    assert {name for name, _ in categories(lines)} == {"text"}


def test_title_at_the_top_is_no_header():
    lines = [line("A Title Over a Rule", 60, 40, 18), *column(BODY, 60, 80)]
    assert categories(lines, rules=[(60, 62, 552, 63)])[0][0] == "title"


def test_lines_of_contents_stay_apart():
    entries = [f"{n}.1 Heading number {n} {'.' * 40} {n * 7}" for n in range(1, 8)]
    text = render_text(structure(page(column(entries, 60, 100))))
    assert [part.split()[-1] for part in text.split("\n") if part] == [str(n * 7) for n in range(1, 8)]


def test_paragraph_cut_by_a_column_is_whole_again():
    left, right = wrap(PROSE, 46)[:-4], wrap(PROSE, 46)[-4:] + wrap(PROSE.upper(), 46)
    blocks = structure(page(column(left, 60, 100) + column(right, 320, 100)))
    assert blocks[0].text == PROSE.strip()


def test_confidence_is_the_mean_of_the_lines_by_length():
    lines = [
        replace(line("a" * 30, 60, 100), confidence=0.5),
        replace(line("b" * 10, 60, 112), confidence=0.9),
    ]
    blocks = structure(page(lines))
    assert sum(len(block.lines) for block in blocks) == 2
    whole = [block for block in blocks if len(block.lines) == 2]
    assert whole and whole[0].confidence == pytest.approx(0.6)


def test_small_numbered_lines_below_the_text_are_footnotes():
    lines = [
        *column(BODY * 4, 60, 60),
        line("1 See the report of the office for the year before.", 60, 700, 8),
    ]
    assert categories(lines)[-1] == ("footnote", "1 See the report of the office for the year before.")


def test_typewritten_prose_is_no_code():
    blocks = structure(page(column(BODY, 60, 60, mono=True)))
    assert [(block.category, block.text) for block in blocks] == [(Category.TEXT, PROSE.strip())]


def test_cjk_in_type_of_one_width_is_no_code():
    made = Line("あいうえお", (72, 52, 192, 76), size_pt=24, mono=True)
    assert [block.category for block in structure(page([made]))] == [Category.TEXT]


@pytest.mark.parametrize(
    ("text", "is_number"),
    [
        ("7", True), ("– xii –", True), ("Page 3 of 12", True), ("3/12", True), ("XIV", True), ("Seite 5", True),
        ("[12]", True), ("iiii", False), ("V", False), ("civil", False), ("12345", False), ("3.1", False), ("", False),
        ("A 7", False),
    ],
)  # fmt: skip
def test_page_numbers(text: str, is_number: bool):
    assert is_page_number(text) is is_number


def test_rows_of_the_text_next_to_a_footer_stay_text():
    lines = [
        *column(BODY, 60, 80),
        *(line(text, x, 706) for text, x in (("V", 190), ("Y", 236), ("N", 281), ("Vestigial data", 326))),
        line("Cat. No. 28171E", 60, 745),
        line("2.3.59", 500, 745),
    ]
    blocks = structure(page(lines, rules=[(60, 740, 552, 741)]))
    assert [block.text for block in blocks if block.category is Category.PAGE_FOOTER] == [
        "Cat. No. 28171E",
        "2.3.59",
    ]
    assert "V Y N Vestigial data" in render_text(blocks).replace("\t", " ")
