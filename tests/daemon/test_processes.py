"""Who lives, and who holds the home."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from daemon import processes
from daemon.processes import HomeLock
from storage.errors import AccessError, BusyError


def test_this_process_is_alive_and_its_owner_id_is_stable() -> None:
    owner = processes.owner_id()
    assert processes.is_alive(owner)
    assert owner == processes.owner_id(os.getpid())


@pytest.mark.skipif(not hasattr(os, "waitid"), reason="os.waitid is not there (macOS before Python 3.13)")
def test_a_process_that_ended_is_dead_even_before_it_is_waited_for() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        owner = processes.owner_id(child.pid)
        assert processes.is_alive(owner)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert not processes.is_alive(owner)
    assert not processes.is_alive(owner)


def test_a_reused_pid_is_another_process() -> None:
    host, pid, start = processes.owner_id().rsplit(":", 2)
    assert not processes.is_alive(f"{host}:{pid}:{start}0")


def test_of_another_machine_nothing_is_known() -> None:
    assert processes.is_alive("elsewhere:1:1")
    assert not processes.is_alive("nonsense")


def test_memory_and_cores_are_told() -> None:
    assert processes.rss_mb() > 1
    assert processes.peak_rss_mb() >= processes.rss_mb() * 0.5
    assert 1 <= processes.cores() <= (os.cpu_count() or 1)
    assert processes.memory_mb() > 64


def test_a_second_holder_is_told_who_works_since_when(tmp_path: Path) -> None:
    first, second = HomeLock(tmp_path, "watches /scans"), HomeLock(tmp_path, "runs a batch")
    first.acquire(1_000_000.0)
    with pytest.raises(BusyError) as refused:
        second.acquire(1_000_001.0)
    assert str(os.getpid()) in str(refused.value)
    assert "watches /scans" in str(refused.value)
    assert "since 1970-01-1" in str(refused.value)
    first.release()
    second.acquire(1_000_002.0)
    second.release()


def test_the_lock_of_a_killed_holder_is_free(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from daemon.processes import HomeLock; "
        "lock = HomeLock(pathlib.Path(sys.argv[1]), 'x'); lock.acquire(0.0); print(flush=True); input()"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        with pytest.raises(BusyError):
            HomeLock(tmp_path, "y").acquire(0.0)
        child.kill()
        child.wait()
    lock = HomeLock(tmp_path, "y")
    lock.acquire(0.0)
    lock.release()


def test_a_home_that_cannot_be_made_is_an_access_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Exception, match="ot a directory") as refused:
        HomeLock(tmp_path / "file" / "home", "x").acquire(0.0)
    assert refused.value.exit_code == AccessError.exit_code
