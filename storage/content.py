"""What the content of a file makes of it: a new document, one known already, a successor, or a failure."""

from __future__ import annotations

import json
import os
import sqlite3
from enum import StrEnum

from storage import documents
from storage.database import transaction
from storage.errors import NoPagesError, OcrdError
from storage.records import DocumentInfo
from storage.work import IntakeJob


class LinkOutcome(StrEnum):
    """What became of a file once its content was known."""

    NEW = "new"
    DUPLICATE = "duplicate"  # the same bytes lie elsewhere too: never read twice
    RENAMED = "renamed"  # the same bytes, and where they lay there is nothing any more
    CHANGED = "changed"  # takes the place of what the path held before
    UNCHANGED = "unchanged"  # touched, but the same bytes
    FAILED = "failed"  # it cannot be opened
    STALE = "stale"  # the file changed again, or was taken from us: nothing was noted


def link(
    conn: sqlite3.Connection,
    job: IntakeJob,
    sha256: str,
    size: int,
    info: DocumentInfo | None,
    error: OcrdError | None,
    now: float,
) -> LinkOutcome:
    """Note what a file contains, in one transaction: its document, and the pages to read where it is new.

    `size` is how many bytes were hashed. `info`, or `error` if it could not be opened; both None if the content is
    known already and needs no opening (see `is_known`). Content being read or read already is never queued again.
    """
    with transaction(conn):
        file = conn.execute("SELECT * FROM files WHERE id = ?", (job.file_id,)).fetchone()
        if (
            file is None
            or file["state"] != "intake"
            or (file["size"], file["mtime_ns"]) != (job.size, job.mtime_ns)
        ):
            return LinkOutcome.STALE
        if job.size not in (size, -1):  # it grew under our hands: hash it again
            conn.execute("UPDATE files SET size = ?, lease_owner = NULL WHERE id = ?", (size, job.file_id))
            return LinkOutcome.STALE
        known = conn.execute("SELECT * FROM documents WHERE sha256 = ?", (sha256,)).fetchone()
        if known is None:
            document_id = _create(conn, sha256, size, info, error, now)
        else:
            document_id = known["id"]
            if known["pages"] is None:
                _open(conn, document_id, info, error, now)
        _attach(conn, file, document_id)
        return _outcome(conn, file, document_id, known is not None, now)


def is_known(conn: sqlite3.Connection, sha256: str) -> bool:
    """Whether content has been opened before, so that its pages need no counting."""
    row = conn.execute("SELECT pages FROM documents WHERE sha256 = ?", (sha256,)).fetchone()
    return row is not None and row["pages"] is not None


def _create(
    conn: sqlite3.Connection,
    sha256: str,
    size: int,
    info: DocumentInfo | None,
    error: OcrdError | None,
    now: float,
) -> int:
    cursor = conn.execute(
        "INSERT INTO documents (sha256, size, state, added_at) VALUES (?, ?, 'failed', ?)",
        (sha256, size, now),
    )
    document_id = cursor.lastrowid or 0
    _open(conn, document_id, info, error, now)
    return document_id


def _open(
    conn: sqlite3.Connection, document_id: int, info: DocumentInfo | None, error: OcrdError | None, now: float
) -> None:
    """Note what opening a document told: its pages become jobs, or it fails."""
    if info is None or info.pages < 1 or error is not None:
        failure = error or (
            OcrdError("opening it told nothing") if info is None else NoPagesError("it has no pages")
        )
        conn.execute(
            "UPDATE documents SET state = ?, error_code = ?, error_message = ?, remedy = ?, finished_at = ?"
            " WHERE id = ?",
            (
                "needs_password" if failure.code == "password" else "failed",
                failure.code,
                failure.message,
                failure.remedy,
                now,
                document_id,
            ),
        )
        return
    conn.execute(
        "UPDATE documents SET media_type = ?, title = ?, state = 'queued', pages = ?, pages_pending = ?, priority = ?,"
        " error_code = NULL, error_message = NULL, remedy = NULL, finished_at = NULL, warnings = ?, attachments = ?,"
        " labels = ? WHERE id = ?",
        (
            info.media_type,
            info.title,
            info.pages,
            info.pages,
            documents.priority_of(info.pages),
            json.dumps([{"code": w.code, "message": w.message} for w in info.warnings], ensure_ascii=False),
            json.dumps(list(info.attachments), ensure_ascii=False),
            json.dumps(list(info.labels), ensure_ascii=False) if any(info.labels) else None,
            document_id,
        ),
    )
    conn.executemany(
        "INSERT INTO page_jobs (document_id, page) VALUES (?, ?)",
        ((document_id, page) for page in range(1, info.pages + 1)),
    )


def _attach(conn: sqlite3.Connection, file: sqlite3.Row, document_id: int) -> None:
    """Let the file carry the document; sidecars are due at once where it has been read."""
    conn.execute(
        "UPDATE files SET state = 'linked', document_id = ?, lease_owner = NULL, lease_expires = NULL, attempts = 0,"
        " suspect = 0, not_before = 0, deferrals = 0, error_code = NULL, error_message = NULL, remedy = NULL"
        " WHERE id = ?",
        (document_id, file["id"]),
    )
    conn.execute(
        "UPDATE files SET sidecar_state = 'due', publish_after = 0, sidecar_attempts = 0 WHERE id = ? AND EXISTS ("
        " SELECT 1 FROM documents WHERE id = ? AND finished_at IS NOT NULL AND pages IS NOT NULL)",
        (file["id"], document_id),
    )


def _outcome(
    conn: sqlite3.Connection, file: sqlite3.Row, document_id: int, known: bool, now: float
) -> LinkOutcome:
    """Settle the relations to other files and documents, and name what happened."""
    old = file["document_id"]
    renamed = known and old != document_id and _take_over(conn, file, document_id)
    conn.execute("UPDATE documents SET superseded_by = NULL WHERE id = ?", (document_id,))
    if old not in (None, document_id):
        _supersede(conn, old, document_id)
    documents.repark(conn, [document_id])
    row = conn.execute("SELECT state, pages FROM documents WHERE id = ?", (document_id,)).fetchone()
    if row["pages"] is None:
        return LinkOutcome.FAILED
    if old == document_id:
        return LinkOutcome.UNCHANGED
    if old is not None:
        return LinkOutcome.CHANGED
    if renamed:
        return LinkOutcome.RENAMED
    return LinkOutcome.DUPLICATE if known else LinkOutcome.NEW


def _supersede(conn: sqlite3.Connection, old: int, new: int) -> None:
    """`new` takes the place of `old`, which stays findable until `new` is done, unless other files carry it."""
    if conn.execute("SELECT 1 FROM files WHERE document_id = ?", (old,)).fetchone():
        documents.repark(conn, [old])
        return
    conn.execute("UPDATE documents SET superseded_by = ? WHERE superseded_by = ?", (new, old))
    conn.execute("UPDATE documents SET superseded_by = ?, parked = 1 WHERE id = ?", (new, old))
    documents.revoke(conn, [old])
    conn.execute(
        "DELETE FROM documents WHERE superseded_by = ? AND (pages_done = 0"
        " OR EXISTS (SELECT 1 FROM documents AS successor WHERE successor.id = ? AND successor.state = 'done'))",
        (new, new),
    )


def _take_over(conn: sqlite3.Connection, file: sqlite3.Row, document_id: int) -> bool:
    """If the document's file is gone from another place, that was this one: its row goes, its history stays."""
    others = conn.execute(
        "SELECT * FROM files WHERE document_id = ? AND id <> ? AND state = 'linked'"
        " ORDER BY missing_since IS NULL, name_key <> ?, id LIMIT 100",
        (document_id, file["id"], file["name_key"]),
    ).fetchall()
    for other in others:
        gone = not os.path.lexists(other["path_bytes"]) and documents.root_is_there(conn, other["root_id"])
        if other["missing_since"] is not None or gone:
            conn.execute("DELETE FROM files WHERE id = ?", (other["id"],))
            conn.execute("UPDATE files SET first_seen = ? WHERE id = ?", (other["first_seen"], file["id"]))
            return True
    return False
