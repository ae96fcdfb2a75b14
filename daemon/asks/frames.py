"""What server and worker say to each other: JSON behind four bytes of length, one connection per ask.

The server sends one `Ask` and nothing more; its closing the connection means that nobody waits any longer. The worker
answers `accepted` or `refused`, then per page `page`, `delta`…, `read`, and at last `end`, or `failed` at any point.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

LARGEST_ASK = 256 << 10
# A page's Markdown; the text layer of a hostile PDF is cut by its reader long before.
LARGEST_FRAME = 64 << 20
HEADER = struct.Struct(">I")
Frame = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Ask:
    """What to read, and how; None: as the worker's settings say."""

    documents: tuple[str, ...]  # paths of staged copies, read in order
    client: str  # who asks: turns are shared out among clients
    engine: str | None = None
    model: str | None = None  # a preset's name
    mode: str | None = None
    task: str | None = None
    max_tokens: int | None = None
    live: bool = False  # send text as it is accepted
    climbs: bool = True  # read a page again in other ways when it is cut short
    most_pages: int = 1000

    def frame(self) -> Frame:
        """The ask as it is sent."""
        return asdict(self)

    @classmethod
    def of(cls, frame: Mapping[str, Any]) -> Ask:
        """The ask in a frame. Raises: `TypeError`, `KeyError` for another version's."""
        return cls(**{**frame, "documents": tuple(frame["documents"])})


def encode(frame: Mapping[str, Any]) -> bytes:
    """A frame's bytes. Raises: `ValueError` past `LARGEST_FRAME`."""
    body = json.dumps(frame, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    if len(body) > LARGEST_FRAME:
        raise ValueError("the frame is too large")
    return HEADER.pack(len(body)) + body


def decode(body: bytes) -> Frame:
    """The frame in `body`, its length left out. Raises: `ValueError` for anything else."""
    frame = json.loads(body.decode("utf-8", "surrogatepass"))
    if not isinstance(frame, dict):
        raise ValueError("no frame")
    return frame


def take(buffer: bytearray, largest: int) -> Frame | None:
    """The first frame of `buffer`, taken out of it; None until it is whole. Raises: `ValueError`."""
    if len(buffer) < HEADER.size:
        return None
    (length,) = HEADER.unpack_from(buffer)
    if length > largest:
        raise ValueError("the frame is too large")
    end = HEADER.size + length
    if len(buffer) < end:
        return None
    body = bytes(buffer[HEADER.size : end])
    del buffer[:end]
    return decode(body)
