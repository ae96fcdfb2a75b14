"""The run of `ocrd watch`: a crew of workers, and a thread per watched folder that finds files for them."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from daemon import logs, notices, serving
from daemon.arrivals import Arrivals
from daemon.console import escape_name
from daemon.crew import HOUSEKEEPING_S, TICK_S, Crew, StopSignals
from daemon.scanner import WatchRoot
from daemon.serving import Server
from daemon.watcher import RootWatcher
from daemon.watching import WatchThread, check_roots, check_writable, outer_roots, rules_for
from storage import backup, jobs, workers
from storage.database import is_transient
from storage.errors import ExitCode, OcrdError

if TYPE_CHECKING:
    from storage.settings import Settings

log = logging.getLogger(__name__)

THREAD_RESTARTS = 5
TOLD_AT_ONCE = 50  # documents a second that are worth a line each
ONCE_WAITS_S = 15.0  # `once` waits for what is put off, up to that


@dataclass(frozen=True, slots=True)
class ExitSummary:
    """How a run of the daemon ended."""

    exit_code: ExitCode
    message: str
    pages_done: int
    seconds: float


def run(
    settings: Settings,
    roots: Sequence[WatchRoot],
    *,
    once: bool = False,
    server: Server | None = None,
    on_event: Callable[[str], None] | None = None,
) -> ExitSummary:
    """Watch folders and have what lies there read, until a signal says stop (`once`: until all is done).

    `server` is carried along: started, stopped, and the end of the daemon if it breaks off.
    `on_event` gets a line for a person per happening.
    Raises: `BusyError`, `AccessError`, `VanishedError`, `SettingsError`, `EngineUnavailableError`, `DatabaseError`
    before anything is read; `WorkerLostError` and others when workers cannot be kept running.
    """
    logs.to_file(settings)
    try:
        return _run(settings, outer_roots(roots), once=once, server=server, on_event=on_event)
    except OcrdError as error:
        # A service has nobody in front of its terminal.
        log.error("the daemon ends: %s", error, extra=logs.FILE_ONLY)
        raise


def _run(
    settings: Settings,
    roots: Sequence[WatchRoot],
    *,
    once: bool,
    server: Server | None,
    on_event: Callable[[str], None] | None,
) -> ExitSummary:
    for folder in {root.out_dir for root in roots if root.out_dir is not None}:
        check_writable(folder)
    names = ", ".join(escape_name(root.path) for root in roots)
    crew = Crew(settings, doing=f"watches {names}", watching=True, on_event=on_event)
    try:
        known = {bytes(row[0]) for row in crew.conn.execute("SELECT path_bytes FROM roots")}
        check_roots(roots, known)
        crew.start()
        with StopSignals() as signals:
            return _Watch(crew, roots, once=once, signals=signals, server=server).run()
    finally:
        crew.close()


class _Watch:
    """`ocrd watch`: the crew, and a thread per root."""

    def __init__(
        self,
        crew: Crew,
        roots: Sequence[WatchRoot],
        *,
        once: bool,
        signals: StopSignals,
        server: Server | None = None,
    ) -> None:
        self.crew = crew
        self.server = server
        self.roots = roots
        self.once = once
        self.signals = signals
        self.restarts = 0
        self._told_until = time.time()  # documents finished up to then have been told of
        self._next_telling = self._told_until
        self._arrivals = Arrivals(crew.conn)
        self._digest = notices.Digest(crew.settings.notify)
        self._rules = rules_for(crew.settings, roots)
        self.threads = [self._thread(root) for root in roots]

    def run(self) -> ExitSummary:
        """Until told to stop, done (`once`), or unable to go on."""
        crew, started = self.crew, time.time()
        crew.conn.execute("UPDATE roots SET watched = 0")
        workers.put(crew.conn, "watcher", "alive")
        for thread in self.threads:
            thread.start()
        crew.say("watching " + ", ".join(os.fsdecode(root.path) for root in self.roots))
        try:
            if self.server is not None:
                self.server.start()
                crew.say(f"serving {self.server.url}")
            while not self.signals.count and crew.fatal is None:
                crew.tick(time.time())
                if self.server is not None:
                    serving.check(self.server)
                self._check_threads()
                self._tell_finished(time.time())
                if self.once and self._is_done(time.time()):
                    break
                if crew.wake.wait(TICK_S):
                    crew.wake.clear()
                    crew.pool.wake()
        finally:
            for thread in self.threads:
                thread.end()
            if self.server is not None:
                self.server.stop()
            crew.stop(signals=self.signals)
            with contextlib.suppress(
                sqlite3.Error
            ):  # no space: a snapshot knows that we are gone all the same
                workers.put(crew.conn, "watcher", "off")
                crew.conn.execute("UPDATE roots SET watched = 0")
        return self._summary(started)

    def _thread(self, root: WatchRoot) -> WatchThread:
        def make(conn: sqlite3.Connection) -> RootWatcher:
            return RootWatcher(
                root,
                self.crew.settings,
                self._rules,
                conn,
                now=time.time(),
                skip=frozenset(other.path for other in self.roots) - {root.path},
                on_event=self.crew.say,
            )

        return WatchThread(self.crew.settings, root, make, queued=self.crew.wake.set)

    def _tell_finished(self, now: float) -> None:
        """A line for each document read, or given up, and each file whose content was known, since the last look."""
        if self._told_until - HOUSEKEEPING_S > now:  # the clock was set back
            self._told_until = self._next_telling = now - HOUSEKEEPING_S
        if now < self._next_telling:
            return
        self._next_telling = now + HOUSEKEEPING_S
        try:
            self._tell(now)
        except (OcrdError, sqlite3.Error) as error:
            if backup.is_damage(error):
                backup.suspect(self.crew.settings.database_path)
            if not is_transient(error):
                raise
            log.warning("what is finished will be told later: %s", error)

    def _tell(self, now: float) -> None:
        rows = self.crew.conn.execute(
            # The first file is the one that was read; what could not be opened was tried again for the last.
            "SELECT iif(pages IS NULL, (SELECT path FROM files WHERE document_id = documents.id"
            " ORDER BY id DESC LIMIT 1), (SELECT path FROM files WHERE document_id = documents.id"
            " ORDER BY missing_since IS NOT NULL, id LIMIT 1)) AS path, state, pages, pages_failed, error_message,"
            " finished_at FROM documents WHERE finished_at > ?"
            " AND state IN ('done', 'failed', 'needs_password') ORDER BY finished_at LIMIT ?",
            (self._told_until, TOLD_AT_ONCE),
        ).fetchall()
        for row in rows:
            self._told_until = row["finished_at"]
            self._digest.add(row["path"] or "", failed=row["state"] != "done" or row["pages_failed"] > 0)
            if row["state"] != "done":
                self.crew.say(f"not read: {row['path']}: {row['error_message']}")
                continue
            failed = f", {row['pages_failed']} of them failed" if row["pages_failed"] else ""
            self.crew.say(f"read: {row['path']}, pages: {row['pages']}{failed}")
        for told in self._arrivals.news():  # behind what they are copies of
            self.crew.say(told.line)
            if told.failed:
                self._digest.add(told.path, failed=True)
        self._notify(now)

    def _notify(self, now: float) -> None:
        if self._digest.wanted == "never":
            return
        if (told := self._digest.due(now, idle=jobs.is_idle(self.crew.conn, now))) is not None:
            notices.send(*told)

    def _check_threads(self) -> None:
        """Replace a watching thread that died; too often, and the daemon ends rather than look alive."""
        for position, thread in enumerate(self.threads):
            if thread.is_alive():
                continue
            self.restarts += 1
            self.crew.say(f"watching {os.fsdecode(thread.root.path)} broke off; started again")
            if self.restarts > THREAD_RESTARTS:
                workers.put(self.crew.conn, "watcher", "dead")
                self.crew.fatal = OcrdError(
                    "watching broke off again and again", file=os.fsdecode(thread.root.path)
                )
                return
            workers.put(self.crew.conn, "watcher_restarts", str(self.restarts))
            self.threads[position] = self._thread(thread.root)
            self.threads[position].start()

    def _is_done(self, now: float) -> bool:
        if not all(thread.is_quiet for thread in self.threads) or not jobs.is_idle(self.crew.conn, now):
            return False
        due = jobs.next_due(self.crew.conn)
        return due is None or due > now + ONCE_WAITS_S

    def _summary(self, started: float) -> ExitSummary:
        row = self.crew.conn.execute(
            "SELECT count(*) FROM page_jobs WHERE finished_at >= ? AND state IN ('done', 'blank')", (started,)
        ).fetchone()
        if self.crew.fatal is not None:
            raise self.crew.fatal
        self._next_telling = 0.0
        self._tell_finished(time.time())
        code = ExitCode.INTERRUPTED if self.signals.last == signal.SIGINT else ExitCode.OK
        return ExitSummary(
            code, "stopped" if self.signals.count else "done", int(row[0]), time.time() - started
        )
