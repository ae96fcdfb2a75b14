"""Write `report.pdf.md` and `report.pdf.json` beside `report.pdf` (or into a mirrored tree), whole or not at all."""

# ruff: noqa: PTH103, PTH116, PTH118, PTH119, PTH120, PTH122, PTH123 - bytes paths, as file systems have them

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

from storage.errors import AccessError, OcrdError, StorageError, from_os_error
from storage.names import display_path
from storage.records import PageReading
from storage.sidecar_pages import (
    SCHEMA,
    dumps,
    markdown_header,
    page_markdown,
    page_object,
    source_object,
    warning_objects,
)
from storage.staging import Staging, is_staged, sweep

if TYPE_CHECKING:
    from storage.results import DocumentResult

__all__ = [
    "Written",
    "is_ours",
    "is_sidecar",
    "page_markdown",
    "page_object",
    "sidecar_names",
    "sweep",
    "sweep_for",
    "write",
]

NAME_BYTES = 255  # what file systems take
SHORT_NAME_BYTES = 140  # what those that encrypt names take
_MARKDOWN_START = f"<!-- {SCHEMA} source-sha256=".encode()
_JSON_START = f'{{"schema": "{SCHEMA}",'.encode()
_OWN_NAME = re.compile(
    rb"\.(?:pdf|png|jpe?g|jpe|jfif|tiff?|webp|hei[cf]|bmp|gif)(?:~[0-9a-f]{8})?(?:\.ocrd(?:-\d)?)?\.(?:md|json)\Z",
    re.IGNORECASE,
)
_VARIANTS = (b"", b".ocrd", *(b".ocrd-%d" % i for i in range(2, 10)))


@dataclass(frozen=True, slots=True)
class Written:
    """Where the sidecars are, as text for people, and what is unusual about that."""

    markdown_path: str
    json_path: str
    note: str | None = None


def sidecar_names(path: bytes, *, at_most: int = NAME_BYTES) -> tuple[bytes, bytes]:
    """File names (without folder) of the Markdown and the JSON of a source.

    A name too long for the file system is cut, and ends in a part of its hash so that it stays the only one.
    """
    return _named(os.path.basename(path), b"", at_most)


def _named(name: bytes, variant: bytes, at_most: int) -> tuple[bytes, bytes]:
    if len(name) + len(b".ocrd-9.json") > at_most:
        tail = b"~" + hashlib.sha256(name).hexdigest()[:8].encode()
        extension = os.path.splitext(name)[1]
        if len(extension) > 8 or not extension.isascii():  # no extension: part of the name
            extension = b""
        keep = at_most - len(tail) - len(extension) - len(b".ocrd-9.json")
        while keep and name[keep] & 0xC0 == 0x80:  # not within a character
            keep -= 1
        name = name[:keep] + extension + tail
    return name + variant + b".md", name + variant + b".json"


def write(
    path: bytes,
    result: DocumentResult,
    out_dir: bytes | None,
    base: bytes | None,
    provenance: Mapping[str, object],
    library_out: Path,
    *,
    words: bool = True,
) -> Written:
    """Write both sidecars of the source at `path` (absolute), replacing ours, never a file someone else made.

    They go beside the source; with `out_dir` below that folder, where the source's place below `base` is mirrored;
    and from a folder that cannot be written to, into `library_out`, by absolute path. `result.pages` is gone through
    once, one page in memory at a time.
    Raises: `DiskFullError`, `AccessError`, `VanishedError`, `StorageError`; no temporary file stays then.
    """
    place: _Place | None = None
    try:
        place = _place(path, out_dir, base, library_out)
        with place.stage as stage:
            _write_both(place, os.path.basename(path), result, provenance, words)
            stage.publish(place.markdown_path, place.json_path)
    except OSError as error:
        folder = place.stage.folder if place else _folder(path, out_dir, base)
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        # Whoever waits for space must know on which disk.
        raise from_os_error(error, file=display_path(folder if is_full else path)) from error
    return Written(display_path(place.markdown_path), display_path(place.json_path), place.note)


class ByteSink(Protocol):
    """What takes bytes: a file, or something that hashes them."""

    def write(self, data: bytes, /) -> object:
        """Take them."""
        ...


# --- where they go -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Place:
    """Both files opened, and where they will be."""

    stage: Staging
    markdown: BinaryIO
    json: BinaryIO
    markdown_path: bytes
    json_path: bytes
    note: str | None


def _place(path: bytes, out_dir: bytes | None, base: bytes | None, library_out: Path) -> _Place:
    folder = _folder(path, out_dir, base)
    try:
        return _open_in(folder, path, "")
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        note = f"the folder {display_path(folder)} cannot be written to"
    if out_dir is not None:
        raise AccessError(
            note, file=display_path(path), remedy="choose another --out, or allow writing there"
        )
    return _open_in(_mirrored(os.fsencode(library_out), os.path.dirname(path)), path, note)


def _folder(path: bytes, out_dir: bytes | None, base: bytes | None) -> bytes:
    parent = os.path.dirname(path)
    if out_dir is None:
        return parent
    if base is None or parent == base.rstrip(b"/"):
        folder = out_dir
    elif parent.startswith(base.rstrip(b"/") + b"/"):
        folder = _mirrored(out_dir, parent[len(base.rstrip(b"/")) :])
    else:
        folder = _mirrored(out_dir, parent)
    return folder


def _mirrored(root: bytes, below: bytes) -> bytes:
    parts = [part for part in below.split(b"/") if part not in (b"", b".", b"..")]
    return os.path.join(root, *parts)


def _open_in(folder: bytes, path: bytes, note: str) -> _Place:
    if folder != os.path.dirname(path):
        os.makedirs(folder, exist_ok=True)
    _sweep_once(folder)
    name = os.path.basename(path)
    try:
        markdown_path, json_path, taken = _free_names(folder, name, NAME_BYTES)
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        markdown_path, json_path, taken = _free_names(folder, name, SHORT_NAME_BYTES)
    notes = [f"{note}: sidecars are in {display_path(folder)}"] if note else []
    if taken:
        notes.append(f"{display_path(taken)} is not ours and was left alone")
    stage = Staging(folder, _mode_of(path))
    try:
        return _Place(stage, stage.open(), stage.open(), markdown_path, json_path, "; ".join(notes) or None)
    except BaseException:
        stage.discard()
        raise


def sweep_for(path: bytes, out_dir: bytes | None, base: bytes | None, library_out: Path) -> int:
    """Remove what a dead process had begun to write for the source at `path`; how many files there were."""
    places = {_folder(path, out_dir, base), _mirrored(os.fsencode(library_out), os.path.dirname(path))}
    return sum(sweep(folder, time.time()) for folder in places)


@lru_cache(maxsize=10_000)
def _sweep_once(folder: bytes) -> None:
    sweep(folder, time.time())  # compared with the clock of the file system, so no `now` of the caller's


def _mode_of(path: bytes) -> int:
    """Who may read the source may read its text, and nobody else."""
    try:
        return stat.S_IMODE(os.stat(path).st_mode) & 0o666 | 0o600
    except OSError:
        return 0o600


def _write_both(
    place: _Place, name: bytes, result: DocumentResult, provenance: Mapping[str, object], words: bool
) -> None:
    render(place.markdown, place.json, name, result, provenance, words=words)


def render(
    markdown: ByteSink,
    json_file: ByteSink,
    name: bytes,
    result: DocumentResult,
    provenance: Mapping[str, object],
    *,
    words: bool = True,
) -> None:
    """Write what both sidecars of the source called `name` say; the line of `provenance` is the last but one.

    Raises: `OcrdError` where pages are missing; what was written until then is of no use.
    """

    def put(file: ByteSink, text: str) -> None:
        file.write(text.encode("utf-8"))

    put(markdown, markdown_header(result.sha256))
    put(
        json_file,
        f'{{"schema": "{SCHEMA}",\n"source": {dumps(source_object(result, display_path(name)))},\n"pages": [',
    )
    count = 0
    seconds: dict[str, float] = {}
    for page in result.pages:
        put(markdown, "\n" + page_markdown(page))
        put(json_file, (",\n" if count else "\n") + dumps(page_object(page, words=words)))
        count += 1
        if isinstance(page, PageReading):
            for stage_name, spent in page.seconds.items():
                seconds[stage_name] = seconds.get(stage_name, 0.0) + spent
    if count != result.page_count:
        raise OcrdError(f"{count} of {result.page_count} pages are in the database", file=display_path(name))
    times = {
        "read_at": _iso(result.finished_at),
        "seconds": {k: round(v, 3) for k, v in sorted(seconds.items())},
    }
    put(json_file, f'\n],\n"attachments": {dumps(list(result.attachments))},\n')
    put(json_file, f'"warnings": {dumps(warning_objects(result.warnings))},\n')
    put(json_file, f'"provenance": {dumps({**provenance, **times})}\n}}\n')


def _iso(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


# --- whose file is it? -------------------------------------------------------------------------------------


def _free_names(folder: bytes, name: bytes, at_most: int) -> tuple[bytes, bytes, bytes | None]:
    """Paths for both files that are free or ours, and the file that stood in the way of the plain names."""
    taken: bytes | None = None
    for variant in _VARIANTS:
        markdown, json_path = (os.path.join(folder, found) for found in _named(name, variant, at_most))
        if not _may_write(markdown, _MARKDOWN_START):
            taken = taken or markdown
        elif not _may_write(json_path, _JSON_START):
            taken = taken or json_path
        else:
            return markdown, json_path, taken
    raise StorageError(
        "all names for its sidecars are taken by other files", file=display_path(taken or name)
    )


def _may_write(path: bytes, start: bytes) -> bool:
    try:
        return _starts_with(path, start)
    except FileNotFoundError:
        return True


def _starts_with(path: bytes, start: bytes) -> bool:
    """Whether a regular file begins so; a link, a folder or what we may not read does not."""
    if not stat.S_ISREG(os.lstat(path).st_mode):
        return False
    try:
        with open(path, "rb") as file:
            return file.read(len(start)) == start
    except PermissionError:
        return False


def is_ours(path: bytes) -> bool:
    """Whether a sidecar of ours lies there: a regular file, no link, that begins like one."""
    try:
        return any(_starts_with(path, start) for start in (_MARKDOWN_START, _JSON_START))
    except OSError:
        return False


def is_sidecar(path: bytes) -> bool:
    """Whether the file is one of our own outputs, so that no watcher takes it for an input.

    The name decides where it says enough (`x.pdf.md`, temporary files), else the file's first bytes.
    """
    name = os.path.basename(path)
    if is_staged(name) or _OWN_NAME.search(name):
        return True
    start = {b".md": _MARKDOWN_START, b".json": _JSON_START}.get(os.path.splitext(name)[1].lower())
    try:
        return start is not None and _starts_with(path, start)
    except OSError:
        return False
