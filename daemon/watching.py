"""The threads that watch: one per root, so that a share that hangs stops no other root."""

from __future__ import annotations

import logging
import os
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from daemon import mac_access
from daemon.ignore import IgnoreRules
from daemon.scanner import WatchRoot
from daemon.watcher import RootWatcher
from storage.database import open_database
from storage.errors import AccessError, OcrdError, SettingsError, VanishedError, from_os_error

if TYPE_CHECKING:
    from storage.settings import Settings

log = logging.getLogger(__name__)

DEBOUNCE_S = 0.1  # events come in bursts
LONGEST_PAUSE_S = 60.0  # between turns that fail

MakeWatcher = Callable[[sqlite3.Connection], RootWatcher]


class WatchThread(threading.Thread):
    """Runs one `RootWatcher`. A failing turn is logged and tried again later; only a fault beyond that ends it."""

    def __init__(
        self, settings: Settings, root: WatchRoot, make: MakeWatcher, *, queued: Callable[[], None]
    ) -> None:
        super().__init__(name=f"watch {os.fsdecode(root.path)}", daemon=True)
        self.settings = settings
        self.root = root
        self.is_quiet = False  # all that was there at the start is queued
        self.failed_turns = 0  # in a row
        self._make = make
        self._queued = queued
        self._ended = threading.Event()

    def run(self) -> None:
        """Watch until told to end."""
        conn = open_database(self.settings.database_path)
        watcher = self._make(conn)
        try:
            while not self._ended.is_set():
                self._turn(watcher)
        finally:
            watcher.close()
            conn.close()

    def _turn(self, watcher: RootWatcher) -> None:
        now = time.time()
        try:
            if watcher.tick(now):
                self._queued()
            self.failed_turns = 0
            wait_s = watcher.wait_s(now)
        except Exception:
            self.failed_turns += 1
            log.exception("watching failed; it is tried again", extra={"path": self.root.path})
            wait_s = min(LONGEST_PAUSE_S, 0.5 * 2.0**self.failed_turns)
        self.is_quiet = watcher.is_quiet
        if watcher.hints.arrived.wait(wait_s) and not self._ended.is_set():
            self._ended.wait(DEBOUNCE_S)

    def end(self) -> None:
        """Watch no more."""
        self._ended.set()


def rules_for(settings: Settings, roots: Sequence[WatchRoot]) -> IgnoreRules:
    """The ignore rules: the settings' patterns, and our own folders wherever they lie."""
    own = {os.fsencode(settings.home), os.fsencode(settings.library_out)}
    own |= {root.out_dir for root in roots if root.out_dir is not None}
    own |= {os.path.realpath(folder) for folder in own}
    return IgnoreRules(settings.ignore, frozenset(own) - {root.path for root in roots})


def outer_roots(roots: Sequence[WatchRoot]) -> list[WatchRoot]:
    """The roots without those given twice."""
    return list({root.path: root for root in roots}.values())


def check_roots(roots: Sequence[WatchRoot], known: set[bytes]) -> None:
    """See that there is something to watch; a root of an earlier run may be away, and is waited for.

    Raises: `SettingsError`, `VanishedError`, `AccessError`.
    """
    for root in roots:
        try:
            with os.scandir(root.path):
                pass
        except FileNotFoundError:
            if root.path not in known:
                raise VanishedError(
                    "there is no such folder",
                    file=os.fsdecode(root.path),
                    remedy="check the spelling, or make it",
                ) from None
        except NotADirectoryError:
            raise SettingsError(
                "this is no folder", file=os.fsdecode(root.path), remedy="watch the folder it lies in"
            ) from None
        except OSError as error:
            if root.path not in known:
                answer = mac_access.explain(error)
                kind = type(from_os_error(error))
                raise kind(answer.message, file=os.fsdecode(root.path), remedy=answer.remedy) from error


def check_writable(folder: bytes) -> None:
    """See that sidecars can be written to an output folder, which is made if need be.

    Raises: `AccessError` or another storage error, before anything has been read.
    """
    try:
        os.makedirs(folder, exist_ok=True)
        with tempfile.TemporaryFile(dir=os.fsdecode(folder), prefix=".ocrd-"):
            pass
    except OSError as error:
        ours: OcrdError = from_os_error(error, file=os.fsdecode(folder))
        raise AccessError(
            f"nothing can be written to the output folder: {ours.message}",
            file=os.fsdecode(folder),
            remedy="choose another --out, or allow this user to write there",
        ) from error
