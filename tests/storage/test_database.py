from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from storage.database import STEPS, open_database, open_readonly, transaction
from storage.errors import AccessError, DatabaseError, DiskFullError, StorageError
from storage.records import PageReading
from storage.results import load_page


def test_steps_are_those_of_the_migrations() -> None:
    from storage.migrations import migrations

    assert tuple(step.name for step in migrations._migrations) == STEPS


def test_new_database_is_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        conn = open_database(tmp_path / "new" / "home" / "ocrd.db")
    finally:
        os.umask(before)
    home = tmp_path / "new" / "home"
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert {name.name for name in home.iterdir()} >= {"ocrd.db", "ocrd.db-wal", "ocrd.db-shm"}
    assert {stat.S_IMODE(file.stat().st_mode) for file in home.iterdir()} == {0o600}
    conn.close()


def test_connection_is_set_up(database_path: Path) -> None:
    conn = open_database(database_path)
    settings = {
        name: conn.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
    }
    assert settings == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 30_000}
    assert conn.isolation_level is None
    conn.close()


def test_opening_again_imports_nothing_heavy(database_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from storage.database import open_database, open_readonly;"
        "open_database(Path(sys.argv[1])); open_readonly(Path(sys.argv[1]));"
        "import storage.jobs, storage.library, storage.results, storage.status;"
        "print([name for name in ('sqlite_utils', 'pandas', 'numpy', 'PIL') if name in sys.modules])"
    )
    run = subprocess.run(
        [sys.executable, "-c", script, database_path], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "[]"


def test_making_a_database_leaves_pandas_out_and_for_others_to_import(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from storage.database import open_database;"
        "open_database(Path(sys.argv[1]));"
        "print([name for name in ('sqlite_utils', 'pandas') if name in sys.modules])"
    )
    command = [sys.executable, "-c", script, tmp_path / "ocrd.db"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "['sqlite_utils']"


def test_opened_at_once_by_several_it_is_migrated_once(tmp_path: Path) -> None:
    def count(_: int) -> int:
        conn = open_database(tmp_path / "ocrd.db")
        steps = conn.execute("SELECT count(*) FROM _sqlite_migrations").fetchone()[0]
        conn.close()
        return int(steps)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(count, range(4))) == [len(STEPS)] * 4


@pytest.mark.parametrize("name", ["a b#c?d%20.db", "Übergröße é.db"])
def test_any_path_can_be_opened(tmp_path: Path, empty_database: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(empty_database.read_bytes())
    open_database(path).close()
    open_readonly(path).close()
    assert {file.name.removesuffix("-wal").removesuffix("-shm") for file in tmp_path.iterdir()} == {name}


def test_bytes_that_are_no_utf8_are_a_path_too(tmp_path: Path, empty_database: Path) -> None:
    path = tmp_path / os.fsdecode(b"caf\xe9.db")
    try:
        path.write_bytes(empty_database.read_bytes())
    except OSError:
        pytest.skip("this file system takes only UTF-8 names")
    open_database(path).close()
    open_readonly(path).close()


def older(path: Path) -> None:
    """A database at `path` of before the full-text step, with content."""
    from sqlite_utils import Database

    from storage.migrations import migrations

    with sqlite3.connect(path) as conn:
        migrations.apply(Database(conn), stop_before="full_text")
        conn.execute("INSERT INTO control VALUES ('key', 'kept')")
    conn.close()


def test_older_database_is_copied_then_migrated(tmp_path: Path) -> None:
    path = tmp_path / "ocrd.db"
    older(path)
    conn = open_database(path)
    assert conn.execute("SELECT value FROM control").fetchone()[0] == "kept"
    assert conn.execute("SELECT count(*) FROM pages_fts").fetchone()[0] == 0
    conn.close()
    copy = tmp_path / "ocrd-before-full_text.db"
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    kept = sqlite3.connect(copy)
    assert kept.execute("SELECT value FROM control").fetchone()[0] == "kept"
    assert kept.execute("SELECT count(*) FROM sqlite_master WHERE name = 'pages_fts'").fetchone()[0] == 0
    kept.close()


def test_pages_read_before_attempts_were_kept_have_none(tmp_path: Path) -> None:
    from sqlite_utils import Database

    from storage.migrations import migrations

    path = tmp_path / "ocrd.db"
    with sqlite3.connect(path) as conn:
        migrations.apply(Database(conn), stop_before="attempts")
        conn.execute(
            "INSERT INTO documents (id, sha256, size, state, added_at) VALUES (1, 'aa', 1, 'done', 0)"
        )
        conn.execute(
            "INSERT INTO pages (document_id, page, text, markdown, source, layer, stop_reason, width_pt, height_pt,"
            " read_at) VALUES (1, 1, 'old words', 'old words', 'engine', 'absent', 'complete', 1, 1, 0)"
        )
    conn.close()
    conn = open_database(path)
    page = load_page(conn, 1, 1)
    assert isinstance(page, PageReading)
    assert page.attempts == ()
    assert conn.execute("SELECT count(*) FROM pages_fts WHERE pages_fts MATCH 'old'").fetchone()[0] == 1
    conn.close()


def test_names_of_files_known_before_are_folded_too(tmp_path: Path) -> None:
    from sqlite_utils import Database

    from storage.migrations import migrations

    path = tmp_path / "ocrd.db"
    with sqlite3.connect(path) as conn:
        migrations.apply(Database(conn), stop_before="folded_names")
        conn.execute(
            "INSERT INTO files (path, path_bytes, name_key, size, mtime_ns, state, first_seen, last_seen)"
            " VALUES ('/a/Über.pdf', ?, 'über.pdf', 1, 1, 'intake', 0, 0)",
            ("/a/Über.pdf".encode(),),
        )
    conn.close()
    conn = open_database(path)
    assert [row[0] for row in conn.execute("SELECT name_key FROM files")] == ["uber.pdf"]
    conn.close()


def test_pages_known_before_they_could_be_filtered_by_are_filtered(tmp_path: Path) -> None:
    from sqlite_utils import Database

    from storage.index import search
    from storage.migrations import migrations

    path = tmp_path / "ocrd.db"
    with sqlite3.connect(path) as conn:
        migrations.apply(Database(conn), stop_before="filtering")
        conn.execute(
            "INSERT INTO documents (sha256, size, state, pages, added_at) VALUES ('x', 1, 'done', 2, 5)"
        )
        conn.execute(
            "INSERT INTO files (path, path_bytes, name_key, size, mtime_ns, document_id, state, first_seen, last_seen)"
            " VALUES ('/a/x.pdf', ?, 'x.pdf', 1, 1, 1, 'linked', 1, 1)",
            (b"/a/x.pdf",),
        )
        conn.executemany(
            "INSERT INTO pages (document_id, page, text, markdown, source, engine, layer, stop_reason, width_pt,"
            " height_pt, read_at) VALUES (1, ?, 'old words', '', ?, ?, 'absent', 'complete', 1, 1, 0)",
            [(1, "engine", "vlm"), (2, "text-layer", None)],
        )
    conn.close()
    conn = open_database(path)
    assert [hit.page for hit in search(conn, "words", engine="vlm", since=4.0)] == [1]
    assert [hit.page for hit in search(conn, "words", engine="text-layer", since=4.0)] == [2]
    assert search(conn, "words", since=6.0) == []
    conn.close()


def test_older_database_is_not_read_halfway(tmp_path: Path) -> None:
    path = tmp_path / "ocrd.db"
    older(path)
    with pytest.raises(DatabaseError, match="older") as caught:
        open_readonly(path)
    assert "ocrd" in caught.value.remedy


@pytest.mark.parametrize("opener", [open_database, open_readonly])
def test_newer_database_is_refused_and_left_alone(database_path: Path, opener: object) -> None:
    with sqlite3.connect(database_path) as conn:
        conn.execute(
            "INSERT INTO _sqlite_migrations (migration_set, name, applied_at) VALUES ('ocrd', 'from_the_future', '')"
        )
    conn.close()
    with pytest.raises(DatabaseError, match=r"newer ocrd.*from_the_future") as caught:
        opener(database_path)  # type: ignore[operator]
    assert "newer" in caught.value.remedy


@pytest.mark.parametrize("opener", [open_database, open_readonly])
def test_damaged_database_says_so(tmp_path: Path, opener: object) -> None:
    path = tmp_path / "ocrd.db"
    path.write_bytes(b"this is no database at all, but long enough to be one" * 100)
    with pytest.raises(DatabaseError, match="not a database") as caught:
        opener(path)  # type: ignore[operator]
    assert "backup" in caught.value.remedy
    assert caught.value.file == path


def test_truncated_database_says_so(database_path: Path) -> None:
    data = database_path.read_bytes()
    database_path.write_bytes(data[: len(data) // 3])
    with pytest.raises(DatabaseError, match="malformed"):
        open_database(database_path)


@pytest.mark.parametrize("opener", [open_database, open_readonly])
def test_foreign_database_is_refused_and_left_alone(tmp_path: Path, opener: object) -> None:
    path = tmp_path / "ocrd.db"
    with sqlite3.connect(path) as conn:
        conn.execute("CREATE TABLE recipes (id INTEGER)")
    conn.close()
    before = path.read_bytes()
    with pytest.raises(DatabaseError, match="no database of ocrd"):
        opener(path)  # type: ignore[operator]
    assert path.read_bytes() == before


def test_empty_file_is_a_new_database(tmp_path: Path) -> None:
    path = tmp_path / "ocrd.db"
    path.touch()
    conn = open_database(path)
    assert conn.execute("SELECT count(*) FROM files").fetchone()[0] == 0
    conn.close()


def test_reading_creates_nothing(tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match="no database yet") as caught:
        open_readonly(tmp_path / "home" / "ocrd.db")
    assert "ocrd" in caught.value.remedy
    assert list(tmp_path.iterdir()) == []


def test_readonly_connection_cannot_write(database_path: Path) -> None:
    conn = open_readonly(database_path)
    with pytest.raises(AccessError, match="readonly"), transaction(conn):
        conn.execute("INSERT INTO control VALUES ('a', 'b')")
    conn.close()


def test_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"Not a directory|File exists"):
        open_database(tmp_path / "file" / "home" / "ocrd.db")


def test_transaction_is_all_or_nothing(fresh_db: sqlite3.Connection) -> None:
    with pytest.raises(ZeroDivisionError), transaction(fresh_db):
        fresh_db.execute("INSERT INTO control VALUES ('a', 'b')")
        _ = 1 / 0
    assert not fresh_db.in_transaction
    assert fresh_db.execute("SELECT count(*) FROM control").fetchone()[0] == 0
    with transaction(fresh_db):
        fresh_db.execute("INSERT INTO control VALUES ('a', 'b')")
    assert fresh_db.execute("SELECT count(*) FROM control").fetchone()[0] == 1


def test_transactions_do_not_nest(fresh_db: sqlite3.Connection) -> None:
    with transaction(fresh_db), pytest.raises(RuntimeError, match="open already"), transaction(fresh_db):
        pass


def test_full_disk_is_told_and_undone(fresh_db: sqlite3.Connection) -> None:
    pages = fresh_db.execute("PRAGMA page_count").fetchone()[0]
    fresh_db.execute(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(DiskFullError), transaction(fresh_db):
        for number in range(1000):
            fresh_db.execute("INSERT INTO control VALUES (?, ?)", (str(number), "x" * 1000))
    assert not fresh_db.in_transaction
    assert fresh_db.execute("SELECT count(*) FROM control").fetchone()[0] == 0


def test_second_connection_of_a_process_keeps_the_locks_of_the_first(database_path: Path) -> None:
    # https://www.sqlite.org/howtocorrupt.html, 2.2: otherwise the next process to leave deletes the log we write to.
    first, second = open_database(database_path), open_database(database_path)
    first.execute("INSERT INTO control VALUES ('a', '1')")
    wal = database_path.with_name(database_path.name + "-wal")
    before = wal.stat().st_ino
    other = (
        "import sys, pathlib; from storage.database import open_database; c = open_database(pathlib.Path(sys.argv[1]));"
        " c.execute(\"INSERT INTO control VALUES ('b', '2')\"); c.close()"
    )
    subprocess.run([sys.executable, "-c", other, database_path], check=True)
    assert wal.stat().st_ino == before
    second.execute("INSERT INTO control VALUES ('c', '3')")
    count = (
        "import sqlite3, sys; print(*sqlite3.connect(sys.argv[1]).execute('SELECT count(*) FROM control'))"
    )
    seen = subprocess.run(
        [sys.executable, "-c", count, database_path], check=True, capture_output=True, text=True
    )
    assert seen.stdout.strip() == "(3,)"
    first.close()
    second.close()
