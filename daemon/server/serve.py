"""uvicorn in a thread: listening, timeouts for slow clients, and the end. The command's own loop stays in charge."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from daemon.server import security
from daemon.server.app import create_app
from storage.errors import AccessError, OcrdError, SettingsError

if TYPE_CHECKING:
    from daemon.server.urls import Reach
    from storage.settings import Settings

log = logging.getLogger(__name__)

HEADERS_S = 10.0  # for a request's line and headers, from its connection or first byte on
KEEP_ALIVE_S = 15
LEAVE_S = 3  # for answers in the making, after being told to stop
CONNECTIONS = 256  # at once; more are told 503
HEADER_BYTES = 32 << 10
START_S = 30.0


@dataclass(frozen=True, slots=True)
class Listening:
    """Where and for whom to listen. `host` is a name or address, `port` 0 any free one."""

    host: str
    port: int
    token: str | None = None
    hosts: tuple[str, ...] = ()  # names it is reached by, besides localhost
    reach: Reach | None = None  # what a request may name instead of sending it


class PatientProtocol(H11Protocol):
    """uvicorn's HTTP/1.1, giving up connections whose request does not come (uvicorn waits for ever)."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """A client connected: its request must follow."""
        super().connection_made(transport)
        self._expect_request()

    def data_received(self, data: bytes) -> None:
        """Something came; part of a request's headers, perhaps."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop_waiting()
        elif self._deadline is None:
            self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is over."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _expect_request(self) -> None:
        self._deadline = self.loop.call_later(HEADERS_S, self._give_up)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        self._deadline = None
        if not self.transport.is_closing():
            log.info("a connection was closed: no request came in %.0f s", HEADERS_S)
            self.transport.abort()


class HttpServer:
    """The application of a home, served by a thread."""

    def __init__(self, settings: Settings, listening: Listening, *, asks: Any = None) -> None:
        """Raises: `SettingsError` for a host others reach and no token; `AccessError` if it cannot listen there."""
        if listening.token is None and not security.is_loopback(listening.host):
            raise SettingsError(
                f"others reach {listening.host}: a token is needed, and there is no TLS to keep it secret",
                remedy="leave --host as it is and use `ssh -L` or a reverse proxy, or give --token-file FILE",
            )
        name = _shown(listening.host)
        app = create_app(
            settings, token=listening.token, hosts=(*listening.hosts, name), asks=asks, reach=listening.reach
        )
        self._feed = app.state.feed
        self._sockets = _listen(listening.host, listening.port)
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                http=PatientProtocol,
                ws="none",
                loop="asyncio",
                log_config=None,
                access_log=False,  # addresses may hold what was searched for, and a token
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=LEAVE_S,
                limit_concurrency=CONNECTIONS,
                h11_max_incomplete_event_size=HEADER_BYTES,
            )
        )
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)
        self.port: int = self._sockets[0].getsockname()[1]
        self.url = f"http://{name}:{self.port}/"
        self.failure: OcrdError | None = None

    def start(self) -> None:
        """Serve from now on. Raises: `OcrdError` if the application does not start."""
        self._thread.start()
        deadline = time.monotonic() + START_S
        while not self._server.started and self._thread.is_alive() and time.monotonic() < deadline:
            time.sleep(0.005)
        if not self._server.started:
            raise self.failure or OcrdError("the server did not start")

    def is_alive(self) -> bool:
        """Whether it still serves."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """Finish what is being answered, for a little while, and end."""
        self._feed.close_soon()  # else those who follow the events would be waited for
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(LEAVE_S + 5.0)
        for listener in self._sockets:
            listener.close()

    def _run(self) -> None:
        try:
            self._server.run(sockets=self._sockets)
        except (Exception, SystemExit) as error:
            log.exception("the server broke off")
            self.failure = OcrdError(f"the server broke off ({type(error).__name__})")


def _listen(host: str, port: int) -> list[socket.socket]:
    """Sockets bound to every address of `host`. Raises: `AccessError`, `SettingsError`."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise SettingsError(f"there is no host {host!r} here: {error.strerror}", file="--host") from None
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            listener = socket.socket(family, kind, protocol)
            sockets.append(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind(
                (address[0], sockets[0].getsockname()[1] if len(sockets) > 1 else port, *address[2:])
            )
            listener.setblocking(False)
    except OSError as error:
        for listener in sockets:
            listener.close()
        raise AccessError(
            f"cannot listen on {host} port {port}: {error.strerror}",
            remedy="another program may be there: choose another with --port",
        ) from error
    return sockets


def _shown(host: str) -> str:
    if host in ("0.0.0.0", "::"):
        return socket.gethostname()
    return f"[{host}]" if ":" in host else host
