"""Streams of a PDF that unpack to more than fits in memory, found before PDFium is given the file.

PDFium unpacks a page's content as a whole, and needs three times its size. A stream is unpacked here in pieces, and
only counted. Pictures are left out: PDFium draws them line by line. So are encrypted files: their streams say nothing.
"""

from __future__ import annotations

import mmap
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LIMIT_BYTES = 256 << 20  # of content that unpacks as bombs do, all streams of the file together
LONELY_BYTES = 512 << 20  # of one stream, however honest
BOMB_RATIO = 100.0  # content packs 3 to 20 times
_NOTABLE = 16 << 20  # what unpacks to less cannot matter
_MOST = 1032  # bytes that Deflate makes of one (zlib's technical notes)
_PIECE = 1 << 20
_DICTIONARY = 4096  # bytes before `stream` in which its dictionary is looked for
_STREAM = re.compile(rb">>\s{0,4}stream\r?\n")
_IMAGE = re.compile(rb"/Subtype\s*/Image\b")
_FLATE = re.compile(rb"/(?:FlateDecode|Fl)\b")
_ELSEWHERE = re.compile(rb"/Filter\s+\d+\s+\d+\s+R\b")  # the filters' names are another object
_ESCAPED = re.compile(rb"#([0-9A-Fa-f]{2})")  # in names


@dataclass(frozen=True, slots=True)
class Bomb:
    """What unpacks to too much."""

    packed_bytes: int
    unpacked_bytes: int  # at least: counting ends at the limit


def find(path: Path) -> Bomb | None:
    """The stream that is too much, or None. Raises: `OSError` as reading does."""
    if path.stat().st_size == 0:
        return None
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        together = 0
        for start, end, layers in _suspects(data):
            unpacked = _unpacked(data, start, end, layers)
            if unpacked > max(BOMB_RATIO * (end - start), _NOTABLE):
                together += unpacked
            if together > LIMIT_BYTES or unpacked > LONELY_BYTES:
                return Bomb(end - start, unpacked)
    return None


def _suspects(data: mmap.mmap) -> Iterator[tuple[int, int, int]]:
    """Start, end and number of Deflate layers of the streams that could be large."""
    for match in _STREAM.finditer(data):
        head = data[max(0, match.start() - _DICTIONARY) : match.start()]
        head = head[head.rfind(b" obj") + 1 :]
        head = _ESCAPED.sub(lambda code: bytes.fromhex(code[1].decode()), head)
        layers = len(_FLATE.findall(head)) or bool(_ELSEWHERE.search(head))
        if not layers or _IMAGE.search(head):
            continue
        end = data.find(b"endstream", match.end())
        end = len(data) if end < 0 else end
        if (end - match.end()) * _MOST**layers > _NOTABLE * (4 if layers == 1 else 1):
            yield match.end(), end, layers


def _unpacked(data: mmap.mmap, start: int, end: int, layers: int) -> int:
    """Bytes that a stream unpacks to; counting ends beyond `LONELY_BYTES`."""
    count = 0
    pieces: Iterator[bytes] = (data[at : min(at + _PIECE, end)] for at in range(start, end, _PIECE))
    for _ in range(layers):
        pieces = _inflated(pieces)
    for piece in pieces:
        count += len(piece)
        if count > LONELY_BYTES:
            break
    return count


def _inflated(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """What Deflate makes of them, in pieces again; ends where the data is damaged."""
    inflater = zlib.decompressobj()
    for packed in pieces:
        while packed and not inflater.eof:
            try:
                yield inflater.decompress(packed, _PIECE)
            except zlib.error:
                return
            packed = inflater.unconsumed_tail
