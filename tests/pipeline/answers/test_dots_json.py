"""dots.ocr answers: every complete cell survives, with its box, whatever is wrong around it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.answers.cells import AnswerSpace
from pipeline.answers.dots_json import CATEGORIES, CellScanner, parse
from storage.records import Category

FRAME = AnswerSpace(1000, 2000, 500, 1000)
ALPHA = {"bbox": [10, 20, 110, 40], "category": "Text", "text": "alpha"}
FORMULA = {"bbox": [10, 60, 110, 90], "category": "Formula", "text": r"\frac{a}{b} + {x}{y}"}
BETA = {"bbox": [10, 120, 110, 140], "category": "Text", "text": 'beta "quoted" } ]'}
CELLS = [ALPHA, FORMULA, BETA]


def texts(answer: str) -> list[str]:
    return [block.text for block in parse(answer, FRAME).blocks]


def whole() -> str:
    return json.dumps(CELLS)


EXPECTED = ["alpha", r"\frac{a}{b} + {x}{y}", 'beta "quoted" } ]']


# The four inputs that break the public cleaner (studio-dots-ai/dots.ocr, dots_ocr/utils/output_cleaner.py).
@pytest.mark.parametrize(
    "answer",
    [
        whole(),
        json.dumps(CELLS, indent=1),
        whole()[:-1],  # the array is not closed
        json.dumps([ALPHA, FORMULA, FORMULA, BETA])[:-1],  # and a cell stands twice
        whole() + "\nDone.",  # words after it
        f"```json\n{whole()}\n```",  # a fence around it
        "Here is the layout:\n" + whole(),
        json.dumps(ALPHA) + json.dumps(FORMULA) + json.dumps(BETA),  # no array at all
    ],
)
def test_every_cell_survives(answer: str) -> None:
    assert texts(answer) == EXPECTED


def test_a_cell_cut_short_keeps_its_box_and_what_there_is_of_its_text() -> None:
    cut = whole()[: whole().index("quoted") + 3]
    answer = parse(cut, FRAME)
    assert [b.text for b in answer.blocks] == ["alpha", EXPECTED[1], 'beta "quo']
    assert answer.blocks[-1].box == (5, 60, 55, 70)
    assert not answer.whole


def test_whole_answers_say_so() -> None:
    assert parse(whole(), FRAME).whole
    assert not parse(whole()[:-1], FRAME).whole


def test_an_empty_array_is_a_blank_page_and_nothing_is_not() -> None:
    for answer in ("[]", " [ ]\n", "```json\n[]\n```"):
        assert parse(answer, FRAME).blank
    for answer in ("", "[", "sorry"):
        assert not parse(answer, FRAME).blank
        assert parse(answer, FRAME).blocks == ()


def test_latex_with_single_backslashes_is_read_as_written() -> None:
    answer = r'[{"bbox": [1, 2, 3, 4], "category": "Formula", "text": "\sum_{i} \alpha \"q\""}]'
    assert texts(answer) == [r'\sum_{i} \alpha "q"']


def test_a_box_of_three_numbers_loses_the_box_not_the_text() -> None:
    (block,) = parse('[{"bbox": [1, 2, 3], "category": "Text", "text": "kept"}]', FRAME).blocks
    assert (block.text, block.box) == ("kept", FRAME.whole)


def test_equal_text_in_another_place_is_no_repeat() -> None:
    other = {**ALPHA, "bbox": [10, 500, 110, 520]}
    answer = parse(json.dumps([ALPHA, other, ALPHA]), FRAME)
    assert len(answer.blocks) == 2
    assert answer.dropped == ("1 repeated cells",)


def test_headings_pictures_and_tables_become_what_they_are() -> None:
    cells = [
        {"bbox": [0, 0, 9, 9], "category": "Title", "text": "# On Tides"},
        {"bbox": [0, 0, 9, 9], "category": "Section-header", "text": "### **Spring** tides"},
        {"bbox": [0, 0, 9, 9], "category": "Picture"},
        {
            "bbox": [0, 0, 9, 9],
            "category": "Table",
            "text": "<table><tr><td>a|b</td><td>1</td></tr><tr><td>c</td><td>2</td></tr></table>",
        },
        {
            "bbox": [0, 0, 9, 9],
            "category": "Table",
            "text": '<table onclick="x"><tr><td colspan="2">a</td></tr></table>',
        },
        {"bbox": [0, 0, 9, 9], "category": "Formula", "text": "$$ E = mc^2 $$"},
    ]
    title, section, picture, table, spanned, formula = parse(json.dumps(cells), FRAME).blocks
    assert (title.category, title.level, title.text) == (Category.TITLE, 1, "On Tides")
    assert (section.level, section.text, section.markdown) == (3, "Spring tides", "### **Spring** tides")
    assert (picture.category, picture.text) == (Category.PICTURE, "")
    assert table.markdown == "| a\\|b | 1 |\n| --- | --- |\n| c | 2 |"
    assert table.text == "a|b\t1\nc\t2"
    assert spanned.markdown == '<table>\n<tr><td colspan="2">a</td></tr>\n</table>'
    assert (formula.text, formula.markdown) == ("E = mc^2", "$$\nE = mc^2\n$$")


TEXT = st.text(max_size=30)
CELL = st.fixed_dictionaries(
    {
        "bbox": st.lists(st.integers(0, 2000), min_size=4, max_size=4),
        "category": st.sampled_from(sorted(CATEGORIES)),
        "text": TEXT,
    }
)


@given(st.lists(CELL, max_size=6), st.booleans(), st.data())
def test_cells_come_the_same_however_the_answer_is_cut_into_pieces(
    cells: list[dict[str, object]], ascii_only: bool, data: st.DataObject
) -> None:
    answer = json.dumps(cells, ensure_ascii=ascii_only)
    scanner = CellScanner()
    found = []
    at = 0
    while at < len(answer):
        step = data.draw(st.integers(1, 40))
        found += list(scanner.feed(answer[at : at + step]))
        at += step
    assert [(c.label, c.text) for c in found] == [(c["category"], c["text"]) for c in cells]
    assert scanner.rest() is None


@given(st.lists(CELL, min_size=1, max_size=5), st.data())
def test_an_answer_cut_anywhere_keeps_all_cells_before_the_cut(
    cells: list[dict[str, object]], data: st.DataObject
) -> None:
    answer = json.dumps(cells)
    cut = data.draw(st.integers(0, len(answer)))
    complete = list(CellScanner().feed(answer[:cut]))
    assert [(c.label, c.text) for c in complete] == [
        (c["category"], c["text"]) for c in cells[: len(complete)]
    ]
    assert parse(answer[:cut], FRAME) is not None


@given(
    st.tuples(*[st.floats(0, 1) for _ in range(4)]),
    st.integers(28, 6000), st.integers(28, 6000), st.floats(10, 15000), st.floats(10, 15000),
)  # fmt: skip
def test_a_box_to_the_model_and_back_is_within_a_pixel(
    part: tuple[float, ...], width: int, height: int, width_pt: float, height_pt: float
) -> None:
    frame = AnswerSpace(width, height, width_pt, height_pt)
    left, right = sorted((part[0] * width_pt, part[2] * width_pt))
    top, bottom = sorted((part[1] * height_pt, part[3] * height_pt))
    model = [int(v) for v in frame.to_model((left, top, right, bottom))]  # models write whole pixels
    back = frame.to_page(model)
    for original, found, scale in zip(
        (left, top, right, bottom), back, (width / width_pt, height / height_pt) * 2, strict=True
    ):
        assert abs(original - found) * scale <= 1.0 + 1e-6
