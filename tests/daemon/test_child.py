"""A worker process' loop: why it leaves, and how it waits. The worker pretends, the pipes are real."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator

import pytest

from daemon import child
from daemon.child import Ears, Leave, Orders, work
from storage.errors import DiskFullError, OcrdError
from storage.settings import Settings


class Pretender:
    """Does as the test says, turn by turn; then tells itself to stop."""

    def __init__(self, *turns: bool | Exception) -> None:
        self.turns = list(turns)
        self.stop = False
        self.idled = 0

    def turn(self) -> bool:
        if not self.turns:
            self.stop = True
            return False
        what = self.turns.pop(0)
        if isinstance(what, Exception):
            raise what
        return what

    def idle(self) -> None:
        self.idled += 1


class Line:
    """The pipe to the supervisor, and signals."""

    def __init__(self) -> None:
        self.read, self.write = os.pipe()
        self.signal_read, self.signal_write = os.pipe()
        os.set_blocking(self.signal_read, False)
        self.ears = Ears(self.read, self.signal_read)

    def hang_up(self) -> None:
        os.close(self.write)
        self.write = -1

    def close(self) -> None:
        for descriptor in (self.read, self.write, self.signal_read, self.signal_write):
            if descriptor >= 0:
                os.close(descriptor)


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> Iterator[Line]:
    monkeypatch.setattr(child, "SHORTEST_IDLE_S", 0.001)
    monkeypatch.setattr(child, "LONGEST_IDLE_S", 0.004)
    line = Line()
    yield line
    line.close()


@pytest.fixture(autouse=True)
def _little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process may hold models of tests before."""
    monkeypatch.setattr(child.processes, "rss_mb", lambda: 100.0)


@pytest.fixture
def orders(settings: Settings) -> Orders:
    return Orders(settings)


def run(worker: Pretender, orders: Orders, line: Line, **options: object) -> int:
    return work(worker, orders, line.ears, **options)  # type: ignore[arg-type]


def test_it_leaves_after_its_turn_when_told(orders: Orders, line: Line) -> None:
    worker = Pretender(True, True)
    assert run(worker, orders, line) == Leave.TOLD
    assert worker.turns == []


def test_it_leaves_when_the_supervisor_is_gone(orders: Orders, line: Line) -> None:
    worker = Pretender(True, True, True)
    line.hang_up()
    assert run(worker, orders, line) == Leave.TOLD
    assert len(worker.turns) == 3  # not one more page


def test_a_bell_ends_the_wait(line: Line) -> None:
    os.write(line.write, b"...")
    assert line.ears.wait(60.0)
    assert not line.ears.is_alone
    assert not line.ears.wait(0.0)  # all of it was heard
    os.write(line.signal_write, b"\x0f")
    assert line.ears.wait(60.0)


def test_without_work_it_waits_ever_longer_and_lets_go(orders: Orders, line: Line) -> None:
    worker = Pretender(*[False] * 8)
    run(worker, orders, line)
    assert worker.idled > 0


def test_too_much_memory_means_a_fresh_worker(
    orders: Orders, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child.processes, "rss_mb", lambda: orders.settings.worker_memory_mb + 1.0)
    worker = Pretender(True, True)
    assert run(worker, orders, line) == Leave.RECYCLED
    assert worker.turns == [True]  # the page in hand was finished


def test_a_spare_worker_leaves_when_there_is_nothing_to_do_and_the_kept_one_stays(
    settings: Settings, line: Line
) -> None:
    def hours() -> Iterator[float]:
        now = 0.0
        while True:
            yield now
            now += 3600.0

    spare, kept = hours(), hours()
    assert (
        run(Pretender(False, False), Orders(settings, keep=False), line, monotonic=lambda: next(spare))
        == Leave.SPARE
    )
    assert (
        run(Pretender(False, False), Orders(settings, keep=True), line, monotonic=lambda: next(kept))
        == Leave.TOLD
    )


def test_it_sits_out_want_of_space_but_not_faults_of_ours(orders: Orders, line: Line) -> None:
    full = sqlite3.OperationalError("database or disk is full")
    full.sqlite_errorcode = sqlite3.SQLITE_FULL
    assert run(Pretender(*[DiskFullError("full")] * 20, *[full] * 20), orders, line) == Leave.TOLD
    with pytest.raises(OcrdError, match="a bug"):
        run(Pretender(*[OcrdError("a bug")] * child.FAILING_TURNS), orders, line)
    assert run(Pretender(*[OcrdError("a bug"), True] * 20), orders, line) == Leave.TOLD  # not in a row
