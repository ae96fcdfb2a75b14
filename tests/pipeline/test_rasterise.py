import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pypdfium2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageDraw

from pipeline.rasterise import MAX_ENLARGEMENT, MAX_FINE_DPI, MIN_LONG_SIDE_PX, fit, rasterise, wanted_dpi
from pipeline.source import open_source
from tests.elsewhere import corpus

ROOT = Path(__file__).parents[2]
BUDGET = 16_000_000


class Sheet:
    """A page of any size that yields white pixels; what `rasterise` asks of a source."""

    path, number, label, pdf = Path("x"), 1, None, None

    def __init__(self, width_pt: float, height_pt: float, native_px: tuple[int, int]) -> None:
        self.width_pt, self.height_pt, self.native_px = width_pt, height_pt, native_px

    def decode(self, size: tuple[int, int]) -> Image.Image:
        return Image.new("1", size)

    def close(self) -> NoReturn:
        raise NotImplementedError

    __enter__ = __exit__ = close


def pdf_with_page(path: Path, width: float, height: float, rotation: int = 0) -> Path:
    document = pypdfium2.PdfDocument.new()
    page = document.new_page(width, height)
    page.set_rotation(rotation)
    page.close()
    document.save(path)
    document.close()
    return path


def raster(path: Path, dpi: float = 200, max_pixels: int = BUDGET) -> Any:
    with open_source(path) as source, source.page(1) as page:
        return rasterise(page, dpi=dpi, max_pixels=max_pixels)


sides_pt = st.floats(0.5, 200_000, allow_nan=False)


@given(sides_pt, sides_pt, st.floats(36, 1200), st.integers(1, 10**8))
def test_no_page_exceeds_the_budget(width_pt: float, height_pt: float, dpi: float, max_pixels: int) -> None:
    columns, rows = fit(width_pt * dpi / 72, height_pt * dpi / 72, max_pixels)
    assert columns >= 1
    assert rows >= 1
    assert columns * rows <= max_pixels


@given(st.floats(20, 20_000), st.floats(20, 20_000), st.integers(40_000, 10**8))
def test_pixels_stay_square(width: float, height: float, max_pixels: int) -> None:
    columns, rows = fit(width, height, max_pixels)
    # Rounding moves each side by half a pixel at most, and one row or column may go to the budget.
    assert abs(columns / width - rows / height) <= 1.5 / width + 1.5 / height


@settings(max_examples=50)
@given(st.floats(10, 3000), st.floats(10, 3000), st.integers(50, 600), st.data())
def test_box_goes_to_points_and_back_within_a_pixel(
    width_pt: float, height_pt: float, dpi: int, data: st.DataObject
) -> None:
    native = (max(1, round(width_pt * 3)), max(1, round(height_pt * 3)))
    image = rasterise(Sheet(width_pt, height_pt, native), dpi=dpi, max_pixels=1_000_000)
    assert image.image.width * image.image.height <= 1_000_000
    x, y = data.draw(st.floats(0, width_pt)), data.draw(st.floats(0, height_pt))
    column, row = round(x * image.scale_x), round(y * image.scale_y)
    assert 0 <= column <= image.image.width
    assert 0 <= row <= image.image.height
    assert abs(column / image.scale_x - x) * image.scale_x <= 1
    assert abs(row / image.scale_y - y) * image.scale_y <= 1


@settings(max_examples=25)
@given(st.floats(1, 15_000), st.floats(1, 15_000), st.integers(36, 1200), st.integers(10_000, 300_000))
def test_pdf_page_of_any_size_is_drawn_within_the_budget(
    tmp_path_factory: pytest.TempPathFactory, width: float, height: float, dpi: int, max_pixels: int
) -> None:
    path = pdf_with_page(tmp_path_factory.mktemp("any") / "x.pdf", width, height)
    image = raster(path, dpi, max_pixels)
    assert image.image.mode == "RGB"
    assert 1 <= image.image.width * image.image.height <= max_pixels
    assert image.image.getextrema() == ((255, 255),) * 3


def test_a4_is_drawn_at_the_resolution_asked_for(tmp_path: Path) -> None:
    image = raster(pdf_with_page(tmp_path / "x.pdf", 595.276, 841.89))
    assert image.image.size == (1654, 2339)
    assert image.dpi == pytest.approx(200, rel=0.001)
    assert (image.scale_x, image.scale_y) == pytest.approx((200 / 72, 200 / 72), rel=0.001)
    assert image.warnings == ()


def test_poster_is_drawn_coarser_with_a_warning(tmp_path: Path) -> None:
    image = raster(pdf_with_page(tmp_path / "x.pdf", 14_400, 14_400))
    assert image.image.size == (4000, 4000)
    assert image.dpi == 20
    assert [warning.code for warning in image.warnings] == ["reduced_dpi"]
    assert "20 dpi instead of 200: the page is 200 x 200 inches" in image.warnings[0].message


def test_stamp_is_drawn_finer(tmp_path: Path) -> None:
    assert max(raster(pdf_with_page(tmp_path / "a.pdf", 216, 216)).image.size) == MIN_LONG_SIDE_PX
    tiny = raster(pdf_with_page(tmp_path / "b.pdf", 4, 3))
    assert tiny.dpi == pytest.approx(MAX_FINE_DPI, rel=0.05)
    assert tiny.warnings == ()


@pytest.mark.parametrize(
    ("native_px", "size_pt", "dpi", "drawn"),
    [
        ((1654, 2339), (595.44, 842.04), 200, (1654, 2339)),
        ((3308, 4678), (595.44, 842.04), 200, (1654, 2339)),  # a 400 dpi scan
        ((1654, 2339), (595.44, 842.04), 400, (3308, 4678)),
        ((169, 350), (60.84, 126), 200, (676, 1400)),
        ((1728, 1078), (609.9, 792), 200, (1694, 2200)),  # a fax of 204 x 98 dpi
        ((20, 10), (7.2, 3.6), 200, (80, 40)),
        ((9000, 9000), (3240, 3240), 200, (4000, 4000)),
    ],
)
def test_pictures_are_scaled_like_pages_and_never_blown_up(
    native_px: tuple[int, int], size_pt: tuple[float, float], dpi: int, drawn: tuple[int, int]
) -> None:
    image = rasterise(Sheet(*size_pt, native_px), dpi=dpi, max_pixels=BUDGET)
    assert image.image.size == pytest.approx(drawn, abs=1)
    assert bool(image.warnings) == (native_px == (9000, 9000))


@given(st.integers(1, 40_000), st.integers(1, 40_000), st.floats(50, 1200), st.floats(36, 1200))
def test_enlargement_is_bounded(width: int, height: int, native_dpi: float, dpi: float) -> None:
    page = Sheet(width * 72 / native_dpi, height * 72 / native_dpi, (width, height))
    assert wanted_dpi(page, dpi) <= native_dpi * MAX_ENLARGEMENT * 1.001


@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
def test_drawing_follows_rotation_and_crop_box(tmp_path: Path, rotation: int) -> None:
    picture = Image.new("RGB", (60, 40), "white")
    ImageDraw.Draw(picture).rectangle((0, 0, 29, 19), fill="red")
    picture.save(tmp_path / "x.pdf", resolution=10)
    document = pypdfium2.PdfDocument(tmp_path / "x.pdf")
    page = document[0]
    left, bottom, right, top = page.get_mediabox()
    page.set_cropbox(left + 36, bottom, right, top)  # 5 of 60 pixels on the left
    page.set_rotation(rotation)
    page.close()
    document.save(tmp_path / "y.pdf")
    document.close()
    image = raster(tmp_path / "y.pdf", dpi=50).image
    upright = image.rotate(rotation, expand=True)  # counter-clockwise undoes /Rotate
    assert upright.width / upright.height == pytest.approx(55 / 40, rel=0.01)
    share_of_red = float((np.asarray(upright)[:, :, 1] < 128).mean())
    assert share_of_red == pytest.approx(25 * 20 / (55 * 40), abs=0.01)
    red, green, _ = upright.getpixel((5, 5))
    assert (red > 240, green < 15) == (True, True)


def test_colours_are_not_swapped(tmp_path: Path) -> None:
    Image.new("RGB", (50, 50), (250, 120, 10)).save(tmp_path / "x.pdf")
    red, green, blue = raster(tmp_path / "x.pdf").image.getpixel((20, 20))
    assert (red > 220, 90 < green < 150, blue < 50) == (True, True, True)


def test_filled_fields_and_annotations_are_drawn() -> None:
    for name, least in (("annotation-freetext.pdf", 300), ("form_dd0293.pdf", 100_000)):
        grey = raster(corpus(name)).image.convert("L")
        assert sum(grey.histogram()[:128]) > least, name
    with open_source(corpus("acroform.pdf")) as source, source.page(1) as page:
        drawn = rasterise(page, dpi=200, max_pixels=BUDGET).image.convert("L")
        assert page.pdf.formenv is not None
    assert sum(drawn.histogram()[:128]) > 1000


_PEAK = """
import resource, sys, time
from pathlib import Path
from pipeline.rasterise import rasterise
from pipeline.source import open_source
from tests.elsewhere import corpus
from storage.errors import OcrdError
outcome = "ok"
try:
    with open_source(Path(sys.argv[1])) as source, source.page(1) as page:
        rasterise(page, dpi=200, max_pixels=16_000_000)
except OcrdError as error:
    outcome = error.code
if sys.platform == "linux":  # ru_maxrss would begin at the peak of the process that started this one
    status = Path("/proc/self/status").read_text()
    peak = int(status.split("VmHWM:")[1].split()[0]) * 1024
else:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(outcome, peak // 2**20, time.process_time())
"""


def peak_of(path: Path) -> tuple[str, int, float]:
    """Outcome, peak memory in MB and processor seconds of rasterising the first page in a fresh process."""
    out = subprocess.run(
        [sys.executable, "-c", _PEAK, str(path)],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    outcome, peak, seconds = out.stdout.split()
    return outcome, int(peak), float(seconds)


@pytest.mark.parametrize(
    ("name", "outcome", "peak_mb"),
    [
        ("G_200inch.pdf", "ok", 400),
        ("enormous.pdf", "ok", 400),
        ("bomb_giant.pdf", "ok", 400),
        ("G_bomb_900mpx.png", "too_large", 200),
    ],
)
def test_bombs_stay_small(name: str, outcome: str, peak_mb: int) -> None:
    """https://github.com/ocrmypdf/OCRmyPDF/issues/1104"""
    found, peak, seconds = peak_of(corpus(name))
    assert found == outcome
    assert peak < peak_mb
    assert seconds < 20


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "suffix", "options"),
    [
        ("RGBA", ".png", {"compress_level": 1}),
        ("P", ".png", {"compress_level": 1}),
        ("RGB", ".jpg", {"progressive": True, "subsampling": 0}),
        ("CMYK", ".jpg", {"progressive": True}),
        ("F", ".tif", {"compression": "tiff_adobe_deflate"}),
        ("I;16", ".tif", {"compression": "tiff_adobe_deflate"}),
    ],
)
def test_largest_allowed_picture_fits_in_memory(
    tmp_path: Path, mode: str, suffix: str, options: dict[str, Any]
) -> None:
    side = 11_500 if mode == "CMYK" else 13_300
    path = tmp_path / f"x{suffix}"
    Image.new(mode, (side, side)).save(path, **options)
    outcome, peak, _ = peak_of(path)
    assert outcome == "ok"
    assert peak < 1500


@pytest.mark.slow
def test_largest_allowed_webp_fits_in_memory(tmp_path: Path) -> None:
    Image.new("RGBA", (6600, 6600)).save(tmp_path / "x.webp", method=0, quality=10)
    outcome, peak, _ = peak_of(tmp_path / "x.webp")
    assert outcome == "ok"
    assert peak < 1500
