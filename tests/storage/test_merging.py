"""The full-text indexes stay about as large as the pages they find, and nobody waits long for that."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

import pytest

from storage import library, merging
from storage.database import open_database
from tests.storage.conftest import Desk

WORDS = [f"{a}{b}{c}" for a in ("ba", "ko", "li") for b in ("ne", "ru", "sta") for c in "bdfgklmnprst"]


def text(number: int) -> str:
    """A page that only `number` has: 300 words, and some without spaces."""
    drawn = random.Random(number)
    return f"page{number} " + " ".join(drawn.choices(WORDS, k=300)) + " 東京都" * (number % 3)


class Churn:
    """A folder of always as many files: one comes, one is deleted and forgotten."""

    def __init__(self, desk: Desk, files: int = 40) -> None:
        self.desk = desk
        self.random = random.Random(1)
        self.files: list[int] = []
        self.number = 0
        for _ in range(files):
            self.add()

    def add(self) -> None:
        self.number += 1
        self.files.append(self.number)
        self.desk.put(self.path(self.number), f"content {self.number}")
        self.desk.read_all(text(self.number))

    def replace(self, count: int = 1) -> None:
        for _ in range(count):
            gone = self.files.pop(self.random.randrange(len(self.files)))
            library.forget(self.desk.conn, [self.path(gone).encode()])
            self.add()

    @staticmethod
    def path(number: int) -> str:
        return f"/in/{number}.pdf"


@pytest.fixture
def churn(desk: Desk) -> Churn:
    return Churn(desk)


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Indexes of any size are merged in pieces, small ones."""
    monkeypatch.setattr(merging, "SMALL", 0)
    monkeypatch.setattr(merging, "LEAVES", 4)


def index_bytes(conn: sqlite3.Connection) -> int:
    """What the full-text indexes take."""
    return sum(
        conn.execute(f"SELECT total(length(block)) FROM {index}_data").fetchone()[0]
        for index in merging.INDEXES
    )


def file_bytes(conn: sqlite3.Connection) -> int:
    return int(conn.execute("PRAGMA page_count").fetchone()[0]) * 4096


def merge_all(conn: sqlite3.Connection) -> int:
    """Merge until nothing is left to do; in how many pieces."""
    pieces = 1
    while merging.step(conn):
        pieces += 1
    return pieces


@pytest.mark.parametrize("size", ["small", "large"])
def test_indexes_and_file_stay_as_large_however_many_pages_come_and_go(
    size: str, desk: Desk, churn: Churn, request: pytest.FixtureRequest
) -> None:
    if size == "large":
        request.getfixturevalue("large")
    fresh = index_bytes(desk.conn)
    largest, files = 0, []
    for _ in range(400):
        churn.replace()
        merging.step(desk.conn)
        largest = max(largest, index_bytes(desk.conn))
        files.append(file_bytes(desk.conn))
    assert largest < 3 * fresh
    assert files[-1] <= 1.1 * files[100]
    desk.check()
    assert len(desk.found("page*")) == 40 and len(desk.found(f"page{churn.number}")) == 1


def test_nothing_is_done_while_little_is_gone(desk: Desk, churn: Churn) -> None:
    churn.replace(merging.FEWEST - 1)
    before = desk.conn.total_changes
    assert merge_all(desk.conn) == 1
    assert desk.conn.total_changes == before


def test_a_page_read_again_leaves_its_old_words_behind_like_a_forgotten_one(desk: Desk, churn: Churn) -> None:
    rows = [row[0] for row in desk.conn.execute("SELECT id FROM pages")]
    for number in range(100):
        desk.conn.execute("UPDATE pages SET text = ? WHERE id = ?", (text(1000 + number), rows[number % 40]))
    grown = index_bytes(desk.conn)
    merge_all(desk.conn)
    assert index_bytes(desk.conn) < 0.6 * grown
    desk.check()


@pytest.mark.usefixtures("large")
def test_pages_are_saved_and_found_between_the_pieces_of_a_merge(desk: Desk, churn: Churn) -> None:
    churn.replace(200)
    pieces = 1
    while merging.step(desk.conn):
        churn.replace()
        assert len(desk.found(f"page{churn.number}")) == 1
        assert len(desk.found("page*")) == 40
        pieces += 1
    assert pieces > 3
    desk.check()
    assert desk.one("SELECT pages FROM forgotten") == pieces - 1, "those of meanwhile still count"


@pytest.mark.usefixtures("large")
def test_a_merge_broken_off_goes_on_where_it_was(desk: Desk, churn: Churn, database_path: Path) -> None:
    churn.replace(200)
    grown = index_bytes(desk.conn)
    assert merging.step(desk.conn)
    other = open_database(database_path)
    assert merge_all(other) > 2
    assert merging.step(other) is False
    assert other.execute("SELECT pages, merging FROM forgotten").fetchone()[:] == (0, 0)
    assert index_bytes(other) < 0.5 * grown
    other.close()
    desk.check()


@pytest.mark.usefixtures("large")
def test_the_fewer_pages_are_left_the_smaller_the_pieces(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "LEAVES", 6)  # more than is left: by that number it would be one piece
    churn = Churn(desk, files=120)
    library.forget(desk.conn, [churn.path(number).encode() for number in churn.files[20:]])
    grown = index_bytes(desk.conn)
    assert merge_all(desk.conn) > 3
    assert index_bytes(desk.conn) < 0.25 * grown
    desk.check()


@pytest.mark.usefixtures("large")
def test_levels_that_old_versions_of_sqlite_add_do_not_add_up(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "FEWEST", 5)
    monkeypatch.setattr(merging, "LEVELS", 8)
    churn = Churn(desk, files=6)
    for _ in range(20):
        churn.replace(5)
        merge_all(desk.conn)
        assert desk.one("SELECT pages FROM forgotten") == 0
    assert all(merging._levels(desk.conn, index) < 12 for index in merging.INDEXES)
    desk.check()


def test_the_indexes_of_an_older_database_are_merged_once(tmp_path: Path) -> None:
    from sqlite_utils import Database

    from storage.migrations import migrations

    path = tmp_path / "ocrd.db"
    with sqlite3.connect(path) as conn:
        conn.execute("PRAGMA synchronous = OFF")
        migrations.apply(Database(conn), stop_before="forgotten")
        conn.execute(
            "INSERT INTO documents (id, sha256, size, state, pages, pages_done, added_at)"
            " VALUES (1, 'aa', 1, 'done', 70, 70, 0)"
        )
        for number in range(210):
            page = number % 70 + 1
            conn.execute("DELETE FROM pages WHERE page = ?", (page,))
            conn.execute(
                "INSERT INTO pages (document_id, page, text, markdown, source, layer, stop_reason, width_pt,"
                " height_pt, read_at) VALUES (1, ?, ?, '', 'engine', 'absent', 'complete', 1, 1, 0)",
                (page, text(number)),
            )
            conn.commit()
    conn.close()
    conn = open_database(path)
    grown = index_bytes(conn)
    merge_all(conn)
    assert index_bytes(conn) < 0.7 * grown
    assert conn.execute("SELECT count(*) FROM pages_fts WHERE pages_fts MATCH 'page209'").fetchone()[0] == 1
    conn.close()
