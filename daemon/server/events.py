"""Progress as server-sent events: one look at the database for all who listen, and only when something changed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, cast

import anyio.to_thread
from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse

from daemon.server import shapes
from daemon.server.failures import Refused
from daemon.server.library_api_parameters import PROBLEMS, problem
from daemon.server.library_api_shaping import document
from daemon.server.library_api_status import status_of
from storage import listing, recent
from storage.database import open_readonly
from storage.errors import OcrdError

if TYPE_CHECKING:
    from daemon.server.database import Library

router = APIRouter(prefix="/api", tags=["status"], responses=PROBLEMS)
log = logging.getLogger(__name__)

POLL_S = 0.5
REST_S = 5.0  # a status is told anew after so long even where nothing changed: rate and ETA do
HEARTBEAT_S = 15.0
MOST_CLIENTS = 100
BACKLOG = 32  # events a slow client may be behind; then it has the newest status and no more
SHOWN = 50  # documents in an event
FOLLOWED = 500  # documents whose progress is looked at

END = ""


@router.get(
    "/events",
    response_class=StreamingResponse,
    responses={
        200: {"content": {"text/event-stream": {}}, "description": "Events `status` and `documents`."},
        429: problem("Too many listen."),
    },
)
async def listen(request: Request) -> StreamingResponse:
    """Events as they happen: `status` (a Status) and `documents` (a Changed)."""
    feed = cast("Feed", request.app.state.feed)
    if len(feed.clients) >= MOST_CLIENTS:
        raise Refused(429, "too many listen", code="busy", headers={"Retry-After": "10"})
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(feed.events(), media_type="text/event-stream", headers=headers)


class Feed:
    """Looks at the database while anybody listens, and tells all of them. Belongs to the event loop."""

    def __init__(
        self, library: Library, *, poll_s: float = POLL_S, clock: Callable[[], float] = time.time
    ) -> None:
        self.library = library
        self.poll_s = poll_s
        self.clock = clock
        self.clients: set[asyncio.Queue[str]] = set()
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._last = ""  # the status as told last
        self._closed = False

    async def events(self) -> AsyncIterator[str]:
        """What one client is sent, until it leaves or the server stops."""
        queue: asyncio.Queue[str] = asyncio.Queue(BACKLOG)
        self._loop = asyncio.get_running_loop()
        self.clients.add(queue)
        try:
            yield "retry: 2000\n\n"
            if self._last and self._task is not None:
                yield self._last
            if self._task is None:
                self._task = asyncio.create_task(self._watch())
            while not self._closed:
                try:
                    async with asyncio.timeout(HEARTBEAT_S):
                        event = await queue.get()
                except TimeoutError:
                    event = ": still here\n\n"
                if event == END:
                    return
                yield event
        finally:
            self.clients.discard(queue)
            if not self.clients and self._task is not None:
                self._task.cancel()
                self._task = None

    def close(self) -> None:
        """The server stops: so do all streams."""
        self._closed = True
        for queue in self.clients:
            self._put(queue, END)
        if self._task is not None:
            self._task.cancel()

    def close_soon(self) -> None:
        """`close`, from any thread."""
        self._closed = True
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and all streams with it
                self._loop.call_soon_threadsafe(self.close)

    def tell(self, name: str, data: str) -> None:
        """Send an event to all who listen."""
        event = f"event: {name}\ndata: {data}\n\n"
        if name == "status":
            self._last = event
        for queue in self.clients:
            self._put(queue, event)

    def _put(self, queue: asyncio.Queue[str], event: str) -> None:
        if queue.full():  # a client that does not keep up: what it missed is in the next status
            while not queue.empty():
                queue.get_nowait()
            if event != END and self._last:
                queue.put_nowait(self._last)
        queue.put_nowait(event)

    async def _watch(self) -> None:
        lookout = Lookout(self.library, self.clock)
        try:
            while True:
                try:
                    for name, data in await anyio.to_thread.run_sync(lookout.look):
                        self.tell(name, data)
                except (OcrdError, sqlite3.Error) as error:
                    log.warning("cannot look for progress: %s", error)
                await asyncio.sleep(self.poll_s)
        finally:
            lookout.close()


class Lookout:
    """What changed in the database since the last look. One thread looks at a time; any may close it."""

    def __init__(self, library: Library, clock: Callable[[], float]) -> None:
        self.library = library
        self.clock = clock
        self._conn: sqlite3.Connection | None = None
        self._looking = threading.Lock()
        self._is_closed = False
        self._version = -1
        self._told_at = 0.0
        self._since = recent.Marks()
        self._followed: dict[int, str] = {}  # file id → its document as told last

    def look(self) -> list[tuple[str, str]]:
        """(event, data) of what is new. Raises: `DatabaseError`, sqlite3.Error; the next look begins anew."""
        try:
            with self._looking:
                return self._look()
        except (OcrdError, sqlite3.Error):
            self._let_go()
            raise
        finally:
            if self._is_closed:
                self._let_go()

    def close(self) -> None:
        """Let go of the database: now, or when the look under way is over."""
        self._is_closed = True
        self._let_go()

    def _let_go(self) -> None:
        # A task that is cancelled does not wait for its thread, and a connection that is closed while SQLite is at
        # work in another thread takes the process with it.
        if self._looking.acquire(blocking=False):
            try:
                if self._conn is not None:
                    self._conn.close()
                self._conn = None
            finally:
                self._looking.release()

    def _look(self) -> list[tuple[str, str]]:
        if self._conn is None:
            self._conn = open_readonly(self.library.path, any_thread=True)
            self._version = -1
            self._since = recent.newest(self._conn)
        version = self._conn.execute("PRAGMA data_version").fetchone()[0]
        now = self.clock()
        if version == self._version and abs(now - self._told_at) < REST_S:
            return []
        events = self._changes(self._conn) if version != self._version else []
        self._version = version
        self._told_at = now
        return [("status", status_of(self._conn, now).model_dump_json()), *events]

    def _changes(self, conn: sqlite3.Connection) -> list[tuple[str, str]]:
        touched, self._since = recent.touched(conn, self._since, FOLLOWED)
        ids = list(dict.fromkeys([*touched, *self._followed]))[:FOLLOWED]
        changed: list[shapes.Document] = []
        for row in listing.by_ids(conn, ids):
            told = document(row)
            text = told.model_dump_json()
            if self._followed.get(told.id) != text:
                changed.append(told)
            self._followed.pop(told.id, None)
            if told.state in (shapes.DocumentState.QUEUED, shapes.DocumentState.RUNNING):
                self._followed[told.id] = text
        if not changed:
            return []
        shown = shapes.Changed(documents=changed[:SHOWN], more=len(changed) > SHOWN)
        return [("documents", shown.model_dump_json())]
