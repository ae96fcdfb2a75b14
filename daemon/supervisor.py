"""One process per home that keeps workers going, and for `ocrd watch` the threads that find files for them."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Self

from daemon import logs, processes
from daemon.pool import Pool, default_workers
from daemon.processes import HomeLock
from daemon.scanner import WatchRoot
from daemon.watcher import RootWatcher
from daemon.watching import WatchThread, check_roots, check_writable, outer_roots, rules_for
from storage import jobs, workers
from storage.database import is_transient, open_database
from storage.errors import EngineUnavailableError, ExitCode, OcrdError, error_classes

if TYPE_CHECKING:
    from storage.settings import Settings

log = logging.getLogger(__name__)

TICK_S = 0.25
HOUSEKEEPING_S = 1.0
LEAVE_S = 10.0  # for finishing the page in hand, after being told to stop
LOW_BYTES = 32 << 20  # stop with less free space than that, so that the reason can still be written down
ENOUGH_BYTES = 64 << 20
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


class StopSignals:
    """SIGTERM and SIGINT, noted; the first asks to finish what is in hand, a second to leave at once."""

    def __init__(self, wake: threading.Event) -> None:
        self.count = 0
        self.last: int | None = None
        self._wake = wake
        self._before: dict[int, object] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                self._before[number] = signal.signal(number, self._note)
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        self.last = number
        self._wake.set()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # what signal() itself returned


class Crew:
    """The workers of a home and the housekeeping around them; shared by `watch` and `batch`.

    `start` takes the lock of the home, `tick` does what is due, `stop` ends the workers.
    """

    def __init__(
        self, settings: Settings, *, doing: str, watching: bool, on_event: Callable[[str], None] | None = None
    ) -> None:
        self.settings = settings
        self.watching = watching
        self.wake = threading.Event()
        self.lock = HomeLock(settings.home, doing)
        self.say = on_event or (lambda line: None)
        self.owner = processes.owner_id()
        self.conn: sqlite3.Connection = open_database(settings.database_path)
        self.pool = Pool(settings, default_workers(settings), watching=watching)
        self.fatal: OcrdError | None = None
        self._next_housekeeping = self._next_recovery = float("-inf")
        self._last_tick = (time.time(), time.monotonic())
        self._settling_until = float("-inf")

    def start(self) -> None:
        """Take the home. Raises: `BusyError`, `SettingsError`, `EngineUnavailableError`, storage errors."""
        engine = check_engine(self.settings)
        now = time.time()
        self.lock.acquire(now)
        logs.rotate(self.settings)
        self._forget_the_dead()
        jobs.recover(self.conn, now, processes.is_alive, max_attempts=self.settings.max_attempts)
        workers.record(
            self.conn, self.owner, pid=os.getpid(), host=processes.host(), role="supervisor", now=now
        )
        workers.put(self.conn, "engine", engine)
        workers.put(self.conn, "peak_rss_mb", None)
        self.check_space()

    def _forget_the_dead(self) -> None:
        for row in workers.rows(self.conn):
            if not processes.is_alive(row.owner):
                workers.remove(self.conn, row.owner)

    def tick(self, now: float) -> None:
        """Bury and replace workers, and once a second the rest. Sets `fatal` when going on makes no sense."""
        try:
            self._tick(now)
        except (OcrdError, sqlite3.Error) as error:
            if not is_transient(error):
                raise
            log.warning("keeping house failed, it is tried again: %s", error)

    def _tick(self, now: float) -> None:
        self._notice_sleep(now)
        for death in self.pool.bury():
            recovered = jobs.recover(self.conn, now, self._is_alive, max_attempts=self.settings.max_attempts)
            workers.remove(self.conn, death.owner)
            held_work = bool(recovered.pages or recovered.files)
            self.pool.note_death(death, held_work)
            if not death.expected:
                self.say(f"a worker died{' at its page' if held_work else ''}; another takes over")
        if self.pool.fatal is not None:
            self.fatal = _cannot_work(self.pool.fatal, self.settings)
        if now >= self._next_housekeeping or now < self._next_housekeeping - 60:
            self._next_housekeeping = now + HOUSEKEEPING_S
            self._keep_house(now)
        self.pool.ensure(self._wanted())

    def _keep_house(self, now: float) -> None:
        rows = workers.rows(self.conn)
        self.pool.kill_hung(rows)
        self.check_space()
        if now >= self._next_recovery and now >= self._settling_until:
            self._next_recovery = now + min(10.0, self.settings.lease_s / 4)
            jobs.recover(self.conn, now, self._is_alive, max_attempts=self.settings.max_attempts)
            logs.rotate(self.settings)
            self._beat(now, rows)

    def _beat(self, now: float, rows: list[workers.WorkerRow]) -> None:
        rss_mb, peak_mb = processes.rss_mb(), processes.peak_rss_mb()
        workers.beat(self.conn, self.owner, now=now, rss_mb=round(rss_mb, 1), peak_rss_mb=round(peak_mb, 1))
        together = rss_mb + sum(row.rss_mb or 0.0 for row in rows if row.owner != self.owner)
        before = float(workers.get(self.conn, "peak_rss_mb") or 0.0)
        if together > before:
            workers.put(self.conn, "peak_rss_mb", f"{together:.1f}")

    def _notice_sleep(self, now: float) -> None:
        """After the computer slept, leases look expired although their holders live: give these time to say so."""
        wall, monotonic = now - self._last_tick[0], time.monotonic() - self._last_tick[1]
        self._last_tick = (now, time.monotonic())
        if wall - monotonic > self.settings.lease_s / 2:
            self._settling_until = now + self.settings.lease_s
            log.info("the clock jumped by %.0f s", wall - monotonic)

    def _is_alive(self, owner: str) -> bool:
        # A child of ours that just died is left to `bury`, which must know what it held.
        return any(child.owner == owner for child in self.pool.children) or processes.is_alive(owner)

    def _wanted(self) -> int:
        """How many workers the queue can keep busy; one stays at hand."""
        limit = self.pool.limit
        if len(self.pool.children) >= limit or self.fatal is not None:
            return 0
        pages = self._count("SELECT 1 FROM page_jobs WHERE state = 'pending'", limit * 2)
        files = self._count("SELECT 1 FROM files WHERE state = 'intake' AND lease_owner IS NULL", limit * 2)
        return max(1, min(limit, (pages + files + 1) // 2))

    def _count(self, query: str, most: int) -> int:
        return int(self.conn.execute(f"SELECT count(*) FROM ({query} LIMIT ?)", (most,)).fetchone()[0])

    def check_space(self) -> None:
        """Pause while a disk we write to is full; go on by itself once there is space."""
        for pause in jobs.paused(self.conn):
            if pause.kind == "disk_full" and _free_bytes(pause.path or self.settings.home) > ENOUGH_BYTES:
                jobs.resume(self.conn, "disk_full")
                self.say("there is space again: going on")
                self.pool.wake()
        if _free_bytes(self.settings.home) < LOW_BYTES:
            if not jobs.paused(self.conn):
                self.say(f"the disk of {self.settings.home} is full: waiting for space")
            with contextlib.suppress(OcrdError):
                home = str(self.settings.home)
                jobs.pause(
                    self.conn, "no space left for the database", kind="disk_full", path=home, now=time.time()
                )

    def stop(self, *, signals: StopSignals | None = None) -> None:
        """End the workers: each finishes its page within 10 s; what is not finished then is given back uncounted."""
        self.pool.tell_to_stop()
        deadline = time.monotonic() + LEAVE_S
        told = signals.count if signals else 0
        while self.pool.children and time.monotonic() < deadline:
            self.pool.bury()
            if signals and signals.count > max(told, 1):
                break
            self.wake.clear()
            self.wake.wait(0.05)
        late = [child.owner for child in self.pool.children]
        self.pool.kill_all()
        deadline = time.monotonic() + 5.0  # a process the kernel holds on to does not die at once
        while self.pool.children and time.monotonic() < deadline:
            self.pool.bury()
            time.sleep(0.01)
        with contextlib.suppress(OcrdError, sqlite3.Error):  # without space their leases run out
            for owner in late:
                jobs.release(self.conn, owner)
                workers.remove(self.conn, owner)

    def close(self) -> None:
        """Give the home back."""
        with contextlib.suppress(OcrdError, sqlite3.Error):
            workers.remove(self.conn, self.owner)
        self.conn.close()
        self.lock.release()


def check_engine(settings: Settings) -> str:
    """The engine's name, known to be installed. Raises: `SettingsError`, `EngineUnavailableError`."""
    from pipeline.engines import registry

    name, _ = registry.resolve(settings.engine, settings)
    if not registry.installed(name):
        raise EngineUnavailableError(f"the engine {name!r} is not installed here")
    return name


def run(
    settings: Settings,
    roots: Sequence[WatchRoot],
    *,
    once: bool = False,
    on_event: Callable[[str], None] | None = None,
) -> ExitSummary:
    """Watch folders and have what lies there read, until a signal says stop (`once`: until all is done).

    `on_event` gets a line for a person per happening.
    Raises: `BusyError`, `AccessError`, `VanishedError`, `SettingsError`, `EngineUnavailableError`, `DatabaseError`
    before anything is read; `WorkerLostError` and others when workers cannot be kept running.
    """
    logs.to_file(settings)
    roots = outer_roots(roots)
    for folder in {root.out_dir for root in roots if root.out_dir is not None}:
        check_writable(folder)
    names = ", ".join(logs.escape(os.fsdecode(root.path)) for root in roots)
    crew = Crew(settings, doing=f"watches {names}", watching=True, on_event=on_event)
    try:
        known = {bytes(row[0]) for row in crew.conn.execute("SELECT path_bytes FROM roots")}
        check_roots(roots, known)
        crew.start()
        with StopSignals(crew.wake) as signals:
            return _Watch(crew, roots, once=once, signals=signals).run()
    finally:
        crew.close()


class _Watch:
    """`ocrd watch`: the crew, and a thread per root."""

    def __init__(self, crew: Crew, roots: Sequence[WatchRoot], *, once: bool, signals: StopSignals) -> None:
        self.crew = crew
        self.roots = roots
        self.once = once
        self.signals = signals
        self.restarts = 0
        self._told_until = time.time()  # documents finished up to then have been told of
        self._next_telling = self._told_until
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
            while not self.signals.count and crew.fatal is None:
                crew.tick(time.time())
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
        """A line for each document read, or given up, since the last look."""
        if now < self._next_telling:
            return
        self._next_telling = now + HOUSEKEEPING_S
        rows = self.crew.conn.execute(
            "SELECT (SELECT path FROM files WHERE document_id = documents.id LIMIT 1) AS path, state, pages,"
            " pages_failed, error_message, finished_at FROM documents WHERE finished_at > ?"
            " AND state IN ('done', 'failed', 'needs_password') ORDER BY finished_at LIMIT ?",
            (self._told_until, TOLD_AT_ONCE),
        ).fetchall()
        for row in rows:
            self._told_until = row["finished_at"]
            if row["state"] != "done":
                self.crew.say(f"not read: {row['path']}: {row['error_message']}")
                continue
            failed = f", {row['pages_failed']} of them failed" if row["pages_failed"] else ""
            self.crew.say(f"read: {row['path']}, pages: {row['pages']}{failed}")

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


def _free_bytes(path: str | Path) -> int:
    """Free bytes where `path` lies (or would lie); plenty where that cannot be told."""
    import shutil

    place = Path(path)
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        return shutil.disk_usage(place).free
    except OSError:
        return ENOUGH_BYTES + 1


def _cannot_work(status: int, settings: Settings) -> OcrdError:
    """Why workers cannot be started at all: their exit status says what kind of fault it is."""
    kinds = [kind for kind in error_classes() if int(kind.exit_code) == status]
    kind = kinds[0] if kinds else OcrdError
    return kind(
        "workers cannot be started",
        file=settings.home / logs.LOG_NAME,
        remedy="its last lines in the log say why",
    )
