"""`kill -9` of supervisor, workers and all, at seeded instants and at every named place inside a write."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import Counter

from storage.failpoints import NAMES
from tests.faults.house import Broken, House, require
from tests.faults.scenario import Ground

SPAN_S = 6.0  # instants lie in that long after the start
SCRIPT = "delay_random:0-30ms"
# Where a batch over the documents passes by; the others have scenarios of their own.
PASSED = tuple(
    name for name in NAMES if name.split(".")[0] not in ("features", "backup", "restore", "migrate")
)


def random_instants(ground: Ground) -> None:
    """200 kills at seeded instants, one to four in a library's life, each followed by a restart."""
    wanted = 3 if ground.small else 200
    done: Counter[str] = Counter()
    while sum(done.values()) < wanted and ground.has_time:
        house = ground.house()
        with house:
            for _ in range(min(ground.random.randint(1, 4), wanted - sum(done.values()))):
                done[_kill_once(house, ground)] += 1
            _finish(house, ground)
        ground.drop(house)
    ground.note(
        f"{sum(done.values())} kills: " + ", ".join(f"{n} {what}" for what, n in sorted(done.items()))
    )


def _kill_once(house: House, ground: Ground) -> str:
    """Start, wait for an instant, kill somebody; returns who it was."""
    rng = ground.random
    victim = rng.choice(("supervisor", "worker", "all", "rasteriser"))
    command = rng.choice(("batch", "batch", "watch"))
    before = house.read_times()
    if victim == "rasteriser":
        marker = house.place / f"mark-{time.monotonic_ns()}"
        house_at = f"rasterise.draw=kill@{rng.randint(1, 8)}?{marker}"
        process = house.start(command, script=SCRIPT, failpoints=house_at)
    else:
        process = house.start(command, script=SCRIPT)
    instant = time.monotonic() + rng.uniform(0.2, SPAN_S)
    while time.monotonic() < instant and process.poll() is None:
        time.sleep(0.005)
    workers = house.workers(process)
    if victim == "worker" and workers:
        _kill(rng.choice(workers))
        time.sleep(rng.uniform(0, 1.5))
        workers = house.workers(process)
    elif victim == "supervisor":
        _kill(process.pid)
        house.gone(workers)
    for pid in (process.pid, *workers):
        _kill(pid)
    process.wait()
    house.gone(workers)
    _check_after(house, ground, before)
    return victim


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _check_after(house: House, ground: Ground, before: dict[tuple[int, int], float]) -> None:
    house.check_now(ground.reference)
    after = house.read_times()
    require(
        all(after.get(page) == read for page, read in before.items()),
        "pages that had been read were read again",
    )


def _finish(house: House, ground: Ground) -> None:
    before = house.read_times()
    status = house.end(house.start())
    require(
        house.is_over(), f"not over (exit {status}): {house.states()}\n{house.said()[-500:]}\n{house.log()}"
    )
    _check_after(house, ground, before)
    house.check_end(ground.reference)


def named_places(ground: Ground) -> None:
    """A kill at each named place that a batch passes by: once of the worker, once of it and the supervisor."""
    passed = list(PASSED)
    ground.random.shuffle(passed)
    missed = []
    cases = [(name, action) for name in passed for action in ("kill", "kill_family")]
    for number in ground.times(len(cases), 2):
        name, action = cases[number]
        if name.startswith("crew."):
            action = "kill"  # its parent is us
        hit = ground.random.randint(1, 4)
        house = ground.house()
        with house:
            marker = house.place / "mark"
            points = f"{name}={action}@{hit}?{marker}"
            if name == "crew.buried":  # somebody has to die first
                points = f"{name}=kill@1?{marker};page.read=kill@3?{house.place / 'first'}"
            try:
                process = house.start(script=SCRIPT, failpoints=points)
                house.end(process)
                if not marker.exists():
                    missed.append(name)
                house.check_now(ground.reference)
                _finish(house, ground)
            except Broken as error:
                raise Broken(f"at {name}, {action}, hit {hit}: {error}") from error
        ground.drop(house)
    require(ground.small or len(missed) <= len(cases) // 4, f"places that were not reached: {missed}")
    if missed:
        ground.note(f"not reached: {', '.join(missed)}")
