"""What engine tests share: settings of their own, pages drawn on the spot, and pages of the corpus."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from PIL import Image, ImageDraw, ImageFont

from pipeline.bench import TruePage, true_pages
from pipeline.engines.base import EngineReading, PageImage
from pipeline.rasterise import rasterise
from pipeline.source import open_source
from storage.settings import Settings
from tests.elsewhere import CORPUS, NO_CORPUS

DPI = 200


@pytest.fixture(scope="session")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return Settings(home=tmp_path_factory.mktemp("home"))


def page_of(image: Image.Image, dpi: float = DPI) -> PageImage:
    return PageImage(1, image, image.width * 72 / dpi, image.height * 72 / dpi, dpi)


def drawn(texts: list[str], *, size_px: int = 40, width: int = 1400, left: int = 100) -> PageImage:
    """Lines of text in Pillow's own font, black on white."""
    font = ImageFont.load_default(size=size_px)
    image = Image.new("L", (width, size_px * 2 * (len(texts) + 2)), 255)
    pen = ImageDraw.Draw(image)
    for row, text in enumerate(texts):
        pen.text((left, size_px * 2 * (row + 1)), text, font=font, fill=0)
    return page_of(image)


def text_of(reading: EngineReading) -> str:
    """The lines it read, one below the other."""
    assert reading.lines is not None
    return "\n".join(line.text for line in reading.lines.lines)


def letter_of(lines: Sequence[str], folder: Path, size: tuple[int, int], font_px: int) -> Path:
    """A picture file of a few lines in Pillow's own font, 200 dpi."""
    picture = Image.new("L", size, 255)
    draw = ImageDraw.Draw(picture)
    for at, line in enumerate(lines):
        draw.text((40, 50 + 80 * at), line, font=ImageFont.load_default(font_px), fill=0)
    path = folder / "letter.png"
    picture.save(path, dpi=(200, 200))
    return path


@pytest.fixture(scope="session")
def true_page() -> Callable[[str], tuple[PageImage, str]]:
    """`true_page("linn.png:1")`: its pixels and its text; skips where the corpus is not there."""
    if not (CORPUS / "GROUNDTRUTH" / "INDEX.tsv").is_file():
        pytest.skip(NO_CORPUS)
    listed: dict[str, TruePage] = {page.name: page for page in true_pages(CORPUS)}

    def load(name: str) -> tuple[PageImage, str]:
        page = listed[name]
        with open_source(page.file) as source, source.page(page.page) as one:
            return rasterise(one, dpi=DPI, max_pixels=16_000_000), page.truth.read_text(encoding="utf-8")

    return load
