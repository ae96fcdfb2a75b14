"""The folders that are watched: added, there or gone, scanned."""

from __future__ import annotations

import sqlite3

from storage import documents
from storage.database import transaction
from storage.names import display_path

_FAR = 1e18  # "not before" of what waits for its root to return


def add_root(
    conn: sqlite3.Connection, path: bytes, *, recursive: bool = True, mode: str = "native", now: float
) -> int:
    """The id of the watched folder, added or updated; `mode` is "native" or "polling"."""
    with transaction(conn):
        row = conn.execute(
            "INSERT INTO roots (path, path_bytes, recursive, watched, mode, added_at) VALUES (?, ?, ?, 1, ?, ?)"
            " ON CONFLICT(path_bytes) DO UPDATE SET recursive = excluded.recursive, mode = excluded.mode, watched = 1"
            " RETURNING id",
            (display_path(path), path, recursive, mode, now),
        ).fetchone()
    return int(row["id"])


def set_root_state(conn: sqlite3.Connection, root_id: int, state: str, message: str | None = None) -> None:
    """Note that a root is "ok" or "gone". What lies under a root that is gone waits for it; nothing goes missing."""
    with transaction(conn):
        before = conn.execute("SELECT state FROM roots WHERE id = ?", (root_id,)).fetchone()
        conn.execute("UPDATE roots SET state = ?, message = ? WHERE id = ?", (state, message, root_id))
        if before is None or (before["state"] == "gone") == (state == "gone"):
            return
        conn.execute(
            "UPDATE files SET not_before = ? WHERE root_id = ? AND state = 'intake'",
            (_FAR if state == "gone" else 0, root_id),
        )
        documents.repark(conn, _open_documents(conn, root_id))


def set_root_watch(
    conn: sqlite3.Connection,
    root_id: int,
    *,
    mode: str | None = None,
    watched: bool = True,
    scanned_at: float | None = None,
) -> None:
    """Note how a root is watched ("native" or "polling"), whether at all, and when it was last scanned as a whole."""
    conn.execute(
        "UPDATE roots SET mode = coalesce(?, mode), watched = ?, scanned_at = coalesce(?, scanned_at) WHERE id = ?",
        (mode, watched, scanned_at, root_id),
    )


def _open_documents(conn: sqlite3.Connection, root_id: int) -> list[int]:
    rows = conn.execute(
        "SELECT DISTINCT document_id FROM files JOIN documents ON documents.id = document_id"
        " WHERE root_id = ? AND documents.pages_pending > 0",
        (root_id,),
    )
    return [row[0] for row in rows]
