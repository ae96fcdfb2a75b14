import pytest
from PIL import Image, ImageDraw

from pipeline.engines import orientation, tessdata
from pipeline.engines.orientation import Turn, TurnDetector, is_turned, skew_degrees, turn

from .conftest import drawn, page_of

LINES = [
    "Sphinx of black quartz, judge my vow and read",
    "the five boxing wizards jump quickly over the",
    "lazy dog while a quick brown fox packs my box",
    "with five dozen liquor jugs before the evening",
]


@pytest.mark.parametrize("degrees", [-6.0, -2.7, -1.0, 1.5, 4.0])
def test_skew_is_found_to_a_fifth_of_a_degree(degrees: float) -> None:
    image = drawn(LINES * 3).image.rotate(degrees, Image.Resampling.BICUBIC, expand=True, fillcolor=255)
    assert skew_degrees(image) == pytest.approx(-degrees, abs=0.2)


@pytest.mark.parametrize("degrees", [0, 90, 180])
def test_level_text_is_not_askew_however_it_is_turned(degrees: int) -> None:
    assert abs(skew_degrees(drawn(LINES * 3).image.rotate(degrees, expand=True))) < orientation.MIN_SKEW


def test_an_empty_page_is_not_askew() -> None:
    assert skew_degrees(Image.new("L", (800, 1000), 255)) == 0.0


@pytest.mark.parametrize("degrees", [90.0, 180.0, 270.0, 3.0, -4.5])
def test_the_frame_of_a_turned_page_leads_back_to_the_pixels(degrees: float) -> None:
    image = Image.new("L", (600, 400), 255)
    ImageDraw.Draw(image).rectangle((450, 80, 470, 90), fill=0)
    page = page_of(image)
    turned, frame = turn(page, degrees)
    assert turned.scale_x == pytest.approx(turned.scale_y, rel=0.01)
    left, top, right, bottom = turned.image.point(lambda grey: 255 - grey).getbbox() or (0, 0, 0, 0)
    x, y = turned.scale_x, turned.scale_y
    found = frame.to_page((left / x, top / y, right / x, bottom / y))
    wanted = (450 / page.scale_x, 80 / page.scale_y, 471 / page.scale_x, 91 / page.scale_y)
    assert found == pytest.approx(wanted, abs=2.5)


def test_the_model_tells_which_way_up() -> None:
    detector = TurnDetector(tessdata.folders())
    upright = drawn(LINES * 3)
    for degrees in (0, 90, 180):
        turned, _ = turn(upright, degrees)
        found = detector.detect(turned)
        assert found is not None
        assert (found.degrees + degrees) % 360 == 0
    detector.close()


def test_without_a_model_or_letters_there_is_no_answer() -> None:
    assert TurnDetector([]).detect(drawn(LINES)) is None
    assert TurnDetector(tessdata.folders()).detect(page_of(Image.new("L", (400, 400), 255))) is None


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (None, False),
        (Turn(0, 20.0, "Latin", 1.0), False),
        (Turn(180, 0.3, "Latin", 1.0), False),
        (Turn(180, 3.0, "Latin", 1.0), True),
    ],
)
def test_a_turn_needs_confidence(found: Turn | None, expected: bool) -> None:
    assert is_turned(found) is expected
