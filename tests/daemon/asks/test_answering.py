"""A worker that reads for those who wait and for the queue: who comes first, and who pays for a crash."""

from __future__ import annotations

import os
import socket
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from daemon.asks import places
from daemon.asks.desk import Asked, Desk
from daemon.asks.frames import LARGEST_FRAME, Ask, Frame, take
from daemon.worker import IN_A_ROW, PAGES_A_TURN, Worker
from pipeline.engines.base import EngineReading, PageImage
from pipeline.engines.fake import FakeEngine
from storage import library
from storage.records import Line
from storage.settings import Settings
from tests.daemon.conftest import pdf_of

MakeFile = Callable[..., Path]
OWNER = "here:4711:1"


class Counter:
    """A worker in this thread, its desk, and in which order it read."""

    def __init__(self, settings: Settings, conn: sqlite3.Connection) -> None:
        self.read: list[str] = []
        self.sockets: list[socket.socket] = []
        self.settings, self.conn = settings, conn
        self.desk = Desk()
        places.asks_folder(settings.home)
        self.mark = places.mark_path(settings.home, OWNER)
        self.seen_marked: list[bool] = []
        counter = self

        class Noting(FakeEngine):
            def read(self, page: PageImage, *, hint: Sequence[Line] = ()) -> EngineReading:
                counter.read.append("asked" if "asked" in page.document else "queued")
                counter.seen_marked.append(counter.mark.exists())
                return super().read(page, hint=hint)

        self.worker = Worker(conn, OWNER, settings, make_engine=lambda *_: Noting(), desk=self.desk)

    def ask(self, *documents: Path, client: str = "one", **how: Any) -> socket.socket:
        ours, theirs = socket.socketpair()
        theirs.settimeout(10)
        self.sockets += [ours, theirs]
        assert self.desk.add(Asked(Ask(tuple(map(str, documents)), client, **how), ours)) is not None
        return theirs

    def queue(self, *files: Path) -> None:
        seen = [
            library.SeenFile(os.fsencode(f), f.stat().st_size, f.stat().st_mtime_ns, None, None, None)
            for f in files
        ]
        library.register(self.conn, seen, 0.0)

    def run(self) -> None:
        while self.worker.turn():
            pass


@pytest.fixture
def counter(settings: Settings, conn: sqlite3.Connection, tmp_path: Path) -> Iterator[Counter]:
    made = Counter(replace(settings, out=tmp_path / "out"), conn)
    yield made
    made.worker.close()
    for one in made.sockets:
        one.close()


def frames(answer: socket.socket) -> list[Frame]:
    """All that was said, up to the end."""
    buffer, found = bytearray(), []
    while data := answer.recv(1 << 16):
        buffer += data
        while (frame := take(buffer, LARGEST_FRAME)) is not None:
            found.append(frame)
    return found


def kinds(answer: socket.socket) -> list[str]:
    return [frame["kind"] for frame in frames(answer)]


def test_who_waits_goes_first_and_the_queue_goes_on(
    counter: Counter, tmp_path: Path, make_png: MakeFile
) -> None:
    counter.queue(*(make_png(tmp_path / f"queued{n}.png", n) for n in range(6)))
    for n in range(30):
        counter.ask(make_png(tmp_path / "asked" / f"{n}.png", n), client=str(n))
    counter.run()
    assert (counter.read.count("asked"), counter.read.count("queued")) == (30, 6)
    assert counter.read[:IN_A_ROW] == ["asked"] * IN_A_ROW
    # Before the queue has a page to read, its files are taken in: a page for somebody after each.
    rows = "".join("a" if what == "asked" else "q" for what in counter.read).rstrip("q").split("q")
    waited = [len(row) for row in rows[1:]]
    assert waited[:3] == [IN_A_ROW] * 3
    assert all(0 < pages <= IN_A_ROW + PAGES_A_TURN for pages in waited)  # and after each sidecar written


def test_an_answer_has_a_page_its_reading_and_an_end(
    counter: Counter, tmp_path: Path, make_png: MakeFile
) -> None:
    answer = counter.ask(make_png(tmp_path / "asked" / "a.png"), live=True)
    counter.run()
    said = frames(answer)
    assert [frame["kind"] for frame in said] == ["accepted", "page", "read", "end"]
    assert said[2]["markdown"].startswith("Page 1 of pixels")


def test_documents_are_read_in_order_and_closed(counter: Counter, tmp_path: Path) -> None:
    files = []
    for n in range(2):
        files.append(tmp_path / f"{n}.pdf")
        files[-1].write_bytes(pdf_of([f"{n} first", f"{n} second"]))
    answer = counter.ask(*files)
    counter.run()
    said = [frame["markdown"] for frame in frames(answer) if frame["kind"] == "read"]
    assert said == ["0 first", "0 second", "1 first", "1 second"]
    counter.worker._pdfium.submit(lambda: None).result()
    held = [link.resolve().name for link in Path("/dev/fd").iterdir() if link.is_symlink()]
    assert not [name for name in held if name.endswith(".pdf")]


def test_a_document_that_cannot_be_opened_is_told_as_such(counter: Counter, tmp_path: Path) -> None:
    (tmp_path / "none.png").write_bytes(b"nothing")
    answer = counter.ask(tmp_path / "none.png")
    counter.run()
    said = frames(answer)
    assert [frame["kind"] for frame in said] == ["accepted", "failed", "end"]
    assert said[1]["code"] == "not_a_document"


def test_too_many_pages_are_refused_before_any_is_read(counter: Counter, tmp_path: Path) -> None:
    (tmp_path / "book.pdf").write_bytes(pdf_of([f"{n}" for n in range(5)]))
    answer = counter.ask(tmp_path / "book.pdf", most_pages=4)
    counter.run()
    assert [frame.get("code") for frame in frames(answer)] == [None, "too_many_pages", None]


def test_who_left_before_their_turn_is_not_read_for(
    counter: Counter, tmp_path: Path, make_png: MakeFile
) -> None:
    answer = counter.ask(make_png(tmp_path / "asked" / "a.png"))
    assert counter.worker.answers is not None
    counter.worker.answers.look_ahead()  # its page is ready
    next(iter(counter.desk.first(1))).gone = True
    counter.run()
    assert counter.read == []
    assert kinds(answer) == ["accepted"]


def test_a_failing_ask_leaves_the_next_one_alone(
    counter: Counter, tmp_path: Path, make_png: MakeFile
) -> None:
    bad = counter.ask(tmp_path / "missing.png")
    good = counter.ask(make_png(tmp_path / "asked" / "a.png"))
    counter.run()
    assert kinds(bad) == ["accepted", "failed", "end"]
    assert kinds(good) == ["accepted", "page", "read", "end"]


def test_a_worker_that_leaves_tells_who_waits(counter: Counter, tmp_path: Path, make_png: MakeFile) -> None:
    answer = counter.ask(make_png(tmp_path / "asked" / "a.png"))
    counter.worker.stop = True
    assert not counter.worker.turn()
    assert counter.worker.answers is not None
    counter.worker.answers.close()
    assert kinds(answer) == ["accepted"]


def test_only_what_is_read_for_somebody_is_marked(
    counter: Counter, tmp_path: Path, make_png: MakeFile
) -> None:
    """The mark tells the daemon that a worker's death is not its queued pages' fault."""
    counter.queue(make_png(tmp_path / "queued.png"))
    counter.ask(make_png(tmp_path / "asked" / "a.png"))
    counter.run()
    assert dict(zip(counter.read, counter.seen_marked, strict=True)) == {"asked": True, "queued": False}
    assert not counter.mark.exists()
