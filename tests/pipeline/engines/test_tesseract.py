from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from PIL import Image, ImageDraw

from pipeline.cer import character_error_rate
from pipeline.engines.base import PageImage
from pipeline.engines.orientation import turn
from pipeline.engines.tesseract import TesseractEngine
from storage.errors import EngineUnavailableError
from storage.records import Direction
from storage.settings import Settings

from .conftest import drawn, page_of, text_of

TruePage = Callable[[str], tuple[PageImage, str]]
TEXTS = [
    "The quarterly report is due on Friday",
    "Please bring the signed copy to room 42",
    "Lunch is at noon in the large hall",
    "Nobody may park in front of the gate",
]


@pytest.fixture(scope="module")
def engine(settings: Settings) -> Iterator[TesseractEngine]:
    engine = TesseractEngine(settings)
    yield engine
    engine.close()


def test_lines_have_text_boxes_words_and_confidence(engine: TesseractEngine) -> None:
    page = drawn(TEXTS)
    reading = engine.read(page)
    assert reading.lines is not None
    assert [line.text for line in reading.lines.lines] == TEXTS
    assert reading.frame is None
    assert (reading.confidence or 0) > 0.9
    for row, line in enumerate(reading.lines.lines):
        left, top, right, bottom = line.box
        assert left == pytest.approx(100 / page.scale_x, abs=2)
        assert 80 * (row + 1) / page.scale_y <= top < bottom <= 80 * (row + 2) / page.scale_y
        assert line.size_pt == pytest.approx(40 / page.scale_y, rel=0.25)
        assert [word.text for word in line.words] == line.text.split()
        assert all(a.box[2] <= b.box[0] for a, b in pairwise(line.words))
        assert all(left - 1 <= word.box[0] and word.box[2] <= right + 1 for word in line.words)


def test_ruled_lines_are_reported(engine: TesseractEngine) -> None:
    page = drawn(TEXTS * 2)
    ImageDraw.Draw(page.image).line((100, 230, 1300, 230), fill=0, width=4)
    reading = engine.read(page)
    assert reading.lines is not None
    (rule,) = reading.lines.rules
    assert rule[2] - rule[0] == pytest.approx(1200 / page.scale_x, rel=0.05)
    assert rule[1] < 232 / page.scale_y < rule[3] + 2


def test_specks_are_no_text(engine: TesseractEngine) -> None:
    image = Image.new("L", (1200, 900), 255)
    pen = ImageDraw.Draw(image)
    for x, y in ((100, 100), (640, 230), (900, 700), (333, 555)):
        pen.ellipse((x, y, x + 7, y + 5), fill=60)
    assert text_of(engine.read(page_of(image))) == ""


@pytest.mark.parametrize("degrees", [90, 180, 270, 3.0])
def test_turned_content_reads_like_upright_content(engine: TesseractEngine, degrees: float) -> None:
    page = drawn(TEXTS * 2)
    turned, _ = turn(page, degrees)
    reading = engine.read(turned)
    assert text_of(reading) == "\n".join(TEXTS * 2)
    assert reading.lines is not None and reading.frame is not None
    upright = engine.read(page)
    assert upright.lines is not None
    assert {line.direction for line in reading.lines.lines} == {Direction.LTR}
    # Its boxes, led back to the turned page and from there to the page as drawn, are those of the upright reading.
    back = replace(reading.frame, degrees=degrees, width_pt=page.width_pt, height_pt=page.height_pt)
    for line, wanted in zip(reading.lines.lines, upright.lines.lines, strict=True):
        shown = reading.frame.to_page(line.box)
        assert 0 <= shown[0] < shown[2] <= turned.width_pt + 1
        if degrees % 90 == 0:
            assert back.to_page(shown) == pytest.approx(wanted.box, abs=3)


def test_a_missing_language_is_named(settings: Settings, tmp_path: Path) -> None:
    engine = TesseractEngine(replace(settings, languages=("eng", "tlh"), tessdata=tmp_path))
    with pytest.raises(EngineUnavailableError, match="tlh"):
        engine.read(drawn(TEXTS))


def test_languages_of_other_folders_work_with_the_bundled_one(settings: Settings, tmp_path: Path) -> None:
    from pipeline.engines import tessdata

    bundled = tessdata.available(tessdata.folders())["eng"]
    (tmp_path / "zzz.traineddata").write_bytes(bundled.read_bytes())  # another language, as far as names go
    engine = TesseractEngine(replace(settings, languages=("eng", "zzz"), tessdata=tmp_path))
    assert text_of(engine.read(drawn(TEXTS[:1]))) == TEXTS[0]
    assert "eng+zzz" in engine.version()
    engine.close()


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("eurotext.tif:1", 0.03),
        ("phototest.tif:1", 0.005),
        ("nemotron_multipage.pdf:1", 0.005),
        ("nemotron_multipage.pdf:2", 0.005),
        ("nemotron_multipage.pdf:4", 0.005),
        pytest.param("nemotron_multipage.pdf:3", 0.005, marks=pytest.mark.slow),
        pytest.param("rotated_skew.pdf:1", 0.015, marks=pytest.mark.slow),
        *(pytest.param(f"cardinal.pdf:{page}", 0.015, marks=pytest.mark.slow) for page in range(1, 5)),
    ],
)
def test_true_pages_are_read_with_few_errors(
    engine: TesseractEngine, true_page: TruePage, name: str, most: float
) -> None:
    page, truth = true_page(name)
    assert character_error_rate(truth, text_of(engine.read(page))) <= most
