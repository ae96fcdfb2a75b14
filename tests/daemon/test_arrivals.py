"""Files that nothing is read for are told of: once, and only those."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from daemon import arrivals
from daemon.arrivals import Arrivals
from storage import jobs
from storage.errors import NotADocumentError, StorageError
from tests.storage.conftest import Desk, sha


class Folder(Desk):
    """A desk in front of a folder: files lie there, so that one of the same content is a copy and no file moved."""

    def __init__(self, conn: sqlite3.Connection, path: Path) -> None:
        super().__init__(conn)
        self.path = path
        self.arrived = Arrivals(conn)

    def drop(self, *names: str) -> list[str]:
        for name in names:
            (self.path / name).touch()
        paths = [str(self.path / name) for name in names]
        self.see(*paths)
        return paths

    def take(self, name: str, content: str) -> None:
        (self.path / name).touch()
        self.put(str(self.path / name), content)

    def lines(self) -> list[str]:
        """What is told now, with names for paths."""
        return [told.line.replace(f"{self.path}/", "") for told in self.arrived.news()]

    def letter(self) -> None:
        """`letter.pdf` was read before we began to watch."""
        self.take("letter.pdf", "A")
        self.finish()
        self.arrived = Arrivals(self.conn)
        self.now += 60


@pytest.fixture
def folder(conn: sqlite3.Connection, tmp_path: Path) -> Folder:
    return Folder(conn, tmp_path)


def test_a_copy_of_what_was_read_is_told_once(folder: Folder) -> None:
    folder.letter()
    folder.take("copy.pdf", "A")
    folder.take("new.pdf", "B")
    assert folder.lines() == ["read before: copy.pdf, the same as letter.pdf"]
    folder.finish()
    assert folder.lines() == []


def test_a_copy_that_comes_with_its_original_is_told(folder: Folder) -> None:
    folder.drop("a.pdf", "b.pdf")
    for job in folder.intake():
        folder.link(job, "A")
    assert folder.lines() == ["being read: b.pdf, the same as a.pdf"]


def test_a_file_that_was_moved_is_told(folder: Folder) -> None:
    folder.letter()
    (folder.path / "letter.pdf").unlink()
    folder.take("renamed.pdf", "A")
    assert folder.lines() == ["read before: renamed.pdf"]


def test_none_is_told_before_it_is_taken_in_nor_left_out_when_it_was_put_off(folder: Folder) -> None:
    folder.letter()
    folder.drop("1.pdf", "2.pdf", "3.pdf")
    assert folder.lines() == []
    first, second, third = folder.intake()
    folder.link(third, "A")
    assert folder.lines() == [], "the first ones are in a worker's hands"
    jobs.defer(folder.conn, "w", first, StorageError("it may still grow"), folder.now, 5.0)
    folder.link(second, "A")
    assert [line.partition(",")[0] for line in folder.lines()] == ["read before: 2.pdf", "read before: 3.pdf"]
    folder.now += 60
    [again] = folder.intake()
    folder.link(again, "A")
    assert [line.partition(",")[0] for line in folder.lines()] == ["read before: 1.pdf"]


def test_a_flood_is_told_bit_by_bit(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "AT_ONCE", 2)
    folder.letter()
    for number in range(5):
        folder.take(f"{number}.pdf", "A")
    assert [len(folder.lines()) for _ in range(4)] == [2, 2, 1, 0]


def test_what_cannot_be_taken_in_is_told(folder: Folder) -> None:
    folder.drop("pipe.pdf")
    [job] = folder.intake()
    jobs.fail_intake(folder.conn, "w", job, NotADocumentError("this is no regular file"), folder.now)
    [told] = folder.arrived.news()
    assert told.line == f"not read: {folder.path / 'pipe.pdf'}: this is no regular file" and told.failed


def test_a_copy_of_what_could_not_be_read_says_why(folder: Folder) -> None:
    folder.letter()
    folder.conn.execute(
        "UPDATE documents SET state = 'failed', error_message = 'no' WHERE sha256 = ?", (sha("A"),)
    )
    folder.take("copy.pdf", "A")
    assert folder.lines() == ["not read: copy.pdf, the same as letter.pdf: no"]
