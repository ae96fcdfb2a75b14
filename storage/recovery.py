"""Takes back what dead workers held, and finds out which page killed them.

A dead worker's only job is blamed for it. If it had several, none is: each is next done alone, so that blame is
certain.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass

from storage import documents
from storage.database import transaction
from storage.errors import OcrdError, WorkerLostError
from storage.setbacks import FREE, MAX_ATTEMPTS, count_intake, count_page

_EVER = 1e18


@dataclass(frozen=True, slots=True)
class Recovered:
    """What was found in the hands of dead workers."""

    pages: int = 0
    files: int = 0
    failed: int = 0  # of these, given up: their attempts are spent
    suspects: int = 0  # of these, to be done alone next
    # Files whose sidecars were being written: path, output folder and base, as in `sidecars.write`.
    publishing: tuple[tuple[bytes, bytes | None, bytes | None], ...] = ()


def recover(
    conn: sqlite3.Connection,
    now: float,
    is_alive: Callable[[str], bool],
    *,
    is_watched: Callable[[str], bool] = lambda owner: False,
    max_attempts: int = MAX_ATTEMPTS,
) -> Recovered:
    """Take back what dead workers hold, and what nobody has kept a lease on.

    One job in flight: it is blamed, and fails as "crash" once its attempts are spent. Several: each is next done alone.
    Leases of `is_watched` owners never run out while these live: somebody ends those that hang, by a clock that neither
    the computer's sleep nor a locked database misleads.
    """
    owners = [
        row[0]
        for row in conn.execute(
            "SELECT DISTINCT lease_owner FROM page_jobs WHERE state = 'leased'"
            " UNION SELECT DISTINCT lease_owner FROM files WHERE lease_owner IS NOT NULL"
        )
    ]
    dead = {
        owner for owner in owners if not is_alive(owner)
    }  # asked outside the transaction: it may take time
    total = Recovered()
    for owner in owners:
        if owner not in dead and is_watched(owner):
            continue
        with transaction(conn):
            total = _sum(total, _recover_owner(conn, owner, now, owner in dead, max_attempts))
    return total


def _sum(a: Recovered, b: Recovered) -> Recovered:
    return Recovered(
        a.pages + b.pages,
        a.files + b.files,
        a.failed + b.failed,
        a.suspects + b.suspects,
        a.publishing + b.publishing,
    )


def _recover_owner(
    conn: sqlite3.Connection, owner: str, now: float, dead: bool, max_attempts: int
) -> Recovered:
    limit = _EVER if dead else now
    pages = conn.execute(
        "SELECT document_id, page, attempts FROM page_jobs WHERE state = 'leased' AND lease_owner = ?"
        " AND lease_expires < ?",
        (owner, limit),
    ).fetchall()
    files = conn.execute(
        "SELECT id, state, attempts, sidecar_attempts, path_bytes, out_dir_bytes, base_bytes FROM files"
        " WHERE lease_owner = ? AND lease_expires < ?",
        (owner, limit),
    ).fetchall()
    certain = len(pages) + len(files) == 1
    lost = WorkerLostError("the worker died or hung")
    failed = 0
    for row in pages:
        if certain:
            conn.execute(
                "UPDATE page_jobs SET suspect = 1 WHERE document_id = ? AND page = ?",
                (row["document_id"], row["page"]),
            )
            failed += count_page(
                conn, row["document_id"], row["page"], row["attempts"] + 1, max_attempts, lost, now
            )
        else:
            conn.execute(
                f"UPDATE page_jobs SET state = 'pending', suspect = 1, {FREE} WHERE document_id = ? AND page = ?",
                (row["document_id"], row["page"]),
            )
        documents.settle(conn, row["document_id"], now)
    for row in files:
        failed += _recover_file(conn, row, certain, max_attempts, lost)
    suspects = 0 if certain else len(pages) + len(files)
    publishing = tuple(
        (bytes(row["path_bytes"]), row["out_dir_bytes"], row["base_bytes"])
        for row in files
        if row["state"] != "intake"
    )
    return Recovered(len(pages), len(files), failed, suspects, publishing)


def _recover_file(
    conn: sqlite3.Connection, file: sqlite3.Row, certain: bool, max_attempts: int, lost: OcrdError
) -> bool:
    if file["state"] == "intake":
        if certain:
            conn.execute("UPDATE files SET suspect = 1 WHERE id = ?", (file["id"],))
            return count_intake(conn, file["id"], file["attempts"] + 1, max_attempts, lost)
        conn.execute(f"UPDATE files SET suspect = 1, {FREE} WHERE id = ?", (file["id"],))
        return False
    if not certain:
        conn.execute(f"UPDATE files SET {FREE} WHERE id = ?", (file["id"],))
        return False
    spent = bool(file["sidecar_attempts"] + 1 >= max_attempts)
    conn.execute(
        f"UPDATE files SET {FREE}, sidecar_attempts = sidecar_attempts + 1,"
        " sidecar_state = CASE WHEN :spent THEN 'failed' ELSE sidecar_state END,"
        " publish_after = CASE WHEN :spent THEN NULL ELSE publish_after END,"
        " error_code = :code, error_message = :message, remedy = :remedy WHERE id = :id",
        {"spent": spent, "code": lost.code, "message": lost.message, "remedy": lost.remedy, "id": file["id"]},
    )
    return spent
