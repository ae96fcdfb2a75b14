"""Workers from their parent's side, with processes that only pretend, on a clock the tests hold."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest

from daemon import pool as pool_module
from daemon import processes
from daemon.child import Leave, Orders
from daemon.pool import Death, Pool, default_workers
from storage.errors import ExitCode
from storage.settings import Settings
from storage.workers import WorkerRow


class Pretender:
    """A process that runs until the test says otherwise."""

    def __init__(self, pid: int, orders: Orders) -> None:
        self.pid = pid
        self.orders = orders
        self.status: int | None = None
        self.signals: list[int] = []

    def poll(self) -> int | None:
        return self.status

    def send_signal(self, sig: int) -> None:
        self.signals.append(sig)
        if sig == signal.SIGKILL:
            self.status = -sig


class Stage:
    """A pool of pretenders."""

    def __init__(self, settings: Settings, limit: int) -> None:
        self.now = 100.0
        self.started: list[Pretender] = []
        self.pool = Pool(settings, limit, start=self._start, monotonic=lambda: self.now)

    def _start(self, orders: Orders) -> Pretender:
        self.started.append(Pretender(4_000_000 + len(self.started), orders))
        return self.started[-1]

    def row(self, number: int, **what: object) -> WorkerRow:
        owner = self.pool.children[number].owner
        row = WorkerRow(owner, 1, "worker", 0.0, 0.0, None, None, None, None, None)
        return replace(row, **what)  # type: ignore[arg-type]


@pytest.fixture
def stage(settings: Settings) -> Stage:
    return Stage(settings, 3)


def test_workers_are_started_as_wanted_up_to_the_limit(stage: Stage) -> None:
    stage.pool.ensure(1)
    stage.pool.ensure(9)
    stage.pool.ensure(9)
    assert [process.orders.keep for process in stage.started] == [True, False, False]


def test_one_that_left_for_a_good_reason_is_replaced_at_once(stage: Stage) -> None:
    stage.pool.ensure(1)
    stage.started[0].status = Leave.RECYCLED
    [death] = stage.pool.bury()
    assert death.expected
    stage.pool.note_death(death, held_work=False)
    stage.pool.ensure(1)
    assert len(stage.started) == 2
    assert stage.started[1].orders.keep  # the one that stays was the one that left


def test_one_killed_by_its_page_is_replaced_at_once(stage: Stage) -> None:
    for _ in range(20):
        stage.pool.ensure(1)
        stage.started[-1].status = -signal.SIGSEGV
        [death] = stage.pool.bury()
        assert not death.expected
        stage.pool.note_death(death, held_work=True)
    assert stage.pool.fatal is None
    assert len(stage.started) == 20


def test_those_that_die_at_the_start_are_replaced_ever_later_and_then_no_more(stage: Stage) -> None:
    waits = []
    while stage.pool.fatal is None:
        stage.pool.ensure(1)
        stage.started[-1].status = 1
        [death] = stage.pool.bury()
        stage.pool.note_death(death, held_work=False)
        before = len(stage.started)
        waited = 0.0
        while len(stage.started) == before:
            stage.pool.ensure(1)
            stage.now += 0.5
            waited += 0.5
        waits.append(waited)
        stage.started[-1].status = 0
        stage.pool.bury()
    assert waits == sorted(waits) and waits[-1] > waits[0]
    assert len(waits) == pool_module.QUICK_DEATHS


def test_deaths_far_apart_are_no_row(stage: Stage) -> None:
    for _ in range(2 * pool_module.QUICK_DEATHS):
        stage.pool.ensure(1)
        stage.now += 86_400.0
        stage.started[-1].status = -signal.SIGKILL
        [death] = stage.pool.bury()
        stage.pool.note_death(death, held_work=False)
    assert stage.pool.fatal is None


def test_a_system_without_room_for_a_process_is_asked_again_later(stage: Stage) -> None:
    real, full = stage.pool._start, True

    def start(orders: Orders) -> Pretender:
        if full:
            raise OSError(11, "Resource temporarily unavailable")
        return real(orders)  # type: ignore[return-value]

    stage.pool._start = start
    stage.pool.ensure(1)
    full = False
    stage.pool.ensure(1)
    assert stage.started == []
    stage.now += pool_module.LONGEST_BACK_OFF_S
    stage.pool.ensure(1)
    assert len(stage.started) == 1


def test_a_fault_of_the_set_up_is_fatal_at_once(stage: Stage) -> None:
    stage.pool.ensure(1)
    stage.started[0].status = ExitCode.ENGINE
    stage.pool.bury()
    assert stage.pool.fatal == ExitCode.ENGINE


def test_a_worker_too_long_at_one_page_is_killed(stage: Stage, settings: Settings) -> None:
    stage.pool.ensure(2)
    busy = {"path": "/a.pdf", "page": 1, "stage": "read", "stage_since": 1.0}

    def look(heartbeat: float) -> list[str]:
        rows = [stage.row(0, heartbeat=heartbeat, **busy), stage.row(1, heartbeat=heartbeat)]
        return stage.pool.kill_hung(rows)

    assert look(1.0) == []
    stage.now += settings.page_timeout_s - 1
    assert look(2.0) == []
    stage.now += 2
    assert look(3.0) == [stage.pool.children[0].owner]
    assert stage.started[0].signals == [signal.SIGKILL]
    assert stage.started[1].signals == []
    assert look(4.0) == []  # killed once


def test_a_worker_that_goes_from_page_to_page_is_left_alone(stage: Stage, settings: Settings) -> None:
    stage.pool.ensure(1)
    for page in range(1, 6):
        rows = [stage.row(0, path="/a.pdf", page=page, stage="read", stage_since=float(page))]
        assert stage.pool.kill_hung(rows) == []
        stage.now += settings.page_timeout_s - 1


def test_a_worker_not_heard_of_is_killed(stage: Stage, settings: Settings) -> None:
    stage.pool.ensure(1)
    assert stage.pool.kill_hung([stage.row(0, heartbeat=5.0)]) == []
    stage.now += settings.page_timeout_s + 1
    assert stage.pool.kill_hung([stage.row(0, heartbeat=5.0)]) == [stage.pool.children[0].owner]


def test_stopping_asks_everyone_and_then_insists(stage: Stage) -> None:
    stage.pool.ensure(3)
    stage.pool.tell_to_stop()
    stage.pool.kill_all()
    assert all(process.signals == [signal.SIGTERM, signal.SIGKILL] for process in stage.started)
    assert len(stage.pool.bury()) == 3
    assert stage.pool.children == []


def test_a_death_says_who_and_how(stage: Stage) -> None:
    stage.pool.ensure(1)
    owner = stage.pool.children[0].owner
    stage.started[0].status = -signal.SIGKILL
    assert stage.pool.bury() == [Death(owner, -signal.SIGKILL, False)]


def test_as_many_workers_as_set_or_as_cores_and_memory_allow(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert default_workers(replace(settings, workers=7)) == 7
    automatic = replace(settings, workers=0)
    monkeypatch.setattr(processes, "cores", lambda: 8)
    for memory_mb, wanted in ((64_000, 8), (4_000, 3), (500, 1)):
        monkeypatch.setattr(processes, "memory_mb", lambda memory_mb=memory_mb: float(memory_mb))
        assert default_workers(automatic) == wanted


def test_one_told_to_stop_before_it_could_listen_is_no_mishap(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.pool.ensure(2)
    stage.started[1].status = -signal.SIGTERM  # by somebody else
    assert [death.expected for death in stage.pool.bury()] == [False]
    caplog.clear()
    stage.pool.tell_to_stop()
    stage.started[0].status = -signal.SIGTERM
    assert [death.expected for death in stage.pool.bury()] == [True]
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def test_one_that_outgrows_its_allowance_within_a_page_is_killed_once(stage: Stage) -> None:
    stage.pool.ensure(2)
    held = {4_000_000: 100.0, 4_000_001: stage.pool.settings.worker_memory_mb * 2.0}
    assert stage.pool.kill_bloated(held.__getitem__) == []  # it leaves by itself once its page is read
    held[4_000_001] *= 3
    bloated = stage.pool.children[1].owner
    assert stage.pool.kill_bloated(held.__getitem__) == [bloated]
    assert stage.pool.kill_bloated(held.__getitem__) == []
    assert [process.signals for process in stage.started] == [[], [signal.SIGKILL]]


@pytest.mark.parametrize(("engine", "killed"), [("classic", 1), ("vlm", 0)])
def test_the_weights_of_a_model_are_no_leak(
    engine: str, killed: int, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "memory_mb", lambda: 64 * 1024.0)
    stage = Stage(replace(settings, engine=engine), 1)
    stage.pool.ensure(1)
    assert len(stage.pool.kill_bloated(lambda pid: 20 * 1024.0)) == killed
