"""What follows when a job fails, is put off, or loses its worker.

The kind of fault decides. Transient: later, nothing counted. Final: failed at once. A bug: an attempt counted, failed
once they are spent. A dead worker's only job is blamed for it; if it had several, none is, and each is next done alone.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass

from storage import documents
from storage.control import DISK_FULL, note_pause
from storage.database import transaction
from storage.errors import DiskFullError, Fault, OcrdError, VanishedError, WorkerLostError
from storage.work import IntakeJob, PageJob, PublishJob

MAX_ATTEMPTS = 3
FIRST_DELAY_S = 5.0
LONGEST_DELAY_S = 600.0
_FREE = "lease_owner = NULL, lease_expires = NULL"


@dataclass(frozen=True, slots=True)
class Recovered:
    """What was found in the hands of dead workers."""

    pages: int = 0
    files: int = 0
    failed: int = 0  # of these, given up: their attempts are spent
    suspects: int = 0  # of these, to be done alone next


def back_off_s(times: int) -> float:
    """How long to wait after being put off `times` times in a row."""
    return min(LONGEST_DELAY_S, FIRST_DELAY_S * 2.0 ** min(times, 20))


def fail_page(
    conn: sqlite3.Connection,
    owner: str,
    job: PageJob,
    error: OcrdError,
    now: float,
    max_attempts: int = MAX_ATTEMPTS,
) -> None:
    """Note that reading a page failed; nothing if the lease was lost."""
    if error.fault is Fault.TRANSIENT:
        _put_off_page(conn, owner, job, error, now, None)
        return
    with transaction(conn):
        if not _holds_page(conn, owner, job):
            return
        spent = max_attempts if error.fault is Fault.FINAL else job.attempts + 1
        _count_page(conn, job.document_id, job.page, spent, max_attempts, error, now)
        documents.settle(conn, job.document_id, now)


def defer(
    conn: sqlite3.Connection,
    owner: str,
    job: PageJob | IntakeJob | PublishJob,
    error: OcrdError,
    now: float,
    delay_s: float,
) -> None:
    """Give a job back, to be tried again in `delay_s` seconds; nothing is counted."""
    if isinstance(job, PageJob):
        _put_off_page(conn, owner, job, error, now, delay_s)
        return
    with transaction(conn):
        column = "not_before" if isinstance(job, IntakeJob) else "publish_after"
        conn.execute(
            f"UPDATE files SET {column} = ?, {_FREE}, error_code = ?, error_message = ?, remedy = ?"
            " WHERE id = ? AND lease_owner = ?",
            (now + delay_s, error.code, error.message, error.remedy, job.file_id, owner),
        )


def _put_off_page(
    conn: sqlite3.Connection, owner: str, job: PageJob, error: OcrdError, now: float, delay_s: float | None
) -> None:
    with transaction(conn):
        if not _holds_page(conn, owner, job):
            return
        conn.execute(
            f"UPDATE page_jobs SET state = 'pending', {_FREE} WHERE document_id = ? AND page = ?",
            (job.document_id, job.page),
        )
        if isinstance(error, DiskFullError) and delay_s is None:
            note_pause(conn, str(error), kind=DISK_FULL, path=_text(error.file), now=now)
            return
        if isinstance(error, VanishedError) and _lose_file(conn, job.path, now):
            documents.repark(conn, [job.document_id])
            documents.drop_orphans(conn, [job.document_id])
            return
        row = conn.execute("SELECT deferrals FROM documents WHERE id = ?", (job.document_id,)).fetchone()
        delay = back_off_s(row["deferrals"]) if delay_s is None else delay_s
        conn.execute(
            "UPDATE documents SET not_before = ?, deferrals = deferrals + 1, error_code = ?, error_message = ?,"
            " remedy = ? WHERE id = ?",
            (now + delay, error.code, error.message, error.remedy, job.document_id),
        )


def _text(path: object) -> str | None:
    return None if path is None else str(path)


def _holds_page(conn: sqlite3.Connection, owner: str, job: PageJob) -> bool:
    row = conn.execute(
        "SELECT 1 FROM page_jobs WHERE document_id = ? AND page = ? AND state = 'leased' AND lease_owner = ?",
        (job.document_id, job.page, owner),
    ).fetchone()
    return row is not None


def _count_page(
    conn: sqlite3.Connection,
    document_id: int,
    page: int,
    spent: int,
    max_attempts: int,
    error: OcrdError,
    now: float,
) -> bool:
    """Count an attempt; whether the page failed for good."""
    failed = spent >= max_attempts
    conn.execute(
        f"UPDATE page_jobs SET state = ?, attempts = attempts + 1, {_FREE}, error_code = ?, error_message = ?,"
        " remedy = ?, finished_at = ? WHERE document_id = ? AND page = ?",
        (
            "failed" if failed else "pending",
            error.code,
            error.message,
            error.remedy,
            now if failed else None,
            document_id,
            page,
        ),
    )
    return failed


def _lose_file(conn: sqlite3.Connection, path: bytes, now: float) -> bool:
    """Mark a vanished file missing; False if it is its root that is gone."""
    file = conn.execute("SELECT * FROM files WHERE path_bytes = ?", (path,)).fetchone()
    if file is None:
        return True
    if not documents.root_is_there(conn, file["root_id"]):
        return False
    documents.lose(conn, file, now)
    return True


def fail_intake(
    conn: sqlite3.Connection,
    owner: str,
    job: IntakeJob,
    error: OcrdError,
    now: float,
    max_attempts: int = MAX_ATTEMPTS,
) -> None:
    """Note that hashing or opening a file failed; a file that vanished before anything was read is no failure."""
    with transaction(conn):
        file = conn.execute(
            "SELECT * FROM files WHERE id = ? AND state = 'intake' AND lease_owner = ?", (job.file_id, owner)
        ).fetchone()
        if file is None:
            return
        if isinstance(error, VanishedError) and _lose_file(conn, job.path, now):
            if file["document_id"] is not None:
                documents.repark(conn, [file["document_id"]])
                documents.drop_orphans(conn, [file["document_id"]])
            return
        if error.fault is Fault.TRANSIENT:
            _put_off_intake(conn, file, error, now)
        else:
            spent = max_attempts if error.fault is Fault.FINAL else file["attempts"] + 1
            _count_intake(conn, file["id"], spent, max_attempts, error)


def _put_off_intake(conn: sqlite3.Connection, file: sqlite3.Row, error: OcrdError, now: float) -> None:
    if isinstance(error, DiskFullError):
        note_pause(conn, str(error), kind=DISK_FULL, path=_text(error.file), now=now)
    waited = max(0.0, file["not_before"] - file["last_seen"])  # grows with each time it is put off
    delay = min(LONGEST_DELAY_S, max(FIRST_DELAY_S, 2 * waited))
    conn.execute(
        f"UPDATE files SET not_before = ?, {_FREE}, error_code = ?, error_message = ?, remedy = ? WHERE id = ?",
        (now + delay, error.code, error.message, error.remedy, file["id"]),
    )


def _count_intake(
    conn: sqlite3.Connection, file_id: int, spent: int, max_attempts: int, error: OcrdError
) -> bool:
    failed = spent >= max_attempts
    conn.execute(
        f"UPDATE files SET state = ?, attempts = attempts + 1, {_FREE}, error_code = ?, error_message = ?, remedy = ?"
        " WHERE id = ?",
        ("failed" if failed else "intake", error.code, error.message, error.remedy, file_id),
    )
    return failed


def fail_publish(
    conn: sqlite3.Connection,
    owner: str,
    job: PublishJob,
    error: OcrdError,
    now: float,
    max_attempts: int = MAX_ATTEMPTS,
) -> None:
    """Note that sidecars could not be written: shown as failed, and for a transient fault tried again by itself."""
    with transaction(conn):
        row = conn.execute(
            "SELECT sidecar_attempts FROM files WHERE id = ? AND lease_owner = ?", (job.file_id, owner)
        ).fetchone()
        if row is None:
            return
        attempts = row["sidecar_attempts"] + 1
        again = error.fault is Fault.TRANSIENT or (error.fault is Fault.BUG and attempts < max_attempts)
        conn.execute(
            f"UPDATE files SET sidecar_state = 'failed', sidecar_attempts = ?, publish_after = ?, {_FREE},"
            " error_code = ?, error_message = ?, remedy = ? WHERE id = ?",
            (
                attempts,
                now + back_off_s(attempts) if again else None,
                error.code,
                error.message,
                error.remedy,
                job.file_id,
            ),
        )


def recover(
    conn: sqlite3.Connection, now: float, is_alive: Callable[[str], bool], *, max_attempts: int = MAX_ATTEMPTS
) -> Recovered:
    """Take back what dead workers hold, and what nobody has kept a lease on.

    One job in flight: it is blamed, and fails as "crash" once its attempts are spent. Several: each is next done alone.
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
        with transaction(conn):
            total = _sum(total, _recover_owner(conn, owner, now, owner in dead, max_attempts))
    return total


def _sum(a: Recovered, b: Recovered) -> Recovered:
    return Recovered(a.pages + b.pages, a.files + b.files, a.failed + b.failed, a.suspects + b.suspects)


def _recover_owner(
    conn: sqlite3.Connection, owner: str, now: float, dead: bool, max_attempts: int
) -> Recovered:
    limit = float("inf") if dead else now
    pages = conn.execute(
        "SELECT document_id, page, attempts FROM page_jobs WHERE state = 'leased' AND lease_owner = ?"
        " AND lease_expires < ?",
        (owner, limit),
    ).fetchall()
    files = conn.execute(
        "SELECT id, state, attempts, sidecar_attempts FROM files WHERE lease_owner = ? AND lease_expires < ?",
        (owner, limit),
    ).fetchall()
    certain = len(pages) + len(files) == 1
    lost = WorkerLostError("the worker died or hung")
    failed = 0
    for row in pages:
        if certain:
            failed += _count_page(
                conn, row["document_id"], row["page"], row["attempts"] + 1, max_attempts, lost, now
            )
        else:
            conn.execute(
                f"UPDATE page_jobs SET state = 'pending', suspect = 1, {_FREE} WHERE document_id = ? AND page = ?",
                (row["document_id"], row["page"]),
            )
        documents.settle(conn, row["document_id"], now)
    for row in files:
        failed += _recover_file(conn, row, certain, max_attempts, lost)
    suspects = 0 if certain else len(pages) + len(files)
    return Recovered(len(pages), len(files), failed, suspects)


def _recover_file(
    conn: sqlite3.Connection, file: sqlite3.Row, certain: bool, max_attempts: int, lost: OcrdError
) -> bool:
    if file["state"] == "intake":
        if certain:
            conn.execute("UPDATE files SET suspect = 1 WHERE id = ?", (file["id"],))
            return _count_intake(conn, file["id"], file["attempts"] + 1, max_attempts, lost)
        conn.execute(f"UPDATE files SET suspect = 1, {_FREE} WHERE id = ?", (file["id"],))
        return False
    spent = certain and file["sidecar_attempts"] + 1 >= max_attempts
    conn.execute(
        f"UPDATE files SET {_FREE}, sidecar_attempts = sidecar_attempts + ?,"
        " sidecar_state = CASE WHEN ? THEN 'failed' ELSE sidecar_state END,"
        " publish_after = CASE WHEN ? THEN NULL ELSE publish_after END WHERE id = ?",
        (int(certain), spent, spent, file["id"]),
    )
    return spent
