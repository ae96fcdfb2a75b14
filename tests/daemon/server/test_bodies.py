"""Bodies: bounded as they stream in, and given up when they stall."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from daemon.server import failures
from daemon.server.bodies import DEFAULT_BYTES, LEAST_RATE, Bounds, Stalled


async def size_of(request: Request) -> PlainTextResponse:
    return PlainTextResponse(str(len(await request.body())))


def app_with(**options: Any) -> Bounds:
    app = Starlette(routes=[Route("/{rest:path}", size_of, methods=["POST"])])
    for kind in (failures.HTTPException, failures.Refused):
        app.add_exception_handler(
            kind, lambda request, error: failures.answer(request, failures.refusal(error))
        )
    return Bounds(app, limits={"/big/": 100, "/big/ger/": 200}, **options)


async def ask(app: Bounds, pieces: AsyncIterator[bytes], path: str = "/big/", headers: Any = ()) -> int:
    """The status that a body coming in `pieces` is answered with."""
    sent: list[Any] = []
    scope = {
        "type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b"",
        "headers": list(headers), "http_version": "1.1", "scheme": "http", "server": ("localhost", 80), "client": None,
    }  # fmt: skip

    async def receive() -> Any:
        try:
            return {"type": "http.request", "body": await anext(pieces), "more_body": True}
        except StopAsyncIteration:
            return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return int(sent[0]["status"])


async def pieces_of(*sizes: int) -> AsyncIterator[bytes]:
    for size in sizes:
        yield b"x" * size


@pytest.mark.parametrize(
    ("path", "sizes", "status"),
    [
        ("/big/", [100], 200),
        ("/big/", [101], 413),
        ("/big/", [60, 40], 200),
        ("/big/", [60, 41], 413),
        ("/big/ger/", [101], 200),
        ("/other", [DEFAULT_BYTES], 200),
        ("/other", [DEFAULT_BYTES, 1], 413),
    ],
)
def test_a_body_has_the_bytes_of_its_path(path: str, sizes: list[int], status: int) -> None:
    assert asyncio.run(ask(app_with(), pieces_of(*sizes), path)) == status


def test_nothing_is_read_of_a_body_that_announces_too_much() -> None:
    async def never() -> AsyncIterator[bytes]:
        raise AssertionError("it was read")
        yield b""

    assert asyncio.run(ask(app_with(), never(), headers=[(b"content-length", b"101")])) == 413


def test_an_endless_body_is_not_taken_in() -> None:
    taken = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal taken
        while True:
            taken += 50
            yield b"x" * 50

    assert asyncio.run(ask(app_with(), endless())) == 413
    assert taken <= 200


def test_a_body_that_stops_coming_is_given_up() -> None:
    async def stalled() -> AsyncIterator[bytes]:
        yield b"x"
        await asyncio.Event().wait()

    assert asyncio.run(ask(app_with(silence_s=0.01), stalled())) == 408


def test_a_body_that_trickles_is_given_up() -> None:
    """A byte now and then is no silence, yet would hold the connection for hours."""
    now = [0.0]

    async def trickling() -> AsyncIterator[bytes]:
        for _ in range(90):
            now[0] += 1.0
            yield b"x"

    assert asyncio.run(ask(app_with(clock=lambda: now[0], grace_s=20.0), trickling())) == 408
    assert 20 <= now[0] < 30


def test_a_slow_but_steady_body_is_taken() -> None:
    now = [0.0]

    async def steady() -> AsyncIterator[bytes]:
        for _ in range(60):
            now[0] += 1.0
            yield b"x" * LEAST_RATE

    assert asyncio.run(ask(app_with(clock=lambda: now[0]), steady(), "/other")) == 200


def test_a_client_that_takes_nothing_is_let_go() -> None:
    async def answer(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def stuck(message: Any) -> None:
        await asyncio.Event().wait()

    app = Bounds(answer, limits={}, silence_s=0.005)
    scope = {"type": "http", "method": "GET", "path": "/", "headers": []}
    with pytest.raises(Stalled):
        asyncio.run(app(scope, stuck, stuck))  # type: ignore[arg-type]  # it receives nothing
