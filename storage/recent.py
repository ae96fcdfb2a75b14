"""Which files something happened to since a moment: from the ends of a few indexes, however large the library is."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Marks:
    """How far was looked."""

    file_id: int = 0
    page_at: float = 0.0
    document_at: float = 0.0


def newest(conn: sqlite3.Connection) -> Marks:
    """The newest of everything."""
    return Marks(
        conn.execute("SELECT coalesce(max(id), 0) FROM files").fetchone()[0],
        conn.execute(
            "SELECT coalesce(max(finished_at), 0) FROM page_jobs WHERE finished_at IS NOT NULL"
        ).fetchone()[0],
        conn.execute(
            "SELECT coalesce(max(finished_at), 0) FROM documents WHERE finished_at IS NOT NULL"
        ).fetchone()[0],
    )


_TOUCHED = (
    "SELECT id FROM files WHERE id > :file_id",
    "SELECT files.id FROM page_jobs CROSS JOIN files ON files.document_id = page_jobs.document_id"
    " WHERE page_jobs.finished_at > :page_at",
    "SELECT files.id FROM documents CROSS JOIN files ON files.document_id = documents.id"
    " WHERE documents.finished_at > :document_at",
    # What is being read, taken in or written now; what begins and what goes on.
    "SELECT files.id FROM page_jobs CROSS JOIN files ON files.document_id = page_jobs.document_id"
    " WHERE page_jobs.state = 'leased' AND page_jobs.lease_owner > ''",
    "SELECT id FROM files WHERE lease_owner > ''",
)


def touched(conn: sqlite3.Connection, since: Marks, limit: int) -> tuple[list[int], Marks]:
    """Ids of at most `limit` files of each kind of happening since `since`, and how far was looked.

    What a person asked to be read again is noticed once a page of it is begun.
    """
    marks = {"file_id": since.file_id, "page_at": since.page_at, "document_at": since.document_at}
    until = newest(conn)
    found: dict[int, None] = {}
    for query in _TOUCHED:
        found.update(
            (row[0], None) for row in conn.execute(f"{query} LIMIT :limit", {**marks, "limit": limit})
        )
    return list(found), until
