"""Whether index, sidecars and sources still agree: by hash, and by what SQLite can say of itself.

Sources are only looked at. A sidecar is compared with what the database would write now, all but its provenance.
"""

# ruff: noqa: PTH119, PTH123 - bytes paths, as file systems have them

from __future__ import annotations

import hashlib
import json
import os
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from storage import backup, merging, results, sidecars
from storage.database import explain, transaction
from storage.errors import DamagedError, OcrdError
from storage.folding import grams
from storage.names import display_path

CHUNK_BYTES = 1 << 20
_PROVENANCE = b'"provenance": '


class Fault(StrEnum):
    """What does not agree."""

    DATABASE = "database"  # the file is damaged
    INDEX = "index"  # a full-text index is not that of its pages
    GRAMS = "grams"  # what finds words without spaces is not that of the page
    PAGES = "pages"  # pages that were read are not there
    SOURCE_MISSING = "source_missing"
    SOURCE_CHANGED = "source_changed"
    SOURCE_UNREADABLE = "source_unreadable"
    SIDECAR_MISSING = "sidecar_missing"
    SIDECAR_CHANGED = "sidecar_changed"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that does not agree."""

    fault: Fault
    path: str  # the source, sidecar or database, for people
    message: str
    file_id: int | None = None
    document_id: int | None = None
    page_id: int | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """A file that was read, and where its sidecars are."""

    file_id: int
    document_id: int
    path: bytes
    size: int
    mtime_ns: int
    sha256: str
    sidecars: tuple[str, ...]  # Markdown, JSON; empty where there were to be none yet


def entries(conn: sqlite3.Connection, paths: Sequence[bytes] = ()) -> list[Entry]:
    """The files whose reading is complete: all, or those at or below the given paths."""
    rows = conn.execute(
        "SELECT files.id, document_id, path_bytes, files.size, mtime_ns, sha256, sidecar_state, markdown_path,"
        " json_path FROM files JOIN documents ON documents.id = document_id"
        " WHERE files.state = 'linked' AND missing_since IS NULL AND documents.state = 'done' ORDER BY path_bytes"
    )
    found = []
    for row in rows:
        path = bytes(row["path_bytes"])
        if paths and not any(path == given or path.startswith(given.rstrip(b"/") + b"/") for given in paths):
            continue
        written = row["sidecar_state"] == "written" and row["markdown_path"] and row["json_path"]
        names = (row["markdown_path"], row["json_path"]) if written else ()
        found.append(
            Entry(row["id"], row["document_id"], path, row["size"], row["mtime_ns"], row["sha256"], names)
        )
    return found


# --- the database ------------------------------------------------------------------------------------------


def check_database(conn: sqlite3.Connection, path: Path) -> Iterator[Finding]:
    """The file, the full-text indexes, and that every page said to be read is there."""
    faults = backup.check(path)
    yield from (Finding(Fault.DATABASE, str(path), fault) for fault in faults)
    if faults:
        return  # what is below would say the same again
    for table in merging.INDEXES:
        if problem := _index_problem(conn, table):
            yield Finding(Fault.INDEX, table, problem)
    rows = conn.execute(
        "SELECT documents.id, (SELECT path FROM files WHERE document_id = documents.id LIMIT 1) AS path,"
        " pages_done, (SELECT count(*) FROM pages WHERE document_id = documents.id) AS there FROM documents"
        " WHERE pages_done > there"
    )
    for row in rows:
        message = f"{row['pages_done']} pages were read, {row['there']} are in the database"
        yield Finding(Fault.PAGES, row["path"] or "a document without files", message, document_id=row["id"])


def _index_problem(conn: sqlite3.Connection, table: str) -> str:
    try:
        with transaction(conn):
            conn.execute(f"INSERT INTO {table}({table}, rank) VALUES ('integrity-check', 1)")
    except (DamagedError, sqlite3.DatabaseError) as error:
        ours = explain(error) if isinstance(error, sqlite3.Error) else error
        if not isinstance(ours, DamagedError):
            raise
        return "the full-text index is not that of its pages"
    return ""


def check_grams(conn: sqlite3.Connection, entry: Entry) -> Iterator[Finding]:
    """What finds words in scripts without spaces, page by page."""
    rows = conn.execute(
        "SELECT id, page, text, grams FROM pages LEFT JOIN page_grams ON page_grams.page_id = pages.id"
        " WHERE document_id = ?",
        (entry.document_id,),
    )
    for row in rows:
        if (row["grams"] or "") != grams(row["text"]):
            name = display_path(entry.path)
            yield Finding(
                Fault.GRAMS,
                name,
                f"page {row['page']} is not indexed as it reads",
                entry.file_id,
                page_id=row["id"],
            )


# --- sources and sidecars ----------------------------------------------------------------------------------


def check_source(entry: Entry) -> Finding | None:
    """Whether the source is still the file that was read."""
    name = display_path(entry.path)
    digest = hashlib.sha256()
    try:
        with open(entry.path, "rb", buffering=0) as file:
            status = os.fstat(file.fileno())
            while piece := file.read(CHUNK_BYTES):
                digest.update(piece)
    except FileNotFoundError:
        return Finding(Fault.SOURCE_MISSING, name, "the file is gone", entry.file_id)
    except OSError as error:
        return Finding(Fault.SOURCE_UNREADABLE, name, f"cannot be read: {error.strerror}", entry.file_id)
    if digest.hexdigest() == entry.sha256:
        return None
    if (status.st_size, status.st_mtime_ns) == (entry.size, entry.mtime_ns):
        why = "its content changed while size and time did not: is the disk damaged? Compare with a copy"
    else:
        why = "it changed since it was read; `ocrd batch` or `ocrd watch` reads it again"
    return Finding(Fault.SOURCE_CHANGED, name, why, entry.file_id)


def check_sidecars(
    conn: sqlite3.Connection, entry: Entry, provenance: Mapping[str, object], *, words: bool
) -> Iterator[Finding]:
    """Whether both sidecars are there and say what the database says. Raises: `OcrdError` where pages are missing."""
    if not entry.sidecars:
        return
    markdown, json_part = Digest(), JsonDigest()
    result = results.load_document(conn, entry.document_id)
    sidecars.render(markdown, json_part, os.path.basename(entry.path), result, provenance, words=words)
    for shown, expected, take in zip(
        entry.sidecars, (markdown.hex, json_part.hex), (_hash, _hash_json), strict=True
    ):
        try:
            same = take(on_disk(shown)) == expected
        except FileNotFoundError:
            yield Finding(Fault.SIDECAR_MISSING, shown, "the sidecar is gone", entry.file_id)
            continue
        except OSError as error:
            yield Finding(Fault.SIDECAR_CHANGED, shown, f"cannot be read: {error.strerror}", entry.file_id)
            continue
        if not same:
            message = "edited, damaged, or written with other settings: it is not what the database says"
            yield Finding(Fault.SIDECAR_CHANGED, shown, message, entry.file_id)


def on_disk(shown: str) -> bytes:
    r"""The path of a name as shown to people, in which bytes that are no UTF-8 are `\xNN`."""
    path = os.fsencode(shown)
    if os.path.lexists(path):
        return path
    return re.sub(rb"\\x([89a-f][0-9a-f])", lambda match: bytes.fromhex(match[1].decode()), path)


class Digest:
    """Takes bytes and keeps their hash."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()

    def write(self, data: bytes, /) -> None:
        """Take them."""
        self._digest.update(data)

    @property
    def hex(self) -> str:
        """The hash of all that was taken."""
        return self._digest.hexdigest()


class JsonDigest(Digest):
    """The same, but for the provenance: it tells when and with which version, and differs from run to run."""

    def write(self, data: bytes, /) -> None:
        """Take them."""
        if not data.startswith(_PROVENANCE):
            super().write(data)


def _hash(path: bytes) -> str:
    digest = Digest()
    with open(path, "rb", buffering=0) as file:
        while piece := file.read(CHUNK_BYTES):
            digest.write(piece)
    return digest.hex


def _hash_json(path: bytes) -> str:
    """The hash up to the provenance; "" where what follows is not the end of a sidecar."""
    digest = Digest()
    with open(path, "rb") as file:
        for line in file:
            if line.startswith(_PROVENANCE):
                return digest.hex if _is_end(line + file.read(CHUNK_BYTES)) else ""
            digest.write(line)
    return ""


def _is_end(rest: bytes) -> bool:
    try:
        return rest.endswith(b"}\n") and isinstance(json.loads(b"{" + rest)["provenance"], dict)
    except ValueError:
        return False


# --- putting right -----------------------------------------------------------------------------------------


def repair(conn: sqlite3.Connection, database: Path, findings: Sequence[Finding]) -> list[Finding]:
    """Put right what the database can; returns those findings. Sidecars become due: who publishes writes them.

    Sources are never touched. A damaged database is marked, so that the next start of work looks at it.
    """
    put_right: list[Finding] = []
    for finding in findings:
        match finding.fault:
            case Fault.DATABASE:
                backup.suspect(database)
                continue
            case Fault.INDEX:
                with transaction(conn):
                    conn.execute(f"INSERT INTO {finding.path}({finding.path}) VALUES ('rebuild')")
            case Fault.GRAMS:
                _rewrite_grams(conn, finding)
            case Fault.SIDECAR_MISSING | Fault.SIDECAR_CHANGED:
                with transaction(conn):
                    conn.execute(
                        "UPDATE files SET sidecar_state = 'due', publish_after = 0 WHERE id = ?"
                        " AND state = 'linked' AND sidecar_state = 'written'",
                        (finding.file_id,),
                    )
            case _:
                continue
        put_right.append(finding)
    return put_right


def _rewrite_grams(conn: sqlite3.Connection, finding: Finding) -> None:
    with transaction(conn):
        row = conn.execute("SELECT text FROM pages WHERE id = ?", (finding.page_id,)).fetchone()
        if row is None:
            raise OcrdError("the page is gone", file=finding.path)
        results.save_grams(conn, int(finding.page_id or 0), grams(row["text"]))
