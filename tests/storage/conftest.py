"""Drives the library as scanner and workers do, with made-up content, so that a test says only what it is about."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterable

import pytest

from storage import jobs, library, results
from storage.records import Block, Category, DocumentInfo, Line, PageReading, StopReason, Word
from storage.work import IntakeJob, PageJob

LEASE_S = 60.0


def sha(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()


def reading(page: int, text: str = "words", *, blank: bool = False, **fields: object) -> PageReading:
    line = Line(text, (1.0, 2.0, 30.25, 12.5), (Word(text, (1.0, 2.0, 30.25, 12.5), 0.9),), 10.0)
    blocks = () if blank else (Block(Category.TEXT, (1.0, 2.0, 30.25, 12.5), text, text, lines=(line,)),)
    return PageReading(
        page=page,
        width_pt=595.0,
        height_pt=842.0,
        blocks=blocks,
        text="" if blank else text,
        markdown="" if blank else text,
        stop_reason=StopReason.BLANK if blank else StopReason.COMPLETE,
        source="blank" if blank else "engine",
        engine=None if blank else "fake",
        **fields,  # type: ignore[arg-type]
    )


class Desk:
    """One scanner and one worker called "w" in front of a database."""

    def __init__(self, conn: sqlite3.Connection, now: float = 1000.0) -> None:
        self.conn = conn
        self.now = now
        self.mtime = 1

    def see(
        self, *paths: str, size: int = 10, mtime: int | None = None, **fields: object
    ) -> library.Registered:
        """The scanner reports files; without `mtime`, changed ones."""
        self.mtime += 1
        seen = [
            library.SeenFile(path.encode(), size, self.mtime if mtime is None else mtime, **fields)  # type: ignore[arg-type]
            for path in paths
        ]
        return library.register(self.conn, seen, self.now)

    def intake(self, limit: int = 1000) -> list[IntakeJob]:
        return jobs.claim_intake(self.conn, "w", self.now, LEASE_S, limit)

    def put(self, path: str, content: str, pages: int = 1, **fields: object) -> library.LinkOutcome:
        """A file with that content is seen and taken in."""
        self.see(path, **fields)
        (job,) = [job for job in self.intake() if job.path == path.encode()]
        return self.link(job, content, pages)

    def link(self, job: IntakeJob, content: str, pages: int = 1) -> library.LinkOutcome:
        info = DocumentInfo("application/pdf", pages)
        return library.link(self.conn, job, sha(content), 10, info, None, self.now)

    def claim(self, owner: str = "w", limit: int = 4) -> list[PageJob]:
        return jobs.claim_pages(self.conn, owner, self.now, LEASE_S, limit)

    def save(self, job: PageJob, text: str = "words", owner: str = "w", **fields: object) -> bool:
        return results.save(self.conn, owner, job, reading(job.page, text, **fields), self.now)  # type: ignore[arg-type]

    def read_all(self, text: str = "words") -> list[tuple[int, int]]:
        """Reads whatever can be read; which pages of which documents, in that order."""
        read = []
        while claimed := self.claim():
            for job in claimed:
                assert self.save(job, text)
                read.append((job.document_id, job.page))
        return read

    def publish_all(self) -> list[bytes]:
        published = []
        while (job := jobs.claim_publish(self.conn, "w", self.now, LEASE_S)) is not None:
            name = library.display_path(job.path)
            assert jobs.finish_publish(self.conn, "w", job, name + ".md", name + ".json")
            published.append(job.path)
        return published

    def finish(self, text: str = "words") -> None:
        self.read_all(text)
        self.publish_all()

    def one(self, sql: str, *values: object) -> object:
        row = self.conn.execute(sql, values).fetchone()
        return None if row is None else row[0]

    def states(self) -> dict[str, str]:
        return dict(self.conn.execute("SELECT path, state FROM file_status ORDER BY path").fetchall())

    def found(self, word: str) -> list[str]:
        """The texts of pages the full-text index finds."""
        rows = self.conn.execute(
            "SELECT pages.text FROM pages_fts JOIN pages ON pages.id = pages_fts.rowid WHERE pages_fts MATCH ?",
            (word,),
        )
        return [row[0] for row in rows]

    def check(self) -> None:
        """What must hold whatever happened."""
        check_counters(self.conn)
        self.conn.execute("INSERT INTO pages_fts(pages_fts, rank) VALUES ('integrity-check', 1)")
        self.conn.execute("INSERT INTO page_grams_fts(page_grams_fts, rank) VALUES ('integrity-check', 1)")
        assert self.conn.execute("PRAGMA foreign_key_check").fetchall() == []
        assert self.one("SELECT count(*) FROM page_grams WHERE page_id NOT IN (SELECT id FROM pages)") == 0
        orphans = self.conn.execute(
            "SELECT id FROM documents WHERE superseded_by IS NULL"
            " AND NOT EXISTS (SELECT 1 FROM files WHERE document_id = documents.id)"
        ).fetchall()
        assert orphans == [], "documents that no path leads to"


def steps(conn: sqlite3.Connection, action: Callable[[], object]) -> int:
    """What an action costs, in steps of SQLite's virtual machine: no other load on the machine can change them."""
    count = 0

    def tick() -> None:
        nonlocal count
        count += 1

    conn.set_progress_handler(tick, 10)
    try:
        action()
    finally:
        conn.set_progress_handler(None, 0)
    return count * 10


def check_counters(conn: sqlite3.Connection) -> None:
    """The counters and the state of each opened document are those of its page rows."""
    for row in conn.execute("SELECT * FROM documents WHERE pages IS NOT NULL").fetchall():
        states = [
            job["state"]
            for job in conn.execute(
                "SELECT state FROM page_jobs WHERE document_id = ? ORDER BY page", (row["id"],)
            )
        ]
        assert len(states) == row["pages"]
        assert row["pages_pending"] == states.count("pending")
        assert row["pages_leased"] == states.count("leased")
        assert row["pages_blank"] == states.count("blank")
        assert row["pages_done"] == states.count("done") + states.count("blank")
        assert row["pages_failed"] == states.count("failed")
        assert row["state"] == _state(states)


def _state(states: Iterable[str]) -> str:
    present = set(states)
    if "leased" in present:
        return "running"
    if "pending" in present:
        return "queued"
    return "done" if present & {"done", "blank"} else "failed"


@pytest.fixture
def desk(fresh_db: sqlite3.Connection) -> Desk:
    return Desk(fresh_db)
