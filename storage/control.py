"""Whether the queue is paused, by whom or what, and until when.

A pause by a person lasts until `ocrd resume`. A pause for want of space names the folder that needs it, so that the
supervisor can look and lift it by itself.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from dataclasses import dataclass

from storage.database import transaction

USER = "user"
DISK_FULL = "disk_full"
# Work stops with less free space than that, so that the reason can still be written down.
LOW_BYTES = 32 << 20
NO_SPACE = "no space left for the database"


@dataclass(frozen=True, slots=True)
class Pause:
    """Why nothing is handed out."""

    kind: str  # user | disk_full
    reason: str
    path: str | None = None  # disk_full: the folder or file that must get space
    since: float | None = None


def paused(conn: sqlite3.Connection) -> list[Pause]:
    """The pauses in force; empty = work goes on."""
    rows = conn.execute(
        "SELECT key, value FROM control WHERE key >= 'pause:' AND key < 'pause;' ORDER BY key DESC"
    )
    found = []
    for row in rows:
        value = json.loads(row["value"])
        found.append(
            Pause(row["key"].partition(":")[2], value["reason"], value.get("path"), value.get("since"))
        )
    return found  # a person's comes first


def starved(conn: sqlite3.Connection) -> Pause | None:
    """The pause that could not be noted: a disk that filled up at once has no room for saying so."""
    file = next((row[2] for row in conn.execute("PRAGMA database_list") if row[1] == "main"), "")
    try:
        free = shutil.disk_usage(file).free
    except OSError:
        return None
    return Pause(DISK_FULL, NO_SPACE, file) if free < LOW_BYTES else None


def pause(
    conn: sqlite3.Connection,
    reason: str,
    *,
    kind: str = USER,
    path: str | None = None,
    now: float | None = None,
) -> None:
    """Hand out nothing more; what is being read is finished."""
    with transaction(conn):
        note_pause(conn, reason, kind=kind, path=path, now=now)


def note_pause(
    conn: sqlite3.Connection, reason: str, *, kind: str, path: str | None = None, now: float | None = None
) -> None:
    """`pause`, inside the caller's transaction; an earlier pause of the same kind keeps its time."""
    value = json.dumps({"reason": reason, "path": path, "since": now}, ensure_ascii=False)
    conn.execute(
        "INSERT INTO control (key, value) VALUES (?, ?) ON CONFLICT DO NOTHING", (f"pause:{kind}", value)
    )


def resume(conn: sqlite3.Connection, kind: str | None = None) -> None:
    """Lift the pauses of a kind; all of them without one."""
    with transaction(conn):
        conn.execute(
            "DELETE FROM control WHERE key >= 'pause:' AND key < 'pause;' AND (? IS NULL OR key = 'pause:' || ?)",
            (kind, kind),
        )


def pause_reason(conn: sqlite3.Connection) -> str | None:
    """Why the queue is paused, or None if it is not."""
    found = paused(conn)
    return found[0].reason if found else None
