"""Which processes work on this home and what they are at; and the named values they leave for each other."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """A process as it last described itself."""

    owner: str
    pid: int
    role: str  # supervisor | worker
    started_at: float
    heartbeat: float
    path: str | None
    page: int | None
    stage: str | None
    stage_since: float | None
    rss_mb: float | None


def record(conn: sqlite3.Connection, owner: str, *, pid: int, host: str, role: str, now: float) -> None:
    """A process begins; its row shows it idle."""
    conn.execute(
        "INSERT INTO workers (owner, pid, host, role, started_at, heartbeat) VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (owner) DO UPDATE SET heartbeat = excluded.heartbeat, path = NULL, page = NULL, stage = NULL",
        (owner, pid, host, role, now, now),
    )


def beat(
    conn: sqlite3.Connection,
    owner: str,
    *,
    now: float,
    path: str | None = None,
    page: int | None = None,
    stage: str | None = None,
    stage_since: float | None = None,
    rss_mb: float | None = None,
    peak_rss_mb: float | None = None,
) -> None:
    """The process lives, and this is what it is at. `path` is for people: undecodable bytes escaped."""
    conn.execute(
        "UPDATE workers SET heartbeat = ?, path = ?, page = ?, stage = ?, stage_since = ?,"
        " rss_mb = coalesce(?, rss_mb), peak_rss_mb = max(coalesce(?, 0), coalesce(peak_rss_mb, 0)) WHERE owner = ?",
        (now, path, page, stage, stage_since, rss_mb, peak_rss_mb, owner),
    )


def remove(conn: sqlite3.Connection, owner: str) -> None:
    """The process has ended."""
    conn.execute("DELETE FROM workers WHERE owner = ?", (owner,))


def rows(conn: sqlite3.Connection) -> list[WorkerRow]:
    """All processes that have not said they ended; some may be dead all the same."""
    found = conn.execute(
        "SELECT owner, pid, role, started_at, heartbeat, path, page, stage, stage_since, rss_mb FROM workers"
    )
    return [WorkerRow(*row) for row in found]


def get(conn: sqlite3.Connection, key: str) -> str | None:
    """A named value of `control`."""
    row = conn.execute("SELECT value FROM control WHERE key = ?", (key,)).fetchone()
    return None if row is None else str(row[0])


def put(conn: sqlite3.Connection, key: str, value: str | None) -> None:
    """Set a named value of `control`; None removes it."""
    if value is None:
        conn.execute("DELETE FROM control WHERE key = ?", (key,))
    else:
        conn.execute(
            "INSERT INTO control (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            (key, value),
        )
