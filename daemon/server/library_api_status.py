"""The API's status: counts, what is being read now, hours for the charts."""

from __future__ import annotations

import sqlite3
import time
from typing import Annotated

from fastapi import APIRouter, Query

from daemon.server import shapes
from daemon.server.database import Reading
from daemon.server.library_api_parameters import PROBLEMS
from storage import hours, listing, status

router = APIRouter(prefix="/api", tags=["status"], responses=PROBLEMS)


@router.get("/status")
def get_status(conn: Reading) -> shapes.Status:
    """What is done, waiting and failed, and what is being read now."""
    return status_of(conn, time.time())


def status_of(conn: sqlite3.Connection, now: float) -> shapes.Status:
    """The state of everything at one moment."""
    conn.execute("BEGIN")
    try:
        head = status.summary(conn, now=now)
        reading = being_read(conn, {worker["pid"] for worker in head["workers"]})
    finally:
        conn.execute("COMMIT")
    return shapes.Status.model_validate({"now": now, **head, "reading": reading})


def being_read(conn: sqlite3.Connection, pids: set[int]) -> list[shapes.Reading]:
    """What the processes of those numbers are at."""
    at_work = [(file_id, row) for file_id, row in status.being_read(conn) if row["pid"] in pids]
    rows = {row["id"]: row for row in listing.by_ids(conn, [file_id for file_id, _ in at_work])}
    found = []
    for file_id, worker in at_work:
        file = rows.get(file_id)
        found.append(
            shapes.Reading(
                document_id=file_id,
                path=worker["path"],
                name=worker["path"].rpartition("/")[2],
                page=worker["page"],
                pages=file["pages"] if file else None,
                pages_done=(file["pages_done"] or 0) if file else 0,
                stage=worker["stage"],
                since=worker["stage_since"],
                pid=worker["pid"],
            )
        )
    return found


@router.get("/stats/hours")
def get_hours(conn: Reading, count: Annotated[int, Query(alias="hours", ge=1, le=2160)] = 48) -> shapes.Hours:
    """Pages and tokens of the last hours, the oldest first; the last one is not over."""
    return shapes.Hours(
        hours=[
            shapes.Hour(
                start=start,
                pages=tally.pages,
                tokens=tally.tokens,
                target_passes=tally.target_passes,
                drafted=tally.drafted,
                accepted=tally.accepted,
                tokens_per_pass=tally.tokens_per_pass,
            )
            for start, tally in hours.by_hour(conn, hours=count, now=time.time())
        ]
    )
