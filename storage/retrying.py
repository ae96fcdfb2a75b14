"""Try again: what failed, or whatever a person names, with other options where they ask for them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping

from storage import documents
from storage.database import transaction


def retry(
    conn: sqlite3.Connection,
    selection: Iterable[bytes] | None,
    options: Mapping[str, object] | None = None,
    now: float = 0.0,
) -> int:
    """Queue again what failed of the files of `selection` (paths), or of all files (None). Returns how many files.

    A named file of which nothing failed is read again whole, and so is one for which options (`engine`, `dpi`,
    `text_layer`, `password`) are given; they stay with the document.
    """
    with transaction(conn):
        files = _selected(conn, selection)
        for file in files:
            _retry_file(conn, file, dict(options or {}), whole=selection is not None)
    return len(files)


def _selected(conn: sqlite3.Connection, selection: Iterable[bytes] | None) -> list[sqlite3.Row]:
    if selection is None:
        return conn.execute(
            "SELECT files.* FROM files LEFT JOIN documents ON documents.id = document_id WHERE missing_since IS NULL"
            " AND (files.state = 'failed' OR sidecar_state = 'failed' OR files.error_code IS NOT NULL"
            " OR documents.state IN ('failed', 'needs_password') OR documents.pages_failed > 0"
            " OR documents.not_before > 0)"
        ).fetchall()
    found = []
    for path in dict.fromkeys(selection):
        found += conn.execute(
            "SELECT * FROM files WHERE path_bytes = ? AND missing_since IS NULL", (path,)
        ).fetchall()
    return found


def _retry_file(
    conn: sqlite3.Connection, file: sqlite3.Row, options: dict[str, object], *, whole: bool
) -> None:
    document = conn.execute("SELECT * FROM documents WHERE id = ?", (file["document_id"],)).fetchone()
    if document is not None and options:
        merged = {**json.loads(document["options"]), **options}
        conn.execute("UPDATE documents SET options = ? WHERE id = ?", (json.dumps(merged), document["id"]))
    if file["state"] != "linked" or document is None or document["pages"] is None:
        conn.execute(
            "UPDATE files SET state = 'intake', attempts = 0, not_before = 0, error_code = NULL, error_message = NULL,"
            " remedy = NULL WHERE id = ? AND lease_owner IS NULL",
            (file["id"],),
        )
        return
    if file["sidecar_state"] == "failed":
        conn.execute(
            "UPDATE files SET sidecar_state = 'due', publish_after = 0, sidecar_attempts = 0, error_code = NULL,"
            " error_message = NULL, remedy = NULL WHERE id = ? AND lease_owner IS NULL",
            (file["id"],),
        )
    nothing_failed = document["pages_failed"] == 0 and file["sidecar_state"] != "failed"
    _reset_pages(conn, document["id"], every=whole and (bool(options) or nothing_failed))
    documents.repark(conn, [document["id"]])


def _reset_pages(conn: sqlite3.Connection, document_id: int, *, every: bool) -> None:
    conn.execute(
        "UPDATE page_jobs SET state = 'pending', attempts = 0, error_code = NULL, error_message = NULL, remedy = NULL,"
        " finished_at = NULL WHERE document_id = ? AND (state = 'failed' OR (? AND state IN ('done', 'blank')))",
        (document_id, every),
    )
    conn.execute(
        "UPDATE documents SET not_before = 0, deferrals = 0, error_code = NULL, error_message = NULL, remedy = NULL"
        " WHERE id = ?",
        (document_id,),
    )
