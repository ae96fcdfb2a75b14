"""Pictures of pages: drawn by a process of their own, one at a time, and the last ones kept in memory."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import select
import sqlite3
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import anyio.to_thread
from fastapi import Response

from daemon.intake import hash_file
from daemon.server import page_painter
from daemon.server.failures import Refused, refusal
from daemon.server.page_painter import Wish
from storage import listing
from storage.errors import class_of

if TYPE_CHECKING:
    from fastapi import Request

    from daemon.server.database import Library
    from storage.settings import Settings

TIMEOUT_S = 30.0  # a page that takes longer is not drawn
KEPT_BYTES = 64 << 20
MOST_WAITING = 32
PICTURES_A_PROCESS = 500  # libraries leak

Place = Callable[[sqlite3.Connection], tuple[sqlite3.Row, int, int]]  # a file, the content, the page's number


class Format(StrEnum):
    """How a picture is encoded."""

    AUTO = "auto"
    PNG = "png"
    JPEG = "jpeg"


@dataclass(frozen=True, slots=True)
class Picture:
    """An encoded picture."""

    media_type: str
    data: bytes


class Painter:
    """Draws pages in a process that is started when needed. Thread-safe."""

    def __init__(self, settings: Settings, *, timeout_s: float = TIMEOUT_S) -> None:
        self.settings = settings
        self.timeout_s = timeout_s
        self.waiting = 0  # requests; belongs to the event loop
        self.thread = ThreadPoolExecutor(1, "pictures")
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._drawn = 0
        self._kept: OrderedDict[str, Picture] = OrderedDict()
        # (path, size, mtime) → SHA-256
        self._intact: OrderedDict[tuple[bytes, int, int], str] = OrderedDict()

    def kept(self, key: str) -> Picture | None:
        """The picture of that key, if it is still in memory."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def draw(self, key: str, wish: Wish) -> Picture:
        """A picture, kept under `key`. Called from `thread` alone. Raises: `Refused`."""
        if (picture := self.kept(key)) is not None:  # drawn for another request while this one waited
            return picture
        picture = self._ask(wish)
        with self._lock:
            self._kept[key] = picture
            while sum(len(one.data) for one in self._kept.values()) > KEPT_BYTES:
                self._kept.popitem(last=False)
        return picture

    def is_content(self, path: bytes, found: os.stat_result, sha256: str) -> bool:
        """Whether a file whose time has changed has the same bytes still; hashed once per time."""
        key = (path, found.st_size, found.st_mtime_ns)
        if key not in self._intact:
            self._intact[key] = hash_file(path)[0]
            if len(self._intact) > 1000:
                self._intact.popitem(last=False)
        return self._intact[key] == sha256

    def close(self) -> None:
        """End the process and the thread; both start again if the app does."""
        self._end()
        self.thread.shutdown(wait=True, cancel_futures=True)
        self.thread = ThreadPoolExecutor(1, "pictures")

    # --- the process -------------------------------------------------------------------------------------

    def _ask(self, wish: Wish) -> Picture:
        process = self._running()
        deadline = time.monotonic() + self.timeout_s
        try:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(page_painter.to_line(wish))
            process.stdin.flush()
            line, rest = _until_line(process.stdout.fileno(), deadline)
            head = json.loads(line)
            data = _rest(process.stdout.fileno(), rest, head.get("size", 0), deadline)
        except (OSError, ValueError, EOFError, TimeoutError) as error:
            self._end()
            took_long = isinstance(error, TimeoutError)
            why = "drawing the page takes too long" if took_long else "the page cannot be drawn"
            raise Refused(
                415, why, code="timeout" if took_long else "crash", remedy="open it in a viewer"
            ) from None
        self._drawn += 1
        if "error" in head:
            code, message, remedy = head["error"]
            raise _refused(code, message, remedy)
        return Picture(head["media_type"], data)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._drawn >= PICTURES_A_PROCESS or (self._process and self._process.poll() is not None):
            self._end()
        if self._process is None:
            environment = os.environ | {"OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2", "PYTHONUTF8": "1"}
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "daemon.server.page_painter"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )
            self._drawn = 0
            bounds = {
                "max_pixels": self.settings.max_pixels,
                "max_image_pixels": self.settings.max_image_pixels,
                "passwords": self.settings.passwords,
            }
            assert self._process.stdin is not None
            with contextlib.suppress(OSError):  # told by the first request
                self._process.stdin.write(json.dumps(bounds).encode() + b"\n")
        return self._process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def _until_line(descriptor: int, deadline: float) -> tuple[bytes, bytes]:
    """The first line and what came with it. Raises: TimeoutError, EOFError."""
    data = b""
    while b"\n" not in data:
        data += _some(descriptor, deadline)
    line, _, rest = data.partition(b"\n")
    return line, rest


def _rest(descriptor: int, begun: bytes, size: int, deadline: float) -> bytes:
    parts = [begun]
    length = len(begun)
    while length < size:
        parts.append(_some(descriptor, deadline))
        length += len(parts[-1])
    return b"".join(parts)


def _some(descriptor: int, deadline: float) -> bytes:
    ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
    if not ready:
        raise TimeoutError
    data = os.read(descriptor, 1 << 20)
    if not data:
        raise EOFError
    return data


def _refused(code: str, message: str, remedy: str) -> Refused:
    kind = class_of(code)
    if kind is None or code == "internal":
        return Refused(415, message, code=code, remedy=remedy or None)
    told = refusal(kind(message, remedy=remedy or None))
    told.status = {503: 404, 500: 415, 400: 415}.get(told.status, told.status)
    return told


# --- the request -------------------------------------------------------------------------------------------


async def respond(request: Request, library: Library, place: Place, width: int, kind: Format) -> Response:
    """The picture of a page, or that the client has it already. Raises: `Refused`."""
    painter: Painter = request.app.state.painter

    def look() -> tuple[sqlite3.Row, int, str, list[sqlite3.Row]]:
        with library.reading() as conn:
            row, content_id, number = place(conn)
            digest = conn.execute("SELECT sha256 FROM documents WHERE id = ?", (content_id,)).fetchone()
            return row, number, digest[0], listing.of_document(conn, content_id, limit=20)

    row, number, sha256, carriers = await anyio.to_thread.run_sync(look)
    key = hashlib.sha256(f"{sha256} {number} {width} {kind} 1".encode()).hexdigest()[:32]
    headers = {"ETag": f'"{key}"', "Cache-Control": "private, no-cache"}
    if f'"{key}"' in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    picture = painter.kept(key)
    if picture is None:
        picture = await _drawn(painter, key, row, carriers, sha256, number, width, kind)
    return Response(picture.data, media_type=picture.media_type, headers=headers)


async def _drawn(
    painter: Painter,
    key: str,
    row: sqlite3.Row,
    carriers: list[sqlite3.Row],
    sha256: str,
    number: int,
    width: int,
    kind: Format,
) -> Picture:
    if painter.waiting >= MOST_WAITING:
        raise Refused(
            429, "too many pictures are asked for at once", code="busy", headers={"Retry-After": "2"}
        )

    def work() -> Picture:
        path = _source(painter, row, carriers, sha256)
        password = json.loads(row["options"] or "{}").get("password")
        passwords = (str(password),) if password else ()
        return painter.draw(key, Wish(os.fsdecode(path), number, width, str(kind), passwords))

    painter.waiting += 1
    try:
        return await asyncio.get_running_loop().run_in_executor(painter.thread, work)
    finally:
        painter.waiting -= 1


def _source(painter: Painter, row: sqlite3.Row, carriers: list[sqlite3.Row], sha256: str) -> bytes:
    """A file that has the content still. Raises: `Refused` 404, 409."""
    changed = not carriers  # a new version of the file took this one's place
    for carrier in carriers:
        path = bytes(carrier["path_bytes"])
        try:
            found = os.stat(path)  # noqa: PTH116 - bytes, as the file system has it
        except OSError:
            continue
        same = (found.st_size, found.st_mtime_ns) == (carrier["size"], carrier["mtime_ns"])
        if same or (found.st_size == carrier["size"] and painter.is_content(path, found, sha256)):
            return path
        changed = True
    where = Path(row["path"]).name
    if changed:
        remedy = "it is read again by `ocrd watch`, or by `ocrd batch FILE`"
        raise Refused(409, f"{where} has changed since it was read", code="changed", remedy=remedy)
    raise Refused(404, f"{where} is gone", code="vanished", remedy="put it back; what was read of it stays")
