import io
import time
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from pipeline.blank import is_blank, is_noise
from pipeline.engines.base import PageImage
from pipeline.rasterise import rasterise
from pipeline.source import open_source
from storage.errors import OcrdError
from storage.records import Line, PageText, Word
from tests.elsewhere import NO_CORPUS, corpus, manifest

WIDTH, HEIGHT = 1654, 2339  # A4 at 200 dpi
WHITE, PAPER = 255, 246
LOREM = "Lorem ipsum dolor sit amet, consetetur sadipscing elitr, sed diam nonumy eirmod tempor"


# --- drawing pages -------------------------------------------------------------------------------------------


def page_image(picture: Image.Image, dpi: float = 200) -> PageImage:
    return PageImage(1, picture, picture.width * 72 / dpi, picture.height * 72 / dpi, dpi)


def paper(level: int | tuple[int, int, int] = WHITE) -> Image.Image:
    return Image.new("L" if isinstance(level, int) else "RGB", (WIDTH, HEIGHT), level)


def pixels(values: np.ndarray) -> Image.Image:
    return Image.fromarray(np.clip(values, 0, 255).astype(np.uint8))


def noisy(picture: Image.Image, sigma: float, seed: int = 1) -> Image.Image:
    values = np.asarray(picture, np.float32)
    noise = np.random.default_rng(seed).standard_normal(values.shape[:2], np.float32) * sigma
    return pixels(values + (noise if values.ndim == 2 else noise[:, :, None]))


def as_jpeg(picture: Image.Image, quality: int = 75) -> Image.Image:
    data = io.BytesIO()
    picture.save(data, "JPEG", quality=quality)
    return Image.open(data)


def scanned(picture: Image.Image, sigma: float = 3) -> Image.Image:
    return as_jpeg(noisy(picture, sigma))


def written(
    text: str,
    size_pt: float,
    ink: int | tuple[int, ...] = 60,
    at: tuple[int, int] = (700, 1100),
    on: Image.Image | None = None,
) -> Image.Image:
    picture = on or paper(PAPER)
    font = ImageFont.load_default(size=round(size_pt * 200 / 72))
    ImageDraw.Draw(picture).text(at, text, font=font, fill=ink)
    return picture


def full_page(size_pt: float = 10, ink: int = 60, level: int = PAPER) -> Image.Image:
    picture = paper(level)
    for line in range(50):
        written(LOREM, size_pt, ink, (200, 200 + line * 38), on=picture)
    return picture


def show_through(contrast: float, blur_px: float, level: int = 245) -> Image.Image:
    """The back of a printed page: mirrored, blurred by the paper, and weak."""
    back = full_page(11, 0, WHITE).transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    values = np.asarray(back.filter(ImageFilter.GaussianBlur(blur_px)), np.float32)
    return noisy(pixels(level - (255 - values) / 255 * contrast), 2)


def shadowed(edge: str, depth_px: int, darkest: float, on: Image.Image | None = None) -> Image.Image:
    values = np.asarray(on or paper(PAPER), np.float32).copy()
    turned = {"left": values, "right": values[:, ::-1], "top": values.T, "bottom": values.T[:, ::-1]}[edge]
    turned[:, :depth_px] -= np.linspace(darkest, 0, depth_px)
    return pixels(values)


def black_corner(depth_px: int) -> Image.Image:
    picture = paper(PAPER)
    draw = ImageDraw.Draw(picture)
    draw.rectangle((WIDTH - depth_px, 0, WIDTH, HEIGHT), fill=10)
    draw.rectangle((0, HEIGHT - depth_px // 2, WIDTH, HEIGHT), fill=15)
    return picture


def punched(fill: int, on: Image.Image | None = None) -> Image.Image:
    picture = on or paper(PAPER)
    for top in (850, 1480):  # 6 mm wide, 80 mm apart
        ImageDraw.Draw(picture).ellipse((75, top, 122, top + 47), fill=fill)
    return picture


def dusty(specks: int, largest_px: int, on: Image.Image | None = None) -> Image.Image:
    picture, random = on or paper(PAPER), np.random.default_rng(3)
    draw = ImageDraw.Draw(picture)
    for x, y in zip(random.integers(0, WIDTH, specks), random.integers(0, HEIGHT, specks), strict=True):
        width, height = random.integers(1, largest_px + 1, 2)
        draw.ellipse((x, y, x + width, y + height), fill=int(random.integers(20, 120)))
    return picture


def peppered(share: float, on: Image.Image | None = None) -> Image.Image:
    values = np.asarray(on or paper()).copy()
    values[np.random.default_rng(4).random(values.shape) < share] = 0
    return pixels(values)


def vignetted(picture: Image.Image) -> Image.Image:
    rows, columns = np.mgrid[-0.5 : 0.5 : HEIGHT * 1j, -0.5 : 0.5 : WIDTH * 1j]
    return pixels(np.asarray(picture) * (1 - 0.7 * (rows**2 + columns**2)))


def ruled(*lines: tuple[int, int, int, int], ink: int = 150, width: int = 3) -> Image.Image:
    picture = paper(PAPER)
    for line in lines:
        ImageDraw.Draw(picture).line(line, fill=ink, width=width)
    return picture


def photo() -> Image.Image:
    colours = np.random.default_rng(5).integers(0, 255, (30, 20, 3)).astype(np.uint8)
    return Image.fromarray(colours).resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC)


def enlarged(level: int, ink: int) -> Image.Image:
    """Faint writing on a picture of 300 pixels, enlarged as small pictures are."""
    small = Image.new("L", (300, 200), level)
    ImageDraw.Draw(small).text((40, 80), "Anna will call", font=ImageFont.load_default(size=24), fill=ink)
    return small.resize((1200, 800), Image.Resampling.BICUBIC)


BLANK: dict[str, Callable[[], Image.Image]] = {
    "white": paper,
    "white 1 bit": lambda: Image.new("1", (WIDTH, HEIGHT), 1),
    "black": lambda: noisy(paper(15), 3),
    "tinted": lambda: noisy(paper((250, 235, 190)), 4),
    "recycled": lambda: noisy(paper(197), 7),
    "noise": lambda: noisy(paper(235), 10),
    "noise as JPEG": lambda: as_jpeg(noisy(paper(235), 10)),
    "shining through faintly": lambda: show_through(20, 3),
    "shining through": lambda: show_through(40, 2.5),
    "shining through thin paper": lambda: show_through(45, 2),
    "shining through, as JPEG": lambda: as_jpeg(show_through(30, 3)),
    "shining through tinted paper": lambda: show_through(30, 3, 220),
    "shadow left": lambda: noisy(shadowed("left", 60, 150), 2),
    "shadow right": lambda: noisy(shadowed("right", 90, 90), 2),
    "shadow top": lambda: noisy(shadowed("top", 100, 200), 2),
    "shadow bottom": lambda: noisy(shadowed("bottom", 60, 200), 2),
    "black edges": lambda: noisy(black_corner(80), 2),
    "black edges as JPEG": lambda: scanned(black_corner(50), 4),
    "holes": lambda: noisy(punched(30), 2),
    "grey holes": lambda: noisy(punched(160), 2),
    "dust": lambda: noisy(dusty(30, 4), 2),
    "much dust": lambda: noisy(dusty(300, 4), 2),
    "coarse dust": lambda: noisy(dusty(30, 8), 2),
    "pepper": lambda: peppered(0.003),
    "dark corners": lambda: noisy(vignetted(paper(240)), 3),
    "streak": lambda: noisy(ruled((600, 0, 600, HEIGHT)), 2),
    "fold": lambda: noisy(ruled((800, 0, 830, HEIGHT), width=4), 2),
    "ruled paper": lambda: noisy(ruled(*((0, y, WIDTH, y) for y in range(200, 2200, 60)), ink=190), 2),
    "holes, shadow, dust": lambda: noisy(dusty(60, 4, punched(30, shadowed("left", 60, 150))), 3),
}

PRINTED: dict[str, Callable[[], Image.Image]] = {
    "one small line": lambda: written("Intentionally left blank", 8, 0, on=paper()),
    "one small line, scanned": lambda: scanned(written("Intentionally left blank", 8)),
    "one wide line, scanned": lambda: scanned(written(LOREM, 9, at=(120, 1100))),
    "6 points, scanned": lambda: scanned(written("see overleaf", 6)),
    "page number": lambda: written("7", 10, 0, (820, 2230), paper()),
    "page number, scanned": lambda: scanned(written("7", 10, at=(820, 2230))),
    "thin page number, scanned": lambda: scanned(written("1", 8, at=(820, 2250))),
    "page number in the corner": lambda: scanned(written("12", 9, at=(1560, 40))),
    "page number between dashes": lambda: scanned(written("- 3 -", 9, at=(820, 2250))),
    "Roman page number": lambda: scanned(written("i", 9, at=(820, 2230))),
    "pencil": lambda: scanned(written("Anna will call on Monday", 14, 190)),
    "small pencil": lambda: scanned(written("Anna will call on Monday", 10, 190), 2),
    "faint pencil": lambda: scanned(written("Anna will call", 16, 205), 2),
    "blurred pencil": lambda: scanned(
        written("Anna will call", 14, 170).filter(ImageFilter.GaussianBlur(1)), 2
    ),
    "out of focus": lambda: scanned(
        written("Anna will call", 12, 30).filter(ImageFilter.GaussianBlur(2.5)), 2
    ),
    "light grey, drawn": lambda: written("light grey text", 11, 0xDD, on=paper()),
    "yellow": lambda: written("yellow text", 14, (255, 230, 0), on=paper((255, 255, 255))),
    "on tinted paper": lambda: scanned(
        written("Rechnung 4711", 10, (90, 80, 60), on=paper((250, 235, 190))), 4
    ),
    "white on black": lambda: written("The End", 20, 255, on=paper(10)),
    "a full page": lambda: scanned(full_page()),
    "a full faint page": lambda: scanned(full_page(ink=180)),
    "page number beside holes": lambda: noisy(written("9", 10, 50, (820, 2200), punched(30)), 2),
    "caption over show-through": lambda: noisy(written("Fig. 2", 9, 50, (300, 2200), show_through(30, 3)), 1),
    "a word among dust": lambda: noisy(written("Yes", 10, on=dusty(200, 4)), 2),
    "a line in pepper": lambda: peppered(0.01, written("Received on 12 May", 9, 0, on=paper())),
    "a line in a dark corner": lambda: noisy(vignetted(written("some words", 10, 90, (100, 100))), 3),
    "a line beside a streak": lambda: noisy(written("a word", 10, on=ruled((600, 0, 600, HEIGHT))), 2),
    "photo": photo,
    "a small faint picture, enlarged": lambda: noisy(enlarged(245, 195), 1),
}


@pytest.mark.parametrize("name", BLANK)
def test_nothing_printed_is_blank(name: str) -> None:
    """Blank pages read by an engine: https://github.com/allenai/olmocr/issues/292"""
    assert is_blank(page_image(BLANK[name]()))


@pytest.mark.parametrize("name", PRINTED)
def test_anything_printed_is_not_blank(name: str) -> None:
    picture = PRINTED[name]()
    assert not is_blank(page_image(picture, 200 if picture.width == WIDTH else 800))


@settings(max_examples=40)
@given(
    st.integers(1, 300),
    st.integers(1, 300),
    st.sampled_from(["L", "RGB", "1"]),
    st.integers(0, 255),
    st.floats(20, 900),
)
def test_even_pages_of_any_size_are_blank(width: int, height: int, mode: str, level: int, dpi: float) -> None:
    picture = Image.new("L", (width, height), level).convert(mode, dither=Image.Dither.NONE)
    assert is_blank(page_image(picture, dpi))


@settings(max_examples=40)
@given(
    st.integers(0, 1400), st.integers(0, 2280), st.sampled_from("1234567890"), st.sampled_from([8, 10, 12])
)
def test_a_digit_is_seen_wherever_it_stands(x: int, y: int, digit: str, size_pt: int) -> None:
    at = (max(x, 150), max(y, 100))  # not in the shadow of an edge
    assert not is_blank(page_image(written(digit, size_pt, 40, (at[0], min(at[1], 2100)))))


@pytest.mark.parametrize("dpi", [100, 150, 300])
def test_resolution_does_not_matter(dpi: int) -> None:
    size = (WIDTH * dpi // 200, HEIGHT * dpi // 200)
    number = written("17", 10, at=(820, 2200)).resize(size, Image.Resampling.LANCZOS)
    assert not is_blank(page_image(noisy(number, 2), dpi))
    assert is_blank(page_image(noisy(punched(30).resize(size, Image.Resampling.LANCZOS), 2), dpi))


def test_a4_is_judged_in_milliseconds() -> None:
    pages = [page_image(noisy(paper(PAPER), 2)), page_image(full_page())]
    spent = []
    for _ in range(6):
        started = time.process_time()
        for page in pages:
            is_blank(page)
        spent.append((time.process_time() - started) / len(pages))
    assert min(spent) < 0.06  # 0.012 on an idle core; the least of six, for other load slows all of them


# --- noise ---------------------------------------------------------------------------------------------------


def reading(*words: tuple[str, float | None]) -> PageText:
    box = (0.0, 0.0, 10.0, 10.0)
    line = Line(
        " ".join(text for text, _ in words), box, tuple(Word(text, box, sure) for text, sure in words)
    )
    return PageText(595, 842, (line,))


@pytest.fixture(scope="module")
def dust() -> PageImage:
    return page_image(dusty(60, 6))


@pytest.mark.parametrize(
    "words",
    [
        [],
        [("|", 0.9), ("—", 0.95), ("..", 0.8)],
        [("i", 0.3), ("'", 0.2), ("l1", 0.42)],
        [("Ee", 0.37), ("==", 0.6), ("f", 0.1)],
        [("rn", 0.6)],
        [
            ("epee", 0.16),
            ("ewe", 0.02),
            ("mates", 0.03),
            ("fens", 0.14),
            ("te", 0.13),
            ("Go", 0.33),
            ("Ni", 0.1),
        ],
    ],
)
def test_dirt_read_as_letters_is_noise(words: list[tuple[str, float]], dust: PageImage) -> None:
    assert is_noise(reading(*words), dust)


@pytest.mark.parametrize(
    "words",
    [
        [("7", 0.9)],
        [("17.", 0.6)],
        [("12/2024", 0.55)],
        [("Yes", 0.6), ("|", 0.1)],
        [("iv", 0.92)],
        [("ua", 0.96)],
        [("日", 0.7)],
        [("שלום", 0.6)],
        [("éte", 0.5)],
        [("x", None)],
    ],
)
def test_a_word_or_number_one_can_believe_is_text(words: list[tuple[str, float]], dust: PageImage) -> None:
    assert not is_noise(reading(*words), dust)


def test_doubtful_text_of_a_full_page_is_kept() -> None:
    words = [("epee", 0.16), ("ewe", 0.02), ("mates", 0.03), ("fens", 0.14), ("te", 0.13), ("Gotan", 0.33)]
    assert not is_noise(reading(*words), page_image(full_page()))
    assert not is_noise(reading(*words * 4), page_image(dusty(60, 6)))


def test_lines_without_words_are_judged_by_their_text(dust: PageImage) -> None:
    box = (0.0, 0.0, 10.0, 10.0)
    assert is_noise(PageText(595, 842, (Line("~ !", box, confidence=0.9),)), dust)
    assert not is_noise(PageText(595, 842, (Line("page 3", box, confidence=0.9),)), dust)


# --- real files ----------------------------------------------------------------------------------------------

# Blank by the eye: nothing but an edge line, or text in fonts this machine lacks.
BLANK_TOO = {("pdf2image-memory-error-test-400p.pdf", 2), ("vertical.pdf", 2), ("vertical.pdf", 3)}
NEEDS_CJK_FONTS = {"noembed-sjis.pdf"}
PAGES = 2  # of each file
ROWS = manifest()


@pytest.mark.skipif(not ROWS, reason=NO_CORPUS)
def test_real_pages_are_blank_where_the_corpus_says_so() -> None:
    wrong = []
    for row in ROWS:
        expected = row["expect"]
        if not expected["outcome"].startswith("ok") or row["file"] in NEEDS_CJK_FONTS:
            continue
        blank = {(row["file"], page) for page in expected.get("blank", ())} | BLANK_TOO
        with open_source(corpus(row["file"])) as source:
            for number in range(1, min(source.info.pages, PAGES) + 1):
                try:
                    with source.page(number) as page:
                        image = rasterise(page, dpi=100, max_pixels=4_000_000)
                except OcrdError:
                    continue
                if is_blank(image) != ((row["file"], number) in blank):
                    wrong.append((row["file"], number))
    assert not wrong
