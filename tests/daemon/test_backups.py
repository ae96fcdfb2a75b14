"""At the start the database is whole, put right, or refused; while work goes on it is copied once a day."""

from __future__ import annotations

import sqlite3
import time
from dataclasses import replace
from pathlib import Path

import pytest

from daemon import backups, batch
from daemon.backups import Keeper, open_for_work
from daemon.crew import Crew
from daemon.processes import HomeLock
from storage import backup, merging, workers
from storage.database import open_database
from storage.errors import DamagedError, ExitCode
from storage.settings import Settings
from tests.conftest import Clock, spoil

NOW = 1_700_000_000.0


@pytest.fixture
def copied(settings: Settings) -> Settings:
    """A home with a backup that holds "old", and a database that has since got "new"."""
    conn = open_database(settings.database_path)
    workers.put(conn, "old", "1")
    backup.make(settings.database_path, settings.backups_path, NOW, keep=7)
    workers.put(conn, "new", "1")
    conn.close()
    return settings


def opened(settings: Settings) -> tuple[sqlite3.Connection, list[str]]:
    said: list[str] = []
    return open_for_work(settings, say=said.append, now=NOW + 60), said


def test_a_whole_database_is_opened_as_it_is(copied: Settings) -> None:
    conn, said = opened(copied)
    assert workers.get(conn, "new") == "1" and said == []
    conn.close()


@pytest.mark.parametrize("at", [0, 100, 8192])
def test_a_damaged_one_is_replaced_and_that_is_said(at: int, copied: Settings) -> None:
    spoil(copied.database_path, at)
    conn, said = opened(copied)
    assert workers.get(conn, "old") == "1" and workers.get(conn, "new") is None
    [aside] = copied.home.glob("ocrd-damaged-*.db")
    assert len(said) == 1 and str(aside) in said[0] and "the backup of 2023-11-1" in said[0]
    conn.close()


def test_an_empty_file_where_a_library_was_is_damage(copied: Settings) -> None:
    copied.database_path.write_bytes(b"")
    conn, said = opened(copied)
    assert workers.get(conn, "old") == "1" and "it is empty" in said[0]
    conn.close()


def test_without_a_backup_it_is_refused_and_left_alone(settings: Settings) -> None:
    spoil(settings.database_path)
    before = settings.database_path.read_bytes()
    with pytest.raises(DamagedError, match="There is no backup"):
        opened(settings)
    assert settings.database_path.read_bytes() == before


def test_damage_that_only_a_look_finds_is_looked_for_where_it_was_met(
    copied: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backups, "CHECK_BYTES", 0)
    looked: list[Path] = []
    monkeypatch.setattr(backup, "check", lambda path: looked.append(path) or [])
    opened(copied)[0].close()
    assert looked == []
    backup.suspect(copied.database_path)
    opened(copied)[0].close()
    assert looked == [copied.database_path]
    assert not backup.suspect_mark(copied.database_path).exists()


def test_nothing_is_replaced_under_a_process_that_works_on_it(copied: Settings) -> None:
    spoil(copied.database_path)
    with HomeLock(copied.home, "works") as lock:
        lock.acquire(NOW)
        with pytest.raises(DamagedError):
            opened(copied)
    assert list(copied.home.glob("ocrd-damaged-*")) == []


def test_a_batch_goes_on_with_the_backup(copied: Settings, tmp_path: Path, make_png) -> None:  # type: ignore[no-untyped-def]
    spoil(copied.database_path)
    summary = batch.run(copied, [make_png(tmp_path / "in" / "a.png")])
    assert summary.exit_code == ExitCode.OK and summary.counts["done"] == 1
    assert len(list(copied.home.glob("ocrd-damaged-*.db"))) == 1


def finished(keeper: Keeper) -> None:
    deadline = time.monotonic() + 30
    while keeper.is_copying:
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_copy_is_made_once_a_day_and_not_at_once(settings: Settings) -> None:
    clock = Clock(0.0)
    keeper = Keeper(settings, monotonic=clock)
    made = []
    for second in range(0, 3 * 86_400, 1800):
        clock.now = float(second)
        keeper.tick(NOW + second)
        finished(keeper)
        made.append(len(backup.copies(settings.backups_path)))
    assert made[0] == 0 and made[1] == 1 and made[-1] == 3
    keeper.close()


def test_none_are_made_where_none_are_wanted(settings: Settings) -> None:
    clock = Clock(0.0)
    keeper = Keeper(replace(settings, backups=0), monotonic=clock)
    clock.now = 1e6
    keeper.tick(NOW)
    assert not keeper.is_copying and not settings.backups_path.exists()


def test_what_prevents_a_copy_is_noted_until_one_is_made(
    settings: Settings, conn: sqlite3.Connection
) -> None:
    settings.backups_path.write_text("a file, no folder")
    keeper = Keeper(settings)
    assert keeper.copy(NOW) is None
    assert "backups" in (workers.get(conn, "backup_problem") or "")
    settings.backups_path.unlink()
    assert keeper.copy(NOW) is not None
    assert workers.get(conn, "backup_problem") is None
    keeper.close()


def test_a_merge_goes_on_every_second_and_its_end_is_looked_for_now_and_then(
    settings: Settings, conn: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[float] = []
    monkeypatch.setattr(merging, "step", lambda conn: done.append(clock.now) or len(done) < 3)
    clock = Clock(0.0)
    keeper = Keeper(settings, monotonic=clock)
    for second in range(30):
        clock.now = float(second)
        keeper.merge(conn)
    assert done == [0, 1, 2, 12, 22]


def test_no_merge_beside_a_copy(
    settings: Settings, conn: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Keeper, "is_copying", True)
    monkeypatch.setattr(merging, "step", lambda conn: _raise(AssertionError("merged")))
    Keeper(settings).merge(conn)


def test_an_index_that_cannot_be_merged_is_told_and_left_alone_for_a_while(
    settings: Settings,
    conn: sqlite3.Connection,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(merging, "SMALL", 0)  # one that is built anew is whole again
    conn.execute("UPDATE forgotten SET pages = 1000")
    conn.execute("UPDATE pages_fts_data SET block = x'000000008f7f0000' WHERE id = 10")
    clock = Clock(0.0)
    keeper = Keeper(settings, monotonic=clock)
    for second in (0, 60, backups.AGAIN_S):
        clock.now = second
        keeper.merge(conn)
    assert [record.message.split(":")[0] for record in caplog.records] == [
        "the full-text indexes were not merged"
    ] * 2


def test_the_crew_merges_what_is_due(settings: Settings) -> None:
    crew = Crew(settings, doing="is tested", watching=False)
    crew.start()
    crew.pool.limit = 0
    crew.conn.execute("UPDATE forgotten SET pages = 1000")
    now = time.time()
    for second in range(10):
        crew.tick(now + second)
    assert crew.conn.execute("SELECT pages FROM forgotten").fetchone()[0] == 0
    crew.close()


@pytest.mark.parametrize("how", ["a worker", "the supervisor"])
def test_damage_that_is_met_at_work_is_looked_into_at_the_next_start(
    how: str, copied: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    crew = Crew(copied, doing="is tested", watching=False)
    crew.start()
    crew.pool.limit = 0
    if how == "a worker":
        crew.pool.fatal = ExitCode.DATABASE
        crew.tick(time.time())
        assert crew.fatal is not None and crew.fatal.exit_code == ExitCode.DATABASE
    else:
        monkeypatch.setattr(workers, "beat", lambda *values, **more: _raise(DamagedError("malformed")))
        with pytest.raises(DamagedError):
            crew.tick(time.time())
    crew.close()
    assert backup.suspect_mark(copied.database_path).exists()


def _raise(error: Exception) -> None:
    raise error
