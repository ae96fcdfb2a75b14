"""A copy holds what the database held; a damaged database is replaced by one, and nothing is deleted."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from storage import backup
from storage.database import open_database, open_readonly
from storage.errors import DamagedError, DiskFullError, StorageError
from tests.conftest import spoil

DAY = 86_400.0
NOW = 1_700_000_000.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "home" / "backups"


def put(path: Path, *names: str) -> None:
    conn = open_database(path)
    for name in names:
        conn.execute("INSERT INTO control (key, value) VALUES (?, '')", (name,))
    conn.close()


def held(path: Path) -> list[str]:
    conn = open_readonly(path)
    try:
        return [row[0] for row in conn.execute("SELECT key FROM control ORDER BY key")]
    finally:
        conn.close()


def test_a_copy_is_of_one_moment_while_others_write(database_path: Path, folder: Path) -> None:
    writer = open_database(database_path)
    writer.execute("INSERT INTO control (key, value) VALUES ('committed', '')")
    writer.execute("BEGIN IMMEDIATE")
    writer.execute("INSERT INTO control (key, value) VALUES ('not yet', '')")
    made = backup.make(database_path, folder, NOW, keep=7)
    writer.execute("COMMIT")
    writer.close()
    assert held(made) == ["committed"]
    assert backup.taken_at(made) == NOW and backup.check(made) == []
    assert made.stat().st_mode & 0o777 == 0o600 and folder.stat().st_mode & 0o777 == 0o700


def test_the_latest_are_kept(database_path: Path, folder: Path) -> None:
    assert backup.is_due(folder, NOW)
    for day in range(9):
        backup.make(database_path, folder, NOW + day * DAY, keep=7)
    assert [backup.taken_at(copy) for copy in backup.copies(folder)] == [
        NOW + n * DAY for n in range(8, 1, -1)
    ]
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize(("later_s", "due"), [(DAY - 1, False), (DAY, True), (-1, True), (0, False)])
def test_due_daily_whatever_the_clock_did(
    later_s: float, due: bool, database_path: Path, folder: Path
) -> None:
    backup.make(database_path, folder, NOW, keep=7)
    assert backup.is_due(folder, NOW + later_s) is due


def test_no_copy_is_begun_without_space(database_path: Path, folder: Path) -> None:
    with pytest.raises(DiskFullError, match="MiB are needed, 1 MiB are free"):
        backup.make(database_path, folder, NOW, keep=7, free_bytes=lambda path: 1 << 20)
    assert list(folder.iterdir()) == []


def test_a_copy_that_is_broken_off_leaves_nothing(database_path: Path, folder: Path) -> None:
    with pytest.raises(sqlite3.OperationalError):
        backup.make(
            database_path, folder, NOW, keep=7, connected=lambda conn: conn.set_progress_handler(lambda: 1, 1)
        )
    assert list(folder.iterdir()) == []


def test_a_damaged_database_makes_no_copy(database_path: Path, folder: Path) -> None:
    good = backup.make(database_path, folder, NOW, keep=1)
    spoil(database_path, 4096)
    with pytest.raises(DamagedError):
        backup.make(database_path, folder, NOW + DAY, keep=1)
    assert backup.copies(folder) == [good]


def test_a_damaged_database_is_moved_aside_with_its_log(database_path: Path, folder: Path) -> None:
    put(database_path, "old")
    backup.make(database_path, folder, NOW, keep=7)
    put(database_path, "new")
    spoil(database_path)
    damaged = database_path.read_bytes()
    log_file = database_path.with_name("ocrd.db-wal")
    log_file.write_bytes(b"a log")
    assert backup.check(database_path)
    found = backup.restore(database_path, folder, NOW + 60, why="a test")
    assert held(database_path) == ["old"]
    assert found.aside.read_bytes() == damaged and found.taken_at == NOW
    assert found.aside.with_name(found.aside.name + "-wal").read_bytes() == b"a log"
    assert not list(database_path.parent.glob("*.restor*"))


def test_a_copy_that_is_itself_damaged_is_passed_over(database_path: Path, folder: Path) -> None:
    put(database_path, "old")
    first = backup.make(database_path, folder, NOW, keep=7)
    spoil(backup.make(database_path, folder, NOW + DAY, keep=7))
    spoil(database_path)
    assert backup.restore(database_path, folder, NOW + 2 * DAY, why="a test").copy == first
    spoil(first)
    spoil(database_path)
    with pytest.raises(DamagedError, match="There is no backup"):
        backup.restore(database_path, folder, NOW + 3 * DAY, why="a test")
    assert database_path.exists()


@pytest.mark.parametrize("crash_at", range(1, 8))
def test_a_crash_while_restoring_never_ends_in_an_empty_library(
    crash_at: int, database_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The power fails before the n-th change of the folder; the next start goes on from what is there."""
    put(database_path, "old")
    backup.make(database_path, folder, NOW, keep=7)
    spoil(database_path)
    for companion in ("-wal", "-shm"):
        database_path.with_name(database_path.name + companion).write_bytes(b"of the damaged one")
    changes = 0
    before = {name: getattr(Path, name) for name in ("rename", "replace", "unlink")}

    def counting(name: str):  # type: ignore[no-untyped-def]
        def change(self: Path, *arguments: object, **options: object) -> object:
            nonlocal changes
            changes += 1
            if changes == crash_at:
                raise KeyboardInterrupt
            return before[name](self, *arguments, **options)

        return change

    with monkeypatch.context() as patch:
        for name in before:
            patch.setattr(Path, name, counting(name))
        with pytest.raises(KeyboardInterrupt):
            backup.restore(database_path, folder, NOW + 60, why="a test")
            raise KeyboardInterrupt  # fewer changes than that: nothing was interrupted
    if not backup.finish_restore(database_path, NOW + 120) and backup.check(database_path):
        backup.restore(database_path, folder, NOW + 120, why="a test")
    assert held(database_path) == ["old"]
    assert len(list(database_path.parent.glob("ocrd-damaged-*.db"))) == 1
    assert not list(database_path.parent.glob("*.restor*"))


def test_errors_of_the_file_system_are_ours(database_path: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError):
        backup.make(database_path, tmp_path / "file", NOW, keep=7)
    with pytest.raises(ValueError, match="not named"):
        backup.taken_at(tmp_path / "other.db")
    assert not backup.is_damage(OSError()) and backup.is_damage(DamagedError("x"))
    backup.suspect(tmp_path / "none" / "ocrd.db")  # no folder: nothing to mark, no failure
    assert not (tmp_path / "none").exists()
