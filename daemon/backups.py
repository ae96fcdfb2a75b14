"""The database at the start of work, whole or put right first; while work goes on, its daily copy and its upkeep."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from daemon.processes import HomeLock
from storage import backup, merging, workers
from storage.database import open_database
from storage.errors import BusyError, DamagedError, OcrdError

if TYPE_CHECKING:
    from pathlib import Path

    from storage.settings import Settings

log = logging.getLogger(__name__)

CHECK_BYTES = (
    256 << 20
)  # a database up to that size is checked at every start: 0.7 s (2 cores, in the page cache)
FIRST_AFTER_S = 60.0  # a short run makes no copy
AGAIN_S = 3600.0  # after a copy or a merge that failed
LOOK_S = 10.0  # between looks whether the indexes should be merged
LEAVE_S = 5.0


def open_for_work(
    settings: Settings, *, say: Callable[[str], None], now: float | None = None
) -> sqlite3.Connection:
    """The database of the home, for the process that is going to work on it.

    One that is damaged is replaced by its last backup, unless another process works on the home (that one has looked).
    Raises: `DamagedError` where there is no backup; as `open_database`.
    """
    now = time.time() if now is None else now
    lock = HomeLock(settings.home, "looks after the database")
    try:
        lock.acquire(now)
    except BusyError:
        return open_database(settings.database_path)
    with lock:
        if backup.finish_restore(settings.database_path, now):
            say("a restoring of the database that was interrupted has been completed")
        try:
            if why := _damage(settings):
                return _restored(settings, now, why, say)
            return open_database(settings.database_path)
        except DamagedError as error:
            return _restored(settings, now, error.message, say)


def _damage(settings: Settings) -> str:
    """What is wrong with the database, as far as it is looked at now; "" = nothing."""
    path = settings.database_path
    mark = backup.suspect_mark(path)
    try:
        size = path.stat().st_size
    except OSError:
        return ""  # none yet; or opening says what is the matter
    if size == 0:
        return "it is empty" if backup.copies(settings.backups_path) else ""
    if not mark.exists() and size > CHECK_BYTES:
        return ""
    faults = backup.check(path)
    if not faults:
        mark.unlink(missing_ok=True)
    return faults[0] if faults else ""


def _restored(settings: Settings, now: float, why: str, say: Callable[[str], None]) -> sqlite3.Connection:
    path = settings.database_path
    log.error("the database is damaged: %s", why)
    found = backup.restore(path, settings.backups_path, now, why=why)
    taken = time.strftime("%Y-%m-%d %H:%M", time.localtime(found.taken_at))
    line = f"the database was damaged ({why}): the backup of {taken} is in its place, the damaged file is {found.aside}"
    log.error("%s", line)
    say(line)
    return open_database(path)


class Keeper:
    """Makes the daily copy in a thread of its own, and merges the full-text indexes piece by piece.

    `tick` is called now and then, `merge` once a second.
    """

    def __init__(self, settings: Settings, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.settings = settings
        self._monotonic = monotonic  # set clocks move no appointments
        self._next = monotonic() + FIRST_AFTER_S
        self._next_merge = monotonic()
        self._thread: threading.Thread | None = None
        self._copying: sqlite3.Connection | None = None

    @property
    def is_copying(self) -> bool:
        """Whether a copy is being made."""
        return self._thread is not None and self._thread.is_alive()

    def tick(self, now: float) -> None:
        """Begin a copy where one is due."""
        if not self.settings.backups or self._monotonic() < self._next or self.is_copying:
            return
        self._next = self._monotonic() + AGAIN_S
        if backup.is_due(self.settings.backups_path, now):
            self._thread = threading.Thread(target=self.copy, args=(now,), name="backup", daemon=True)
            self._thread.start()

    def merge(self, conn: sqlite3.Connection) -> None:
        """Do a piece of a merge of the full-text indexes, where one is due.

        Not beside a copy: until that has read everything, what is written stays in the write-ahead log.
        """
        if self._monotonic() < self._next_merge or self.is_copying:
            return
        try:
            if not merging.step(conn):
                self._next_merge = self._monotonic() + LOOK_S
        except (OcrdError, sqlite3.Error) as error:  # pages are saved and found all the same
            log.warning("the full-text indexes were not merged: %s", error)
            self._next_merge = self._monotonic() + AGAIN_S

    def copy(self, now: float) -> Path | None:
        """Make a copy, and note what prevented it, for `ocrd doctor`."""
        started = time.monotonic()
        settings = self.settings
        try:
            made = backup.make(
                settings.database_path,
                settings.backups_path,
                now,
                keep=settings.backups,
                connected=self._note,
            )
        except (OcrdError, sqlite3.Error) as error:
            log.warning("no backup was made: %s", error)
            if backup.is_damage(error):
                backup.suspect(settings.database_path)
            self._tell(str(error))
            return None
        log.info("backup made", extra={"path": made, "seconds": time.monotonic() - started})
        self._tell(None)
        return made

    def close(self) -> None:
        """Break off a copy that is being made."""
        if self._thread is not None and self._thread.is_alive():
            with contextlib.suppress(sqlite3.ProgrammingError):  # it is just done
                if self._copying is not None:
                    self._copying.interrupt()
            self._thread.join(LEAVE_S)

    def _note(self, conn: sqlite3.Connection) -> None:
        self._copying = conn

    def _tell(self, problem: str | None) -> None:
        try:
            conn = open_database(self.settings.database_path)
        except OcrdError:
            return
        try:
            workers.put(conn, "backup_problem", problem)
        except sqlite3.Error:
            log.debug("could not note what became of the backup")
        finally:
            conn.close()
