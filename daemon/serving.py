"""The run of `ocrd serve`: the HTTP server, and a crew of workers whenever nobody else has one on this home."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from daemon import logs
from daemon.crew import TICK_S, Crew, StopSignals
from storage.errors import BusyError, ExitCode, OcrdError

if TYPE_CHECKING:
    from storage.settings import Settings

log = logging.getLogger(__name__)

LEAD_S = 2.0  # so often we look whether the home has become free


class Server(Protocol):
    """What serves beside the workers: `daemon.server.serve.HttpServer`."""

    url: str
    failure: OcrdError | None

    def start(self) -> None:
        """Serve from now on. Raises: `OcrdError`."""
        ...

    def is_alive(self) -> bool:
        """Whether it still serves."""
        ...

    def stop(self) -> None:
        """Finish what is being answered and end."""
        ...


def run(settings: Settings, server: Server, *, on_event: Callable[[str], None] | None = None) -> ExitCode:
    """Serve until a signal says stop; where no daemon runs on the home, read what is queued and asked, too.

    Raises: `SettingsError`, `EngineUnavailableError`, `DatabaseError`; others when workers cannot be kept running.
    """
    logs.to_file(settings)
    crew = Crew(settings, doing=f"serves {server.url}", watching=False, on_event=on_event)
    try:
        with StopSignals() as signals:
            return _Serving(crew, server, signals).run()
    except OcrdError as error:
        log.error("the server ends: %s", error, extra=logs.FILE_ONLY)
        raise
    finally:
        server.stop()
        crew.close()


def check(server: Server) -> None:
    """Raises: why the server broke off, if it did."""
    if not server.is_alive():
        raise server.failure or OcrdError("the server broke off")


class _Serving:
    def __init__(self, crew: Crew, server: Server, signals: StopSignals) -> None:
        self.crew = crew
        self.server = server
        self.signals = signals
        self.is_leading = False
        self._next_try = float("-inf")
        self._told = False

    def run(self) -> ExitCode:
        """Until told to stop, or unable to go on."""
        crew = self.crew
        try:
            self._lead()
            self.server.start()
            crew.say(f"serving {self.server.url}")
            while not self.signals.count and crew.fatal is None:
                check(self.server)
                self._lead()
                if self.is_leading:
                    crew.tick(time.time())
                if crew.wake.wait(TICK_S):
                    crew.wake.clear()
        finally:
            self.server.stop()
            if self.is_leading:
                crew.stop(signals=self.signals)
        if crew.fatal is not None:
            raise crew.fatal
        return ExitCode.INTERRUPTED if self.signals.last == signal.SIGINT else ExitCode.OK

    def _lead(self) -> None:
        """Have workers of our own, unless and until somebody else has."""
        if self.is_leading or time.monotonic() < self._next_try:
            return
        self._next_try = time.monotonic() + LEAD_S
        try:
            self.crew.start()
            self.is_leading = True
        except BusyError:
            if not self._told:
                self._told = True
                self.crew.say(f"{self.crew.lock.describe()}: its workers read what is asked")
