"""What follows when a job fails, is put off, or loses its worker.

The kind of fault decides. Transient: later, nothing counted. Final: failed at once. A bug: an attempt counted, failed
once they are spent. (A worker that dies instead: `storage.recovery`.)
"""

from __future__ import annotations

import os
import sqlite3

from storage import documents
from storage.control import DISK_FULL, note_pause
from storage.database import transaction
from storage.errors import DiskFullError, Fault, OcrdError, VanishedError
from storage.work import IntakeJob, PageJob, PublishJob

MAX_ATTEMPTS = 3
FIRST_DELAY_S = 5.0
LONGEST_DELAY_S = 600.0
FREE = "lease_owner = NULL, lease_expires = NULL"
_AFTER_FAILURE = (
    "COALESCE((SELECT CASE stop_reason WHEN 'blank' THEN 'blank' ELSE 'done' END FROM pages"
    " WHERE pages.document_id = page_jobs.document_id AND pages.page = page_jobs.page), 'failed')"
)


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
        if documents.give_back_if_outdated(conn, owner, job) or not _holds_page(conn, owner, job):
            return
        spent = max_attempts if error.fault is Fault.FINAL else job.attempts + 1
        count_page(conn, job.document_id, job.page, spent, max_attempts, error, now)
        documents.settle(conn, job.document_id, now)


def call_back(conn: sqlite3.Connection, now: float, lease_s: float) -> None:
    """Make due now what is put off, and end what is leased, for longer than ever happens: the clock was set back.

    What waits for its watched folder to return goes on waiting.
    """
    latest = now + LONGEST_DELAY_S
    with transaction(conn):
        conn.execute(
            "UPDATE documents SET not_before = ? WHERE not_before > 0 AND not_before > ?", (now, latest)
        )
        conn.execute(
            "UPDATE files SET not_before = ? WHERE state = 'intake' AND not_before > ? AND not_before < 1e17",
            (now, latest),
        )
        conn.execute("UPDATE files SET publish_after = ? WHERE publish_after > ?", (now, latest))
        conn.execute(
            "UPDATE page_jobs SET lease_expires = ? WHERE state = 'leased' AND lease_expires > ?",
            (now + lease_s, now + lease_s),
        )
        conn.execute(
            "UPDATE files SET lease_expires = ? WHERE lease_owner IS NOT NULL AND lease_expires > ?",
            (now + lease_s, now + lease_s),
        )


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
            f"UPDATE files SET {column} = ?, {FREE}, error_code = ?, error_message = ?, remedy = ?"
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
            f"UPDATE page_jobs SET state = 'pending', {FREE} WHERE document_id = ? AND page = ?",
            (job.document_id, job.page),
        )
        if isinstance(error, DiskFullError) and delay_s is None:
            note_pause(conn, str(error), kind=DISK_FULL, path=_text(error.file), now=now)
            return
        if isinstance(error, VanishedError) and _lose_file(conn, job.path, now):
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


def count_page(
    conn: sqlite3.Connection,
    document_id: int,
    page: int,
    spent: int,
    max_attempts: int,
    error: OcrdError,
    now: float,
) -> bool:
    """Count an attempt; whether the page failed for good. An earlier reading of it stands all the same."""
    failed = spent >= max_attempts
    state = _AFTER_FAILURE if failed else "'pending'"
    conn.execute(
        f"UPDATE page_jobs SET state = {state}, attempts = attempts + 1, {FREE},"
        " error_code = ?, error_message = ?, remedy = ?, finished_at = ? WHERE document_id = ? AND page = ?",
        (
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
    """Mark a vanished file missing; False if it is there, or if it is its root that is gone."""
    file = conn.execute("SELECT * FROM files WHERE path_bytes = ?", (path,)).fetchone()
    if file is None:
        return True
    if os.path.lexists(path) or not documents.root_is_there(conn, file["root_id"]):
        return False
    documents.lose(conn, file, now)
    if file["document_id"] is not None:
        documents.repark(conn, [file["document_id"]])
        documents.drop_orphans(conn, [file["document_id"]])
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
            return
        if error.fault is Fault.TRANSIENT:
            _put_off_intake(conn, file, error, now)
        else:
            spent = max_attempts if error.fault is Fault.FINAL else file["attempts"] + 1
            count_intake(conn, file["id"], spent, max_attempts, error)


def _put_off_intake(conn: sqlite3.Connection, file: sqlite3.Row, error: OcrdError, now: float) -> None:
    if isinstance(error, DiskFullError):
        conn.execute(f"UPDATE files SET {FREE} WHERE id = ?", (file["id"],))
        note_pause(conn, str(error), kind=DISK_FULL, path=_text(error.file), now=now)
        return
    conn.execute(
        f"UPDATE files SET not_before = ?, deferrals = deferrals + 1, {FREE}, error_code = ?, error_message = ?,"
        " remedy = ? WHERE id = ?",
        (now + back_off_s(file["deferrals"]), error.code, error.message, error.remedy, file["id"]),
    )


def count_intake(
    conn: sqlite3.Connection, file_id: int, spent: int, max_attempts: int, error: OcrdError
) -> bool:
    """Count an attempt at taking in a file; whether it failed for good."""
    failed = spent >= max_attempts
    conn.execute(
        f"UPDATE files SET state = ?, attempts = attempts + 1, {FREE}, error_code = ?, error_message = ?, remedy = ?"
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
    """Note that sidecars could not be written: shown as failed, and for a transient fault tried again by itself.

    Without space the queue pauses instead.
    """
    with transaction(conn):
        row = conn.execute(
            "SELECT sidecar_attempts FROM files WHERE id = ? AND lease_owner = ?", (job.file_id, owner)
        ).fetchone()
        if row is None or (isinstance(error, VanishedError) and _lose_file(conn, job.path, now)):
            return
        if isinstance(error, DiskFullError):  # no failure: it waits, as all else does
            conn.execute(
                f"UPDATE files SET publish_after = ?, {FREE} WHERE id = ?", (now + FIRST_DELAY_S, job.file_id)
            )
            note_pause(conn, str(error), kind=DISK_FULL, path=_text(error.file), now=now)
            return
        attempts = row["sidecar_attempts"] + 1
        again = error.fault is Fault.TRANSIENT or (error.fault is Fault.BUG and attempts < max_attempts)
        conn.execute(
            f"UPDATE files SET sidecar_state = 'failed', sidecar_attempts = ?, publish_after = ?, {FREE},"
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
