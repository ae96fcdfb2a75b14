"""What processes that died left behind: jobs in their hands, temporary files, and workers without a supervisor."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from daemon import processes
from storage import backup, jobs, setbacks, sidecars, staging, workers

if TYPE_CHECKING:
    from storage.recovery import Recovered
    from storage.settings import Settings

log = logging.getLogger(__name__)

ORPHANS_S = 12.0  # a worker leaves by itself once its page is read; one that has not until then, hangs


class Leftovers:
    """Looks after them, for whoever holds the home's lock."""

    def __init__(
        self,
        settings: Settings,
        conn: sqlite3.Connection,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self.conn = conn
        self._monotonic = monotonic
        self._orphans: list[str] = []
        self._orphans_until = float("inf")

    def start(self, now: float) -> None:
        """Forget who is dead, note who outlived an earlier supervisor, remove what was half written."""
        for row in workers.rows(self.conn):
            if not processes.is_alive(row.owner):
                workers.remove(self.conn, row.owner)
            elif row.role == "worker" and processes.is_local(row.owner):
                self._orphans.append(row.owner)
        self._orphans_until = self._monotonic() + ORPHANS_S
        self.call_back(now)
        for folder in (self.settings.home, *_folders_in(self.settings.home)):
            staging.sweep(os.fsencode(folder), now)
        backup.sweep(self.settings.backups_path)

    def call_back(self, now: float) -> None:
        """After the clock was set back, nothing waits for an hour that only the wrong clock was near to."""
        setbacks.call_back(self.conn, now, self.settings.lease_s)

    def recover(
        self,
        now: float,
        is_alive: Callable[[str], bool],
        is_ours: Callable[[str], bool] = lambda owner: False,
    ) -> Recovered:
        """Take back what dead workers hold (see `storage.recovery`), and remove the sidecars they had begun."""
        recovered = jobs.recover(
            self.conn, now, is_alive, is_watched=is_ours, max_attempts=self.settings.max_attempts
        )
        for path, out_dir, base in recovered.publishing:
            sidecars.sweep_for(path, out_dir, base, self.settings.library_out)
        return recovered

    def end_orphans(self, *, leaving: bool = False) -> None:
        """Kill workers of an earlier supervisor that had time to leave: they hang, and would hold their page for ever.

        `leaving`: now, and give back uncounted what they hold; nobody would look after them.
        We hold the home's lock: nobody else's workers can be at work here.
        """
        if not self._orphans or (self._monotonic() < self._orphans_until and not leaving):
            return
        for owner in filter(processes.is_alive, self._orphans):
            pid = processes.pid_of(owner)
            log.error("worker %d outlived its supervisor and has not left: killed", pid)
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        for owner in self._orphans:
            workers.remove(self.conn, owner)
        if leaving:
            for owner in self._orphans:
                jobs.release(self.conn, owner)
        self._orphans.clear()


def _folders_in(home: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        return [path for path in home.iterdir() if path.is_dir() and not path.is_symlink()]
    return []
