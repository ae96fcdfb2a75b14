"""What a client may send, and how slowly: bodies bounded while they stream in, stalled ones given up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException
from starlette.requests import Request

from daemon.server import failures
from daemon.server.failures import Refused

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

DEFAULT_BYTES = 1 << 20
SILENCE_S = 20.0  # without a byte of the body, or without one taken of the answer
GRACE_S = 20.0  # then a body must have come at LEAST_RATE on the whole
LEAST_RATE = 16 << 10  # bytes a second


class Stalled(Exception):
    """The client takes nothing of its answer any more."""


class Bounds:
    """Middleware: counts a request's body against what its path may have, and ends stalled transfers.

    `limits`: path prefix → bytes; the longest prefix counts.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        limits: Mapping[str, int],
        silence_s: float = SILENCE_S,
        grace_s: float = GRACE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.app = app
        self.limits = sorted(limits.items(), key=lambda item: -len(item[0]))
        self.silence_s = silence_s
        self.grace_s = grace_s
        self.clock = clock

    def limit(self, path: str) -> int:
        """The bytes a body for this path may have."""
        return next((most for prefix, most in self.limits if path.startswith(prefix)), DEFAULT_BYTES)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request within the bounds."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        limit = self.limit(scope["path"])
        if (refused := _announced(Request(scope), limit)) is not None:
            await failures.answer(Request(scope), refused)(scope, receive, send)
            return
        bounded = _Body(receive, limit, self.silence_s, self.grace_s, self.clock)

        async def send_soon(message: Message) -> None:
            # A client that takes nothing of a long answer holds whatever makes it (a model, a database).
            try:
                async with asyncio.timeout(self.silence_s * 3):
                    await send(message)
            except TimeoutError:
                raise Stalled from None

        await self.app(scope, bounded.receive, send_soon)


class _Body:
    def __init__(
        self, receive: Receive, limit: int, silence_s: float, grace_s: float, clock: Callable[[], float]
    ) -> None:
        self._receive = receive
        self.limit = limit
        self.silence_s = silence_s
        self.grace_s = grace_s
        self.clock = clock
        self.started = clock()
        self.size = 0
        self.complete = False

    async def receive(self) -> Message:
        """The next message. Raises: `HTTPException` 413 past the limit, 408 for a client that stalls."""
        if self.complete:
            return await self._receive()  # nothing but the client's leaving can come: that may take its time
        try:
            async with asyncio.timeout(self.silence_s):
                message = await self._receive()
        except TimeoutError:
            raise HTTPException(408, "the body did not come", {"Connection": "close"}) from None
        if message["type"] != "http.request":
            return message
        self.size += len(message.get("body", b""))
        self.complete = not message.get("more_body", False)
        if self.size > self.limit:
            raise HTTPException(413, _too_large(self.limit), {"Connection": "close"})
        late_s = self.clock() - self.started - self.grace_s - self.size / LEAST_RATE
        if late_s > 0 and not self.complete:
            raise HTTPException(408, "the body came too slowly", {"Connection": "close"})
        return message


def _announced(request: Request, limit: int) -> Refused | None:
    text = request.headers.get("content-length")
    if text is None or not text.isdecimal() or int(text) <= limit:
        return None
    return Refused(413, _too_large(limit), code="too_large", headers={"Connection": "close"})


def _too_large(limit: int) -> str:
    return f"the body is too large: {limit:,} bytes are allowed here"
