import pytest
from PIL import Image, ImageDraw

from pipeline.engines.base import PageImage
from pipeline.engines.bullets import with_bullet
from pipeline.engines.lines import make_line
from storage.records import Line, Word

from .conftest import page_of


def bulleted(mark: str, *, hole: bool = False, width: int = 30) -> tuple[Line, PageImage]:
    image = Image.new("L", (400, 100), 255)
    pen = ImageDraw.Draw(image)
    pen.ellipse((20, 30, 20 + width, 60), fill=0)
    if hole:
        pen.ellipse((27, 37, 43, 53), fill=255)
    page = page_of(image)
    box = (18 / page.scale_x, 28 / page.scale_y, (22 + width) / page.scale_x, 62 / page.scale_y)
    words = [Word(mark, box, 0.5), Word("first", (30, 10, 60, 22), 0.9)]
    return make_line(words), page


@pytest.mark.parametrize("mark", ["e", "©", "¢", "®", "*", "o"])
def test_a_disc_read_as_a_letter_is_a_bullet(mark: str) -> None:
    line = with_bullet(*bulleted(mark))
    assert line.text == "• first"
    assert line.words[0].text == "•"


@pytest.mark.parametrize(("mark", "hole", "width"), [("e", True, 30), (".", False, 30), ("I", False, 8)])
def test_letters_and_stops_stay(mark: str, hole: bool, width: int) -> None:
    line, page = bulleted(mark, hole=hole, width=width)
    assert with_bullet(line, page) == line


def test_a_line_of_one_word_stays() -> None:
    line, page = bulleted("e")
    alone = make_line(line.words[:1])
    assert with_bullet(alone, page) == alone
