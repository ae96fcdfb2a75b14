"""The worker process from its start to its end: orders from standard input, signals, idling, recycling.

Started by `daemon.pool` as `python -P -m daemon.child`. Standard input brings the orders (a pickle of ours), then a
byte whenever there is new work; its end means that the supervisor is gone, however it went.
"""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import pickle
import select
import signal
import sqlite3
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from daemon import logs, mac_access, processes
from daemon.activity import Activity, Heartbeat
from daemon.asks.desk import Desk
from daemon.asks.listener import Listener
from daemon.asks.places import Doorplate
from daemon.worker import Worker
from storage import workers
from storage.database import is_transient, open_database
from storage.errors import ExitCode, OcrdError
from storage.settings import Settings

log = logging.getLogger(__name__)

SHORTEST_IDLE_S = 0.05
LONGEST_IDLE_S = 1.0
SPARE_S = 300.0  # a worker that is not the last one leaves after so long without work
FAILING_TURNS = 5


class Leave(IntEnum):
    """Why a worker ended, as its exit status; other values are those of `ExitCode`, or signals."""

    TOLD = 0
    RECYCLED = 20  # too much memory
    SPARE = 21  # nothing to do


@dataclass(frozen=True, slots=True)
class Orders:
    """What a worker must know."""

    settings: Settings
    watching: bool = False  # files come from watched folders, where they may still grow
    keep: bool = True  # stay however long there is nothing to do


class Ears:
    """Standard input as a bell: waits for new work, and hears when the supervisor dies."""

    def __init__(self, descriptor: int, wake_up: int) -> None:
        self.descriptor = descriptor
        self.wake_up = wake_up  # signals write here
        self.is_alone = False

    def wait(self, timeout_s: float) -> bool:
        """Wait for a bell, a signal or the end of the supervisor; whether it was anything but the time."""
        if self.is_alone:
            return True
        ready, _, _ = select.select([self.descriptor, self.wake_up], [], [], timeout_s)
        if self.wake_up in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self.wake_up, 4096)
        if self.descriptor in ready:
            self.is_alone = not os.read(self.descriptor, 4096)
        return bool(ready)


def work(
    worker: Worker, orders: Orders, ears: Ears, *, monotonic: Callable[[], float] = time.monotonic
) -> int:
    """Turn after turn, until there is a reason to leave; returns the exit status."""
    limit_mb = orders.settings.worker_memory_mb
    idle_s, idle_since, failing = SHORTEST_IDLE_S, monotonic(), 0
    while not worker.stop:
        ears.wait(0.0)
        if ears.is_alone:
            log.info("the supervisor is gone: leaving")
            return Leave.TOLD
        try:
            busy = worker.turn()
            failing = 0
        except (OcrdError, sqlite3.Error) as error:
            failing += not is_transient(error)
            if failing >= FAILING_TURNS:
                raise
            log.warning("a turn failed: %s", error, exc_info=failing > 0)
            busy = False
            idle_s = LONGEST_IDLE_S
        if processes.rss_mb() > limit_mb:
            log.info("%d MiB are enough: a fresh worker goes on", limit_mb)
            return Leave.RECYCLED
        if busy:
            idle_s, idle_since = SHORTEST_IDLE_S, monotonic()
            continue
        if idle_s >= LONGEST_IDLE_S:
            worker.idle()
        if not orders.keep and monotonic() - idle_since > SPARE_S:
            return Leave.SPARE
        idle_s = SHORTEST_IDLE_S if ears.wait(idle_s) else min(idle_s * 2, LONGEST_IDLE_S)
    return Leave.TOLD


def main() -> int:
    """Run a worker on the orders from standard input; returns the exit status."""
    orders: Orders = pickle.load(sys.stdin.buffer)
    logs.to_file(orders.settings)
    faulthandler.enable()
    mac_access.leave_cloud_alone()
    read_end, write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC) if hasattr(os, "pipe2") else os.pipe()
    os.set_blocking(write_end, False)
    ears = Ears(sys.stdin.fileno(), read_end)
    owner = processes.owner_id()
    conn = open_database(orders.settings.database_path)
    activity = Activity()
    desk = Desk()
    worker = Worker(conn, owner, orders.settings, watching=orders.watching, activity=activity, desk=desk)

    def stop(number: int, frame: object) -> None:
        worker.stop = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the supervisor decides
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    workers.record(conn, owner, pid=os.getpid(), host=processes.host(), role="worker", now=time.time())
    heartbeat = Heartbeat(orders.settings.database_path, owner, activity, orders.settings.lease_s)
    heartbeat.start()
    listener = _listen(worker, desk, owner, write_end)
    try:
        status = work(worker, orders, ears)
    finally:
        if listener is not None:
            listener.end()
        # The threads may be deep in a library: they are not waited for, the process ends all the same.
        worker.close(wait=False)
        heartbeat.end()
        with contextlib.suppress(OcrdError, sqlite3.Error):
            workers.remove(conn, owner)
    return status


def _listen(worker: Worker, desk: Desk, owner: str, wake_up: int) -> Listener | None:
    """Hear those who wait for a reading; None where no socket can be made: then only the queue is worked on."""
    try:
        plate = Doorplate(worker.settings.home, owner)
    except OSError as error:
        log.warning("nobody can ask this worker: %s", error.strerror)
        return None

    def ring() -> None:
        assert worker.answers is not None
        worker.answers.look_ahead()
        with contextlib.suppress(BlockingIOError):  # full: it is awake
            os.write(wake_up, b".")

    listener = Listener(plate, desk, ring)
    listener.start()
    return listener


def _run() -> None:
    status: int = ExitCode.INTERNAL
    try:
        status = main()
    except OcrdError as error:
        log.error("the worker gives up: %s", error)
        status = error.exit_code
    except BaseException:
        log.exception("the worker gives up")
    finally:
        logging.shutdown()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    _run()
