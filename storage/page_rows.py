"""The pages of a document as a list: which there are, how far each is, and its neighbours."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

_ROWS = (
    "SELECT j.page, j.state, j.error_code, j.error_message, j.remedy, p.id, p.label"
    " FROM page_jobs j LEFT JOIN pages p ON p.document_id = j.document_id AND p.page = j.page"
)


@dataclass(frozen=True, slots=True)
class PageRow:
    """A page of a document, without its text."""

    number: int
    state: str  # pending | leased | done | blank | failed
    page_id: int | None  # None until it was read
    label: str | None
    error_code: str | None = None
    error_message: str | None = None
    remedy: str | None = None


def some(
    conn: sqlite3.Connection, document_id: int, *, after: int, limit: int, states: Sequence[str] = ()
) -> list[PageRow]:
    """At most `limit` pages after that number, in order; those in one of `states`, where any are given."""
    wanted = f" AND j.state IN ({','.join('?' * len(states))})" if states else ""
    rows = conn.execute(
        f"{_ROWS} WHERE j.document_id = ? AND j.page > ?{wanted} ORDER BY j.page LIMIT ?",
        (document_id, after, *states, limit),
    )
    labels = _labels(conn, document_id)
    return [_row(row, labels) for row in rows]


def one(conn: sqlite3.Connection, document_id: int, number: int) -> PageRow | None:
    """The page of that number."""
    found = around(conn, document_id, number)
    return next((row for row in found if row.number == number), None)


def around(conn: sqlite3.Connection, document_id: int, number: int) -> list[PageRow]:
    """The page of that number and those beside it, as far as there are any."""
    rows = conn.execute(
        f"{_ROWS} WHERE j.document_id = ? AND j.page BETWEEN ? AND ? ORDER BY j.page",
        (document_id, number - 1, number + 1),
    )
    labels = _labels(conn, document_id)
    return [_row(row, labels) for row in rows]


def place(conn: sqlite3.Connection, page_id: int) -> tuple[int, int] | None:
    """(document, number) of a page that was read."""
    row = conn.execute("SELECT document_id, page FROM pages WHERE id = ?", (page_id,)).fetchone()
    return None if row is None else (row[0], row[1])


def successor(conn: sqlite3.Connection, document_id: int) -> int | None:
    """The document that takes the place of this one once it is read."""
    row = conn.execute("SELECT superseded_by FROM documents WHERE id = ?", (document_id,)).fetchone()
    return None if row is None else row[0]


def read_at(conn: sqlite3.Connection, page_id: int) -> float | None:
    """When a page was read."""
    row = conn.execute("SELECT read_at FROM pages WHERE id = ?", (page_id,)).fetchone()
    return None if row is None else row[0]


def _labels(conn: sqlite3.Connection, document_id: int) -> list[str | None]:
    row = conn.execute("SELECT labels FROM documents WHERE id = ?", (document_id,)).fetchone()
    return [] if row is None or not row[0] else json.loads(row[0])


def _row(row: sqlite3.Row, labels: list[str | None]) -> PageRow:
    number, state, code, message, remedy, page_id, label = row
    if page_id is None and number <= len(labels):
        label = labels[number - 1]
    return PageRow(number, state, page_id, label, code, message, remedy)
