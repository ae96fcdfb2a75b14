"""What a worker is at, told to the database at intervals; and its leases kept meanwhile."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from daemon import processes
from storage import jobs, workers
from storage.database import open_database
from storage.library import display_path

log = logging.getLogger(__name__)

BUSY_BEAT_S = 5.0
IDLE_BEAT_S = 20.0  # an idle daemon should let the disk sleep
SHORTEST_BEAT_S = 1.0


@dataclass(frozen=True, slots=True)
class Doing:
    """A step of work on a file."""

    path: bytes
    page: int | None
    stage: str
    since: float


class Activity:
    """What the main thread is at; replaced as a whole, so that another thread may read it at any time."""

    def __init__(self) -> None:
        self.doing: Doing | None = None
        self.changed = threading.Event()

    def begin(self, path: bytes, page: int | None, stage: str, now: float) -> None:
        """Start work on a file or page."""
        self.doing = Doing(path, page, stage, now)
        self.changed.set()

    def stage(self, stage: str, now: float) -> None:
        """Go on to the next stage of the same page."""
        if self.doing is not None:
            self.doing = Doing(self.doing.path, self.doing.page, stage, now)

    def rest(self) -> None:
        """Nothing is being done."""
        if self.doing is not None:
            self.doing = None
            self.changed.set()


class Heartbeat(threading.Thread):
    """Extends the leases and describes the worker, well within the lease's time and whatever the main thread does."""

    def __init__(
        self,
        database: Path,
        owner: str,
        activity: Activity,
        lease_s: float,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(name="heartbeat", daemon=True)
        self.database = database
        self.owner = owner
        self.activity = activity
        self.lease_s = lease_s
        self.clock = clock
        self._ended = threading.Event()

    def run(self) -> None:
        """Beat until told to end."""
        conn: sqlite3.Connection | None = None
        while not self._ended.is_set():
            try:
                conn = conn or open_database(self.database)
                self.beat(conn)
            except Exception:  # whatever it was: without beats the leases run out, and pages are read twice
                log.warning("a heartbeat was not noted", exc_info=True)
            # What was begun since the last beat shows soon, but no more than once a second.
            shortest_s = min(SHORTEST_BEAT_S, self.lease_s / 4)
            self._ended.wait(shortest_s)
            longest_s = min(self.lease_s / 4, BUSY_BEAT_S if self.activity.doing else IDLE_BEAT_S)
            self.activity.changed.wait(max(0.0, longest_s - shortest_s))
            self.activity.changed.clear()
        if conn is not None:
            conn.close()

    def beat(self, conn: sqlite3.Connection) -> None:
        """Note once that the worker lives and what it is at."""
        now, doing = self.clock(), self.activity.doing
        jobs.extend_leases(conn, self.owner, now, self.lease_s)
        workers.beat(
            conn,
            self.owner,
            now=now,
            path=display_path(doing.path) if doing else None,
            page=doing.page if doing else None,
            stage=doing.stage if doing else None,
            stage_since=doing.since if doing else None,
            rss_mb=round(processes.rss_mb(), 1),
            peak_rss_mb=round(processes.peak_rss_mb(), 1),
        )

    def end(self) -> None:
        """Beat no more."""
        self._ended.set()
        self.activity.changed.set()
