"""The asks that wait at a worker: few, and taken in turns by client, a page at a time."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections import OrderedDict, deque
from collections.abc import Mapping
from typing import Any

from daemon.asks.frames import Ask, encode

log = logging.getLogger(__name__)

MOST = 32
SEND_S = 10.0  # a server takes all that comes at once: after so long it hangs
USUAL_PAGE_S = 5.0  # until one was read
LONGEST_RETRY_S = 120


class Asked:
    """An ask, and the connection its answer goes to."""

    def __init__(self, ask: Ask, connection: socket.socket) -> None:
        self.ask = ask
        self.connection = connection
        self.gone = False  # nobody waits any more; set from the listening thread
        self.work: Any = None  # what has been prepared of it; the answering thread's

    def send(self, kind: str, **values: object) -> bool:
        """Tell the server something; whether anybody still waits for it."""
        if self.gone:
            return False
        frame: Mapping[str, object] = {"kind": kind, **values}
        try:
            self.connection.settimeout(SEND_S)
            self.connection.sendall(encode(frame))
        except (OSError, ValueError) as error:
            log.info("an answer was not taken: %s", error)
            self.gone = True
        return not self.gone

    def end(self) -> None:
        """Nothing more will be said. The listening thread closes the connection once the server has."""
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)


class Desk:
    """At most `most` asks, and half of that of one client. Thread-safe."""

    def __init__(self, most: int = MOST) -> None:
        self.most = most
        self._lines: OrderedDict[str, deque[Asked]] = OrderedDict()  # by client, whose turn it is first
        self._in_hand: Asked | None = None
        self._lock = threading.Lock()
        self._page_s = USUAL_PAGE_S
        self._closed = False

    def add(self, asked: Asked) -> int | None:
        """Put an ask in line and tell it so; how many are before it, or None where there is no place."""
        with self._lock:
            self._drop_gone()
            line = self._lines.get(asked.ask.client, deque())
            ahead = self._count()
            if self._closed or ahead >= self.most or len(line) >= max(1, self.most // 2):
                return None
            asked.send("accepted", ahead=ahead)  # before anybody else can say something to it
            line.append(asked)
            self._lines[asked.ask.client] = line
            return ahead

    def next(self) -> Asked | None:
        """The ask whose turn it is, taken in hand: to be given `back`, or `finished`."""
        with self._lock:
            self._drop_gone()
            if not self._lines:
                return None
            client, line = next(iter(self._lines.items()))
            self._in_hand = line.popleft()
            if line:
                self._lines.move_to_end(client)
            else:
                del self._lines[client]
            return self._in_hand

    def back(self, asked: Asked, seconds: float) -> None:
        """A page of it was read: its client's next turn goes on with it, after everybody else's."""
        with self._lock:
            self._in_hand = None
            self._page_s += (seconds - self._page_s) / 4
            line = self._lines.setdefault(asked.ask.client, deque())
            line.appendleft(asked)
            self._lines.move_to_end(asked.ask.client)

    def finished(self) -> None:
        """The ask in hand is over."""
        with self._lock:
            self._in_hand = None

    def first(self, count: int) -> list[Asked]:
        """The asks whose turn comes first, left where they are."""
        with self._lock:
            fronts = [line[0] for line in self._lines.values()]
            rest = [asked for line in self._lines.values() for asked in list(line)[1:]]
            return (fronts + rest)[:count]

    def close(self) -> list[Asked]:
        """Take nothing more; what was waiting."""
        with self._lock:
            self._closed = True
            left = [asked for line in self._lines.values() for asked in line]
            self._lines.clear()
            return left

    @property
    def waiting(self) -> int:
        """Asks in line."""
        with self._lock:
            self._drop_gone()
            return sum(len(line) for line in self._lines.values())

    @property
    def retry_s(self) -> int:
        """When it makes sense to ask again, in seconds from now."""
        with self._lock:
            return max(1, min(LONGEST_RETRY_S, round(self._page_s * self._count() / 2)))

    def _count(self) -> int:
        return sum(len(line) for line in self._lines.values()) + (self._in_hand is not None)

    def _drop_gone(self) -> None:
        for client in list(self._lines):
            left = deque(asked for asked in self._lines[client] if not asked.gone or asked.work is not None)
            if left:
                self._lines[client] = left
            else:
                del self._lines[client]
