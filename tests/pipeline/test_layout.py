"""Reading order over columns, boxes beside the text, spanning headings."""

from __future__ import annotations

import random

import pytest

from pipeline.structure import render_text, structure
from storage.records import Direction, Line, PageText
from tests.pipeline.pages import PROSE, column, line, page, vertical, wrap

LEFT = wrap(PROSE + PROSE, 46)
RIGHT = [text.upper() for text in LEFT]


def test_left_column_comes_before_right():
    blocks = structure(page(column(LEFT, 60, 100) + column(RIGHT, 320, 100)))
    text = render_text(blocks)
    assert text.index("second time") < text.index("THE RULES")
    assert " ".join(text.split()) == " ".join((PROSE + PROSE + PROSE.upper() + PROSE.upper()).split())


def test_columns_whose_lines_do_not_align_are_still_columns():
    text = render_text(structure(page(column(LEFT, 60, 100) + column(RIGHT, 320, 105.3, pitch=1.25))))
    assert text.index("second time") < text.index("THE RULES")


def test_gutter_as_narrow_as_tex_sets_it():
    wide = max(len(text) for text in LEFT) * 5.0
    text = render_text(structure(page(column(LEFT, 60, 100) + column(RIGHT, 60 + wide + 10, 100))))
    assert text.index("second time") < text.index("THE RULES")


def test_three_columns():
    thirds = [wrap(f"{word} {PROSE}", 30) for word in ("First", "Second", "Third")]
    lines = [made for at, texts in enumerate(thirds) for made in column(texts, 40 + at * 180, 100)]
    text = render_text(structure(page(lines)))
    assert text.index("First") < text.index("Second The") < text.index("Third The")


def test_heading_over_both_columns_parts_them():
    lines = [
        *column(LEFT[:10], 60, 100),
        *column(RIGHT[:10], 320, 100),
        line("A Heading Over Both Columns of This Page", 120, 250, 16),
        *column(LEFT[10:], 60, 290),
        *column(RIGHT[10:], 320, 290),
    ]
    text = render_text(structure(page(lines)))
    order = [
        text.index(part) for part in (LEFT[0][:20], RIGHT[0][:20], "A Heading", LEFT[10][:20], RIGHT[10][:20])
    ]
    assert order == sorted(order)


def test_box_beside_text_is_not_mixed_into_it():
    full = wrap(PROSE, 96)
    lines = [
        line("An Article", 60, 60, 24),
        *column(LEFT, 60, 100),
        *column(["Name", "Reign", "Born", "Died", "House"], 320, 110, pitch=2),
        *column(["Edgar", "959 to 975", "943", "975", "Wessex"], 420, 110, pitch=2),
        *column(full, 60, 100 + 12 * len(LEFT)),
    ]
    blocks = structure(page(lines))
    running = render_text([block for block in blocks if block.category != "table"])
    assert " ".join((PROSE + PROSE).split()) in " ".join(running.split())
    assert any(block.category == "table" and "Reign\t959 to 975" in block.text for block in blocks)


def test_short_heading_below_columns_goes_with_what_follows():
    lines = [
        *column(LEFT, 60, 100),
        *column(RIGHT, 320, 100),
        line("More", 60, 100 + 12 * len(LEFT) + 14, 10),
        *column(wrap(PROSE, 96), 60, 100 + 12 * len(LEFT) + 28),
    ]
    text = render_text(structure(page(lines)))
    assert text.index("SECOND TIME") < text.index("More")


def test_unbalanced_columns_read_the_left_one_to_its_end():
    lines = [*column(LEFT, 60, 100), *column(RIGHT[:6], 320, 100)]
    text = render_text(structure(page(lines)))
    assert text.index(LEFT[-1][-15:]) < text.index(RIGHT[0][:15])


def mirrored(lines: list[Line], width: float = 612) -> list[Line]:
    out = []
    for made in lines:
        x0, y0, x1, y1 = made.box
        out.append(Line(made.text, (width - x1, y0, width - x0, y1), size_pt=10, direction=Direction.RTL))
    return out


def test_right_to_left_pages_begin_with_the_right_column():
    text = render_text(structure(page(mirrored(column(LEFT, 60, 100) + column(RIGHT, 320, 100)))))
    assert " ".join(text.split()).startswith(" ".join(LEFT)[:60])
    assert text.index("second time") < text.index("THE RULES")


def test_vertical_columns_run_from_right_to_left():
    lines = [vertical("一二三四五六七八九十", 500 - at * 20, 80) for at in range(4)]
    lines = [Line("始" + made.text if not at else made.text, made.box, size_pt=12, direction=Direction.TTB)
             for at, made in enumerate(lines)]  # fmt: skip
    lines.append(vertical("終", 500 - 4 * 20, 80))
    text = render_text(structure(page(list(reversed(lines)))))
    assert text == "始" + "一二三四五六七八九十" * 4 + "終"


def test_label_and_value_of_a_form_stay_together():
    lines = [line("Our Ref. 350/PJC/EAC", 60, 100), line("18th January, 1972.", 420, 100)]
    assert render_text(structure(page(lines))) == "Our Ref. 350/PJC/EAC 18th January, 1972."


@pytest.mark.parametrize("seed", range(5))
def test_order_of_the_input_does_not_matter(seed: int):
    made = page(column(LEFT, 60, 100) + column(RIGHT, 320, 100) + [line("A Title", 200, 40, 20)])
    shuffled = list(made.lines)
    random.Random(seed).shuffle(shuffled)
    again = PageText(made.width_pt, made.height_pt, tuple(shuffled))
    assert structure(again) == structure(made)


def test_a_line_up_the_margin_does_not_run_into_the_text():
    aside = Line("arXiv:0000.00000", (20, 80, 32, 300), size_pt=12, angle=270)
    blocks = structure(page([aside, *column(wrap(PROSE, 90), 60, 100)]))
    assert [block.text for block in blocks] == [PROSE.strip(), "arXiv:0000.00000"]


@pytest.mark.parametrize("angle", [90, 180, 270])
def test_a_turned_page_is_read_in_its_own_direction(angle: int):
    def turned(made: Line) -> Line:
        x0, y0, x1, y1 = made.box
        box = {90: (792 - y1, x0, 792 - y0, x1), 180: (612 - x1, 792 - y1, 612 - x0, 792 - y0),
               270: (y0, 612 - x1, y1, 612 - x0)}[angle]  # fmt: skip
        return Line(made.text, box, size_pt=10, angle=float(angle))

    upright = column(LEFT, 60, 100) + column(RIGHT, 320, 100)
    wide, high = (792, 612) if angle != 180 else (612, 792)
    turned_page = PageText(wide, high, tuple(turned(made) for made in reversed(upright)))
    plain = page([Line(made.text, made.box, size_pt=10) for made in upright])
    assert render_text(structure(turned_page)) == render_text(structure(plain))
