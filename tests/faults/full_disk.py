"""No space at each writer: the queue pauses with the reason, goes on by itself, and nothing has failed."""

from __future__ import annotations

import os
import time
from pathlib import Path

from storage import status
from storage.features import Features, FeatureStore
from tests.faults.house import House, require
from tests.faults.scenario import Ground
from tests.faults.small_disk import SmallDisk, small_disk

SCRIPT = "delay:40ms"


def disk_of_the_home(ground: Ground) -> None:
    """The disk of database, log and backups fills up in the middle, and has space again."""
    for number in ground.times(3, 1):
        with small_disk(ground.folder / f"disk-{number}", 160) as disk:
            home = disk.place / "home"
            home.mkdir(mode=0o700)
            with ground.house(home=home) as house:
                _full_and_back(ground, house, disk, leave_bytes=ground.random.choice((0, 40_000, 20 << 20)))
            ground.drop(house)


def disk_of_the_output(ground: Ground) -> None:
    """The disk of the sidecars fills up; it is a small one that never had 64 MB."""
    for number in ground.times(3, 1):
        with small_disk(ground.folder / f"disk-{number}", 12) as disk:
            out = disk.place / "out"
            with ground.house(out=out) as house:
                _full_and_back(ground, house, disk, leave_bytes=ground.random.choice((0, 0, 8_000)))
            ground.drop(house)


def _full_and_back(ground: Ground, house: House, disk: SmallDisk, leave_bytes: int) -> None:
    process = house.start("watch", script=SCRIPT, settle_s=0.2)
    house.until(lambda: len(house.read_times()) > 3, "the first pages", process)
    disk.fill(leave_bytes)
    house.until(lambda: _is_waiting(house), "a pause", process)
    until = time.monotonic() + 4
    while time.monotonic() < until:
        _nothing_failed(house)
        time.sleep(0.2)
    require(_is_waiting(house), "the pause did not last while the disk was full")
    disk.empty()
    house.until(lambda: not _is_waiting(house), "going on", process)
    house.until(house.is_over, "the end", process)
    process.terminate()
    require(house.end(process) == 0, "the daemon ended badly")
    house.check_end(ground.reference)


def _is_waiting(house: House) -> bool:
    """Whether `ocrd status` says that it waits for space."""
    with house.looking() as conn:
        shown = status.summary(conn, now=time.time())
    return shown["state"] == "paused" and any(pause["kind"] == "disk_full" for pause in shown["pause"])


def _nothing_failed(house: House) -> None:
    allowed = ("corrupt", "empty_file", "password")
    failed = {
        name: state
        for name, state in house.states().items()
        if state[0] in ("failed", "needs_password") and state[1] not in allowed
    }
    require(not failed, f"marked failed for want of space: {failed}")


def disk_of_the_features(ground: Ground) -> None:
    """The feature store on a full disk keeps nothing, fails nothing, and stores again once there is space."""
    with small_disk(ground.folder / "disk", 8) as disk:
        store = FeatureStore(disk.place / "features", 64 << 20)
        one = Features("F32", (64, 64), os.urandom(64 * 64 * 4))
        require(store.put("aa1", one, model="m", now=1.0), "it stores while there is space")
        disk.fill()
        for number in range(50):
            store.put(f"bb{number}", one, model="m", now=2.0)
            store.save_counters()
        require(_torn(disk.place) == [], f"torn files: {_torn(disk.place)}")
        disk.empty()
        require(store.put("cc1", one, model="m", now=3.0), "it stores again")
        require(store.get("cc1", 4.0) == one, "and finds it")


def _torn(place: Path) -> list[str]:
    return [path.name for path in place.rglob(".writing-*")]
