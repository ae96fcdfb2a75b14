"""Named places where tests make a process die, fail or wait. Nothing happens where `OCRD_FAILPOINTS` is not set.

    OCRD_FAILPOINTS="staging.rename=kill@2;features.evict=wait:0.5"

Each part is NAME=ACTION[:ARGUMENT][@HIT][?FILE]: at the HITth time this process reaches NAME (at every time without),
and, with FILE, only for the first process that can make FILE. Actions:

    kill         SIGKILL to this process
    kill_family  SIGKILL to the parent (the supervisor, for a worker), then to this process
    abort        SIGABRT with a line on standard error, as Metal ends a process whose command buffer failed
    segfault     SIGSEGV by reading address 0
    hang         native code that never returns and keeps the interpreter's lock
    leak:MIB     allocate and touch so much memory, 16 MiB at a time, and go on; it is never freed
    error:ERRNO  OSError of that name (ENOSPC, say)
    wait:S       wait so many seconds, then go on
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass
from typing import NoReturn

VARIABLE = "OCRD_FAILPOINTS"

# Every place there is, and what it stands before. A test holds this list against the sources.
NAMES = {
    "migrate.copied": "the copy of an older database is whole, and not yet in its place",
    "migrate.step": "the schema is changed, its transaction not committed",
    "database.commit": "any transaction, about to be committed",
    "index.write": "a page's row is in the full-text index, its blocks are not",
    "page.saved": "a page is committed",
    "page.claimed": "pages are leased and not begun",
    "page.read": "the engine is about to read a page",
    "rasterise.draw": "a page is about to be drawn, in PDFium's thread",
    "intake.hashed": "a file is hashed and not noted",
    "staging.opened": "a temporary file is there, and empty",
    "staging.synced": "temporary files are whole and none has its name yet",
    "staging.rename": "one of them, about to be renamed",
    "staging.renamed": "all of them have their names",
    "publish.written": "sidecars are there, which is not noted",
    "features.write": "a feature file is whole under its temporary name",
    "features.stored": "it has its name, and nothing is evicted yet",
    "features.evict": "eviction is about to delete a file",
    "features.counters": "the counters' temporary file is whole",
    "backup.copied": "a backup is whole under its temporary name",
    "restore.ready": "a backup is ready to take the database's place",
    "restore.aside": "the damaged database is moved aside",
    "crew.tick": "the supervisor is about to keep house",
    "crew.buried": "a dead worker is noticed, what it held is not taken back",
}


@dataclass(frozen=True, slots=True)
class _Order:
    """What to do at a place."""

    action: str
    argument: str = ""
    hit: int = 0  # 0: every time
    once: str = ""  # a file


_hits: Counter[str] = Counter()
_leaked: list[bytearray] = []


def parse(text: str) -> dict[str, _Order]:
    """The orders of a value of `OCRD_FAILPOINTS`. Raises: `ValueError` for a place or an action there is not."""
    orders = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        name, _, what = part.partition("=")
        what, _, once = what.partition("?")
        what, _, hit = what.partition("@")
        action, _, argument = what.partition(":")
        if name not in NAMES or action not in _ACTIONS:
            raise ValueError(f"{VARIABLE}: no such place or action: {part!r}")
        orders[name] = _Order(action, argument, int(hit or 0), once)
    return orders


def reach(name: str) -> None:
    """This place is reached; what a test asked for happens, else nothing."""
    if _armed:
        _act(name)


def _act(name: str) -> None:
    order = _armed.get(name)
    if order is None:
        return
    _hits[name] += 1
    if order.hit and _hits[name] != order.hit:
        return
    if order.once:
        try:
            os.close(os.open(order.once, os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            return
    _ACTIONS[order.action](order.argument)


def _kill(_: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(3600)  # the signal may take a moment to arrive


def _kill_family(_: str) -> None:
    os.kill(os.getppid(), signal.SIGKILL)
    _kill("")


def _abort(_: str) -> NoReturn:
    print("failed assertion `Command buffer execution failed'", file=sys.stderr, flush=True)
    os.abort()


def _segfault(_: str) -> None:
    ctypes.string_at(0)


def _hang(_: str) -> None:
    ctypes.PyDLL(None).sleep(1 << 30)  # PyDLL: called with the interpreter's lock held


def _leak(argument: str) -> None:
    for _ in range(max(1, int(argument) // 16)):
        _leaked.append(bytearray(b"\x01") * (16 << 20))
        time.sleep(0.05)


def _error(argument: str) -> NoReturn:
    code = getattr(errno, argument)
    raise OSError(code, os.strerror(code))


def _wait(argument: str) -> None:
    time.sleep(float(argument))


_ACTIONS = {
    "kill": _kill,
    "kill_family": _kill_family,
    "abort": _abort,
    "segfault": _segfault,
    "hang": _hang,
    "leak": _leak,
    "error": _error,
    "wait": _wait,
}
_armed = parse(os.environ.get(VARIABLE, ""))
