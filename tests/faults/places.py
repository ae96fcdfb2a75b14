"""Folders that refuse, vanish and return; clocks that jump; disks that are slow."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from tests.faults import inputs
from tests.faults.house import House, require
from tests.faults.scenario import Ground
from tests.faults.small_disk import small_disk

SCRIPT = "delay:60ms"
# Imported by every process at its start: time.time() goes wrong by what a file says.
CLOCK = """
import os, time
_real, _path = time.time, os.environ["FAULTS_CLOCK"]
def _wrong():
    try:
        with open(_path) as file:
            return _real() + float(file.read() or 0)
    except (OSError, ValueError):
        return _real()
time.time = _wrong
"""


def read_only_output(ground: Ground) -> None:
    """The output becomes read-only in the middle, and can be written to again."""
    with small_disk(ground.folder / "disk", 64) as disk, ground.house(out=disk.place / "out") as house:
        process = house.start("watch", script=SCRIPT)
        house.until(lambda: len(house.read_times()) > 3, "the first pages", process)
        disk.read_only(True)
        house.until(lambda: _codes(house) & {"access", "permission", "storage"}, "the reason", process)
        require(process.poll() is None, "the daemon ended")
        disk.read_only(False)
        house.until(house.is_over, "the end", process)
        house.until(lambda: not _codes(house), "all sidecars", process)
        _leave(house, process)
        house.check_end(ground.reference)


def _codes(house: House) -> set[str]:
    return {code for _, code in house.states().values() if code} - {"corrupt", "empty_file", "password"}


def _leave(house: House, process) -> None:  # type: ignore[no-untyped-def]  # Popen
    process.terminate()
    status = house.end(process)
    require(status == 0, f"the daemon ended with {status}: {house.said()[-500:]}")


def output_that_vanishes(ground: Ground) -> None:
    """The output folder is deleted in the middle: what is written then is whole, `verify --repair` brings the rest."""
    with ground.house() as house:
        process = house.start("watch", script=SCRIPT)
        house.until(lambda: len(list(house.out.rglob("*.json"))) > 3, "the first sidecars", process)
        shutil.rmtree(house.out, ignore_errors=True)
        house.until(house.is_over, "the end", process)
        _leave(house, process)
        house.check_now(ground.reference)
        _repair(house)
        house.end(house.start())
        house.check_end(ground.reference)


def _repair(house: House) -> None:
    import subprocess
    import sys

    words = [sys.executable, "-m", "daemon", "verify", "--repair", "--home", str(house.home)]
    environment = os.environ | {"OCRD_ENGINE": "fake"}  # it stands in the provenance
    subprocess.run(words, env=environment, capture_output=True, check=False, timeout=120)


def share_that_goes_away(ground: Ground) -> None:
    """The watched folder goes away in the middle and returns: nothing is missing, nothing failed, all is read."""
    for number in ground.times(3, 1):
        place = ground.folder / f"share-{number}"
        inputs.make(place / "in", few=ground.common.few)
        house = House(place / "house", place / "in")
        house.give_database(ground.empty_database)
        with house:
            _away_and_back(ground, house, place)
        ground.drop(house)


def _away_and_back(ground: Ground, house: House, place: Path) -> None:
    process = house.start("watch", script=SCRIPT)
    house.until(lambda: len(house.read_times()) > 2, "the first pages", process)
    for _ in range(2):
        (place / "in").rename(place / "elsewhere")
        time.sleep(ground.random.uniform(0.5, 3.0))
        found = house.states()
        lost = [name for name, (state, _) in found.items() if state == "missing"]
        require(not lost, f"counted as deleted: {lost}")
        require(not _codes(house) - {"vanished", "storage", "access"}, f"failed: {found}")
        (place / "elsewhere").rename(place / "in")
        time.sleep(ground.random.uniform(0.2, 1.0))
    house.until(house.is_over, "the end", process)
    house.until(lambda: not _codes(house), "no more errors", process)
    _leave(house, process)
    house.check_end(ground.reference)


def clock_that_jumps(ground: Ground) -> None:
    """The clock jumps by hours and years both ways, also while something is put off."""
    for number in ground.times(4, 1):
        with ground.house() as house:
            clock, site = house.place / "clock", house.place / "site"
            site.mkdir()
            (site / "sitecustomize.py").write_text(CLOCK, "ascii")
            with in_environment({"FAULTS_CLOCK": str(clock), "PYTHONPATH": str(site)}):
                process = house.start("watch", script=SCRIPT, lease_s=4.0)
                house.until(lambda: len(house.read_times()) > 2, "the first pages", process)
                # Far ahead, something is put off then, and it is set right; or to and fro by hours.
                ahead = [4 * 365 * 86400.0, 0.0]
                jumps = ahead if number % 2 == 0 else [-8 * 3600.0, 8 * 3600.0, 30.0, -30.0]
                for jump in jumps:
                    clock.write_text(str(jump), "ascii")
                    time.sleep(ground.random.uniform(0.3, 1.5))
                house.until(house.is_over, "the end", process)
                _leave(house, process)
                house.check_end(ground.reference)
                attempts = attempts_of(house)
                require(attempts == 0, f"jumps of the clock cost {attempts} attempts")
        ground.drop(house)


def attempts_of(house: House) -> int:
    """How many tries of pages were counted."""
    with house.looking() as conn:
        return int(conn.execute("SELECT total(attempts) FROM page_jobs").fetchone()[0])


class in_environment:
    def __init__(self, values: dict[str, str]) -> None:
        self.values = values

    def __enter__(self) -> None:
        self.before = {name: os.environ.get(name) for name in self.values}
        root = str(Path(__file__).parent.parent.parent)
        wanted = dict(self.values)
        if "PYTHONPATH" in wanted:
            others = filter(None, (root, os.environ.get("PYTHONPATH")))
            wanted["PYTHONPATH"] = os.pathsep.join((wanted["PYTHONPATH"], *others))
        os.environ.update(wanted)

    def __exit__(self, *_: object) -> None:
        for name, value in self.before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def slow_disk(ground: Ground) -> None:
    """Each transaction of the home takes 0.2 s and each rename as long: slow, and nothing worse."""
    with ground.house() as house:
        process = house.start(
            "watch",
            failpoints="database.commit=wait:0.2;staging.rename=wait:0.2",
            lease_s=4.0,
            page_timeout_s=20,
        )
        house.until(house.is_over, "the end", process, within_s=240)
        _leave(house, process)
        require(attempts_of(house) == 0, "being slow costs attempts")
        house.check_end(ground.reference)
