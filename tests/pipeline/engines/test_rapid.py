from collections.abc import Callable, Iterator

import pytest

from pipeline.cer import character_error_rate
from pipeline.engines.base import PageImage
from pipeline.engines.orientation import turn
from pipeline.engines.rapid import RapidEngine, _words, line_in, looks_turned
from storage.records import Direction
from storage.settings import Settings

from .conftest import drawn, text_of

TruePage = Callable[[str], tuple[PageImage, str]]
TEXTS = ["Please bring the signed copy", "Lunch is at noon"]
BOX = (0.0, 0.0, 100.0, 10.0)


@pytest.fixture(scope="module")
def engine(settings: Settings) -> Iterator[RapidEngine]:
    engine = RapidEngine(settings)
    yield engine
    engine.close()


def test_lines_have_text_boxes_words_and_confidence(engine: RapidEngine) -> None:
    page = drawn(TEXTS)
    reading = engine.read(page)
    assert reading.lines is not None
    assert [line.text for line in reading.lines.lines] == TEXTS
    assert (reading.confidence or 0) > 0.9
    for row, line in enumerate(reading.lines.lines):
        assert line.box[0] == pytest.approx(100 / page.scale_x, abs=6)
        assert 80 * (row + 1) / page.scale_y - 6 <= line.box[1] < line.box[3] <= 80 * (row + 2) / page.scale_y
        assert line.size_pt == pytest.approx(40 / page.scale_y, rel=0.35)
        assert [word.text for word in line.words] == line.text.split()


def test_upside_down_content_is_turned(engine: RapidEngine) -> None:
    turned, _ = turn(drawn(TEXTS * 2), 180)
    reading = engine.read(turned)
    assert text_of(reading) == "\n".join(TEXTS * 2)
    assert reading.frame is not None and reading.frame.degrees == 180


def test_a_page_without_text_has_no_lines(engine: RapidEngine) -> None:
    reading = engine.read(drawn([""]))
    assert text_of(reading) == ""
    assert reading.confidence is None


def test_pieces_are_joined_to_words_and_must_fit() -> None:
    pieces = [
        ("COM", (0.0, 0.0, 30.0, 9.0)),
        ("PANY", (31.0, 1.0, 60.0, 10.0)),
        ("LTD", (70.0, 0.0, 90.0, 9.0)),
    ]
    words = _words("COMPANY LTD", pieces, 0.9)
    assert [(word.text, word.box) for word in words] == [
        ("COMPANY", (0.0, 0.0, 60.0, 10.0)),
        ("LTD", (70.0, 0.0, 90.0, 9.0)),
    ]
    assert _words("COMPANY LTD", pieces[1:], 0.9) == ()
    assert [word.text for word in line_in(BOX, "COMPANY LTD", 0.9, pieces[1:]).words] == ["COMPANY", "LTD"]


def test_a_tall_box_is_vertical_and_only_latin_there_looks_turned() -> None:
    tall = (0.0, 0.0, 10.0, 100.0)
    japanese, latin = line_in(tall, "縦書きの文", 0.99), line_in(tall, "Sideways text", 0.99)
    assert japanese.direction is latin.direction is Direction.TTB
    assert not looks_turned([japanese])
    assert looks_turned([latin])
    assert looks_turned([])
    assert not looks_turned([line_in(BOX, "Upright text", 0.99)])


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("G_cjk_image.pdf:1", 0.005),
        pytest.param("G_cjk_image.pdf:2", 0.005, marks=pytest.mark.slow),
        pytest.param("eurotext.tif:1", 0.01, marks=pytest.mark.slow),
        pytest.param("jpn-vert.jpeg:1", 0.06, marks=pytest.mark.slow),
        pytest.param("francais.pdf:1", 0.01, marks=pytest.mark.slow),
    ],
)
def test_true_pages_are_read_with_few_errors(
    engine: RapidEngine, true_page: TruePage, name: str, most: float
) -> None:
    page, truth = true_page(name)
    assert character_error_rate(truth, text_of(engine.read(page))) <= most


def test_hangul_is_left_out_rather_than_guessed(engine: RapidEngine, true_page: TruePage) -> None:
    page, _ = true_page("G_cjk_image.pdf:3")
    assert text_of(engine.read(page)) == ""
