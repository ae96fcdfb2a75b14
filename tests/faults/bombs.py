"""Small files that unpack to gigabytes."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from functools import cache

from tests.pdf_factory import Page, _file, pdf, text

MIB = 1 << 20


@cache
def _packed(size_mb: int, byte: bytes = b" ", times: int = 1) -> bytes:
    """So many MiB of one byte, deflated `times` times."""
    packer, parts = zlib.compressobj(9), []
    piece = byte * MIB
    for _ in range(size_mb):
        parts.append(packer.compress(piece))
    data = b"".join((*parts, packer.flush()))
    for _ in range(times - 1):
        data = zlib.compress(data, 9)
    return data


def _one_page(content: bytes, entries: str, resources: str = "", more: list[bytes] | None = None) -> bytes:
    """A PDF of one page whose content stream is object 4; further objects follow."""
    objects = [
        b"<</Type /Catalog /Pages 2 0 R>>",
        b"<</Type /Pages /Count 1 /Kids [3 0 R]>>",
        f"<</Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R /Resources <<{resources}>>>>".encode(),
        f"<<{entries} /Length {len(content)}>> stream\n".encode() + content + b"\nendstream",
        *(more or []),
    ]
    return _file(objects)


def pdf_content(size_mb: int = 2048) -> bytes:
    """A content stream of 2 GB of spaces, deflated twice."""
    return _one_page(_packed(size_mb, times=2), "/Filter [/FlateDecode /FlateDecode]")


def _image(width: int, height: int, size_mb: int, times: int) -> bytes:
    data = _packed(size_mb, b"\xff", times)
    filters = "/FlateDecode " * times
    image = (
        f"<</Type /XObject /Subtype /Image /Width {width} /Height {height} /ColorSpace /DeviceGray"
        f" /BitsPerComponent 8 /Filter [{filters}] /Length {len(data)}>> stream\n"
    ).encode()
    image += data + b"\nendstream"
    return _one_page(b"q 612 0 0 792 0 0 cm /P0 Do Q", "", "/XObject <</P0 5 0 R>>", [image])


def pdf_image() -> bytes:
    """A picture of 40,000 x 40,000 grey pixels."""
    return _image(40_000, 40_000, 1526, 2)


def pdf_image_lying() -> bytes:
    """A picture that says it is small and unpacks to 1 GB."""
    return _image(10, 10, 1024, 2)


def pdf_objects() -> bytes:
    """An object stream of 1 GB."""
    data = _packed(1024, times=2)
    stream = (
        f"<</Type /ObjStm /N 1 /First 4 /Filter [/FlateDecode /FlateDecode] /Length {len(data)}>> stream\n"
    ).encode()
    return _one_page(b"", "", "/Font 6 0 R", [stream + data + b"\nendstream"])


def pdf_nested(depth: int = 7, width: int = 12) -> bytes:
    """Forms that draw forms that draw forms: 12 to the power of 7 rectangles, years of drawing."""
    forms = []
    for level in range(depth):
        calls = b"/F Do " * width
        inner = f"/XObject <</F {6 + level} 0 R>>" if level < depth - 1 else ""
        body = calls if level < depth - 1 else b"0 0 612 792 re f " * width
        head = f"<</Type /XObject /Subtype /Form /BBox [0 0 612 792] /Resources <<{inner}>> /Length {len(body)}>>"
        forms.append(head.encode() + b" stream\n" + body + b"\nendstream")
    return _one_page(b"/F Do", "", "/XObject <</F 5 0 R>>", forms)


def pdf_huge_page() -> bytes:
    """A page of 200 million points."""
    return pdf(Page(text("far away", 10, 10), width=2e8, height=2e8))


def _png(width: int, height: int, kind: int, depth: int, data: bytes, extra: bytes = b"") -> bytes:
    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + extra + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def png_too_large() -> bytes:
    """100,000 x 100,000 pixels."""
    return _png(100_000, 100_000, 0, 8, _packed(1024))


def png_largest() -> bytes:
    """As many pixels as are allowed, 16 bits of red, green, blue and transparency each: 1.4 GB."""
    side = 13_300
    return _png(side, side, 6, 16, _packed(side * (side * 8 + 1) // MIB + 1, b"\0"))


def png_lying() -> bytes:
    """10 x 10 pixels whose data unpack to 1 GB."""
    return _png(10, 10, 0, 8, _packed(1024, b"\0"))


def png_text() -> bytes:
    """A compressed comment of 1 GB."""
    body = b"Comment\0\0" + _packed(1024)
    chunk = struct.pack(">I", len(body)) + b"zTXt" + body + struct.pack(">I", zlib.crc32(b"zTXt" + body))
    return _png(8, 8, 0, 8, zlib.compress(b"\0" * 72), chunk)


def png_profile() -> bytes:
    """A colour profile of 1 GB."""
    body = b"ICC\0\0" + _packed(1024)
    chunk = struct.pack(">I", len(body)) + b"iCCP" + body + struct.pack(">I", zlib.crc32(b"iCCP" + body))
    return _png(8, 8, 0, 8, zlib.compress(b"\0" * 72), chunk)


def _tiff(entries: list[tuple[int, int, int, int]], data: bytes = b"", next_ifd: int = 0) -> bytes:
    """A little-endian TIFF: entries (tag, type, count, value); data begins where the directory ends."""
    body = struct.pack("<H", len(entries))
    body += b"".join(struct.pack("<HHII", *entry) for entry in entries)
    return b"II*\0" + struct.pack("<I", 8) + body + struct.pack("<I", next_ifd) + data


def _tiff_of(width: int, height: int, data: bytes, bits: int = 8, rows: int = 0) -> bytes:
    entries = [
        (256, 4, 1, width), (257, 4, 1, height), (258, 3, 1, bits), (259, 3, 1, 8), (262, 3, 1, 1), (273, 4, 1, 0),
        (277, 3, 1, 1), (278, 4, 1, rows or height), (279, 4, 1, len(data)),
    ]  # fmt: skip
    start = 8 + 2 + 12 * len(entries) + 4
    entries[5] = (273, 4, 1, start)
    return _tiff(entries, data)


def tiff_too_large() -> bytes:
    """60,000 x 60,000 pixels, deflated."""
    return _tiff_of(60_000, 60_000, _packed(64, b"\0"))


def tiff_largest() -> bytes:
    """As many pixels as are allowed."""
    return _tiff_of(13_300, 13_300, _packed(169, b"\0"))


def tiff_lying() -> bytes:
    """A strip of a small picture that unpacks to 1 GB."""
    return _tiff_of(100, 100, _packed(1024, b"\0"))


def tiff_loop() -> bytes:
    """Directories that follow each other in a ring."""
    return _tiff([(256, 4, 1, 8), (257, 4, 1, 8), (258, 3, 1, 8), (259, 3, 1, 1)], next_ifd=8)


def tiff_many_values() -> bytes:
    """A tag that says it has four thousand million values."""
    return _tiff([(256, 4, 1, 8), (257, 4, 1, 8), (258, 3, 0xFFFFFFFF, 8), (273, 4, 0xFFFFFFF0, 8)])


def heic_large(side: int = 7_000) -> bytes:
    """49 million pixels of one colour in some kilobytes."""
    import pillow_heif
    from PIL import Image

    data = io.BytesIO()
    pillow_heif.from_pillow(Image.new("RGB", (side, side), "white")).save(data, quality=1)
    return data.getvalue()


def heic_lying() -> bytes:
    """A small picture that says it has 100,000 x 100,000 pixels."""
    small = heic_large(64)
    at = small.index(b"ispe") + 8
    return small[:at] + struct.pack(">II", 100_000, 100_000) + small[at + 8 :]


def webp_large() -> bytes:
    """16,000 x 16,000 pixels of one colour."""
    from PIL import Image

    data = io.BytesIO()
    Image.new("RGB", (16_000, 16_000), "white").save(data, "WEBP", lossless=True, quality=0, method=0)
    return data.getvalue()


def gif_large() -> bytes:
    """65,535 x 65,535 pixels said, none there."""
    return (
        b"GIF89a"
        + struct.pack("<HHBBB", 65535, 65535, 0x80, 0, 0)
        + b"\0" * 6
        + b",\0\0\0\0\xff\xff\xff\xff\0\2"
    )


def odd_pdfs() -> list[tuple[str, bytes]]:
    """Small PDFs with what the thirty documents lack, for mutation. (Nested forms are not among them: one damage
    lets a form draw itself, and PDFium for ever. Fault `page-takes-years` is about these.)"""
    return [("picture.pdf", _image(64, 64, 1, 2))]


_Maker = Callable[[], bytes]
SMALL: dict[str, _Maker] = {
    "png-too-large.png": lambda: _png(100_000, 100_000, 0, 8, b""),
    "png-lying.png": png_lying,
    "tiff-loop.tiff": tiff_loop,
    "tiff-many-values.tiff": tiff_many_values,
    "heic-lying.heic": heic_lying,
    "gif-large.gif": gif_large,
}
ALL: dict[str, _Maker] = SMALL | {
    "huge-page.pdf": pdf_huge_page,
    "nested.pdf": lambda: pdf_nested(3, 10),
    "content.pdf": pdf_content,
    "image.pdf": pdf_image,
    "image-lying.pdf": pdf_image_lying,
    "objects.pdf": pdf_objects,
    "too-large.png": png_too_large,
    "largest.png": png_largest,
    "text.png": png_text,
    "profile.png": png_profile,
    "too-large.tiff": tiff_too_large,
    "largest.tiff": tiff_largest,
    "lying.tiff": tiff_lying,
    "large.heic": heic_large,
    "large.webp": webp_large,
}
