"""On battery, in low power mode or too hot: rest if that is wanted, say why, and go on by itself."""

from __future__ import annotations

import sqlite3
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from daemon import power
from daemon.crew import Crew
from storage import jobs, status
from storage.settings import Settings

BATTERY = """Now drawing from 'Battery Power'
 -InternalBattery-0 (id=22675555)\t83%; discharging; 5:12 remaining present: true
"""
MAINS = BATTERY.replace("Battery Power", "AC Power").replace("discharging", "charged")
DEFAULTS = """System-wide power settings:
Currently in use:
 standby              1
 lowpowermode         0
 sleep                1 (sleep prevented by powerd)
"""


@pytest.mark.parametrize(
    ("source", "settings", "level", "reason"),
    [
        (MAINS, DEFAULTS, 0, None),
        (MAINS, DEFAULTS, 1, None),
        (MAINS, DEFAULTS, None, None),
        (BATTERY, DEFAULTS, 0, "on battery"),
        (MAINS, DEFAULTS.replace("lowpowermode         0", "lowpowermode         1"), 0, "low power mode"),
        (MAINS, DEFAULTS, 2, "the computer is too hot"),
        ("", "", None, None),
        ("no such tool", "lowpowermode", None, None),
    ],
)
def test_a_mac_tells_by_pmset_and_thermal_level(
    source: str, settings: str, level: int | None, reason: str | None
) -> None:
    answers = {"batt": source, "-g": settings}
    assert power.mac_reason(lambda words: answers[words[-1]], lambda: level) == reason


def supply(folder: Path, name: str, **values: str) -> None:
    (folder / name).mkdir(parents=True)
    for key, value in values.items():
        (folder / name / key).write_text(value + "\n")


@pytest.mark.parametrize(
    ("supplies", "reason"),
    [
        ({}, None),
        (
            {"BAT0": {"type": "Battery", "status": "Discharging"}, "AC": {"type": "Mains", "online": "0"}},
            "on battery",
        ),
        (
            {"BAT0": {"type": "Battery", "status": "Discharging"}, "AC": {"type": "Mains", "online": "1"}},
            None,
        ),
        ({"BAT0": {"type": "Battery", "status": "Charging"}}, None),
        ({"mouse": {"type": "Battery", "status": "Discharging", "scope": "Device"}}, None),
        (
            {"ucsi": {"type": "USB", "online": "1"}, "BAT1": {"type": "Battery", "status": "Discharging"}},
            None,
        ),
    ],
)
def test_linux_tells_by_its_power_supplies(
    supplies: dict[str, dict[str, str]], reason: str | None, tmp_path: Path
) -> None:
    for name, values in supplies.items():
        supply(tmp_path / "class", name, **values)
    assert power.linux_reason(tmp_path / "class") == reason


@pytest.fixture
def crew(settings: Settings, conn: sqlite3.Connection) -> Iterator[Crew]:
    crew = Crew(replace(settings, on_battery="pause"), doing="is tested", watching=True)
    crew.pool.limit = 0
    crew.start()
    crew._power = AtOnce()
    yield crew
    crew.stop()
    crew.close()


class AtOnce(power.Look):
    """Answers each time, without a thread."""

    def told(self) -> power.Told:
        return power.Told(power.reason_to_rest())


def test_asking_never_waits_for_the_answer_and_asks_one_at_a_time() -> None:
    now, asked, answer = 0.0, 0, threading.Event()

    def slow() -> str:
        nonlocal asked
        asked += 1
        assert answer.wait(30)
        return "on battery"

    look = power.Look(slow, monotonic=lambda: now)
    assert look.told() is None
    now += power.LOOK_S * 3
    assert look.told() is None
    assert asked == 1
    answer.set()
    assert look._thread is not None
    look._thread.join(30)
    assert look.told() == power.Told("on battery")
    assert look._thread is not None
    look._thread.join(30)
    assert asked == 2, "the next question is due by now"


def test_reading_rests_and_goes_on_and_status_says_why(crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    reason: str | None = "on battery"
    said: list[str] = []
    crew.say = said.append
    monkeypatch.setattr(power, "reason_to_rest", lambda: reason)
    crew.check_power()
    shown = status.snapshot(crew.conn, now=0.0)
    assert (shown["pause_reason"], shown["pause"][0]["kind"]) == ("on battery", "power")
    crew.check_power()
    reason = None
    crew.check_power()
    assert jobs.paused(crew.conn) == []
    assert said == ["on battery: reading goes on when that is over", "reading goes on"]


def test_who_resumes_by_hand_is_not_overruled(crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(power, "reason_to_rest", lambda: "on battery")
    crew.check_power()
    jobs.resume(crew.conn)
    crew.check_power()
    assert jobs.paused(crew.conn) == []


def test_other_pauses_are_left_alone_and_a_left_over_one_is_lifted(
    settings: Settings, conn: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(power, "reason_to_rest", lambda: pytest.fail("nobody asked"))
    jobs.pause(conn, "by me")
    jobs.pause(conn, "on battery", kind=power.KIND)
    crew = Crew(replace(settings, on_battery="pause"), doing="is tested", watching=False)
    crew.check_power()  # a batch was asked for by name: it runs
    assert [pause.kind for pause in jobs.paused(conn)] == ["user"]
    crew.close()


@pytest.mark.macos
@pytest.mark.skipif(sys.platform != "darwin", reason="needs macOS")
def test_this_mac_answers() -> None:
    assert power.parse_source(power._output(("/usr/bin/pmset", "-g", "batt"))) in (
        "AC Power",
        "Battery Power",
    )
    assert power.thermal_level() in range(5)
    assert power.reason_to_rest() in (None, "on battery", "low power mode", "the computer is too hot")
