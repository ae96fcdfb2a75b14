"""Files that are sent: streamed into a folder under a name that is free, then queued like any given file."""

from __future__ import annotations

import hashlib
import os
import re
import sqlite3
import time
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import anyio.to_thread
from fastapi import APIRouter, Query, Request, Response
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from daemon.server import shapes
from daemon.server.database import Library, LibraryOf
from daemon.server.failures import Refused
from daemon.server.library_api_parameters import PROBLEMS, Responses, problem
from daemon.server.library_api_shaping import document, document_row
from pipeline import source
from storage import library as files
from storage import listing
from storage.errors import from_os_error
from storage.sidecars import NAME_BYTES
from storage.staging import Staging

if TYPE_CHECKING:
    from storage.settings import Settings

router = APIRouter(prefix="/api", tags=["documents"], responses=PROBLEMS)

CHUNK_BYTES = 1 << 20
HEAD_BYTES = source.HEAD_BYTES
NAMES_TRIED = 10_000
_EXTENSION = {"application/pdf": ".pdf", "image/jpeg": ".jpg", "image/tiff": ".tif"}

_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {"file": {"type": "string", "format": "binary"}},
                }
            },
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
        },
    }
}
_ANSWERS: Responses = {
    200: {"model": shapes.Uploaded, "description": "The library had the content already."},
    404: problem("There is no such folder."),
    408: problem("The file came too slowly."),
    413: problem("The file is too large."),
    415: problem("The file is no document."),
}


@router.post(
    "/documents", status_code=201, response_model=shapes.Uploaded, responses=_ANSWERS, openapi_extra=_BODY
)
async def upload(
    request: Request,
    library: LibraryOf,
    folder: Annotated[
        str | None,
        Query(max_length=4096, description="A watched folder, or one below it; else HOME/uploads."),
    ] = None,
    name: Annotated[
        str, Query(max_length=500, description="The file's name, where the body is the file.")
    ] = "",
) -> Response:
    """Have a file read: a form with one `file`, or the bytes themselves as the body."""
    place = await anyio.to_thread.run_sync(_place, library, request.app.state.settings, folder)
    incoming = _Incoming(Staging(place.folder, 0o600), name)
    with incoming.staging:
        await _receive(request, incoming)
        told = await anyio.to_thread.run_sync(_settle, library, place, incoming, time.time())
    return Response(told.model_dump_json(), 200 if told.known else 201, media_type="application/json")


# --- where it goes -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Place:
    """A folder for the file, and what the library notes of files there."""

    folder: bytes
    root_id: int | None
    out_dir: bytes | None
    base: bytes | None


def _place(library: Library, settings: Settings, folder: str | None) -> _Place:
    """Raises: `Refused` 404 where a folder is named that is not watched."""
    out_dir = None if settings.out is None else os.fsencode(settings.out)
    if folder is None:
        home = settings.home / "uploads"
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        return _Place(os.fsencode(home), None, out_dir, os.fsencode(home) if out_dir else None)
    with library.reading() as conn:
        found = _watched(conn, folder)
        if found is None:
            remedy = "name a watched folder (see `ocrd status`), or leave it out"
            raise Refused(
                404, "there is no such watched folder", code="not_found", param="folder", remedy=remedy
            )
        path, root = found
        # As for the files that the watcher found there: else it would ask for other places.
        row = conn.execute(
            "SELECT out_dir_bytes, base_bytes FROM files WHERE root_id = ? ORDER BY id DESC LIMIT 1",
            (root["id"],),
        ).fetchone()
    if row is not None:
        return _Place(path, root["id"], row["out_dir_bytes"], row["base_bytes"])
    return _Place(path, root["id"], out_dir, bytes(root["path_bytes"]) if out_dir else None)


def _watched(conn: sqlite3.Connection, folder: str) -> tuple[bytes, sqlite3.Row] | None:
    """The folder and the root it is or lies below, links followed; None where it is neither, or not there."""
    if "\0" in folder or not Path(folder).is_absolute():
        return None
    real = Path(folder).resolve()
    if not real.is_dir():
        return None
    for root in conn.execute("SELECT * FROM roots WHERE state <> 'gone'"):
        top = Path(os.fsdecode(root["path_bytes"]))
        inside = real.is_relative_to(top.resolve())
        if inside and (root["recursive"] or real == top.resolve()):
            below = real.relative_to(top.resolve())
            if not any(part.startswith(".") for part in below.parts):  # the watcher enters none of these
                return os.fsencode(top / below), root
    return None


# --- what comes in -----------------------------------------------------------------------------------------


@dataclass
class _Incoming:
    """A file as it arrives: written beside its place, hashed on the way."""

    staging: Staging
    name: str
    head: bytes = b""
    size: int = 0
    waiting: bytearray = field(default_factory=bytearray)
    begun: bool = False

    def __post_init__(self) -> None:
        self.digest = hashlib.sha256()
        self._file: Any = None

    def take(self, data: bytes) -> None:
        """Some bytes of the file."""
        self.begun = True
        self.waiting += data

    def flush(self) -> None:
        """Write what waits. Raises: `StorageError`."""
        data = bytes(self.waiting)
        self.waiting.clear()
        try:
            if self._file is None:
                self._file = self.staging.open()
            self._file.write(data)
        except OSError as error:
            raise from_os_error(error, file=os.fsdecode(self.staging.folder)) from error
        self.digest.update(data)
        self.size += len(data)
        if len(self.head) < HEAD_BYTES:
            self.head += data[: HEAD_BYTES - len(self.head)]


async def _receive(request: Request, incoming: _Incoming) -> None:
    """Take the body in. Raises: `Refused` 400 where it has no file."""
    kind, options = parse_options_header(request.headers.get("content-type", ""))
    form = _Form(incoming, options.get(b"boundary", b"")) if kind == b"multipart/form-data" else None
    async for chunk in request.stream():
        form.write(chunk) if form else incoming.take(chunk)
        if len(incoming.waiting) >= CHUNK_BYTES:
            await anyio.to_thread.run_sync(incoming.flush)
    if form:
        form.end()
    if not incoming.begun:
        raise Refused(400, "there is no file", code="no_file", param="file", remedy="send it as field `file`")
    await anyio.to_thread.run_sync(incoming.flush)


class _Form:
    """A form as it arrives: the part that has a file name goes to `incoming`, all others are passed over."""

    def __init__(self, incoming: _Incoming, boundary: bytes) -> None:
        if not boundary:
            raise Refused(400, "the form has no boundary", code="invalid_form")
        self.incoming = incoming
        self.field = self.value = b""
        self.is_file = self.is_whole = False
        self.parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._begin,
                "on_header_field": self._field,
                "on_header_value": self._value,
                "on_header_end": self._header,
                "on_part_data": self._data,
                "on_end": self._end,
            },
        )

    def write(self, data: bytes) -> None:
        """Some bytes of the form. Raises: `Refused`."""
        try:
            self.parser.write(data)
        except FormParserError:
            raise Refused(400, "the form is malformed", code="invalid_form") from None

    def end(self) -> None:
        """There is no more. Raises: `Refused` where the form is cut short."""
        if not self.is_whole:
            raise Refused(400, "the form is cut short", code="invalid_form")

    def _end(self) -> None:
        self.is_whole = True

    def _begin(self) -> None:
        self.field = self.value = b""
        self.is_file = False

    def _field(self, data: bytes, start: int, end: int) -> None:
        self.field += data[start:end]

    def _value(self, data: bytes, start: int, end: int) -> None:
        self.value += data[start:end]

    def _header(self) -> None:
        if self.field.lower() == b"content-disposition":
            _, options = parse_options_header(self.value)
            if b"filename" in options:
                if self.incoming.begun:
                    raise Refused(400, "one file at a time", code="many_files", param="file")
                self.is_file = self.incoming.begun = True
                self.incoming.name = options[b"filename"].decode("utf-8", "replace")
        self.field = self.value = b""

    def _data(self, data: bytes, start: int, end: int) -> None:
        if self.is_file:
            self.incoming.take(data[start:end])


# --- what becomes of it ------------------------------------------------------------------------------------


def _settle(library: Library, place: _Place, incoming: _Incoming, now: float) -> shapes.Uploaded:
    """Give the file its name and queue it, unless its content is known. Raises: the input errors."""
    media_type = source.sniff(incoming.head)
    if media_type is None:
        with source.open_source(incoming.staging.flushed()):  # says what it is instead
            raise Refused(415, "this is no document", code="not_a_document")
    with library.reading() as conn:
        known = _known(conn, incoming.digest.hexdigest())
    if known is not None:
        return shapes.Uploaded(document=known, known=True)
    name = file_name(incoming.name, media_type)
    try:
        path = incoming.staging.publish_new(os.path.join(place.folder, one) for one in free_names(name))  # noqa: PTH118
        found = os.stat(path)  # noqa: PTH116 - bytes, as the library has them
    except OSError as error:
        raise from_os_error(error, file=os.fsdecode(place.folder)) from error
    seen = files.SeenFile(path, found.st_size, found.st_mtime_ns, place.root_id, place.out_dir, place.base)
    with library.writing() as conn:
        files.register(conn, [seen], now)
        row = conn.execute("SELECT id FROM files WHERE path_bytes = ?", (path,)).fetchone()
        return shapes.Uploaded(document=document(document_row(conn, row["id"])), known=False)


def _known(conn: sqlite3.Connection, sha256: str) -> shapes.Document | None:
    """The document with that content, if a file of it is there."""
    row = conn.execute("SELECT id FROM documents WHERE sha256 = ?", (sha256,)).fetchone()
    if row is None:
        return None
    there = [one for one in listing.of_document(conn, row["id"]) if one["state"] != "missing"]
    return document(there[0]) if there else None


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f/\\\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_LONGEST = NAME_BYTES - len(" (9999)") - len(".ocrd-9.json")


def file_name(given: str, media_type: str) -> str:
    """A name that is safe in any folder, from what a client says: no path, not hidden, short enough."""
    name = given.replace("\\", "/").rpartition("/")[2]
    name = unicodedata.normalize("NFC", _CONTROL.sub("", name)).strip().lstrip(".").strip(" ~#")
    name = name.encode("utf-8", "replace").decode()
    stem, dot, extension = name.rpartition(".")
    if not dot or not stem or len(extension) > 8:
        stem, extension = name, ""
    ending = f".{extension}" if extension else _EXTENSION.get(media_type, "." + media_type.rpartition("/")[2])
    return (_cut(stem, _LONGEST - len(ending.encode())) or "upload") + ending


def free_names(name: str) -> Iterator[bytes]:
    """`letter.pdf`, `letter (2).pdf`, …"""
    stem, dot, extension = name.rpartition(".")
    for number in range(1, NAMES_TRIED):
        yield os.fsencode(name if number == 1 else f"{stem} ({number}){dot}{extension}")


def _cut(text: str, size: int) -> str:
    return text.encode()[:size].decode("utf-8", "ignore").rstrip(" .")
