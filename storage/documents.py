"""What follows for a document when its pages or its files change: settled, parked, dropped.

All functions work inside the caller's transaction. The counters of a document follow its page rows by a trigger.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable
from pathlib import Path

from storage.work import PageJob

# Upper page counts of the size classes; a lower class is read first, and within a class whoever came first.
SIZE_CLASSES = (4, 20, 100, 500)


def priority_of(pages: int) -> int:
    """The size class of a document: 0 for the smallest."""
    return sum(pages > limit for limit in SIZE_CLASSES)


def settle(conn: sqlite3.Connection, document_id: int, now: float) -> bool:
    """If no page is left to read: note the end, make sidecars due, remove what this document replaces.

    Returns whether the document is settled. All pages failed: it carries the error of the first of them.
    """
    row = conn.execute(
        "SELECT state, pages_pending + pages_leased AS open, finished_at FROM documents WHERE id = ?",
        (document_id,),
    ).fetchone()
    if row is None or row["open"]:
        return False
    if row["finished_at"] is not None:
        return True
    conn.execute(
        "UPDATE documents SET finished_at = ?, not_before = 0, deferrals = 0,"
        " (error_code, error_message, remedy) ="
        " (SELECT error_code, error_message, remedy FROM page_jobs"
        "  WHERE document_id = documents.id AND page_jobs.state = 'failed' AND documents.state = 'failed'"
        "  ORDER BY page LIMIT 1) WHERE id = ?",
        (now, document_id),
    )
    make_due(conn, document_id)
    if row["state"] == "done":
        conn.execute("DELETE FROM documents WHERE superseded_by = ?", (document_id,))
    return True


def make_due(conn: sqlite3.Connection, document_id: int) -> None:
    """Have the sidecars of every file that carries the document written (again)."""
    conn.execute(
        "UPDATE files SET sidecar_state = 'due', publish_after = 0, sidecar_attempts = 0, lease_owner = NULL,"
        " error_code = NULL, error_message = NULL, remedy = NULL"
        " WHERE document_id = ? AND state = 'linked' AND missing_since IS NULL",
        (document_id,),
    )


def repark(conn: sqlite3.Connection, document_ids: Iterable[int]) -> None:
    """Park the documents that no file can be read for now, and let the others be read."""
    conn.execute(
        "UPDATE documents SET parked = superseded_by IS NOT NULL OR NOT EXISTS ("
        "  SELECT 1 FROM files LEFT JOIN roots ON roots.id = files.root_id"
        "  WHERE files.document_id = documents.id AND files.state = 'linked' AND files.missing_since IS NULL"
        "  AND COALESCE(roots.state, 'ok') <> 'gone')"
        " WHERE id IN (SELECT value FROM json_each(?))",
        (json.dumps(list(document_ids)),),
    )


def drop_orphans(conn: sqlite3.Connection, document_ids: Iterable[int]) -> None:
    """Delete those of the documents that no file carries and nothing is waiting to replace, with what they replaced."""
    ids = json.dumps(list(document_ids))
    orphans = [
        row["id"]
        for row in conn.execute(
            "SELECT id FROM documents WHERE id IN (SELECT value FROM json_each(?)) AND superseded_by IS NULL"
            " AND NOT EXISTS (SELECT 1 FROM files WHERE files.document_id = documents.id)",
            (ids,),
        )
    ]
    for document_id in orphans:
        conn.execute("DELETE FROM documents WHERE superseded_by = ?", (document_id,))
        conn.execute("DELETE FROM documents WHERE id = ?", (document_id,))


def revoke(conn: sqlite3.Connection, document_ids: Iterable[int]) -> None:
    """Take pages back from whoever is reading them: what is being read is not the content we think."""
    conn.execute(
        "UPDATE page_jobs SET state = 'pending', lease_owner = NULL, lease_expires = NULL"
        " WHERE state = 'leased' AND document_id IN (SELECT value FROM json_each(?))",
        (json.dumps(list(document_ids)),),
    )


def give_back_if_outdated(conn: sqlite3.Connection, owner: str, job: PageJob) -> bool:
    """Queue the page again if the document's options are others by now than those it was read with; whether they are.

    `retry` may ask for another engine while a page is being read: what that reading gives is not what was asked for.
    """
    row = conn.execute("SELECT options FROM documents WHERE id = ?", (job.document_id,)).fetchone()
    if row is None or json.loads(row["options"]) == job.options:
        return False
    conn.execute(
        "UPDATE page_jobs SET state = 'pending', lease_owner = NULL, lease_expires = NULL"
        " WHERE document_id = ? AND page = ? AND state = 'leased' AND lease_owner = ?",
        (job.document_id, job.page, owner),
    )
    return True


def lose(conn: sqlite3.Connection, file: sqlite3.Row, now: float) -> None:
    """Mark one file (a whole row) missing, or drop it; the caller reparks and drops the document.

    A file whose content changed but was not read yet keeps what was read of it before.
    """
    document_id = file["document_id"]
    if document_id is not None and not _has_text(conn, document_id):
        earlier = conn.execute(
            "SELECT id FROM documents WHERE superseded_by = ? AND pages_done > 0 LIMIT 1", (document_id,)
        ).fetchone()
        document_id = None if earlier is None else earlier["id"]
        if document_id is not None:
            conn.execute("UPDATE documents SET superseded_by = NULL WHERE id = ?", (document_id,))
    if document_id is None:
        conn.execute("DELETE FROM files WHERE id = ?", (file["id"],))
        return
    conn.execute(
        "UPDATE files SET document_id = ?, missing_since = ?, state = 'linked', lease_owner = NULL,"
        " size = CASE WHEN state = 'intake' OR document_id <> ? THEN -1 ELSE size END, publish_after = NULL,"
        " sidecar_state = CASE sidecar_state WHEN 'due' THEN 'none' ELSE sidecar_state END WHERE id = ?",
        (document_id, now, document_id, file["id"]),
    )


def _has_text(conn: sqlite3.Connection, document_id: int) -> bool:
    row = conn.execute("SELECT pages_done FROM documents WHERE id = ?", (document_id,)).fetchone()
    return row is not None and row["pages_done"] > 0


def root_is_there(conn: sqlite3.Connection, root_id: int | None) -> bool:
    """Whether the folder a file was found under is there; always for a file of no root."""
    row = conn.execute("SELECT state, path_bytes FROM roots WHERE id = ?", (root_id,)).fetchone()
    return row is None or (row["state"] != "gone" and Path(os.fsdecode(row["path_bytes"])).is_dir())
