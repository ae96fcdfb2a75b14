"""What dead processes left is found by who takes the home next."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from daemon import leftovers as leftovers_module
from daemon import processes
from daemon.leftovers import Leftovers
from storage import jobs, library, setbacks, sidecars, staging, workers
from storage.errors import StorageError
from storage.settings import Settings
from tests.conftest import Clock
from tests.storage.conftest import Desk

MakeFile = Callable[..., Path]


@pytest.fixture
def ticks() -> Clock:
    return Clock(0.0)


@pytest.fixture
def left(settings: Settings, conn: sqlite3.Connection, ticks: Clock) -> Leftovers:
    return Leftovers(settings, conn, monotonic=ticks)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        yield process
        process.kill()


def test_a_worker_that_outlives_its_supervisor_and_never_leaves_is_ended(
    left: Leftovers, conn: sqlite3.Connection, ticks: Clock, sleeper: subprocess.Popen[bytes]
) -> None:
    owner = processes.owner_id(sleeper.pid)
    workers.record(conn, owner, pid=sleeper.pid, host=processes.host(), role="worker", now=0.0)
    left.start(time.time())
    left.end_orphans()
    assert sleeper.poll() is None, "it has time to finish its page"
    ticks.now += leftovers_module.ORPHANS_S
    left.end_orphans()
    assert sleeper.wait(60) == -9
    assert workers.rows(conn) == []


def test_who_leaves_takes_such_workers_along_and_gives_back_their_pages(
    left: Leftovers, conn: sqlite3.Connection, sleeper: subprocess.Popen[bytes]
) -> None:
    owner = processes.owner_id(sleeper.pid)
    workers.record(conn, owner, pid=sleeper.pid, host=processes.host(), role="worker", now=0.0)
    desk = Desk(conn)
    desk.put("/in/a.pdf", "A")
    assert len(desk.claim(owner)) == 1
    left.start(time.time())
    left.end_orphans(leaving=True)
    assert sleeper.wait(60) == -9
    assert workers.rows(conn) == []
    assert [(job.page, job.attempts) for job in desk.claim()] == [(1, 0)]


def test_workers_of_other_machines_and_later_ones_are_left_alone(
    left: Leftovers, conn: sqlite3.Connection, ticks: Clock, sleeper: subprocess.Popen[bytes]
) -> None:
    _, pid, begun = processes.owner_id(sleeper.pid).rsplit(":", 2)
    workers.record(conn, f"elsewhere:{pid}:{begun}", pid=int(pid), host="elsewhere", role="worker", now=0.0)
    left.start(time.time())
    mine = processes.owner_id(sleeper.pid)
    workers.record(conn, mine, pid=sleeper.pid, host=processes.host(), role="worker", now=0.0)
    ticks.now += 1000
    left.end_orphans()
    assert sleeper.poll() is None


def test_sidecars_a_dead_worker_had_begun_are_removed_although_their_folder_was_swept_before(
    left: Leftovers, conn: sqlite3.Connection, settings: Settings, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    desk = Desk(conn)
    desk.put("/in/a.pdf", "A", out_dir=os.fsencode(out), base=b"/in")
    desk.read_all()
    assert jobs.claim_publish(conn, "gone:1:1", desk.now, 60.0)
    sidecars._sweep_once(os.fsencode(out))
    host = staging._HOST
    half = out / f".ocrd-{host}-{_dead_pid()}-{'0' * 12}.tmp"
    half.touch()
    left.recover(desk.now, lambda owner: False)
    assert not half.exists()


def _dead_pid() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def test_half_written_files_in_the_home_are_removed_at_the_start(left: Leftovers, settings: Settings) -> None:
    backups = settings.backups_path
    backups.mkdir()
    own = settings.home / "any folder"
    own.mkdir()
    name = f".ocrd-{staging._HOST}-{_dead_pid()}-{'0' * 12}.tmp"
    halves = [backups / ".making.tmp", settings.home / name, own / name]
    for half in halves:
        half.touch()
    kept = backups / "ocrd-20260101T000000Z.db"
    kept.touch()
    left.start(time.time())
    assert [half for half in halves if half.exists()] == []
    assert kept.exists()


def test_what_another_machine_began_is_removed_a_day_later(left: Leftovers, settings: Settings) -> None:
    half = settings.home / f".ocrd-{'0' * 8}-1-{'0' * 12}.tmp"
    half.touch()
    begun = half.stat().st_mtime
    left.start(begun + staging.OLD_S - 1)
    assert half.exists()
    left.start(begun + staging.OLD_S + 1)
    assert not half.exists()


def test_what_a_wrong_clock_put_off_is_due_once_the_clock_is_right(
    left: Leftovers, conn: sqlite3.Connection
) -> None:
    ahead, now = 2_000_000_000.0, 1_700_000_000.0
    library.register(
        conn, [library.SeenFile(b"/in/a.pdf", 1, 1), library.SeenFile(b"/in/b.pdf", 1, 1)], ahead
    )
    first, _ = jobs.claim_intake(conn, "a:1:1", ahead, 60.0)
    jobs.defer(conn, "a:1:1", first, StorageError("later"), ahead, 5.0)
    left.call_back(now)
    assert [job.path for job in jobs.claim_intake(conn, "b:1:1", now, 60.0)] == [b"/in/a.pdf"]
    leases = conn.execute("SELECT max(lease_expires) FROM files").fetchone()[0]
    assert leases <= now + left.settings.lease_s


def test_what_waits_for_its_folder_to_return_goes_on_waiting(
    left: Leftovers, conn: sqlite3.Connection
) -> None:
    root = library.add_root(conn, b"/in", now=0.0)
    library.register(conn, [library.SeenFile(b"/in/a.pdf", 1, 1, root)], 0.0)
    library.set_root_state(conn, root, "gone")
    left.call_back(1_700_000_000.0)
    assert jobs.claim_intake(conn, "b:1:1", 1_700_000_000.0, 60.0) == []


def test_ordinary_waiting_is_left_alone(left: Leftovers, conn: sqlite3.Connection) -> None:
    now = 1_700_000_000.0
    library.register(conn, [library.SeenFile(b"/in/a.pdf", 1, 1)], now)
    [job] = jobs.claim_intake(conn, "a:1:1", now, 60.0)
    jobs.defer(conn, "a:1:1", job, StorageError("later"), now, setbacks.LONGEST_DELAY_S)
    left.call_back(now)
    assert jobs.claim_intake(conn, "b:1:1", now + 60, 60.0) == []


def test_a_watched_worker_keeps_its_lease_however_late_its_heartbeat_is(
    left: Leftovers, conn: sqlite3.Connection
) -> None:
    """As after hours of sleep, or minutes of a locked database: no attempt is counted, nothing is read twice."""
    library.register(conn, [library.SeenFile(b"/in/a.pdf", 1, 1)], 0.0)
    jobs.claim_intake(conn, "ours:1:1", 1000.0, 60.0)
    left.recover(9000.0, lambda owner: True, lambda owner: owner == "ours:1:1")
    assert tuple(conn.execute("SELECT lease_owner, attempts FROM files").fetchone()) == ("ours:1:1", 0)
    left.recover(9000.0, lambda owner: False, lambda owner: owner == "ours:1:1")
    assert conn.execute("SELECT lease_owner FROM files").fetchone()[0] is None, "it died"
