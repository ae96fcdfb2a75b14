"""Ruled and aligned tables."""

from __future__ import annotations

from dataclasses import replace

from pipeline.structure import render_text, structure
from storage.records import Block, Box, Category, PageText
from tests.pipeline.pages import PROSE, column, line, page, wrap

BODY = wrap(PROSE, 90)
XS = (60, 200, 300, 400)
ROWS = [
    ["Category", "Count", "Share"],
    ["Blind", "5", "34.5%"],
    ["Low vision", "12", "98.3%"],
    ["Other", "3", "n/a"],
]


def only_table(made: PageText) -> Block:
    tables = [block for block in structure(made) if block.category is Category.TABLE]
    assert len(tables) == 1
    return tables[0]


def cells(rows: list[list[str]], top: float = 200, pitch: float = 20) -> list:
    return [
        line(text, XS[column_] + 4, top + row * pitch + 4)
        for row, texts in enumerate(rows)
        for column_, text in enumerate(texts)
        if text
    ]


def grid(rows: int, top: float = 200, pitch: float = 20, left: int = 0, right: int = 3) -> list[Box]:
    across = [(XS[left], top + at * pitch, XS[right], top + at * pitch + 0.5) for at in range(rows + 1)]
    down = [(XS[at], top, XS[at] + 0.5, top + rows * pitch) for at in range(left, right + 1)]
    return [*across, *down]


MARKDOWN = """\
| Category | Count | Share |
|---|---|---|
| Blind | 5 | 34.5% |
| Low vision | 12 | 98.3% |
| Other | 3 | n/a |"""


def test_ruled_table():
    block = only_table(page(column(BODY, 60, 60) + cells(ROWS) + column(BODY, 60, 320), grid(4)))
    assert block.markdown == MARKDOWN
    assert block.text == "\n".join("\t".join(row) for row in ROWS)


def test_aligned_table_without_rules():
    made = page(column(BODY, 60, 60) + cells(ROWS) + column(BODY, 60, 320))
    assert only_table(made).markdown == MARKDOWN
    assert [block.category.value for block in structure(made)] == ["text", "table", "text"]


def test_two_by_two_ruled_table():
    rows = [["a", "b"], ["c", "d"]]
    assert only_table(page(cells(rows), grid(2, right=2))).text == "a\tb\nc\td"


def test_line_over_a_ruled_border_is_cut_there():
    rules = [(60, 200, 300, 200.5), (60, 220, 300, 220.5), (60, 240, 300, 240.5),
             *((x, 200, x + 0.5, 240) for x in (60, 158, 300))]  # fmt: skip
    lines = [line("one two three four five", 70, 204), line("six seven eight nine", 70, 224)]
    table = only_table(page(lines, rules))
    assert table.text == "one two three four\tfive\nsix seven eight\tnine"
    assert [part.text for part in table.lines] == ["one two three four", "five", "six seven eight", "nine"]


def test_cells_of_several_lines_in_a_ruled_table():
    lines = [*cells([["Name", "What it is"]], 200), line("Reed", 64, 224), line("a plant of", 204, 224),
             line("wet places", 204, 236), line("Moss", 64, 254), line("a low plant", 204, 254)]  # fmt: skip
    rules = [(60, y, 300, y + 0.5) for y in (200, 220, 250, 270)] + [
        (x, 200, x + 0.5, 270) for x in (60, 200, 300)
    ]
    assert (
        only_table(page(lines, rules)).text
        == "Name\tWhat it is\nReed\ta plant of wet places\nMoss\ta low plant"
    )


def test_cells_of_several_lines_in_an_aligned_table():
    rows = [["Term", "Meaning"], ["Reed", "a plant of wet places"], ["", "and of roofs"], ["Moss", "a low plant"],
            ["Fern", "a plant without flowers"]]  # fmt: skip
    table = only_table(page(cells(rows, pitch=12)))
    assert "Reed\ta plant of wet places and of roofs" in table.text


def test_header_over_two_columns_names_both():
    lines = [
        line("Group", 64, 214), line("Results", 290, 204), line("Accuracy", 204, 224), line("Time", 304, 224),
        line("Blind", 64, 244), line("34.5%", 204, 244), line("1199", 304, 244),
        line("Deaf", 64, 264), line("98.3%", 204, 264), line("1716", 304, 264),
    ]  # fmt: skip
    rules = [
        (60, 200, 400, 200.5), (200, 220, 400, 220.5), (60, 240, 400, 240.5), (60, 260, 400, 260.5),
        (60, 280, 400, 280.5), (60, 200, 60.5, 280), (200, 200, 200.5, 280), (300, 220, 300.5, 280),
        (400, 200, 400.5, 280),
    ]  # fmt: skip
    table = only_table(page(lines, rules))
    assert table.text.splitlines()[0] == "Group\tResults Accuracy\tResults Time"
    assert sum(part.text == "Results" for part in table.lines) == 1


def test_bars_in_cells_are_escaped():
    rows = [["Operator", "Meaning"], ["a|b", "a or b"], ["a||b", "the same"], ["a&b", "both"]]
    table = only_table(page(cells(rows)))
    assert "| a\\|b | a or b |" in table.markdown


def test_frame_around_text_is_no_table():
    rules = [(50, 50, 560, 50.5), (50, 200, 560, 200.5), (50, 50, 50.5, 200), (560, 50, 560.5, 200)]
    assert {block.category for block in structure(page(column(BODY, 60, 60), rules))} == {Category.TEXT}


def test_boxes_of_a_form_are_read_one_after_the_other():
    rules = [
        (50, 100, 450, 100.5), (50, 140, 450, 140.5), (50, 180, 450, 180.5), (50, 220, 450, 220.5),
        (50, 100, 50.5, 220), (450, 100, 450.5, 220), (180, 100, 180.5, 140), (300, 140, 300.5, 180),
        (250, 180, 250.5, 220),
    ]  # fmt: skip
    lines = [
        line("Name", 55, 104), line("Miller", 55, 120), line("Birth", 185, 104), line("1943", 185, 120),
        line("Street", 55, 144), line("Main St 1", 55, 160), line("Town", 305, 144), line("Lee", 305, 160),
        line("Tax", 55, 184), line("12", 55, 200), line("Phone", 255, 184), line("555", 255, 200),
    ]  # fmt: skip
    text = " ".join(render_text(structure(page(lines, rules))).split())
    assert text == "Name Miller Birth 1943 Street Main St 1 Town Lee Tax 12 Phone 555"


def test_justified_columns_are_no_table():
    left = wrap(PROSE + PROSE, 46)
    made = page(column(left, 60, 100) + column(left, 320, 100))
    assert {block.category for block in structure(made)} == {Category.TEXT}


def test_bullets_set_far_from_their_text_are_a_list():
    lines = [part for at, text in enumerate(["one of them", "two of them", "three", "four"])
             for part in (line("•", 60, 100 + 14 * at), line(text, 90, 100 + 14 * at))]  # fmt: skip
    assert {block.category for block in structure(page(lines))} == {Category.LIST_ITEM}


def test_underlined_words_make_no_table():
    rules = [
        (60 + 50 * at, 72 + 12 * row, 100 + 50 * at, 72.5 + 12 * row) for at in range(5) for row in range(5)
    ]
    assert {block.category for block in structure(page(column(BODY, 60, 62), rules))} == {Category.TEXT}


def test_a_coloured_header_taken_for_a_picture_is_the_first_row():
    lines = [
        line("Disability", 64, 174), line("Category", 64, 186), line("Results", 285, 166), line("Accuracy", 204, 182),
        line("Time to", 304, 178), line("complete", 304, 189), *cells(ROWS[1:]),
    ]  # fmt: skip
    made = replace(page(lines, grid(3)), pictures=((59, 162, 402, 201),))
    blocks = structure(made)
    assert [block.category.value for block in blocks] == ["table"]
    assert blocks[0].text.splitlines()[0] == "Disability Category\tResults Accuracy\tResults Time to complete"
