"""File system events, reduced to hints: which paths may have changed. What really happened, only the disk knows."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

log = logging.getLogger(__name__)

LIMIT = 50_000  # paths remembered; with more, a scan is cheaper than looking at each
_IGNORED_EVENTS = frozenset(("opened", "closed_no_write"))  # we open files ourselves


@dataclass(slots=True)
class Dirty:
    """What has been hinted at since the last look."""

    paths: set[bytes] = field(default_factory=set)
    folders: set[bytes] = field(default_factory=set)  # appeared, moved or went: look at what is below
    all: bool = False  # too much to list, or events were lost


class Hints:
    """Collects hints from the observer's threads until the watcher drains them."""

    def __init__(self, root: bytes) -> None:
        self.arrived = threading.Event()
        self._root = root
        self._real_root = os.path.realpath(root)
        self._lock = threading.Lock()
        self._dirty = Dirty()

    def add(self, path: bytes, *, is_folder: bool = False) -> None:
        """`path` may have changed; of a folder, all that is below it."""
        path = self._as_given(path)
        with self._lock:
            if len(self._dirty.paths) + len(self._dirty.folders) >= LIMIT:
                self._dirty = Dirty(all=True)
            elif not self._dirty.all:
                (self._dirty.folders if is_folder else self._dirty.paths).add(path)
        self.arrived.set()

    def lost(self) -> None:
        """Events were lost: anything may have changed."""
        with self._lock:
            self._dirty = Dirty(all=True)
        self.arrived.set()

    def drain(self) -> Dirty:
        """All hints since the last call."""
        with self._lock:
            dirty, self._dirty = self._dirty, Dirty()
            self.arrived.clear()
        return dirty

    def _as_given(self, path: bytes) -> bytes:
        # macOS names files by their real path, whatever link the root was reached by.
        if self._real_root != self._root and path.startswith(self._real_root):
            return self._root + path[len(self._real_root) :]
        return path


class Observer(Protocol):
    """The part of a watchdog observer the watcher uses."""

    def is_alive(self) -> bool:
        """Whether events are still delivered."""
        ...

    def stop(self) -> None:
        """Deliver no more events; returns before the threads have ended."""
        ...


class WatchdogObserver:
    """watchdog's native observer of one root."""

    def __init__(self, root: bytes, *, recursive: bool, hints: Hints) -> None:
        """Start observing. Raises: OSError where the system refuses (inotify limits, folder gone)."""
        from watchdog.observers import Observer as Native

        self._observer: Any = Native()
        self._observer.schedule(_handler(hints), os.fsdecode(root), recursive=recursive)
        self._observer.start()

    def is_alive(self) -> bool:
        """Whether all threads of the observer run."""
        emitters = list(self._observer.emitters)
        return (
            self._observer.is_alive() and bool(emitters) and all(emitter.is_alive() for emitter in emitters)
        )

    def stop(self) -> None:
        """End the observer's threads."""
        try:
            self._observer.stop()
        except Exception:  # stopping half-dead observers fails in many ways, none of which matter any more
            log.debug("an observer did not stop cleanly", exc_info=True)


def _handler(hints: Hints) -> Any:
    from watchdog.events import FileSystemEvent, FileSystemEventHandler

    class Handler(FileSystemEventHandler):
        """Passes the paths of events on; kinds and order are not to be trusted (FSEvents merges and reorders)."""

        def on_any_event(self, event: FileSystemEvent) -> None:
            if event.event_type in _IGNORED_EVENTS:
                return
            if event.is_directory and event.event_type == "modified":
                if sys.platform == "darwin":  # may be all that FSEvents says of many changes inside
                    hints.add(os.fsencode(event.src_path), is_folder=True)
                return
            for path in (event.src_path, event.dest_path):
                if path:
                    hints.add(os.fsencode(path), is_folder=event.is_directory)

    return Handler()


def unwatched(folders: list[tuple[bytes, int]]) -> int:
    """How many of the folders (path, inode) inotify does not watch in this process; 0 where that cannot be told.

    watchdog ≥ 7 keeps silent when the limit is reached below the root (older versions raise).
    """
    try:
        descriptors = list(Path("/proc/self/fd").iterdir())
    except OSError:
        return 0
    watched: set[int] = set()
    for descriptor in descriptors:
        with contextlib.suppress(OSError):  # closed since it was listed
            if str(descriptor.readlink()) == "anon_inode:inotify":
                watched |= _watched_inodes(Path(f"/proc/self/fdinfo/{descriptor.name}").read_bytes())
    missing = sum(1 for _, inode in folders if inode not in watched)
    # Where not even the root is found, inode numbers here are not those of the kernel's list (overlay file systems).
    return missing if folders and folders[0][1] in watched else 0


def _watched_inodes(fdinfo: bytes) -> set[int]:
    """Inode numbers in lines such as `inotify wd:3 ino:9e7e sdev:800013 mask:800afce …`."""
    return {
        int(match, 16) for match in re.findall(rb"^inotify wd:\w+ ino:([0-9a-f]+) ", fdinfo, re.MULTILINE)
    }
