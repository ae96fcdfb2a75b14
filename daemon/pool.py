"""The worker processes, from their parent's side: started, woken, replaced when they die or hang, stopped."""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from daemon import logs, processes
from daemon.child import Leave, Orders
from storage.errors import ExitCode
from storage.workers import WorkerRow

if TYPE_CHECKING:
    from storage.settings import Settings

log = logging.getLogger(__name__)

MEMORY_PER_WORKER_MB = 800.0  # what a worker with an engine needs, with a large page in hand
QUICK_S = 20.0  # a worker that dies sooner, with nothing in hand, failed to start
QUICK_DEATHS = 5  # so many in a row are no accident
LONGEST_BACK_OFF_S = 60.0
BLOATED = 4.0  # times `worker_memory_mb`: then a worker is not waited for until its page is read
_SET_UP = frozenset((ExitCode.SETTINGS, ExitCode.ENGINE, ExitCode.DATABASE))


class Process(Protocol):
    """The part of `subprocess.Popen` the pool uses."""

    pid: int

    def poll(self) -> int | None:
        """The exit status, None while it runs."""
        ...

    def send_signal(self, sig: int) -> None:
        """Send a signal."""
        ...


@dataclass(slots=True)
class Child:
    """A worker process."""

    process: Process
    owner: str
    started: float  # monotonic
    keep: bool
    doing: object = None  # what it was last seen at…
    doing_since: float = field(default=0.0)  # …and since when (monotonic)
    is_killed: bool = False

    def kill(self) -> None:
        """End it at once; it is buried like any other."""
        self.is_killed = True
        self.process.send_signal(signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class Death:
    """A worker that ended without being told."""

    owner: str
    status: int
    expected: bool  # it left by itself, for a good reason
    lived_s: float = 0.0


def default_workers(settings: Settings) -> int:
    """How many workers to run: as set, or one per core as memory allows."""
    if settings.workers:
        return settings.workers
    by_memory = int(processes.memory_mb() * 0.75 / MEMORY_PER_WORKER_MB)
    return max(1, min(processes.cores(), by_memory))


def spawn(orders: Orders) -> subprocess.Popen[bytes]:
    """A new worker process with its orders. Its output goes to the log file."""
    environment = os.environ | {
        # One core each: engine × workers uses the cores and no more.
        "OMP_THREAD_LIMIT": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "MALLOC_ARENA_MAX": "2",
        "PYTHONUTF8": "1",
    }
    log_path = orders.settings.home / logs.LOG_NAME
    with log_path.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "daemon.child"],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env=environment,
            start_new_session=True,  # signals of the terminal are for the supervisor
        )
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(pickle.dumps(orders))
        process.stdin.flush()
    os.set_blocking(process.stdin.fileno(), False)
    return process


class Pool:
    """Up to `limit` workers."""

    def __init__(
        self,
        settings: Settings,
        limit: int,
        *,
        watching: bool = False,
        start: Callable[[Orders], Process] = spawn,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self.limit = limit
        self.watching = watching
        self.children: list[Child] = []
        self.quick_deaths = 0
        self.fatal: int | None = None  # the exit status of workers that cannot be started at all
        self._start = start
        self._monotonic = monotonic
        self._not_before = float("-inf")
        self._is_stopping = False

    def ensure(self, wanted: int) -> None:
        """Start workers until `wanted` run, at most `limit`; after deaths only once the back-off is over."""
        while len(self.children) < min(wanted, self.limit) and self._monotonic() >= self._not_before:
            keep = not any(child.keep for child in self.children)
            try:
                process = self._start(Orders(self.settings, watching=self.watching, keep=keep))
            except OSError as error:  # no memory or no process to be had: a matter of time
                log.error("a worker cannot be started: %s", error.strerror)
                self._not_before = self._monotonic() + LONGEST_BACK_OFF_S / 4
                return
            now = self._monotonic()
            child = Child(process, processes.owner_id(process.pid), now, keep, doing_since=now)
            self.children.append(child)
            log.info("worker %d started", process.pid)

    def bury(self) -> list[Death]:
        """Take out the workers that ended."""
        deaths = []
        for child in list(self.children):
            status = child.process.poll()
            if status is None:
                continue
            self.children.remove(child)
            _close(child.process)
            expected = status in (Leave.TOLD, Leave.RECYCLED, Leave.SPARE)
            # Told before it could listen.
            expected = expected or (self._is_stopping and status == -signal.SIGTERM)
            log.log(
                logging.INFO if expected else logging.ERROR,
                "worker %d ended: %s",
                child.process.pid,
                _why(status),
            )
            deaths.append(Death(child.owner, status, expected, self._monotonic() - child.started))
            if not expected and status in _SET_UP:
                self.fatal = status
        return deaths

    def note_death(self, death: Death, held_work: bool) -> None:
        """Decide on the back-off: a worker killed by its page is replaced at once, one that cannot start is not."""
        if death.expected or held_work or death.lived_s >= QUICK_S:
            self.quick_deaths = 0
            return
        self.quick_deaths += 1
        self._not_before = self._monotonic() + min(LONGEST_BACK_OFF_S, 0.5 * 2.0**self.quick_deaths)
        if self.quick_deaths >= QUICK_DEATHS:
            self.fatal = death.status if death.status > 0 else ExitCode.INTERNAL

    def kill_hung(self, rows: Iterable[WorkerRow]) -> list[str]:
        """Kill workers that have been at one page, or silent, for longer than `page_timeout_s`; returns their owners.

        Measured by what we see, on a clock that stands still while the computer sleeps.
        """
        by_owner = {row.owner: row for row in rows}
        killed = []
        for child in self.children:
            row = by_owner.get(child.owner)
            doing: object = None
            if row is not None:
                doing = (row.path, row.page, row.stage, row.stage_since) if row.stage else row.heartbeat
            now = self._monotonic()
            if doing != child.doing:
                child.doing, child.doing_since = doing, now
            elif now - child.doing_since > self.settings.page_timeout_s and not child.is_killed:
                log.error(
                    "worker %d has been at it for %.0f s: killed", child.process.pid, now - child.doing_since
                )
                child.kill()
                killed.append(child.owner)
        return killed

    def kill_bloated(self, memory_mb: Callable[[int], float] = processes.rss_mb) -> list[str]:
        """Kill workers that outgrew their allowance within a page; returns their owners.

        Between pages they leave by themselves. A page in hand may take `BLOATED` times `worker_memory_mb`; where a
        model may be at work, whose weights count too, half of the machine's memory.
        """
        ceiling_mb = BLOATED * self.settings.worker_memory_mb
        if self.settings.engine in ("auto", "vlm"):
            ceiling_mb = max(ceiling_mb, processes.memory_mb() / 2)
        killed = []
        for child in self.children:
            held_mb = memory_mb(child.process.pid)
            if held_mb > ceiling_mb and not child.is_killed:
                log.error("worker %d holds %.0f MiB: killed", child.process.pid, held_mb)
                child.kill()
                killed.append(child.owner)
        return killed

    def wake(self) -> None:
        """There is new work."""
        for child in self.children:
            stdin = getattr(child.process, "stdin", None)
            if stdin is not None:
                with contextlib.suppress(OSError):  # full: it is awake; broken: `bury` finds out
                    os.write(stdin.fileno(), b".")

    def tell_to_stop(self) -> None:
        """Ask every worker to leave after its page."""
        self._is_stopping = True
        for child in self.children:
            with contextlib.suppress(ProcessLookupError):
                child.process.send_signal(signal.SIGTERM)

    def kill_all(self) -> None:
        """End every worker now."""
        for child in self.children:
            with contextlib.suppress(ProcessLookupError):
                child.process.send_signal(signal.SIGKILL)


def _close(process: Process) -> None:
    stdin = getattr(process, "stdin", None)
    if stdin is not None:
        with contextlib.suppress(OSError):
            stdin.close()


def _why(status: int) -> str:
    if status < 0:
        with contextlib.suppress(ValueError):
            return f"killed by {signal.Signals(-status).name}"
        return f"killed by signal {-status}"
    with contextlib.suppress(ValueError):
        return Leave(status).name.lower()
    return f"exit status {status}"
