import pytest
from PIL import Image, ImageDraw

from pipeline.engines.leftover import covered, is_worth_a_look, letters_missed
from pipeline.engines.lines import make_line
from storage.records import Line, Word

from .conftest import drawn, page_of


def line_at(left: float, right: float, top: float = 0.0, bottom: float = 40.0) -> Line:
    return make_line([Word("word", (left, top, right, bottom), 0.9)], size_pt=14)


def test_ink_under_words_is_not_missed_and_the_rest_is() -> None:
    page = drawn(["Sphinx of black", "quartz judge my vow"])
    first = line_at(0, page.width_pt, 0, 45)
    both = [first, line_at(0, page.width_pt, 45, page.height_pt)]
    assert letters_missed(page, both) == 0
    assert letters_missed(page, [first]) >= 10
    assert is_worth_a_look(page, [first])


def test_rules_frames_and_dirt_are_no_letters() -> None:
    image = Image.new("L", (1700, 2200), 255)
    pen = ImageDraw.Draw(image)
    pen.rectangle((100, 100, 1600, 2000), outline=0, width=4)
    pen.line((100, 700, 1600, 700), fill=0, width=5)
    for at in range(40):
        pen.point((200 + at * 30, 900), fill=0)
    assert not is_worth_a_look(page_of(image), [])


def test_light_text_on_dark_ground_is_ink() -> None:
    dark = drawn(["Sphinx of black quartz"])
    dark = page_of(dark.image.point(lambda grey: 255 - grey))
    assert is_worth_a_look(dark, [])


@pytest.mark.parametrize(
    ("lines", "part"),
    [
        ([], 0.0),
        ([line_at(0, 100)], 1.0),
        ([line_at(0, 30), line_at(20, 50)], 0.5),
        ([line_at(0, 100, top=200, bottom=240)], 0.0),
    ],
)
def test_a_box_is_covered_by_the_words_on_it(lines: list[Line], part: float) -> None:
    assert covered((0, 0, 100, 45), lines) == pytest.approx(part)
