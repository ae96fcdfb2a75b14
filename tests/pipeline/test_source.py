import contextlib
import errno
import gc
import io
import os
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pypdfium2
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from PIL import Image, ImageDraw

from pipeline import pdf_source
from pipeline.source import HEAD_BYTES, open_source, sniff
from storage.errors import (
    AccessError,
    CorruptError,
    EmptyFileError,
    NoPagesError,
    NotADocumentError,
    OcrdError,
    PasswordError,
    TooLargeError,
    UnsupportedError,
    VanishedError,
)
from tests.elsewhere import CORPUS, NO_CORPUS, corpus, manifest

ROOT = Path(__file__).parents[2]
ROWS = manifest()
ENCRYPTED = ROOT / "tests" / "data" / "encrypted.pdf"  # user password test_user, owner password test_owner


# --- making files --------------------------------------------------------------------------------------------


def raw_pdf(*objects: bytes, trailer: bytes = b"") -> bytes:
    """A PDF of these objects, numbered from 1, the first of which is the catalog."""
    body, offsets = b"%PDF-1.7\n", []
    for number, content in enumerate(objects, 1):
        offsets.append(len(body))
        body += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    head = b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    tail = b"trailer\n<</Size %d/Root 1 0 R%s>>\nstartxref\n%d\n%%%%EOF\n"
    return body + head + table + tail % (len(objects) + 1, trailer, len(body))


def stream(data: bytes, entries: bytes = b"") -> bytes:
    return b"<</Length %d%s>>stream\n%s\nendstream" % (len(data), entries, data)


CATALOG = b"<</Type/Catalog/Pages 2 0 R>>"
PAGES = b"<</Type/Pages/Kids[3 0 R]/Count 1>>"
PAGE = b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 300 200]>>"


def save_pages(path: Path, count: int = 1, size: tuple[float, float] = (300, 200)) -> Path:
    document = pypdfium2.PdfDocument.new()
    for _ in range(count):
        document.new_page(*size).close()
    document.save(path)
    document.close()
    return path


def save_image(path: Path, size: tuple[int, int] = (40, 30), mode: str = "RGB", **options: Any) -> Path:
    Image.new(mode, size, "white" if mode != "F" else 1.0).save(path, **options)
    return path


def open_all(path: Path, **options: Any) -> list[tuple[float, float]]:
    with open_source(path, **options) as source:
        sizes = []
        for number in range(1, source.info.pages + 1):
            with source.page(number) as page:
                sizes.append((page.width_pt, page.height_pt))
        return sizes


# --- what kind a file is -------------------------------------------------------------------------------------


def encoded(kind: str, **options: Any) -> bytes:
    data = io.BytesIO()
    Image.new("RGB", (8, 8)).save(data, kind, **options)
    return data.getvalue()


@pytest.mark.parametrize(
    ("head", "media_type"),
    [
        (b"%PDF-1.4\n", "application/pdf"),
        (b"junk before it\n%PDF-1.4\n", "application/pdf"),
        (b"\xef\xbb\xbf%PDF-1.4\n", "application/pdf"),
        (b"HTTP/1.1 200 OK\r\n" * 150 + b"\r\n%PDF-1.4\n", "application/pdf"),
        (encoded("PNG"), "image/png"),
        (encoded("JPEG"), "image/jpeg"),
        (encoded("TIFF"), "image/tiff"),
        (encoded("TIFF", big_tiff=True), "image/tiff"),
        (encoded("WEBP"), "image/webp"),
        (encoded("GIF"), "image/gif"),
        (encoded("BMP"), "image/bmp"),
        (encoded("AVIF"), "image/avif"),
        (b"\x00\x00\x00\x18ftypheic\x00\x00\x00\x00mif1heic", "image/heic"),
        (b"\x00\x00\x00\x18ftypmp42\x00\x00\x00\x00mp42isom", None),
        (b"", None),
        (b"oops\n", None),
        (b"PK\x03\x04 stored.pdf %PDF-1.4", None),
        (b"BMW sold more cars", None),
        (b"<!DOCTYPE html><p>" + b"x" * 2000 + b"%PDF-1.4 is a format", None),
    ],
)
def test_kind_is_told_by_content(head: bytes, media_type: str | None) -> None:
    assert sniff(head) == media_type


@given(st.binary(max_size=64))
@example(b"RIFF\0\0\0\0WEBP")
@example(b"\0\0\0\0ftyp")
def test_any_bytes_can_be_sniffed(head: bytes) -> None:
    assert sniff(head) is None or "/" in str(sniff(head))


@pytest.mark.parametrize(
    ("content", "kind", "said"),
    [
        (b"", EmptyFileError, "empty"),
        (b"oops\n", NotADocumentError, "neither a PDF nor an image"),
        (b"\0" * 5000, NotADocumentError, "only zeros"),
        (b"\n<!doctype HTML>\n<title>Log in</title>", NotADocumentError, "HTML"),
        (b"<html>%PDF-1.7 is a format</html>", NotADocumentError, "HTML"),
        (b"<?xml version='1.0'?>", NotADocumentError, "XML"),
        (b"PK\x03\x04\x14\0\0\0", NotADocumentError, "ZIP"),
        (b"%!PS-Adobe-3.0", UnsupportedError, "PostScript"),
        (b"AT&TFORM\0\0\0\0DJVU", UnsupportedError, "DjVu"),
        (b"%PDF-1.4\n%%EOF", CorruptError, "damaged"),
        (b"\x89PNG\r\n\x1a\n" + b"\xff" * 40, CorruptError, "damaged"),
        (b"\xff\xd8\xff\xe0", CorruptError, "image is"),
        (b"II*\0\xff\xff\xff\x7f", CorruptError, "image is"),
    ],
)
def test_what_is_no_document_is_named(
    tmp_path: Path, content: bytes, kind: type[OcrdError], said: str
) -> None:
    path = tmp_path / "scan.pdf"
    path.write_bytes(content)
    with pytest.raises(kind, match=said) as failure:
        open_source(path)
    assert failure.value.file == path


def test_extension_does_not_matter(tmp_path: Path) -> None:
    picture = save_image(tmp_path / "x.png")
    with open_source(picture.rename(tmp_path / "x.pdf")) as source:
        assert source.info.media_type == "image/png"


@pytest.mark.parametrize(
    "name", [b"latin1-\xe9.pdf", "日本 ü.PDF".encode(), b"a'b\"c #1?.pdf", b"x" * 251 + b".pdf"]
)
def test_any_file_name_opens(tmp_path: Path, name: bytes) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name))
    try:
        path.write_bytes(raw_pdf(CATALOG, PAGES, PAGE))
    except OSError as error:
        pytest.skip(f"this file system refuses the name: {error}")
    assert open_all(path) == [(300, 200)]


def test_image_of_any_file_name_opens(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xe9.tif"))
    try:
        path.write_bytes(encoded("TIFF"))
    except OSError as error:
        pytest.skip(f"this file system refuses the name: {error}")
    assert len(open_all(path)) == 1


def test_missing_file_has_vanished(tmp_path: Path) -> None:
    with pytest.raises(VanishedError):
        open_source(tmp_path / "none.pdf")


def test_folder_is_no_document(tmp_path: Path) -> None:
    with pytest.raises(OcrdError) as failure:
        open_source(tmp_path)
    assert failure.value.code == "io"


def test_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.pdf")
    with pytest.raises(NotADocumentError, match="no regular file"):
        open_source(tmp_path / "x.pdf")


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read everything")
def test_unreadable_file_is_denied(tmp_path: Path) -> None:
    path = save_pages(tmp_path / "x.pdf")
    path.chmod(0)
    with pytest.raises(AccessError):
        open_source(path)


def test_file_that_vanishes_before_pdfium_opens_it(tmp_path: Path) -> None:
    with pytest.raises(VanishedError):
        pdf_source.PdfSource(tmp_path / "gone.pdf")


# --- PDF -----------------------------------------------------------------------------------------------------


def test_header_far_behind_junk_is_found(tmp_path: Path) -> None:
    path = tmp_path / "x.pdf"
    for junk in (0, 13, 1019, 1020, 1024, 2200, HEAD_BYTES - 5):
        path.write_bytes(b"-" * junk + raw_pdf(CATALOG, PAGES, PAGE))
        assert open_all(path) == [(300, 200)], junk


def test_password_is_tried_in_order(tmp_path: Path) -> None:
    with pytest.raises(PasswordError, match="needs a password"):
        open_source(ENCRYPTED)
    with pytest.raises(PasswordError, match="the password does not open it"):
        open_source(ENCRYPTED, passwords=("wrong",))
    with pytest.raises(PasswordError, match="2 known passwords"):
        open_source(ENCRYPTED, passwords=("wrong", "ünrecht"))
    for passwords in (("test_user",), ("wrong", "test_user"), ("", "test_owner")):
        with open_source(ENCRYPTED, passwords=passwords) as source:
            assert source.info.pages == 1
            assert source.info.encrypted


def test_passwords_that_cannot_be_encoded_are_only_wrong(tmp_path: Path) -> None:
    with pytest.raises(PasswordError):
        open_source(ENCRYPTED, passwords=("\udce9", "\ud800", "a\0b", "x" * 5000))


def stale_code() -> None:
    """Leave PDFium's last error at "wrong password"."""
    with pytest.raises(PasswordError):
        open_source(ENCRYPTED)


BROTLI = raw_pdf(CATALOG, b"<</Type/Pages/Kids[]/Count 0>>", stream(b"x", b"/Filter/BrotliDecode"))


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (raw_pdf(CATALOG, b"<</Type/Pages/Kids[]/Count 0>>"), NoPagesError),
        (BROTLI, UnsupportedError),
        (b"%PDF-1.4\n%%EOF", CorruptError),
    ],
)
def test_an_earlier_files_password_error_is_not_this_files(
    tmp_path: Path, content: bytes, kind: type[OcrdError]
) -> None:
    """PDFium keeps its last error code: https://github.com/pypdfium2-team/pypdfium2/issues/309 and kin."""
    path = tmp_path / "x.pdf"
    path.write_bytes(content)
    for before in (lambda: None, stale_code, lambda: open_all(save_pages(tmp_path / "good.pdf")), stale_code):
        before()
        with pytest.raises(kind):
            open_source(path)
    with pytest.raises(VanishedError):
        open_source(tmp_path / "none.pdf")


def test_count_bomb_makes_no_pages(tmp_path: Path) -> None:
    path = tmp_path / "x.pdf"
    path.write_bytes(
        raw_pdf(CATALOG, b"<</Type/Pages/Kids[3 0 R 4 0 R 5 0 R]/Count 900000>>", PAGE, PAGE, PAGE)
    )
    with open_source(path) as source:
        assert source.info.pages == 3
        assert [warning.code for warning in source.info.warnings] == ["page_count"]


def test_wrong_count_within_reason_costs_the_missing_pages_only(tmp_path: Path) -> None:
    path = tmp_path / "x.pdf"
    path.write_bytes(raw_pdf(CATALOG, b"<</Type/Pages/Kids[3 0 R]/Count 3>>", PAGE))
    with open_source(path) as source:
        assert source.page(1).width_pt == 300
        with pytest.raises(CorruptError) as failure:
            source.page(3)
    assert (failure.value.page, failure.value.file) == (3, path)


@pytest.mark.parametrize("number", [0, -1, 2])
def test_page_numbers_outside_are_refused(tmp_path: Path, number: int) -> None:
    for path in (save_pages(tmp_path / "x.pdf"), save_image(tmp_path / "x.png")):
        with open_source(path) as source, pytest.raises(CorruptError):
            source.page(number)


@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
def test_size_is_that_of_the_crop_box_as_displayed(tmp_path: Path, rotation: int) -> None:
    document = pypdfium2.PdfDocument.new()
    page = document.new_page(600, 800)
    page.set_cropbox(50, 100, 550, 750)
    page.set_rotation(rotation)
    page.close()
    document.save(tmp_path / "x.pdf")
    document.close()
    assert open_all(tmp_path / "x.pdf") == [(500, 650) if rotation % 180 == 0 else (650, 500)]


def test_rotation_is_inherited(tmp_path: Path) -> None:
    path = tmp_path / "x.pdf"
    path.write_bytes(raw_pdf(CATALOG, b"<</Type/Pages/Kids[3 0 R]/Count 1/Rotate 90>>", PAGE))
    assert open_all(path) == [(200, 300)]


def test_labels_are_given_where_they_say_more_than_the_number(tmp_path: Path) -> None:
    labels = b"<</Type/Catalog/Pages 2 0 R/PageLabels<</Nums[0<</S/r>>2<</S/D/P(A-)>>]>>>>"
    pages = b"<</Type/Pages/Kids[3 0 R 4 0 R 5 0 R]/Count 3>>"
    path = tmp_path / "x.pdf"
    path.write_bytes(raw_pdf(labels, pages, PAGE, PAGE, PAGE))
    with open_source(path) as source:
        assert source.info.labels == ("i", "ii", "A-1")
        assert source.page(2).label == "ii"
    path.write_bytes(raw_pdf(CATALOG, pages, PAGE, PAGE, PAGE))
    with open_source(path) as source:
        assert source.info.labels == ()
        assert source.page(2).label is None


@pytest.mark.parametrize(
    ("title", "text"),
    [
        (b"(Plain)", "Plain"),
        (b"<FEFF00C400D6>", "ÄÖ"),
        (b"<FEFFD8000041>", "\ufffdA"),
        (b"( \\000\\n )", None),
    ],
)
def test_title_comes_from_the_metadata(tmp_path: Path, title: bytes, text: str | None) -> None:
    path = tmp_path / "x.pdf"
    path.write_bytes(raw_pdf(CATALOG, PAGES, PAGE, b"<</Title %s>>" % title, trailer=b"/Info 4 0 R"))
    with open_source(path) as source:
        assert source.info.title == text


def with_attachment(catalog: bytes = b"") -> list[bytes]:
    names = b"/Names<</EmbeddedFiles<</Names[(a)4 0 R]>>>>"
    return [
        b"<</Type/Catalog/Pages 2 0 R%s%s>>" % (names, catalog),
        PAGES,
        PAGE,
        b"<</Type/Filespec/F(a.txt)/UF(a.txt)/EF<</F 5 0 R>>>>",
        stream(b"hello"),
    ]


def test_attachments_and_portfolios_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "x.pdf"
    path.write_bytes(raw_pdf(*with_attachment()))
    with open_source(path) as source:
        assert source.info.attachments == ("a.txt",)
        assert [warning.code for warning in source.info.warnings] == ["attachments"]
    path.write_bytes(raw_pdf(*with_attachment(b"/Collection<</View/D>>")))
    with open_source(path) as source:
        assert [warning.code for warning in source.info.warnings] == ["attachments", "portfolio"]


def test_portfolio_is_seen_in_an_object_stream(tmp_path: Path) -> None:
    packed = stream(
        zlib.compress(b"1 0 <</Type/Catalog/Collection<<>>>>"), b"/Type/ObjStm/N 1/Filter/FlateDecode"
    )
    path = tmp_path / "x.pdf"
    path.write_bytes(raw_pdf(*with_attachment(), packed))
    with open_source(path) as source:
        assert [warning.code for warning in source.info.warnings] == ["attachments", "portfolio"]


def test_page_that_cannot_be_loaded_leaves_the_others(tmp_path: Path) -> None:
    path = tmp_path / "x.pdf"
    path.write_bytes(raw_pdf(CATALOG, b"<</Type/Pages/Kids[3 0 R 9 0 R 3 0 R]/Count 3>>", PAGE))
    with open_source(path) as source:
        with pytest.raises(CorruptError) as failure:
            source.page(2)
        assert failure.value.page == 2
        assert source.page(1).width_pt == 300


def test_handles_are_closed(tmp_path: Path) -> None:
    """Memory of long documents: https://github.com/pmgraham/datagrunt/issues/93"""
    path = save_pages(tmp_path / "x.pdf", count=200, size=(595, 842))
    process = psutil.Process()
    gc.collect()  # what other tests left open must not be closed in between
    resident, files = [], process.num_fds()
    with open_source(path) as source:
        for number in range(1, source.info.pages + 1):
            with source.page(number) as page:
                page.pdf.get_textpage().close()
                bitmap = page.pdf.render(scale=1)
                bitmap.close()
            resident.append(process.memory_info().rss)
    assert process.num_fds() == files
    assert max(resident[20:]) - resident[19] < 20 * 2**20


def test_many_documents_leave_no_open_files(tmp_path: Path) -> None:
    paths = [save_pages(tmp_path / "x.pdf"), save_image(tmp_path / "x.png"), save_image(tmp_path / "x.tif")]
    process = psutil.Process()
    gc.collect()  # what other tests left open must not be closed in between
    before = process.num_fds()
    for path in (*paths, ENCRYPTED) * 10:
        with contextlib.suppress(PasswordError):
            open_all(path)
    assert process.num_fds() == before


# --- images --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dpi", "used"),
    [
        ((300, 300), (300, 300)),
        ((204, 98), (204, 98)),
        ((72, 72), (200, 200)),  # what is written where nothing is known
        ((96, 96), (200, 200)),
        ((1, 1), (200, 200)),
        ((300, 10), (200, 200)),
        ((2400, 2400), (200, 200)),
        (None, (200, 200)),
    ],
)
def test_size_in_points_follows_from_a_believable_resolution(
    tmp_path: Path, dpi: tuple[int, int] | None, used: tuple[int, int]
) -> None:
    for suffix in (".png", ".jpg", ".tif"):
        path = save_image(tmp_path / f"x{suffix}", (400, 600), **({"dpi": dpi} if dpi else {}))
        ((width, height),) = open_all(path)
        assert (width, height) == pytest.approx((400 * 72 / used[0], 600 * 72 / used[1]), rel=0.005)


def with_orientation(path: Path, orientation: int, **options: Any) -> Path:
    """A picture stored so that, turned by `orientation`, it is 60 x 40 with its top left quarter black."""
    upright = Image.new("RGB", (60, 40), "white")
    ImageDraw.Draw(upright).rectangle((0, 0, 29, 19), fill="black")
    inverse = {2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}  # of Image.Transpose
    stored = upright if orientation == 1 else upright.transpose(Image.Transpose(inverse[orientation]))
    exif = Image.Exif()
    exif[274] = orientation
    stored.save(path, exif=exif, **options)
    return path


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", [".jpg", ".tif", ".png", ".webp"])
def test_pictures_come_out_upright(tmp_path: Path, suffix: str, orientation: int) -> None:
    options = {".jpg": {"quality": 95}, ".webp": {"lossless": True}}.get(suffix, {})
    path = with_orientation(tmp_path / f"x{suffix}", orientation, dpi=(300, 150), **options)
    with open_source(path) as source, source.page(1) as page:
        assert page.native_px == (60, 40)
        image = page.decode((60, 40)).convert("L")
        corners = [image.getpixel(at) for at in ((5, 5), (55, 5), (5, 35), (55, 35))]
        assert [value < 128 for value in corners] == [True, False, False, False]
        if suffix in (".jpg", ".tif", ".png"):
            # 300 dpi along the rows of the file, which may be the columns of the picture.
            dpi = (300, 150) if orientation < 5 else (150, 300)
            assert (page.width_pt, page.height_pt) == pytest.approx(
                (60 * 72 / dpi[0], 40 * 72 / dpi[1]), rel=0.01
            )


@pytest.mark.parametrize("orientation", [0, 9, 65535])
def test_senseless_orientation_is_ignored(tmp_path: Path, orientation: int) -> None:
    exif = Image.Exif()
    exif[274] = orientation
    save_image(tmp_path / "x.jpg", (60, 40), exif=exif)
    with open_source(tmp_path / "x.jpg") as source, source.page(1) as page:
        assert page.decode((60, 40)).size == (60, 40)


def test_heic_is_turned_once(tmp_path: Path) -> None:
    pillow_heif = pytest.importorskip("pillow_heif")
    picture = Image.new("RGB", (64, 128), "white")
    exif = Image.Exif()
    exif[274] = 6
    heif = pillow_heif.from_pillow(picture)
    heif.save(tmp_path / "x.heic", exif=exif.tobytes(), quality=50)
    with open_source(tmp_path / "x.heic") as source, source.page(1) as page:
        assert source.info.media_type == "image/heic"
        assert page.native_px == (128, 64)
        assert page.decode((128, 64)).size == (128, 64)


def frames_of(*pictures: Image.Image, path: Path, **options: Any) -> Path:
    pictures[0].save(path, save_all=True, append_images=pictures[1:], **options)
    return path


def test_every_frame_of_a_tiff_is_a_page(tmp_path: Path) -> None:
    pictures = [Image.new("1", (100 * n, 50 * n), n % 2) for n in (1, 2, 3)]
    path = frames_of(*pictures, path=tmp_path / "x.tif", compression="group4", dpi=(100, 100))
    with open_source(path) as source:
        assert source.info.pages == 3
        for number in (3, 1, 2):
            with source.page(number) as page:
                assert page.native_px == (100 * number, 50 * number)
                image = page.decode(page.native_px)
                assert (image.mode, image.getextrema()) == ("L", ((255, 255) if number % 2 else (0, 0)))


def test_thumbnails_in_a_tiff_are_no_pages(tmp_path: Path) -> None:
    page, small = Image.new("L", (200, 100)), Image.new("L", (20, 10))
    small.encoderinfo = {"tiffinfo": {254: 1}}
    path = frames_of(page, small, page, path=tmp_path / "x.tif")
    with open_source(path) as source:
        assert source.info.pages == 2
        assert source.page(2).native_px == (200, 100)


def test_tiff_cut_off_between_frames_keeps_what_is_there(tmp_path: Path) -> None:
    pictures = [Image.effect_noise((300, 300), 50) for _ in range(3)]
    path = frames_of(*pictures, path=tmp_path / "x.tif")
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 45 // 100])
    with open_source(path) as source:
        assert 1 <= source.info.pages < 3
        assert source.page(1).decode((300, 300)).size == (300, 300)


def test_animation_is_one_page(tmp_path: Path) -> None:
    pictures = [Image.new("RGB", (20, 20), colour) for colour in ("red", "blue")]
    for suffix in (".gif", ".webp", ".png"):
        path = frames_of(*pictures, path=tmp_path / f"x{suffix}")
        with open_source(path) as source:
            assert source.info.pages == 1
            assert source.page(1).decode((20, 20)).convert("RGB").getpixel((3, 3))[0] > 200


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".tif", ".webp", ".bmp", ".gif"])
def test_size_is_refused_before_decoding(tmp_path: Path, suffix: str) -> None:
    path = save_image(tmp_path / f"x{suffix}", (300, 200))
    with pytest.raises(TooLargeError, match="300 x 200"):
        open_source(path, max_image_pixels=59_999)


def test_one_giant_frame_fails_its_page_only(tmp_path: Path) -> None:
    path = frames_of(Image.new("1", (50, 50)), Image.new("1", (500, 500)), path=tmp_path / "x.tif")
    with open_source(path, max_image_pixels=100_000) as source:
        assert source.page(1).native_px == (50, 50)
        with pytest.raises(TooLargeError) as failure:
            source.page(2)
    assert failure.value.page == 2


def test_pillows_own_limit_does_not_get_in_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    path = save_image(tmp_path / "x.png", (300, 200))
    with open_source(path) as source:
        assert source.page(1).decode((300, 200)).size == (300, 200)


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".tif", ".webp", ".gif", ".bmp", ".avif", ".heic"])
def test_cut_off_images_are_corrupt(tmp_path: Path, suffix: str) -> None:
    picture = Image.effect_noise((256, 256), 90).convert("RGB")
    path = tmp_path / f"x{suffix}"
    if suffix == ".heic":
        pytest.importorskip("pillow_heif").from_pillow(picture).save(path)
    else:
        picture.save(path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(CorruptError) as failure, open_source(path) as source, source.page(1) as page:
        page.decode((256, 256))
    assert failure.value.file == path


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(data=st.data(), kind=st.sampled_from(["PNG", "JPEG", "TIFF", "WEBP", "GIF", "BMP"]))
def test_damaged_images_fail_as_ours(tmp_path: Path, data: st.DataObject, kind: str) -> None:
    picture = Image.linear_gradient("L").resize((48, 48))
    whole = io.BytesIO()
    picture.save(whole, kind)
    content = bytearray(whole.getvalue())
    for at in data.draw(st.lists(st.integers(4, len(content) - 1), max_size=6)):
        content[at] = data.draw(st.integers(0, 255))
    path = tmp_path / "x"
    path.write_bytes(content[: data.draw(st.integers(8, len(content)))])
    try:
        with open_source(path, max_image_pixels=10_000) as source, source.page(1) as page:
            assert page.native_px is not None
            assert page.decode((24, 24)).size == (24, 24)
    except OcrdError as error:
        assert error.exit_code != 70


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_pdfs_fail_as_ours(tmp_path: Path, data: st.DataObject) -> None:
    content = bytearray(raw_pdf(*with_attachment(), stream(b"BT ET")))
    for at in data.draw(st.lists(st.integers(0, len(content) - 1), max_size=8)):
        content[at] = data.draw(st.integers(0, 255))
    path = tmp_path / "x.pdf"
    path.write_bytes(content)
    try:
        assert open_all(path)
    except OcrdError as error:
        assert error.exit_code != 70


@pytest.mark.parametrize(
    ("mode", "ink", "paper"),
    [
        ("1", 0, 1),
        ("L", 0, 255),
        ("LA", (0, 255), (0, 0)),
        ("RGB", (0, 0, 0), (255, 255, 255)),
        ("RGBA", (0, 0, 0, 255), (0, 0, 0, 0)),
        ("P", 0, 1),
        ("I;16", 0, 65535),
        ("I", 0, 65535),
        ("F", 0.0, 1.0),
        ("CMYK", (0, 0, 0, 255), (0, 0, 0, 0)),
        ("LAB", (0, 128, 128), (255, 128, 128)),
    ],
)
@pytest.mark.parametrize("shrink", [1, 3])
def test_every_mode_becomes_black_on_white(
    tmp_path: Path, mode: str, ink: Any, paper: Any, shrink: int
) -> None:
    picture = Image.new(mode, (90, 90), paper)
    picture.paste(ink, (0, 0, 45, 45))
    if mode == "P":
        picture.putpalette([0, 0, 0, 255, 255, 255])
    path = tmp_path / ("x.png" if mode in ("P", "LA", "RGBA", "I;16") else "x.tif")
    picture.save(path)
    with open_source(path) as source, source.page(1) as page:
        image = page.decode((90 // shrink, 90 // shrink))
    assert image.mode in ("L", "RGB")
    assert image.convert("L").getpixel((5, 5)) < 10
    assert image.convert("L").getpixel((90 // shrink - 5, 90 // shrink - 5)) > 245


def test_sixteen_bit_pictures_keep_their_contrast(tmp_path: Path) -> None:
    for top in (200, 4000, 65535):
        values = np.full((64, 64), top, np.uint16)
        values[:32, :32] = top // 2
        Image.fromarray(values).save(tmp_path / "x.tif")
        with open_source(tmp_path / "x.tif") as source, source.page(1) as page:
            image = page.decode((64, 64))
        assert image.getpixel((60, 60)) > 190
        assert image.getpixel((5, 5)) == pytest.approx(image.getpixel((60, 60)) / 2, abs=2)


def test_transparent_palette_shows_paper(tmp_path: Path) -> None:
    picture = Image.new("P", (20, 20), 1)
    picture.putpalette([0, 0, 0, 10, 10, 10])
    picture.paste(0, (0, 0, 10, 10))
    picture.save(tmp_path / "x.png", transparency=1)
    with open_source(tmp_path / "x.png") as source, source.page(1) as page:
        image = page.decode((20, 20)).convert("L")
    assert image.getpixel((15, 15)) == 255
    assert image.getpixel((3, 3)) == 0


def test_jpeg_of_printers_colours_is_not_inverted(tmp_path: Path) -> None:
    picture = Image.new("CMYK", (64, 64), (0, 0, 0, 0))
    picture.paste((0, 0, 0, 255), (0, 0, 32, 32))
    picture.save(tmp_path / "x.jpg", quality=95)
    with open_source(tmp_path / "x.jpg") as source, source.page(1) as page:
        image = page.decode((64, 64)).convert("L")
    assert image.getpixel((4, 4)) < 20
    assert image.getpixel((60, 60)) > 235


def test_error_of_the_system_while_decoding_is_a_storage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save_image(tmp_path / "x.png", (300, 200))
    with open_source(path) as source, source.page(1) as page:

        def fail(*_: object) -> None:
            raise OSError(errno.ESTALE, "Stale file handle")

        monkeypatch.setattr(Image.Image, "load", fail)
        monkeypatch.setattr("PIL.ImageFile.ImageFile.load", fail)
        with pytest.raises(VanishedError):
            page.decode((300, 200))


# --- real files ----------------------------------------------------------------------------------------------


# The manifest gives the unrotated size here, and says in its note that the page is shown upright.
DISPLAYED_UPRIGHT = {"rotated_skew.pdf": {"1": [612, 792]}}


@pytest.mark.skipif(not ROWS, reason=NO_CORPUS)
@pytest.mark.parametrize("row", ROWS or [{}], ids=lambda row: row.get("file", "none"))
def test_real_file_opens_as_expected(row: dict[str, Any]) -> None:
    expected, path = row["expect"], CORPUS / "files" / row["file"]
    stale_code()
    codes, failed, sizes = set(), set(), {}
    try:
        with open_source(path) as source:
            pages = source.info.pages
            for number in range(1, pages + 1):
                try:
                    with source.page(number) as page:
                        if page.native_px is not None:
                            page.decode((64, 64))
                        sizes[str(number)] = [round(page.width_pt), round(page.height_pt)]
                except OcrdError as error:
                    assert error.page == number
                    failed.add(number)
                    codes.add(error.code)
    except OcrdError as error:
        assert error.file == path
        codes.add(error.code)
        pages = None
    allowed = {expected.get("code"), *expected.get("alt", [])}
    if expected["outcome"] == "error":
        assert codes and codes <= allowed
        assert not sizes
    elif expected["outcome"] == "ok":
        assert not codes
    if sizes:
        assert pages == expected.get("pages", pages)
    assert failed >= set(expected.get("page_errors", ()))
    display = DISPLAYED_UPRIGHT.get(row["file"], expected.get("display", {}))
    for number, size in display.items():
        assert sizes[number] == pytest.approx(size, abs=1)
    if "password" in expected:
        with open_source(path, passwords=("wrong", expected["password"])) as source:
            assert source.info.pages >= 1
            source.page(1).close()


@pytest.mark.parametrize(
    ("file", "codes"),
    [
        ("xfa_issue14315.pdf", ["xfa"]),
        ("form_dd0293.pdf", []),
        ("G_portfolio.pdf", ["attachments", "portfolio"]),
        ("attachments.pdf", ["attachments"]),
        ("auth-event-ef-open.pdf", ["attachments"]),
        ("minimal-document.pdf", []),
    ],
)
def test_real_file_warns(file: str, codes: list[str]) -> None:
    with open_source(corpus(file)) as source:
        assert [warning.code for warning in source.info.warnings] == codes


def test_opening_the_module_loads_no_reader() -> None:
    script = (
        "import sys, pipeline.source; print([m for m in sys.modules if m in ('PIL', 'pypdfium2', 'numpy')])"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    assert out.stdout.strip() == "[]"


def test_a_file_that_cannot_be_opened_is_let_go_at_once(tmp_path: Path) -> None:
    path = tmp_path / "x.pdf"
    path.write_bytes(b"X-Mailer: a downloader\r\n" * 100 + b"%PDF-1.4 and nothing more")
    with pytest.raises(CorruptError):  # what the library itself keeps open is open from here on
        open_source(path)
    gc.collect()  # what other tests left open must not be closed in between
    before = list(Path("/dev/fd").iterdir())
    with pytest.raises(CorruptError) as caught:
        open_source(path)
    assert len(list(Path("/dev/fd").iterdir())) == len(before)
    assert caught.value.file == path  # alive until here, with all its frames


def test_threads_of_one_process_do_not_meet_in_pdfium() -> None:
    """They would crash it, or worse: leave it losing streams of every file opened after them, without a word."""
    script = """
import sys, threading, time
from pathlib import Path
from pipeline.document import DocumentReader
from storage.settings import Settings

def read():
    settings = Settings(Path("/nowhere"), text_layer="auto")
    with DocumentReader(Path("samples/paper.pdf"), settings, None) as reader:
        return reader.prepare(1).layer.text

until = time.monotonic() + 1.5
different = []
alone = read()

def work():
    while time.monotonic() < until and not different:
        if read() != alone:
            different.append(1)

threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(different))
"""
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert (out.returncode, out.stdout.strip()) == (0, "0"), out.stderr
