"""What PDFium does not tell of a PDF, looked up in its bytes: is it a portfolio, does it use a filter nobody reads?"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from pathlib import Path

_CHUNK = 1 << 20
_OVERLAP = 1 << 12
_OBJECT_STREAM = re.compile(rb"/Type\s*/ObjStm\b[^>]*>>\s*stream\r?\n", re.S)
_COLLECTION = re.compile(rb"/Collection[\s/<]")
_LARGEST_OBJECT_STREAM = 1 << 20  # bytes, inflated; the catalog is among the first objects of one
_BROTLI = re.compile(rb"/(?:BrotliDecode|Br)\b")


def is_portfolio(path: Path) -> bool:
    """Whether the catalog names a collection: pages are a cover sheet then, and the content is in the attachments.

    Raises: `OSError` as reading does. An encrypted file keeps the answer to itself where its catalog is compressed.
    """
    return any(_COLLECTION.search(chunk) or _in_object_stream(chunk) for chunk in _chunks(path))


def uses_brotli(path: Path) -> bool:
    """Whether streams are compressed with Brotli, which PDF 2.0 readers of today do not know. Raises: `OSError`."""
    return any(_BROTLI.search(chunk) for chunk in _chunks(path))


def _chunks(path: Path) -> Iterator[bytes]:
    """The file in overlapping pieces, so that no name is cut in two."""
    with path.open("rb") as file:
        tail = b""
        while chunk := file.read(_CHUNK):
            yield tail + chunk
            tail = chunk[-_OVERLAP:]


def _in_object_stream(chunk: bytes) -> bool:
    for found in _OBJECT_STREAM.finditer(chunk):
        try:
            inflated = zlib.decompressobj().decompress(chunk[found.end() :], _LARGEST_OBJECT_STREAM)
        except zlib.error:
            continue
        if _COLLECTION.search(inflated):
            return True
    return False
