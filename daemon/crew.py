"""The workers of a home and the housekeeping around them; what `ocrd watch` and `ocrd batch` have in common."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Self

from daemon import logs, mac_access, power, processes
from daemon.asks.places import died_answering
from daemon.backups import Keeper, open_for_work
from daemon.leftovers import Leftovers
from daemon.pool import Pool, default_workers
from daemon.processes import HomeLock
from storage import backup, jobs, workers
from storage.control import LOW_BYTES, NO_SPACE
from storage.database import is_transient
from storage.errors import EngineUnavailableError, ExitCode, OcrdError, error_classes
from storage.failpoints import reach

if TYPE_CHECKING:
    from storage.settings import Settings

log = logging.getLogger(__name__)

TICK_S = 0.25
HOUSEKEEPING_S = 1.0
LEAVE_S = 10.0  # for finishing the page in hand, after being told to stop
ENOUGH_BYTES = 64 << 20


class StopSignals:
    """SIGTERM and SIGINT, noted; the first asks to finish what is in hand, a second to leave at once."""

    def __init__(self) -> None:
        self.count = 0
        self.last: int | None = None
        self._before: dict[int, object] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                self._before[number] = signal.signal(number, self._note)
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        # No more than this: a lock (of an Event, say) may be held by the very code that was interrupted.
        self.count += 1
        self.last = number

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
        self.conn: sqlite3.Connection = open_for_work(settings, say=self.say)
        self.backups = Keeper(settings)
        self.pool = Pool(settings, default_workers(settings), watching=watching)
        self.leftovers = Leftovers(settings, self.conn)
        self.fatal: OcrdError | None = None
        self._next_housekeeping = self._next_recovery = float("-inf")
        self._last_tick = (time.time(), time.monotonic())
        self._settling_until = float("-inf")
        self._power = power.Look()
        self._is_full = False  # the disk of the home
        self._was_set_back = False  # the clock; what is put off is not called back yet
        self._rests = False  # paused for want of power; a person may have lifted that since

    def start(self) -> None:
        """Take the home. Raises: `BusyError`, `SettingsError`, `EngineUnavailableError`, storage errors."""
        engine = check_engine(self.settings)
        now = time.time()
        self.lock.acquire(now)
        mac_access.leave_cloud_alone()
        logs.rotate(self.settings)
        self.leftovers.start(now)
        self.leftovers.recover(now, processes.is_alive)
        workers.record(
            self.conn, self.owner, pid=os.getpid(), host=processes.host(), role="supervisor", now=now
        )
        workers.put(self.conn, "engine", engine)
        workers.put(self.conn, "engine_note", None)
        workers.put(self.conn, "peak_rss_mb", None)
        self.check_space()

    def tick(self, now: float) -> None:
        """Bury and replace workers, and once a second the rest. Sets `fatal` when going on makes no sense."""
        try:
            self._tick(now)
        except (OcrdError, sqlite3.Error) as error:
            if backup.is_damage(error):
                backup.suspect(
                    self.settings.database_path
                )  # the next start looks, and puts a backup in its place
            if not is_transient(error):
                raise
            log.warning("keeping house failed, it is tried again: %s", error)

    def _tick(self, now: float) -> None:
        reach("crew.tick")
        self._notice_jump(now)
        if self._was_set_back:
            self.leftovers.call_back(now)
            self._was_set_back = False
        for death in self.pool.bury():
            reach("crew.buried")
            answered = died_answering(self.settings.home, death.owner)
            if answered:
                # What was asked for is to blame: the pages it held beside it are given back uncounted.
                jobs.release(self.conn, death.owner)
            recovered = self.leftovers.recover(now, self._is_alive, self._is_ours)
            workers.remove(self.conn, death.owner)
            held_work = bool(answered or recovered.pages or recovered.files)
            self.pool.note_death(death, held_work)
            if not death.expected:
                self.say(f"a worker died{' at its page' if held_work else ''}; another takes over")
        if self.pool.fatal is not None:
            if self.pool.fatal == ExitCode.DATABASE:
                backup.suspect(self.settings.database_path)
            self.fatal = _cannot_work(self.pool.fatal, self.settings)
        if now >= self._next_housekeeping:
            self._next_housekeeping = now + HOUSEKEEPING_S
            self._keep_house(now)
        self.pool.ensure(self._wanted())

    def _keep_house(self, now: float) -> None:
        rows = workers.rows(self.conn)
        self.pool.kill_hung(rows)
        self.pool.kill_bloated()
        self.leftovers.end_orphans()
        self.check_space()
        self.check_power()
        self.backups.merge(self.conn)
        if now >= self._next_recovery and now >= self._settling_until:
            self._next_recovery = now + min(10.0, self.settings.lease_s / 4)
            self.leftovers.recover(now, self._is_alive, self._is_ours)
            logs.rotate(self.settings)
            self.backups.tick(now)
            self._beat(now, rows)

    def _beat(self, now: float, rows: list[workers.WorkerRow]) -> None:
        rss_mb, peak_mb = processes.rss_mb(), processes.peak_rss_mb()
        workers.beat(self.conn, self.owner, now=now, rss_mb=round(rss_mb, 1), peak_rss_mb=round(peak_mb, 1))
        together = rss_mb + sum(row.rss_mb or 0.0 for row in rows if row.owner != self.owner)
        before = float(workers.get(self.conn, "peak_rss_mb") or 0.0)
        if together > before:
            workers.put(self.conn, "peak_rss_mb", f"{together:.1f}")

    def _notice_jump(self, now: float) -> None:
        """After the computer slept, leases look expired although their holders live: give these time to say so.

        After the clock was set back, nothing waits for the hours it showed before.
        """
        jump_s = (now - self._last_tick[0]) - (time.monotonic() - self._last_tick[1])
        self._last_tick = (now, time.monotonic())
        if jump_s > self.settings.lease_s / 2:
            self._settling_until = now + self.settings.lease_s
            log.info("the clock jumped by %.0f s", jump_s)
        elif jump_s < -HOUSEKEEPING_S:
            self._next_housekeeping = self._next_recovery = self._settling_until = float("-inf")
            self._was_set_back = True
            log.info("the clock was set back by %.0f s", -jump_s)

    def _is_alive(self, owner: str) -> bool:
        # A child of ours that just died is left to `bury`, which must know what it held.
        return self._is_ours(owner) or processes.is_alive(owner)

    def _is_ours(self, owner: str) -> bool:
        return any(child.owner == owner for child in self.pool.children)

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
            place = pause.path or self.settings.home
            if pause.kind == "disk_full" and _free_bytes(place) > _enough_bytes(place, self.settings.home):
                jobs.resume(self.conn, "disk_full")
                self.say("there is space again: going on")
                self.pool.wake()
        is_full = _free_bytes(self.settings.home) < LOW_BYTES
        if is_full:
            if not self._is_full and not jobs.paused(self.conn):
                self.say(f"the disk of {self.settings.home} is full: waiting for space")
            with contextlib.suppress(OcrdError):
                home = str(self.settings.home)
                jobs.pause(self.conn, NO_SPACE, kind="disk_full", path=home, now=time.time())
        self._is_full = is_full

    def check_power(self) -> None:
        """Pause and go on as `on_battery` says. A pause that a person lifted is not made again for the same reason."""
        reason = None
        if self.watching and self.settings.on_battery == "pause":
            if (told := self._power.told()) is None:
                return
            reason = told.reason
        if reason is not None and not self._rests:
            self._rests = True
            self.say(f"{reason}: reading goes on when that is over")
            jobs.pause(self.conn, reason, kind=power.KIND, now=time.time())
        elif reason is None:
            self._rests = False
            if any(pause.kind == power.KIND for pause in jobs.paused(self.conn)):
                jobs.resume(self.conn, power.KIND)
                self.say("reading goes on")
                self.pool.wake()

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
            self.leftovers.end_orphans(leaving=True)
            for owner in late:
                jobs.release(self.conn, owner)
                workers.remove(self.conn, owner)

    def close(self) -> None:
        """Give the home back."""
        self.backups.close()
        with contextlib.suppress(OcrdError, sqlite3.Error):
            workers.remove(self.conn, self.owner)
        self.conn.close()
        self.lock.release()


def check_engine(settings: Settings) -> str:
    """The engine's name, known to be installed; with the reason where it was chosen for the user.

    Raises: `SettingsError`, `EngineUnavailableError`.
    """
    from pipeline.engines import registry

    name, why = registry.resolve(settings.engine, settings)
    if not registry.installed(name):
        raise EngineUnavailableError(f"the engine {name!r} is not installed here")
    return f"{name} ({why})" if settings.engine == registry.AUTO else name


def _free_bytes(path: str | Path) -> int:
    """Free bytes where `path` lies (or would lie); plenty where that cannot be told."""
    import shutil

    try:
        return shutil.disk_usage(_existing(path)).free
    except OSError:
        return ENOUGH_BYTES + 1


def _enough_bytes(path: str | Path, home: Path) -> int:
    """Free bytes to go on with. A small disk (a stick) that only takes sidecars may never have `ENOUGH_BYTES`."""
    import shutil

    try:
        if _existing(path).stat().st_dev != home.stat().st_dev:
            return min(ENOUGH_BYTES, shutil.disk_usage(_existing(path)).total // 10)
    except OSError:
        pass
    return ENOUGH_BYTES


def _existing(path: str | Path) -> Path:
    """The path, or the nearest folder above that is there."""
    place = Path(path)
    while not place.exists() and place != place.parent:
        place = place.parent
    return place


def _cannot_work(status: int, settings: Settings) -> OcrdError:
    """Why workers cannot be started at all: their exit status says what kind of fault it is."""
    kinds = [kind for kind in error_classes() if int(kind.exit_code) == status]
    kind = kinds[0] if kinds else OcrdError
    return kind(
        "workers cannot be started",
        file=settings.home / logs.LOG_NAME,
        remedy="its last lines in the log say why",
    )
