"""What to do next and who does it: claims, leases, pause.

Order, for whoever asks in this order: sidecars that are due, then files to take in, then pages. Among documents the
smaller size class goes first, so that a letter overtakes page 400 of a book; every eighth claim serves the document
that waits longest, so that the book ends too. What follows when a job fails (`storage.setbacks`) or its
worker dies (`storage.recovery`) is part of this interface.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence

from storage.control import Pause, pause, pause_reason, paused, resume
from storage.database import transaction
from storage.recovery import Recovered, recover
from storage.setbacks import defer, fail_intake, fail_page, fail_publish
from storage.work import IntakeJob, PageJob, PublishJob

__all__ = [
    "IntakeJob",
    "PageJob",
    "Pause",
    "PublishJob",
    "Recovered",
    "claim_intake",
    "claim_pages",
    "claim_publish",
    "defer",
    "extend_leases",
    "fail_intake",
    "fail_page",
    "fail_publish",
    "finish_publish",
    "is_idle",
    "next_due",
    "pause",
    "pause_reason",
    "paused",
    "recover",
    "release",
    "resume",
]

OLDEST_EVERY = 8  # each so many claims of pages serve the document that waits longest

_READY = "pages_pending > 0 AND not_before = 0 AND parked = 0"  # as in the partial indexes: word for word


def claim_intake(
    conn: sqlite3.Connection, owner: str, now: float, lease_s: float, limit: int = 16
) -> list[IntakeJob]:
    """Up to `limit` files to hash and open, first come first served; a suspect file comes alone."""
    due = "state = 'intake' AND lease_owner IS NULL AND not_before <= ?"
    if not conn.execute(f"SELECT 1 FROM files WHERE {due} LIMIT 1", (now,)).fetchone():
        return []
    with transaction(conn):
        if paused(conn):
            return []
        rows = conn.execute(
            f"SELECT id, suspect FROM files WHERE {due} ORDER BY not_before, id LIMIT ?", (now, limit)
        ).fetchall()
        ids = json.dumps([row["id"] for row in _until_suspect(rows)])
        claimed = conn.execute(
            "UPDATE files SET lease_owner = ?, lease_expires = ? WHERE id IN (SELECT value FROM json_each(?))"
            " RETURNING id, path_bytes, size, mtime_ns, attempts, suspect,"
            " (SELECT options FROM documents WHERE documents.id = document_id) AS options",
            (owner, now + lease_s, ids),
        ).fetchall()
    return [
        IntakeJob(
            row["id"],
            row["path_bytes"],
            row["size"],
            row["mtime_ns"],
            row["attempts"],
            bool(row["suspect"]),
            json.loads(row["options"] or "{}"),
        )
        for row in sorted(claimed, key=lambda row: int(row["id"]))
    ]


def _until_suspect(rows: list[sqlite3.Row]) -> list[sqlite3.Row]:
    """The first row alone if it is suspect, else all rows before the first suspect one."""
    if rows and rows[0]["suspect"]:
        return rows[:1]
    return rows[: next((i for i, row in enumerate(rows) if row["suspect"]), len(rows))]


def claim_pages(
    conn: sqlite3.Connection, owner: str, now: float, lease_s: float, limit: int = 4
) -> list[PageJob]:
    """Up to `limit` pages of one document, in order; a suspect page comes alone."""
    if not _anything_to_read(conn, now):
        return []
    with transaction(conn):
        if paused(conn):
            return []
        conn.execute("UPDATE documents SET not_before = 0 WHERE not_before > 0 AND not_before <= ?", (now,))
        while (document := _next_document(conn)) is not None:
            file = _readable_file(conn, document["id"])
            if file is None:  # not noticed so far: nothing to read it from
                conn.execute("UPDATE documents SET parked = 1 WHERE id = ?", (document["id"],))
                continue
            return _lease_pages(conn, document, file, owner, now, lease_s, limit)
    return []


def _anything_to_read(conn: sqlite3.Connection, now: float) -> bool:
    row = conn.execute(
        f"SELECT EXISTS (SELECT 1 FROM documents WHERE {_READY})"
        " OR EXISTS (SELECT 1 FROM documents WHERE not_before > 0 AND not_before <= ?)",
        (now,),
    ).fetchone()
    return bool(row[0])


def _next_document(conn: sqlite3.Connection) -> sqlite3.Row | None:
    claims = conn.execute(
        "INSERT INTO control (key, value) VALUES ('claims', '1')"
        " ON CONFLICT(key) DO UPDATE SET value = CAST(value AS INTEGER) + 1 RETURNING value"
    ).fetchone()
    order = "id" if int(claims["value"]) % OLDEST_EVERY == 0 else "priority, id"
    row: sqlite3.Row | None = conn.execute(
        f"SELECT id, sha256, media_type, pages, options FROM documents WHERE {_READY} ORDER BY {order} LIMIT 1"
    ).fetchone()
    return row


def _readable_file(conn: sqlite3.Connection, document_id: int) -> sqlite3.Row | None:
    row: sqlite3.Row | None = conn.execute(
        "SELECT files.path_bytes, size, mtime_ns FROM files LEFT JOIN roots ON roots.id = root_id"
        " WHERE document_id = ? AND files.state = 'linked' AND missing_since IS NULL"
        " AND COALESCE(roots.state, 'ok') <> 'gone' LIMIT 1",
        (document_id,),
    ).fetchone()
    return row


def _lease_pages(
    conn: sqlite3.Connection,
    document: sqlite3.Row,
    file: sqlite3.Row,
    owner: str,
    now: float,
    lease_s: float,
    limit: int,
) -> list[PageJob]:
    rows = conn.execute(
        "SELECT page, suspect FROM page_jobs WHERE document_id = ? AND state = 'pending' ORDER BY page LIMIT ?",
        (document["id"], limit),
    ).fetchall()
    pages = json.dumps([row["page"] for row in _until_suspect(rows)])
    claimed = conn.execute(
        "UPDATE page_jobs SET state = 'leased', lease_owner = ?, lease_expires = ?"
        " WHERE document_id = ? AND page IN (SELECT value FROM json_each(?)) RETURNING page, attempts, suspect",
        (owner, now + lease_s, document["id"], pages),
    ).fetchall()
    conn.execute(
        "UPDATE documents SET started_at = COALESCE(started_at, ?) WHERE id = ?", (now, document["id"])
    )
    options = json.loads(document["options"])
    return [
        PageJob(
            document["id"],
            row["page"],
            file["path_bytes"],
            document["sha256"],
            document["media_type"],
            document["pages"],
            row["attempts"],
            bool(row["suspect"]),
            options,
            file["size"],
            file["mtime_ns"],
        )
        for row in sorted(claimed, key=lambda row: int(row["page"]))
    ]


def claim_publish(conn: sqlite3.Connection, owner: str, now: float, lease_s: float) -> PublishJob | None:
    """A file whose sidecars are to be written, or None."""
    due = "publish_after IS NOT NULL AND lease_owner IS NULL AND publish_after <= ?"
    if not conn.execute(f"SELECT 1 FROM files WHERE {due} LIMIT 1", (now,)).fetchone():
        return None
    with transaction(conn):
        if paused(conn):
            return None
        row = conn.execute(
            "UPDATE files SET lease_owner = ?, lease_expires = ? WHERE id ="
            f" (SELECT id FROM files WHERE {due} ORDER BY publish_after, id LIMIT 1)"
            " RETURNING id, document_id, path_bytes, out_dir_bytes, base_bytes, sidecar_attempts",
            (owner, now + lease_s, now),
        ).fetchone()
    return None if row is None else PublishJob(*row)


def finish_publish(
    conn: sqlite3.Connection,
    owner: str,
    job: PublishJob,
    markdown_path: str,
    json_path: str,
    note: str | None = None,
) -> bool:
    """Note that sidecars are written, and where. False, and nothing noted, if the lease was lost."""
    with transaction(conn):
        cursor = conn.execute(
            "UPDATE files SET sidecar_state = 'written', publish_after = NULL, sidecar_attempts = 0,"
            " lease_owner = NULL, lease_expires = NULL, error_code = NULL, error_message = NULL, remedy = NULL,"
            " markdown_path = ?, json_path = ?, sidecar_note = ? WHERE id = ? AND lease_owner = ? AND document_id = ?",
            (markdown_path, json_path, note, job.file_id, owner, job.document_id),
        )
    return cursor.rowcount > 0


def extend_leases(conn: sqlite3.Connection, owner: str, now: float, lease_s: float) -> None:
    """Keep everything `owner` holds for another `lease_s` seconds."""
    with transaction(conn):
        conn.execute(
            "UPDATE page_jobs SET lease_expires = ? WHERE state = 'leased' AND lease_owner = ?",
            (now + lease_s, owner),
        )
        conn.execute("UPDATE files SET lease_expires = ? WHERE lease_owner = ?", (now + lease_s, owner))


def release(conn: sqlite3.Connection, owner: str, *, keep: Sequence[PageJob] = ()) -> None:
    """Give back everything `owner` holds but the pages of `keep`; nothing is counted."""
    kept = json.dumps([[job.document_id, job.page] for job in keep])
    with transaction(conn):
        conn.execute(
            "UPDATE page_jobs SET state = 'pending', lease_owner = NULL, lease_expires = NULL"
            " WHERE state = 'leased' AND lease_owner = ? AND NOT EXISTS (SELECT 1 FROM json_each(?)"
            "  WHERE json_extract(value, '$[0]') = document_id AND json_extract(value, '$[1]') = page)",
            (owner, kept),
        )
        conn.execute(
            "UPDATE files SET lease_owner = NULL, lease_expires = NULL WHERE lease_owner = ?", (owner,)
        )


def is_idle(conn: sqlite3.Connection, now: float) -> bool:
    """Whether nothing can be done now and nobody is doing anything; what is put off until later does not count."""
    row = conn.execute(
        f"SELECT EXISTS (SELECT 1 FROM documents WHERE {_READY})"
        " OR EXISTS (SELECT 1 FROM documents WHERE not_before > 0 AND not_before <= :now)"
        " OR EXISTS (SELECT 1 FROM page_jobs WHERE state = 'leased')"
        " OR EXISTS (SELECT 1 FROM files WHERE lease_owner IS NOT NULL)"
        " OR EXISTS (SELECT 1 FROM files WHERE state = 'intake' AND lease_owner IS NULL AND not_before <= :now)"
        " OR EXISTS (SELECT 1 FROM files WHERE publish_after IS NOT NULL AND lease_owner IS NULL"
        "            AND publish_after <= :now)",
        {"now": now},
    ).fetchone()
    return not row[0]


def next_due(conn: sqlite3.Connection) -> float | None:
    """When the first of what is put off is due again; None if nothing is (0 = now)."""
    row = conn.execute(
        "SELECT min(due) FROM ("
        " SELECT min(not_before) AS due FROM documents WHERE not_before > 0"
        " UNION ALL SELECT min(not_before) FROM files WHERE state = 'intake' AND lease_owner IS NULL"
        " AND not_before < 1e17"
        " UNION ALL SELECT min(publish_after) FROM files WHERE publish_after IS NOT NULL AND lease_owner IS NULL)"
    ).fetchone()
    return None if row[0] is None else float(row[0])
