"""Open a file as a source of pages: what kind it is by its content, then the reader for that kind.

Knows nothing of PDFium or Pillow itself; `pipeline.pdf_source` and `pipeline.image_source` do.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from storage.errors import (
    EmptyFileError,
    NotADocumentError,
    OcrdError,
    TooLargeError,
    UnsupportedError,
    from_os_error,
)
from storage.records import DocumentInfo

if TYPE_CHECKING:
    from PIL import Image

PDF = "application/pdf"
MAX_IMAGE_PIXELS = 178_956_970  # the default of Settings.max_image_pixels

# How far a PDF header may lie from the start: PDFium looks at 1,024 bytes; what lies before it in files
# saved by broken downloaders (HTTP headers, mail headers) is longer, and is cut off by `pdf_source`.
HEAD_BYTES = 16 * 1024
PDFIUM_HEADER_BYTES = 1024

_IMAGE_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"II*\x00", "image/tiff"),
    (b"MM\x00*", "image/tiff"),
    (b"II+\x00", "image/tiff"),  # BigTIFF
    (b"MM\x00+", "image/tiff"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
_HEIF_BRANDS = frozenset(
    {b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"hevm", b"hevs", b"mif1", b"msf1", b"mif2"}
)
# What people do drop beside documents: named, so that the message helps. Where the remedy is to convert,
# the file is a document of a kind we do not read.
_DOCUMENTS_WE_DO_NOT_READ: tuple[tuple[bytes, str], ...] = (
    (b"%!PS", "PostScript"),
    (b"{\\rtf", "an RTF document"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Office document or Outlook message"),
    (b"AT&TFORM", "DjVu"),
    (b"\x00\x00\x00\x0cjP  ", "JPEG 2000"),
    (b"\xff\x4f\xff\x51", "JPEG 2000"),
    (b"\x00\x00\x00\x0cJXL ", "JPEG XL"),
    (b"\xff\x0a", "JPEG XL"),
    (b"8BPS", "a Photoshop document"),
    (b"II\xbc\x01", "JPEG XR"),
)
_OTHER_THINGS: tuple[tuple[bytes, str], ...] = (
    (b"PK\x03\x04", "a ZIP archive or an Office document"),
    (b"PK\x05\x06", "an empty ZIP archive"),
    (b"\x1f\x8b", "gzip data"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ", "xz data"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (b"Rar!", "a RAR archive"),
    (b"SQLite format 3", "an SQLite database"),
    (b"\x7fELF", "a program"),
    (b"bplist", "a property list"),
)
_HTML = re.compile(
    rb"\A(?:\xef\xbb\xbf)?\s*(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html|head|body|script)", re.I | re.S
)
_XML = re.compile(rb"\A(?:\xef\xbb\xbf)?\s*<\?xml", re.I)


class ClosedAtExit:
    """A context manager that is closed at its end."""

    def close(self) -> None:
        """Free what is held; the object is not used again."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class SourcePage(Protocol):
    """One page of a source, until it is closed. Sizes are in points, as displayed."""

    @property
    def path(self) -> Path:
        """The file the page is of."""

    @property
    def number(self) -> int:
        """Number of the page, from 1."""

    @property
    def width_pt(self) -> float:
        """Width as displayed (CropBox, /Rotate or EXIF orientation applied)."""

    @property
    def height_pt(self) -> float:
        """Height as displayed."""

    @property
    def label(self) -> str | None:
        """The printed page label, where it differs from the number."""

    @property
    def pdf(self) -> Any | None:
        """The pypdfium2 page; None for images."""

    @property
    def native_px(self) -> tuple[int, int] | None:
        """Width and height of the picture in pixels, upright; None for PDF pages."""

    def decode(self, size: tuple[int, int]) -> Image.Image:
        """The picture in exactly `size` pixels, upright, RGB or L. Images only: where `native_px` is not None."""

    def close(self) -> None:
        """Free the page's handles; the page is not used again."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Source(Protocol):
    """An open file. Used from one thread; closed by whoever opened it."""

    @property
    def info(self) -> DocumentInfo:
        """What opening the file told."""

    def page(self, number: int) -> SourcePage:
        """Open page `number`, from 1. Raises: `CorruptError` naming the page when it cannot be loaded."""

    def close(self) -> None:
        """Free the file and everything that hangs on it."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def sniff(head: bytes) -> str | None:
    """The media type that `head` (the first `HEAD_BYTES` bytes of a file) speaks of; None if we read no such kind."""
    for magic, media_type in _IMAGE_MAGIC:
        if head.startswith(magic):
            return media_type
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    if head[4:8] == b"ftyp":
        return _sniff_iso_media(head)
    if head[:2] == b"BM" and len(head) > 18 and head[14:18] in _BMP_HEADER_SIZES:
        return "image/bmp"
    if any(head.startswith(magic) for magic, _ in (*_OTHER_THINGS, *_DOCUMENTS_WE_DO_NOT_READ)):
        return None
    at = head.find(b"%PDF-")
    if at < 0 or (at > PDFIUM_HEADER_BYTES - 5 and _HTML.match(head)):
        return None
    return PDF


_BMP_HEADER_SIZES = frozenset(size.to_bytes(4, "little") for size in (12, 40, 52, 56, 64, 108, 124))


def _sniff_iso_media(head: bytes) -> str | None:
    size = min(int.from_bytes(head[:4], "big"), len(head))
    brands = {head[8:12], *(head[at : at + 4] for at in range(16, size - 3, 4))}
    if b"avif" in brands or b"avis" in brands:
        return "image/avif"
    return "image/heic" if brands & _HEIF_BRANDS else None


def open_source(
    path: Path, *, passwords: Sequence[str] = (), max_image_pixels: int = MAX_IMAGE_PIXELS
) -> Source:
    """Open `path` by what its content says. `passwords` are tried on an encrypted PDF after the empty one.

    Raises: `EmptyFileError`, `NotADocumentError`, `UnsupportedError` by content; `StorageError` where the operating
    system refuses; `PasswordError`, `UnsupportedEncryptionError`, `NoPagesError`, `TooLargeError`, `CorruptError` as
    the reader for the kind finds.
    """
    head = _read_head(path)
    media_type = sniff(head)
    if media_type is None:
        raise _not_ours(head, path)
    if media_type == PDF:
        from pipeline.pdf_source import PdfSource

        _refuse_bombs(path)
        try:
            return PdfSource(path, passwords=passwords, header_at=head.find(b"%PDF-"))
        except OcrdError:
            if _HTML.match(head):  # a page about PDF: what PDFium says of it helps nobody
                raise _not_ours(head, path) from None
            raise
    from pipeline.image_source import ImageSource

    return ImageSource(path, media_type, max_pixels=max_image_pixels)


def _refuse_bombs(path: Path) -> None:
    """Raises: `TooLargeError` for a PDF that unpacks to more than PDFium has memory for."""
    from pipeline import pdf_bombs

    try:
        bomb = pdf_bombs.find(path)
    except OSError as error:
        raise from_os_error(error, file=path) from error
    if bomb is not None:
        raise TooLargeError(
            f"{bomb.packed_bytes:,} bytes of it unpack to more than {bomb.unpacked_bytes >> 20:,} MiB",
            file=path,
            remedy="nobody draws that much on a page: get another copy, or leave it alone",
        )


def _read_head(path: Path) -> bytes:
    """The first `HEAD_BYTES` bytes. Raises: `StorageError`; `NotADocumentError` for pipes and devices."""
    try:
        kind = path.stat().st_mode
        if not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):  # opening a pipe would wait for its writer
            raise NotADocumentError("this is no regular file", file=path)
        with path.open("rb") as file:
            return file.read(HEAD_BYTES)
    except OSError as error:
        raise from_os_error(error, file=path) from error


def _not_ours(head: bytes, path: Path) -> OcrdError:
    """The error for a file of no kind we read, saying what it is where that can be told."""
    if not head:
        return EmptyFileError("the file is empty (0 bytes)", file=path)
    for magic, what in _DOCUMENTS_WE_DO_NOT_READ:
        if head.startswith(magic):
            return UnsupportedError(f"the file is {what}", file=path)
    what = next((what for magic, what in _OTHER_THINGS if head.startswith(magic)), "")
    if not what and _HTML.match(head):
        what = "a web page (HTML)"
    if not what and _XML.match(head):
        what = "XML"
    if not what:
        what = "neither a PDF nor an image" + (" (only zeros)" if not head.strip(b"\x00") else "")
    return NotADocumentError(f"the file is {what}", file=path)
