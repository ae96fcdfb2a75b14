"""Which files there are: roots, paths seen, moved, missing, forgotten, found by name.

Watched folders (`storage.roots`), what the content of a file makes of it (`link`, in `storage.content`) and trying
again (`storage.retrying`) are part of this module's interface.
"""

from __future__ import annotations

import json
import os
import sqlite3
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from storage import documents
from storage.content import LinkOutcome, link
from storage.database import transaction
from storage.names import bounds_below, display_path, name_key
from storage.retrying import retry
from storage.roots import add_root, set_root_state, set_root_watch

__all__ = [
    "FileRow",
    "LinkOutcome",
    "Registered",
    "SeenFile",
    "add_root",
    "display_path",
    "find_files",
    "forget",
    "known_files",
    "link",
    "mark_missing",
    "name_key",
    "register",
    "retry",
    "set_root_state",
    "set_root_watch",
]

_CHUNK = 1000  # files a transaction: short enough that claims never wait long


@dataclass(frozen=True, slots=True)
class SeenFile:
    """A file at rest in a folder, as the scanner saw it."""

    path: bytes
    size: int
    mtime_ns: int
    root_id: int | None = None
    out_dir: bytes | None = None  # where its sidecars go; None = beside it
    base: bytes | None = None  # out_dir mirrors the tree below this folder


@dataclass(frozen=True, slots=True)
class Registered:
    """How many of the files were never seen, have new content, are known as they are."""

    new: int = 0
    changed: int = 0
    unchanged: int = 0


@dataclass(frozen=True, slots=True)
class FileRow:
    """A file of the library, as `show`, `retry` and `forget` need it."""

    file_id: int
    path: bytes
    document_id: int | None
    state: str  # queued | running | done | failed | needs_password | missing
    markdown_path: str | None
    json_path: str | None


def register(conn: sqlite3.Connection, files: Iterable[SeenFile], now: float) -> Registered:
    """Note files as seen; those with a new path, size or time go to the intake. Any number of times is as once.

    A file that had gone missing and is back as it was is no longer missing. A known file for which another place of
    sidecars is asked gets them there as well. Changes are committed by the thousand.
    """
    new = changed = unchanged = 0
    remaining = iter({file.path: file for file in files}.values())
    while chunk := list(islice(remaining, _CHUNK)):
        with transaction(conn):
            known = _known(conn, chunk)
            fresh = [f for f in chunk if f.path not in known and not _is_respelling(conn, f)]
            seen = [(f, known[f.path]) for f in chunk if f.path in known]
            altered = [(f, row) for f, row in seen if (f.size, f.mtime_ns) != (row["size"], row["mtime_ns"])]
            same = [(f, row) for f, row in seen if (f.size, f.mtime_ns) == (row["size"], row["mtime_ns"])]
            _insert(conn, fresh, now)
            _reread(conn, altered, now)
            _touch(conn, same, now)
        new += len(fresh)
        changed += len(altered)
        unchanged += len(chunk) - len(fresh) - len(altered)
    return Registered(new, changed, unchanged)


def _known(conn: sqlite3.Connection, files: list[SeenFile]) -> dict[bytes, sqlite3.Row]:
    marks = ",".join("?" * len(files))
    rows = conn.execute(f"SELECT * FROM files WHERE path_bytes IN ({marks})", [file.path for file in files])
    return {row["path_bytes"]: row for row in rows}


def _is_respelling(conn: sqlite3.Connection, file: SeenFile) -> bool:
    """Whether the path is another spelling (NFC, NFD) of a file known already; the file system decides what is one."""
    if file.path.isascii():
        return False
    composed = unicodedata.normalize("NFC", display_path(file.path))
    for row in conn.execute("SELECT path, path_bytes FROM files WHERE name_key = ?", (name_key(file.path),)):
        if unicodedata.normalize("NFC", row["path"]) == composed:
            try:
                if Path(os.fsdecode(row["path_bytes"])).samefile(os.fsdecode(file.path)):
                    return True
            except OSError:
                continue
    return False


def _insert(conn: sqlite3.Connection, files: list[SeenFile], now: float) -> None:
    conn.executemany(
        "INSERT INTO files (root_id, path, path_bytes, name_key, size, mtime_ns, state, out_dir_bytes, base_bytes,"
        " first_seen, last_seen) VALUES (?, ?, ?, ?, ?, ?, 'intake', ?, ?, ?, ?)",
        (
            (
                f.root_id,
                display_path(f.path),
                f.path,
                name_key(f.path),
                f.size,
                f.mtime_ns,
                f.out_dir,
                f.base,
                now,
                now,
            )
            for f in files
        ),
    )


def _reread(conn: sqlite3.Connection, files: list[tuple[SeenFile, sqlite3.Row]], now: float) -> None:
    """Send files with new content to the intake; what is being read of the old content is read no further."""
    if not files:
        return
    conn.executemany(
        "UPDATE files SET size = ?, mtime_ns = ?, state = 'intake', attempts = 0, suspect = 0, not_before = 0,"
        " deferrals = 0,"
        " lease_owner = NULL, lease_expires = NULL, error_code = NULL, error_message = NULL, remedy = NULL,"
        " sidecar_state = 'none', publish_after = NULL, missing_since = NULL, last_seen = ?,"
        " root_id = COALESCE(?, root_id), out_dir_bytes = ?, base_bytes = ? WHERE id = ?",
        ((f.size, f.mtime_ns, now, f.root_id, f.out_dir, f.base, row["id"]) for f, row in files),
    )
    old = [row["document_id"] for _, row in files if row["document_id"] is not None]
    documents.repark(conn, old)
    parked = conn.execute(
        "SELECT id FROM documents WHERE parked AND id IN (SELECT value FROM json_each(?))", (json.dumps(old),)
    )
    documents.revoke(conn, [row["id"] for row in parked.fetchall()])


def _touch(conn: sqlite3.Connection, files: list[tuple[SeenFile, sqlite3.Row]], now: float) -> None:
    """Note files that are as they were: present, and perhaps wanted in another place."""
    conn.executemany(
        "UPDATE files SET last_seen = ?, missing_since = NULL, root_id = COALESCE(?, root_id) WHERE id = ?",
        ((now, f.root_id, row["id"]) for f, row in files),
    )
    moved = [(f, r) for f, r in files if (f.out_dir, f.base) != (r["out_dir_bytes"], r["base_bytes"])]
    conn.executemany(
        "UPDATE files SET out_dir_bytes = ?, base_bytes = ? WHERE id = ?",
        ((f.out_dir, f.base, row["id"]) for f, row in moved),
    )
    back = [row for _, row in files if row["missing_since"] is not None]
    documents.repark(conn, [row["document_id"] for row in back if row["document_id"] is not None])
    places = [row["id"] for f, row in moved if f.out_dir != row["out_dir_bytes"]]
    waiting = [row["id"] for row in back if row["sidecar_state"] == "none"]
    _publish_settled(conn, places + waiting)


def _publish_settled(conn: sqlite3.Connection, file_ids: list[int]) -> None:
    """Make sidecars due for those of the files whose document has been read."""
    conn.execute(
        "UPDATE files SET sidecar_state = 'due', publish_after = 0, sidecar_attempts = 0"
        " WHERE id IN (SELECT value FROM json_each(?)) AND state = 'linked' AND lease_owner IS NULL AND EXISTS ("
        "  SELECT 1 FROM documents WHERE id = files.document_id AND finished_at IS NOT NULL AND pages IS NOT NULL)",
        (json.dumps(file_ids),),
    )


def known_files(conn: sqlite3.Connection, root_id: int) -> dict[bytes, tuple[int, int]]:
    """Path → (size, mtime_ns) of the files of a root; without those gone missing."""
    rows = conn.execute(
        "SELECT path_bytes, size, mtime_ns FROM files WHERE root_id = ? AND missing_since IS NULL", (root_id,)
    )
    return {row["path_bytes"]: (row["size"], row["mtime_ns"]) for row in rows}


def mark_missing(conn: sqlite3.Connection, paths: Iterable[bytes], now: float) -> None:
    """Note that files are gone. What was read of them stays findable; a file nothing was read of is dropped quietly."""
    for chunk in _chunks(paths):
        with transaction(conn):
            rows = _rows(conn, chunk)
            for row in rows:
                if row["missing_since"] is None:
                    documents.lose(conn, row, now)
            ids = {row["document_id"] for row in rows if row["document_id"] is not None}
            documents.repark(conn, ids)
            documents.drop_orphans(conn, ids)


def forget(conn: sqlite3.Connection, paths: Iterable[bytes]) -> int:
    """Remove files, or all files below folders, with what was read of them; the files themselves stay.

    Returns how many files were removed. Sidecars stay too: they are the user's.
    """
    count = 0
    for chunk in _chunks(paths):
        with transaction(conn):
            rows = _rows(conn, chunk, below=True)
            conn.executemany("DELETE FROM files WHERE id = ?", ((row["id"],) for row in rows))
            ids = {row["document_id"] for row in rows if row["document_id"] is not None}
            documents.drop_orphans(conn, ids)
            documents.repark(conn, ids)
        count += len(rows)
    return count


def find_files(conn: sqlite3.Connection, text: str) -> list[FileRow]:
    """The files a person means by `text`: that very path, else files of that name, else names that contain it."""
    exact = os.fsencode(Path(text).absolute())
    key = name_key(os.fsencode(text))
    for condition, value in (
        ("files.path_bytes = ?", exact),
        ("files.path = ?", text),
        ("files.name_key = ?", key),
        ("instr(files.name_key, ?) > 0", key),
    ):
        rows = conn.execute(
            "SELECT files.id, path_bytes, files.document_id, file_status.state, files.markdown_path, files.json_path"
            f" FROM files JOIN file_status USING (id) WHERE {condition} ORDER BY files.path LIMIT 1000",
            (value,),
        ).fetchall()
        if rows and value:
            return [FileRow(*row) for row in rows]
    return []


def _chunks(paths: Iterable[bytes]) -> Iterator[list[bytes]]:
    remaining = iter(paths)
    while chunk := list(islice(remaining, _CHUNK)):
        yield chunk


def _rows(conn: sqlite3.Connection, paths: list[bytes], *, below: bool = False) -> list[sqlite3.Row]:
    found: dict[int, sqlite3.Row] = {}
    for path in paths:
        rows = conn.execute("SELECT * FROM files WHERE path_bytes = ?", (path,)).fetchall()
        if below:
            rows += conn.execute(
                "SELECT * FROM files WHERE path_bytes > ? AND path_bytes < ?", bounds_below(path)
            ).fetchall()
        found.update((row["id"], row) for row in rows)
    return list(found.values())
