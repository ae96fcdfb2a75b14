"""Progress reaches whoever listens, from one look at the database for all of them."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from daemon.server import events
from daemon.server.database import Library
from daemon.server.events import Feed, Lookout
from tests.conftest import Clock
from tests.daemon.conftest import pdf_of
from tests.daemon.server.running import PATIENCE_S
from tests.daemon.server.shelf import Shelf


@pytest.fixture
def lookout(shelf: Shelf, clock: Clock) -> Iterator[Lookout]:
    lookout = Lookout(Library(shelf.settings.database_path), lambda: clock.now)
    yield lookout
    lookout.close()


def told(found: list[tuple[str, str]]) -> list[tuple[str, Any]]:
    return [(name, json.loads(data)) for name, data in found]


def test_a_file_is_followed_from_queue_to_done(shelf: Shelf, lookout: Lookout, tmp_path: Path) -> None:
    assert [name for name, _ in lookout.look()] == ["status"]
    assert lookout.look() == []  # nothing changed
    path = tmp_path / "letter.pdf"
    path.write_bytes(
        pdf_of(["Some words on the first page of a letter", "and more of them on its second page"])
    )
    shelf.put(path)
    (_, status), (name, changed) = told(lookout.look())
    assert status["counts"]["queued"] == 1 and name == "documents"
    assert [(d["name"], d["state"]) for d in changed["documents"]] == [("letter.pdf", "queued")]
    shelf.read()
    (_, status), (_, changed) = told(lookout.look())
    assert status["counts"]["done"] == 1
    assert [(d["state"], d["pages_done"]) for d in changed["documents"]] == [("done", 2)]
    assert lookout.look() == []


def test_status_is_told_again_after_a_while(shelf: Shelf, lookout: Lookout, clock: Clock) -> None:
    lookout.look()
    clock.advance(events.REST_S - 0.1)
    assert lookout.look() == []
    clock.advance(0.2)
    assert [name for name, _ in lookout.look()] == ["status"]


def test_a_flood_of_new_files_is_told_in_part(shelf: Shelf, lookout: Lookout) -> None:
    lookout.look()
    shelf.conn.executemany(
        "INSERT INTO files (path, path_bytes, name_key, size, mtime_ns, state, first_seen, last_seen)"
        " VALUES (?1, CAST(?1 AS BLOB), ?1, 1, 1, 'intake', 1, 1)",
        [(f"/flood/{n}.pdf",) for n in range(3000)],
    )
    (_, status), (_, changed) = told(lookout.look())
    assert status["counts"]["queued"] == 3000
    assert changed["more"] and len(changed["documents"]) == events.SHOWN


@pytest.mark.parametrize("leave", [Feed.close, lambda feed: feed.clients.clear()], ids=["stopped", "left"])
def test_a_look_under_way_keeps_its_connection(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch, leave: Callable[[Feed], None]
) -> None:
    """Closed under it, SQLite took the whole process with it."""
    looking, go_on, over = threading.Event(), threading.Event(), threading.Event()
    failed: list[sqlite3.Error] = []

    def slow(conn: sqlite3.Connection, now: float) -> Any:
        looking.set()
        go_on.wait(PATIENCE_S)
        try:
            return status_of(conn, now)
        except sqlite3.Error as error:
            failed.append(error)
            raise
        finally:
            over.set()

    status_of = events.status_of
    monkeypatch.setattr(events, "status_of", slow)

    async def run() -> None:
        feed = Feed(Library(shelf.settings.database_path))
        stream = feed.events()
        await anext(stream)
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.to_thread(looking.wait, PATIENCE_S)
        task = feed._task
        leave(feed)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert task is not None
        await asyncio.wait([task], timeout=PATIENCE_S)
        go_on.set()
        await asyncio.to_thread(over.wait, PATIENCE_S)

    asyncio.run(run())
    assert over.is_set() and failed == []


def test_a_look_that_is_over_leaves_nothing_open(shelf: Shelf, lookout: Lookout) -> None:
    lookout.look()
    lookout.close()
    assert lookout._conn is None
    lookout.look()  # by a thread that was late
    assert lookout._conn is None


def test_all_clients_hear_the_same_and_end_with_the_server(shelf: Shelf) -> None:
    async def listen(feed: Feed) -> list[str]:
        return [event async for event in feed.events()]

    async def run() -> tuple[list[list[str]], bool]:
        feed = Feed(Library(shelf.settings.database_path), poll_s=3600.0)
        clients = [asyncio.create_task(listen(feed)) for _ in range(3)]
        while not feed._last:
            await asyncio.sleep(0.01)
        feed.tell("documents", "{}")
        await asyncio.sleep(0)
        feed.close()
        heard = await asyncio.wait_for(asyncio.gather(*clients), PATIENCE_S)
        return heard, feed._task is None and not feed.clients

    heard, is_over = asyncio.run(run())
    kinds = [[event.split("\n")[0] for event in events_of] for events_of in heard]
    assert kinds == [["retry: 2000", "event: status", "event: documents"]] * 3 and is_over


def test_a_server_that_stops_waits_for_no_listener(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    import httpx

    from daemon.server import serve
    from daemon.server.serve import HttpServer, Listening

    monkeypatch.setattr(serve, "LEAVE_S", PATIENCE_S)
    server = HttpServer(shelf.settings, Listening("127.0.0.1", 0))
    server.start()
    with httpx.stream("GET", server.url + "api/events", timeout=PATIENCE_S) as stream:
        lines = stream.iter_lines()
        assert next(lines) == "retry: 2000"
        started = time.monotonic()
        server.stop()
        list(lines)  # ends
    assert time.monotonic() - started < PATIENCE_S / 2 and not server.is_alive()


def test_a_client_that_does_not_keep_up_gets_the_newest_status(shelf: Shelf) -> None:
    async def run() -> list[str]:
        feed = Feed(Library(shelf.settings.database_path), poll_s=3600.0)
        stream = feed.events()
        await anext(stream)
        pending = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)  # it listens now
        pending.cancel()
        (queue,) = feed.clients or {asyncio.Queue[str](events.BACKLOG)}
        feed.clients.add(queue)
        for number in range(events.BACKLOG + 5):
            feed.tell("status", str(number))
        assert queue.qsize() <= events.BACKLOG
        found = []
        while not queue.empty():
            found.append(queue.get_nowait())
        feed.close()
        return found

    found = asyncio.run(run())
    assert found[-1] == f"event: status\ndata: {events.BACKLOG + 4}\n\n"


def test_listeners_are_bounded(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MOST_CLIENTS", 0)
    with shelf.client() as client:
        refused = client.get("/api/events")
    assert refused.status_code == 429 and refused.headers["retry-after"]


def test_a_database_that_cannot_be_read_is_looked_at_again(shelf: Shelf) -> None:
    async def run() -> str:
        feed = Feed(Library(shelf.settings.home / "nowhere.db"), poll_s=0.001)
        stream = feed.events()
        await anext(stream)
        pending = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0.05)
        assert not pending.done()
        feed.library.path = shelf.settings.database_path
        event = await asyncio.wait_for(pending, PATIENCE_S)
        await stream.aclose()
        return event

    assert asyncio.run(run()).startswith("event: status")


def test_looking_reads_no_whole_table(shelf: Shelf) -> None:
    from storage import recent

    marks = {"file_id": 0, "page_at": 0.0, "document_at": 0.0, "limit": 5}
    for query in recent._TOUCHED:
        assert_no_scan(shelf.conn, f"{query} LIMIT :limit", marks)


def assert_no_scan(conn: sqlite3.Connection, sql: str, values: Any) -> None:
    plan = [row["detail"] for row in conn.execute("EXPLAIN QUERY PLAN " + sql, values)]
    assert not [step for step in plan if step.startswith("SCAN") and "INDEX" not in step], plan
