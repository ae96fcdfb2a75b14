"""The thread that takes asks in, and notices when nobody waits for one any more."""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from daemon.asks.desk import Asked, Desk
from daemon.asks.frames import LARGEST_ASK, Ask, take
from daemon.asks.places import Doorplate

log = logging.getLogger(__name__)

SAY_S = 10.0  # for the ask, once connected
_LOOK_S = 1.0
_MOST_CONNECTIONS = 256


@dataclass(slots=True)
class _Caller:
    """A connection: first an ask is to come, then nothing but its end."""

    connection: socket.socket
    since: float
    buffer: bytearray = field(default_factory=bytearray)
    asked: Asked | None = None


class Listener(threading.Thread):
    """Fills a desk with what arrives at a doorplate; `on_ask` is called after each, in this thread."""

    def __init__(self, plate: Doorplate, desk: Desk, on_ask: Callable[[], None]) -> None:
        super().__init__(name="asks", daemon=True)
        self.plate = plate
        self.desk = desk
        self.on_ask = on_ask
        self._selector = selectors.DefaultSelector()
        self._callers: dict[socket.socket, _Caller] = {}
        self._bell, self._ring = os.pipe()
        self._ended = False

    def run(self) -> None:
        """Listen until told to end."""
        self._selector.register(self.plate.listener, selectors.EVENT_READ)
        self._selector.register(self._bell, selectors.EVENT_READ)
        while not self._ended:
            for key, _ in self._selector.select(_LOOK_S if self._is_owed() else None):
                if key.fileobj is self.plate.listener:
                    self._accept()
                elif isinstance(key.fileobj, socket.socket):
                    self._hear(self._callers[key.fileobj])
            self._drop_silent()

    def end(self) -> None:
        """Take nothing more, and tell those who wait."""
        self._ended = True
        with contextlib.suppress(OSError):
            os.write(self._ring, b".")
        self.plate.close()
        for asked in self.desk.close():
            asked.end()

    def _is_owed(self) -> bool:
        return any(caller.asked is None for caller in self._callers.values())

    def _accept(self) -> None:
        try:
            connection, _ = self.plate.listener.accept()
        except OSError:
            return
        if len(self._callers) >= _MOST_CONNECTIONS:
            connection.close()
            return
        self._callers[connection] = _Caller(connection, time.monotonic())
        self._selector.register(connection, selectors.EVENT_READ)

    def _hear(self, caller: _Caller) -> None:
        try:
            data = caller.connection.recv(1 << 16, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._leave(caller)
            return
        if caller.asked is not None:
            return  # nothing is to be said after the ask
        caller.buffer += data
        try:
            frame = take(caller.buffer, LARGEST_ASK)
            if frame is not None:
                self._take_in(caller, Ask.of(frame))
        except (ValueError, TypeError, KeyError) as error:
            log.warning("not an ask: %s", type(error).__name__)
            self._leave(caller)

    def _take_in(self, caller: _Caller, ask: Ask) -> None:
        asked = caller.asked = Asked(ask, caller.connection)
        ahead = self.desk.add(asked)
        if ahead is None:
            asked.send("refused", retry_s=self.desk.retry_s)
            asked.end()
            return
        self.on_ask()

    def _leave(self, caller: _Caller) -> None:
        if caller.asked is not None:
            caller.asked.gone = True
        self._selector.unregister(caller.connection)
        del self._callers[caller.connection]
        caller.connection.close()

    def _drop_silent(self) -> None:
        now = time.monotonic()
        for caller in list(self._callers.values()):
            if caller.asked is None and now - caller.since > SAY_S:
                self._leave(caller)
