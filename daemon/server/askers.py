"""The server's side of an ask: which worker to ask, and its answer as it comes. Closing it ends the reading."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections import Counter
from pathlib import Path

from daemon.asks.frames import HEADER, LARGEST_FRAME, Ask, Frame, decode, encode
from daemon.asks.places import Place, places
from daemon.server.failures import Refused, http_status

log = logging.getLogger(__name__)

WAIT_S = 20.0  # for a worker, where none runs: one is being started, or starts again
LOOK_S = 0.1
TRIES = 3  # workers that may be lost before a page of the ask was begun


class Askers:
    """Asks the workers of a home; one for the whole server."""

    def __init__(self, home: Path, *, wait_s: float = WAIT_S) -> None:
        self.home = home
        self.wait_s = wait_s
        self._in_flight: Counter[str] = Counter()  # by socket

    @property
    def in_flight(self) -> int:
        """Asks of this server that are not over."""
        return self._in_flight.total()

    async def ask(self, ask: Ask) -> Answer:
        """Hand an ask to the worker that has least to do for us.

        Raises: `Refused` 429 where every worker's line is full, 503 where there is no worker.
        """
        return Answer(self, ask, await self.call(ask))

    async def call(self, ask: Ask) -> Call:
        """A connection over which a worker has accepted the ask. Raises: as `ask`."""
        deadline = time.monotonic() + self.wait_s
        while True:
            retry_s: list[int] = []
            found = places(self.home)
            for place in sorted(found, key=lambda p: (self._in_flight[p.socket], secrets.randbits(16))):
                call = Call(self._in_flight, place)
                try:
                    if (later_s := await call.begin(ask)) is None:
                        return call
                    retry_s.append(later_s)
                except (OSError, EOFError, ValueError) as error:
                    log.info("a worker cannot be asked: %s", error)
                except BaseException:
                    call.close()
                    raise
                call.close()
            if retry_s:
                raise Refused(
                    429,
                    "too many requests are waiting",
                    code="queue_full",
                    remedy="ask again later",
                    headers={"Retry-After": str(min(retry_s))},
                )
            if time.monotonic() >= deadline:
                raise Refused(
                    503,
                    "no worker is running",
                    code="no_worker",
                    remedy="see `ocrd status` and the log",
                    headers={"Retry-After": "5"},
                )
            await asyncio.sleep(LOOK_S)


class Call:
    """A connection to a worker."""

    def __init__(self, in_flight: Counter[str], place: Place) -> None:
        self.place = place
        self._in_flight = in_flight
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        in_flight[place.socket] += 1
        self._counted = True

    async def begin(self, ask: Ask) -> int | None:
        """None once the worker has accepted; else the seconds after which to try again.

        Raises: OSError, EOFError, ValueError where the worker cannot be talked to.
        """
        self._reader, self._writer = await asyncio.open_unix_connection(self.place.socket)
        self._writer.write(encode(ask.frame()))
        await self._writer.drain()
        frame = await self.frame()
        return None if frame.get("kind") == "accepted" else int(frame.get("retry_s", 1))

    async def frame(self) -> Frame:
        """The next frame. Raises: EOFError, OSError, ValueError."""
        assert self._reader is not None
        (length,) = HEADER.unpack(await self._reader.readexactly(HEADER.size))
        if length > LARGEST_FRAME:
            raise ValueError("the frame is too large")
        return decode(await self._reader.readexactly(length))

    def close(self) -> None:
        """Hang up: if the reading goes on, it ends now."""
        if self._counted:
            self._counted = False
            self._in_flight[self.place.socket] -= 1
        if self._writer is not None:
            with contextlib.suppress(OSError, RuntimeError):
                self._writer.transport.abort()


class Answer:
    """What a worker says to an ask, frame by frame; to be closed.

    Frames are taken in as they come, however slowly the client takes them: no worker waits for a client. There are as
    many as the pages asked for have text.
    """

    def __init__(self, askers: Askers, ask: Ask, call: Call) -> None:
        self._askers = askers
        self._ask = ask
        self._call = call
        self._begun = False
        self._tries = 1
        self._came: asyncio.Queue[Frame | Exception] = asyncio.Queue()
        self._first: Frame | Exception | None = None  # peeked at
        self._taking = asyncio.ensure_future(self._take())

    async def next(self, timeout_s: float | None = None) -> Frame | None:
        """The next frame, of kind `page`, `delta`, `read` or `end`; None if there was none in time.

        Raises: `Refused` for what failed, and where the worker is lost.
        """
        await self.peek(timeout_s)
        frame, self._first = self._first, None
        return frame if isinstance(frame, dict) else None

    async def peek(self, timeout_s: float | None) -> None:
        """Wait for the next frame, without taking it. Raises: as `next`."""
        if self._first is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    self._first = await self._came.get()
        if isinstance(self._first, Exception):
            raise self._first

    async def _take(self) -> None:
        """Take frames in up to the last one, or to what broke it off."""
        try:
            while True:
                frame = await self._frame()
                self._came.put_nowait(frame)
                if frame["kind"] == "end":
                    return
        except Exception as error:
            self._came.put_nowait(error)

    async def _frame(self) -> Frame:
        while True:
            try:
                frame = await self._call.frame()
            except (EOFError, OSError, ValueError):
                await self._again()
                continue
            if frame["kind"] == "failed":
                code = str(frame["code"])
                raise Refused(
                    http_status(code), str(frame["message"]), code=code, remedy=str(frame.get("remedy") or "")
                )
            if frame["kind"] == "end" and not self._begun:
                await self._again()  # the worker left without having begun
                continue
            self._begun = True
            return frame

    async def _again(self) -> None:
        """Ask another worker, if nothing was told yet. Raises: `Refused`."""
        self._call.close()
        if self._begun or self._tries >= TRIES:
            raise Refused(
                500,
                "the worker that was reading it is gone",
                code="crash",
                remedy="see `ocrd status` and the log",
            )
        self._tries += 1
        self._call = await self._askers.call(self._ask)

    def close(self) -> None:
        """Nobody waits any more."""
        self._taking.cancel()
        self._call.close()
