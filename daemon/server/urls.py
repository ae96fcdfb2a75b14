"""What a request names: data in the address itself, files below allowed folders, pictures elsewhere on the net."""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import sqlite3
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote_to_bytes, urlsplit

from daemon.server import fetching
from daemon.server.failures import Refused

LARGEST_DOCUMENT = 256 << 20
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Reach:
    """Nothing, unless told: `roots` are folders whose files may be named, `remote` allows http(s) addresses."""

    roots: tuple[Path, ...] = ()
    watched: bool = False  # the watched folders too
    remote: bool = False

    def with_watched(self, conn: sqlite3.Connection) -> Reach:
        """The same, with the folders that are watched now among the roots."""
        rows = conn.execute("SELECT path_bytes FROM roots WHERE watched").fetchall()
        return replace(self, roots=(*self.roots, *(Path(os.fsdecode(row[0])) for row in rows)))


def copy(url: str, into: BinaryIO, reach: Reach, *, private: Path, param: str | None = None) -> None:
    """Write what `url` names to a file. Blocks: for a thread.

    `reach.roots` are to hold the watched folders by now; below `private` (the home) nothing may be named.
    Raises: `Refused` for addresses that are malformed, not allowed, or lead to nothing.
    """
    scheme = url.partition(":")[0].lower()
    match scheme:
        case "data":
            into.write(data_of(url, param))
        case "file":
            with opened(url, reach.roots, private, param) as file:
                _copy_file(file, into, param)
        case "http" | "https" if reach.remote:
            fetching.fetch(url, into, LARGEST_DOCUMENT, param=param)
        case "http" | "https":
            raise Refused(
                403,
                "addresses elsewhere are not fetched",
                code="remote_refused",
                param=param,
                remedy="send the picture itself as a data: URL, or start the server with --allow-remote",
            )
        case _:
            raise Refused(400, "neither a data: nor a file: URL", code="invalid_url", param=param)


def data_of(url: str, param: str | None = None) -> bytes:
    """The bytes of a `data:…;base64,…` URL. Raises: `Refused`."""
    head, comma, text = url.partition(",")
    if not comma or not head.lower().rstrip().endswith(";base64"):
        raise Refused(400, "not a data URL of base64", code="invalid_data_url", param=param)
    try:
        data = base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise Refused(400, "not valid base64", code="invalid_data_url", param=param) from None
    if not data:
        raise Refused(400, "the data URL is empty", code="invalid_data_url", param=param)
    return data


@contextlib.contextmanager
def opened(url: str, roots: Sequence[Path], private: Path, param: str | None = None) -> Iterator[BinaryIO]:
    """The file of a `file:` URL below one of `roots`. Raises: `Refused`, saying nothing of what lies elsewhere."""
    refused = Refused(
        403,
        "not a file below an allowed folder",
        code="file_refused",
        param=param,
        remedy="send the file itself as a data: URL, or start the server with --allow-root",
    )
    parts = urlsplit(url)
    path = os.fsdecode(unquote_to_bytes(parts.path))
    if parts.netloc not in ("", "localhost") or not path.startswith("/") or "\0" in path:
        raise refused
    try:
        # Where the path leads now decides; then it is walked without following a link that was put there since.
        real, home = Path(path).resolve(strict=True), private.resolve()
        bases = [base for base in (root.resolve() for root in roots) if real.is_relative_to(base)]
        if not bases or real.is_relative_to(home):
            raise refused
        descriptor = _walk(bases[0], real.relative_to(bases[0]).parts)
    except (OSError, RuntimeError):
        raise refused from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise refused
    with os.fdopen(descriptor, "rb") as file:
        yield file


def _walk(base: Path, names: Sequence[str]) -> int:
    """A descriptor of the file at `names` below `base`, no link followed. Raises: OSError."""
    if not names:
        raise FileNotFoundError
    folder = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in names[:-1]:
            inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            os.close(folder)
            folder = inner
        # Not blocking: it may be a pipe that nobody writes to.
        return os.open(names[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    finally:
        os.close(folder)


def _copy_file(file: BinaryIO, into: BinaryIO, param: str | None) -> None:
    size = 0
    while data := file.read(_CHUNK):
        size += len(data)
        if size > LARGEST_DOCUMENT:
            raise Refused(413, "the file is too large", code="too_large", param=param)
        into.write(data)
