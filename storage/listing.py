"""Files of the library a page at a time, the newest first: never all rows, however many there are."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from storage.index import file_filter


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file, and as much of its document as a list shows."""

    file_id: int
    path: str  # as people see it (undecodable bytes escaped)
    state: str  # queued | running | done | failed | needs_password | missing
    document_id: int | None  # None: not opened yet
    title: str | None
    media_type: str | None
    pages: int | None
    pages_done: int
    pages_failed: int
    error_code: str | None
    error_message: str | None
    remedy: str | None
    markdown_path: str | None
    json_path: str | None
    first_seen: float  # epoch seconds


_LISTED = """
SELECT f.id, s.path, s.state, s.document_id, s.title, s.media_type, s.pages, COALESCE(s.pages_done, 0),
       COALESCE(s.pages_failed, 0), s.error_code, s.error_message, s.remedy, s.markdown_path, s.json_path,
       f.first_seen
FROM files f CROSS JOIN file_status s ON s.id = f.id LEFT JOIN documents d ON d.id = f.document_id
WHERE {} ORDER BY f.id DESC LIMIT ?
"""


def list_files(
    conn: sqlite3.Connection,
    *,
    path: str | None = None,
    name: str | None = None,
    state: str | None = None,
    before: int | None = None,
    limit: int = 50,
) -> list[ListedFile]:
    """At most `limit` files, the last one found first.

    `path` and `name` as in `index.search`; `state`: one of the six of `ListedFile`; `before`: the last `file_id` of
    the page before. Files found meanwhile do not move the pages that follow.
    """
    conditions: list[str] = []
    values: list[object] = []
    if (files := file_filter(path, None, name)) is not None:
        conditions.append(files[0])
        values += files[1]
    if state is not None:
        conditions.append("s.state = ?")
        values.append(state)
    if before is not None:
        conditions.append("f.id < ?")
        values.append(before)
    query = _LISTED.format(" AND ".join(conditions) or "1")
    return [ListedFile(*row) for row in conn.execute(query, [*values, limit])]


def paths_of(conn: sqlite3.Connection, document_id: int, limit: int) -> list[str]:
    """At most `limit` paths of the files that carry a document, those that are there first.

    Of a document that a changed file has left behind: the paths of the one that came after it.
    """
    rows = conn.execute(
        "SELECT path FROM files WHERE document_id ="
        " (SELECT COALESCE(superseded_by, id) FROM documents WHERE id = ?)"
        " ORDER BY missing_since IS NOT NULL, id LIMIT ?",
        (document_id, limit),
    )
    return [row[0] for row in rows]
