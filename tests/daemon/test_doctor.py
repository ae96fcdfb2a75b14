"""Each fault is found, and told with what to do about it; a whole installation has none."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import time
from collections import namedtuple
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from daemon import doctor, home_checks, setup_checks
from daemon.cli import app
from daemon.diagnosis import Level, Result
from storage import backup, library, workers
from storage.control import LOW_BYTES
from storage.errors import StorageError
from storage.settings import Settings


def told(results: Iterable[Result], level: Level = Level.FAULT) -> str:
    """The checks that ended so, with message and remedy; every one that is not well has a remedy."""
    found = list(results)
    assert all(result.remedy for result in found if result.level is not Level.OK)
    return "\n".join(f"{r.check}: {r.message}. {r.remedy}" for r in found if r.level is level)


def test_a_whole_installation_has_no_fault(
    settings: Settings, conn: sqlite3.Connection, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    library.add_root(conn, os.fsencode(tmp_path / "in"), now=0.0)
    backup.make(settings.database_path, settings.backups_path, time.time(), keep=7)
    results = list(doctor.examine(settings))
    assert told(results) == ""
    assert {result.check for result in results} >= {
        "versions",
        "sqlite",
        "engine",
        "home",
        "folders",
        "disk",
        "clock",
    }
    assert "backups: 1 kept" in told(results, Level.OK)
    assert [path.name for path in settings.home.iterdir() if path.name.startswith(".")] == []


def test_a_check_that_breaks_does_not_end_the_others(settings: Settings) -> None:
    def ours(settings: Settings) -> list[Result]:
        raise StorageError("it broke", file="/x")

    def other(settings: Settings) -> list[Result]:
        raise RuntimeError("a bug")

    found = list(
        doctor.examine(settings, {"a": ours, "b": other, "c": lambda settings: [Result("c", Level.OK, "")]})
    )
    assert [(result.check, result.level) for result in found] == [("a", "fault"), ("b", "fault"), ("c", "ok")]
    assert "/x: it broke" in told(found) and "RuntimeError: a bug" in told(found)


def test_engines_and_their_data(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pipeline.engines import registry

    missing = doctor.examine(replace(settings, engine="tesseract", languages=("eng", "qqq")))
    assert "no language data for qqq" in told(missing)
    model = doctor.examine(replace(settings, engine="vlm", model=str(tmp_path / "none")))
    assert "there is no such model folder" in told(model)
    monkeypatch.setattr(registry, "installed", lambda name: name != "rapidocr")
    results = list(setup_checks.engine(replace(settings, engine="classic")))
    assert "RapidOCR is missing" in told(results, Level.WARNING)
    monkeypatch.setattr(registry, "installed", lambda name: False)
    assert "not installed" in told(setup_checks.engine(replace(settings, engine="classic")))


@pytest.mark.parametrize(
    ("code", "level", "words"),
    [
        ("print('Device(gpu, 0)')", Level.OK, "MLX computes on Device(gpu, 0)"),
        ("raise ImportError('no libmlx')", Level.FAULT, "no libmlx"),
        ("import os; os.abort()", Level.FAULT, "exit status -6"),
    ],
)
def test_a_driver_that_aborts_is_told_not_caught(code: str, level: Level, words: str) -> None:
    result = setup_checks.mlx_device(code)
    assert result.level is level and words in result.message


@pytest.mark.parametrize("number", [(3, 34, 1), (3, 45, 0)])
def test_an_old_sqlite_is_told(number: tuple[int, ...]) -> None:
    assert ("too old" in told(setup_checks._sqlite_version(number))) is (number < setup_checks.LEAST_SQLITE)


def test_a_home_that_others_may_look_into(settings: Settings) -> None:
    settings.home.chmod(0o755)
    settings.database_path.chmod(0o644)
    warnings = told(home_checks.permissions(settings), Level.WARNING)
    assert f"chmod 700 '{settings.home}'" in warnings and f"chmod 600 '{settings.database_path}'" in warnings


def test_folders_that_are_away(settings: Settings, conn: sqlite3.Connection, tmp_path: Path) -> None:
    library.add_root(conn, os.fsencode(tmp_path / "gone"), now=0.0)
    assert "no such folder" in told(home_checks.permissions(settings))


@pytest.mark.parametrize(
    ("free", "level"),
    [
        (LOW_BYTES - 1, Level.FAULT),  # reading pauses
        (LOW_BYTES, Level.WARNING),
        (1 << 30, Level.WARNING),
        (1 << 40, Level.OK),
    ],
)
def test_space(free: int, level: Level, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(home_checks.shutil, "disk_usage", lambda path: usage(free))
    assert {result.level for result in home_checks.disk(settings)} == {level}


def test_more_folders_than_the_system_watches(
    settings: Settings, conn: sqlite3.Connection, tmp_path: Path
) -> None:
    for number in range(20):
        (tmp_path / "in" / str(number)).mkdir(parents=True)
    library.add_root(conn, os.fsencode(tmp_path / "in"), now=0.0)
    (tmp_path / "limit").write_text("10\n")
    assert "sysctl" in told(home_checks.inotify(settings, tmp_path / "limit"), Level.WARNING)
    (tmp_path / "limit").write_text("1000\n")
    assert "there are 21" in told(home_checks.inotify(settings, tmp_path / "limit"), Level.OK)
    assert list(home_checks.inotify(settings, tmp_path / "none")) == []


def test_clocks_that_are_wrong_are_told_in_any_time_zone(
    settings: Settings, conn: sqlite3.Connection
) -> None:
    assert "1970" in told(home_checks.clock(settings, 86_400.0))
    now = time.time()
    conn.execute("INSERT INTO documents (id, sha256, size, state, added_at) VALUES (1, 'x', 1, 'done', 0)")
    conn.execute("INSERT INTO page_jobs (document_id, page, finished_at) VALUES (1, 1, ?)", (now + 3600,))
    assert "went back by 1 h" in told(home_checks.clock(settings, now), Level.WARNING)


def test_a_damaged_database_and_its_remedy(settings: Settings, conn: sqlite3.Connection) -> None:
    workers.put(conn, "backup_problem", "no space")
    assert "no space" in told(home_checks.database(settings), Level.WARNING)
    conn.close()
    with settings.database_path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xa5" * 4000)
    assert "there is no backup" in told(home_checks.database(settings))


def test_the_command_says_it_and_its_status_tells(
    settings: Settings, conn: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OCRD_ENGINE", "fake")
    words = ["doctor", "--home", str(settings.home)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0 and "ok      database: whole" in result.stdout
    monkeypatch.setenv("OCRD_ENGINE", "tesseract")
    monkeypatch.setenv("OCRD_LANGUAGES", "qqq")
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 1 and "FAULT   engine: Tesseract has no language data" in result.stdout
    found = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert [row["check"] for row in found if row["level"] == "fault"] == ["engine"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="writes a unit of systemd")
def test_a_service_of_another_installation(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from daemon import service

    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    assert list(home_checks.service(settings)) == []
    unit = service.manager("systemd", service.make_plan(settings.home, []))
    service.write_file(unit.path, unit.render(), 0o644)
    assert "runs this ocrd" in told(home_checks.service(settings), Level.OK)
    unit.path.write_text(unit.render().replace(sys.executable, "/old/python"))
    assert "another ocrd" in told(home_checks.service(settings), Level.WARNING)
