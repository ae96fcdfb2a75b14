"""What `ocrd watch` says of files that nothing is read for: content that is known already, files not taken in."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass

AT_ONCE = 1000  # files looked at in one go; intake is slower
_BEHIND_ALL = 1 << 62  # no file has that number

_FIRST_WAITING = (
    "SELECT min(id) FROM ("
    " SELECT min(id) AS id FROM files WHERE state = 'intake' AND lease_owner IS NULL AND not_before = 0 AND id > :seen"
    " UNION ALL SELECT min(id) FROM files INDEXED BY files_leased"  # few: what workers hold
    " WHERE lease_owner > '' AND state = 'intake' AND id > :seen)"
)
# Another file has the content, or it was there before this file was seen (and lay elsewhere: the file was moved).
_NEWS = (
    "SELECT files.id, files.path, files.state, coalesce(files.error_message, documents.error_message) AS message,"
    " documents.state AS document_state, documents.pages, documents.added_at < files.last_seen AS was_there,"
    " (SELECT other.path FROM files AS other WHERE other.document_id = documents.id AND other.id < files.id LIMIT 1)"
    " AS twin FROM files LEFT JOIN documents ON documents.id = document_id"
    " WHERE files.id IN (SELECT value FROM json_each(?)) ORDER BY files.id"
)


@dataclass(frozen=True, slots=True)
class Told:
    """A line about a file."""

    path: str
    line: str
    failed: bool


class Arrivals:
    """The files that come from now on. Each is told of once, when it has been taken in."""

    def __init__(self, conn: sqlite3.Connection) -> None:
        self._conn = conn
        self._seen = int(conn.execute("SELECT coalesce(max(id), 0) FROM files").fetchone()[0])
        self._put_off: list[int] = []  # behind `_seen`, and not taken in yet

    def news(self) -> list[Told]:
        """What is to be said since the last look; nothing of content that is new: its reading speaks for itself."""
        end = self._conn.execute(_FIRST_WAITING, {"seen": self._seen}).fetchone()[0]
        fresh = [
            int(row[0])
            for row in self._conn.execute(
                "SELECT id FROM files WHERE id > ? AND id < ? ORDER BY id LIMIT ?",
                (self._seen, _BEHIND_ALL if end is None else end, AT_ONCE),
            )
        ]
        rows = self._conn.execute(_NEWS, (json.dumps(self._put_off + fresh),)).fetchall()
        self._seen = fresh[-1] if fresh else self._seen
        self._put_off = [row["id"] for row in rows if row["state"] == "intake"][-AT_ONCE:]
        return [told for row in rows if (told := _told(row)) is not None]


def _told(row: sqlite3.Row) -> Told | None:
    path, same = row["path"], f", the same as {row['twin']}" if row["twin"] else ""
    if row["state"] == "failed":
        return Told(path, f"not read: {path}: {row['message']}", failed=True)
    # What could not be opened before was tried again just now, and is told as a document.
    if row["state"] != "linked" or row["pages"] is None or not (row["twin"] or row["was_there"]):
        return None
    match row["document_state"]:
        case "done":
            return Told(path, f"read before: {path}{same}", failed=False)
        case "failed" | "needs_password":
            return Told(path, f"not read: {path}{same}: {row['message']}", failed=True)
        case _:
            return Told(path, f"being read: {path}{same}", failed=False)
