"""Watches one root: from hints and scans to files at rest in the queue.

Decides from what is on the disk, never from events.
"""

from __future__ import annotations

import errno
import logging
import os
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from daemon import hints, mac_access, mounts, scanner
from daemon.hints import Hints, Observer
from daemon.ignore import IgnoreRules, Kind
from daemon.scanner import Found, Tally, WatchRoot
from daemon.settle import Settler
from storage import library, workers

if TYPE_CHECKING:
    from storage.settings import Settings

log = logging.getLogger(__name__)

PRESENCE_S = 2.0  # how often the root itself is looked at
RESTART_S = 5.0  # a dead observer is started again this much later at the earliest
_LIMIT_ERRNO = frozenset((errno.ENOSPC, errno.EMFILE, errno.ENFILE))
LIMIT_MESSAGE = (
    "the system's limit for watched folders is reached (fs.inotify.max_user_watches or max_user_instances): "
    "scanning every %g s instead; raise it with `sysctl fs.inotify.max_user_watches=524288`"
)

StartObserver = Callable[[WatchRoot, Hints], Observer]


def start_native(root: WatchRoot, found: Hints) -> Observer:
    """watchdog's observer for this platform. Raises: OSError."""
    return hints.WatchdogObserver(root.path, recursive=root.recursive, hints=found)


@dataclass(slots=True)
class _Known:
    """What the last scan left to compare with."""

    device: int
    is_mount: bool


class RootWatcher:
    """One watched root. `tick` does whatever is due; all of it may be repeated without harm.

    Belongs to one thread, except `hints`, which the observer's threads fill.
    """

    def __init__(
        self,
        root: WatchRoot,
        settings: Settings,
        rules: IgnoreRules,
        conn: sqlite3.Connection,
        *,
        now: float,
        skip: frozenset[bytes] = frozenset(),
        start_observer: StartObserver = start_native,
        file_system: Callable[[bytes], str | None] = mounts.file_system,
        on_event: Callable[[str], None] | None = None,
    ) -> None:
        self.root = root
        self.settings = settings
        self.rules = rules
        self.skip = skip
        self.conn = conn
        self.hints = Hints(root.path)
        self.settler = Settler(settings.settle_s)
        self.state = "new"  # new | ok | gone
        self.mode = "native"
        self.scanned_once = False
        self.restarts = 0
        self._start_observer = start_observer
        self._file_system = file_system
        self._on_event = on_event or (lambda line: None)
        self._observer: Observer | None = None
        self._known: _Known | None = None
        self._not_documents: dict[bytes, tuple[int, int]] = {}  # extension-less files judged by content
        self._reported: set[bytes] = set()  # folders already reported as unreadable
        self._next_scan = self._next_presence = self._next_start = self._last_tick = float("-inf")
        self._message: str | None = None
        self._in_cloud = 0
        self._denied: str | None = None  # why the root itself cannot be listed
        self._unwatched_before = False
        self.root_id = library.add_root(conn, root.path, recursive=root.recursive, mode="native", now=now)

    # --- one turn ------------------------------------------------------------------------------------

    def tick(self, now: float) -> bool:
        """Look after the root, follow hints, scan if due, queue what has come to rest; whether anything was queued."""
        if (
            now < self._last_tick - PRESENCE_S
        ):  # the clock was set back: what its old hour made due is due now
            self._next_scan = self._next_presence = self._next_start = float("-inf")
        self._last_tick = now
        if now >= self._next_presence or self.state != "ok":
            self._next_presence = now + PRESENCE_S
            self._check_presence(now)
        if self.state != "ok":
            self.hints.drain()
            return False
        self._check_observer(now)
        dirty = self.hints.drain()
        if dirty.all:
            self._next_scan = now
        self._follow(dirty, now)
        if now >= self._next_scan:
            self.scan(now)
        return self._queue_settled(now)

    def wait_s(self, now: float) -> float:
        """How long nothing is due if no hint arrives, in seconds."""
        times = [self._next_presence, self._next_scan if self.state == "ok" else self._next_presence]
        settled = self.settler.next_due()
        if settled is not None:
            times.append(settled)
        return min(max(min(times) - now, 0.05), PRESENCE_S)

    @property
    def is_quiet(self) -> bool:
        """Whether everything there was when watching began has been queued."""
        return self.state == "gone" or (self.scanned_once and not len(self.settler))

    def close(self) -> None:
        """Stop observing."""
        if self._observer is not None:
            self._observer.stop()
            self._observer = None

    # --- the root itself -----------------------------------------------------------------------------

    def _check_presence(self, now: float) -> None:
        try:
            status = os.stat(self.root.path)
            present = os.path.isdir(self.root.path) and not self._is_bare_mount_point(status.st_dev)
        except OSError:
            present = False
        if present and self.state != "ok":
            self._attach(now)
        elif not present and self.state != "gone":
            self._detach()

    def _is_bare_mount_point(self, device: int) -> bool:
        """Whether the root is the empty folder a share was mounted on: it lost its device and all its files."""
        remembered = self._known is not None and self._known.device != device
        if self._known is None:  # did it carry a mount when we last ran?
            was_mount = workers.get(self.conn, f"mount:{self.root_id}") == "1"
            remembered = was_mount and not os.path.ismount(self.root.path)
        if not remembered:
            return False
        with os.scandir(self.root.path) as listing:
            return next(iter(listing), None) is None

    def _attach(self, now: float) -> None:
        returned = self.state == "gone"
        self.state = "ok"
        is_mount = os.path.ismount(self.root.path)
        self._known = _Known(os.stat(self.root.path).st_dev, is_mount)
        workers.put(self.conn, f"mount:{self.root_id}", "1" if is_mount else "0")
        self._start(now)
        self._next_scan = now
        if returned:
            self._say(f"{os.fsdecode(self.root.path)} is back", logging.INFO)
        self._publish()

    def _detach(self) -> None:
        self.close()
        self.settler.clear()
        self._known = None
        self.state = "gone"
        self._say(f"{os.fsdecode(self.root.path)} is away: waiting for it; nothing in it counts as deleted")
        self._publish("away: unmounted, moved or not readable; watched again once it is back")

    # --- the observer --------------------------------------------------------------------------------

    def _start(self, now: float) -> None:
        self._next_start = now + RESTART_S
        kind = self._file_system(self.root.path)
        if kind is not None and mounts.is_remote(kind):
            self._poll(
                f"{kind}: changes elsewhere raise no events here, so it is scanned every {self._poll_s:g} s"
            )
            return
        try:
            self.close()
            self._observer = self._start_observer(self.root, self.hints)
            self.mode = "native"
            self._message = None
        except OSError as error:
            if error.errno in _LIMIT_ERRNO:
                self._warn_of_limit()
            else:
                self._poll(f"no change events ({error.strerror}): scanned every {self._poll_s:g} s")
                log.warning("cannot observe a folder: %s", error.strerror, extra={"path": self.root.path})

    def _check_observer(self, now: float) -> None:
        if self.mode != "native" or now < self._next_start:
            return
        if self._observer is not None and self._observer.is_alive():
            return
        self.restarts += 1
        self._say(f"the observer of {os.fsdecode(self.root.path)} ended; started again")
        self._start(now)
        self._next_scan = now  # for what it missed
        self._publish()

    def _warn_of_limit(self) -> None:
        message = LIMIT_MESSAGE % self._poll_s
        self._say(f"{os.fsdecode(self.root.path)}: {message}")
        self._poll(message)

    def _poll(self, why: str) -> None:
        self.close()
        self.mode = "polling"
        self._message = why

    @property
    def _poll_s(self) -> float:
        return self.settings.poll_s

    # --- looking -------------------------------------------------------------------------------------

    def scan(self, now: float) -> None:
        """Compare the whole root with what is known of it: queue what is new, note what is gone."""
        known = library.known_files(self.conn, self.root_id)
        tally = Tally()
        self._in_cloud = 0
        for found in self._walk(tally):
            if known.pop(found.path, None) != (found.size, found.mtime_ns):
                self._observe(found, now)
        self._in_cloud = tally.in_cloud
        self._report_unreadable(tally)
        self._mark_missing(list(known), tally, now)
        self._next_scan = now + (self.settings.rescan_s if self.mode == "native" else self._poll_s)
        self.scanned_once = self.scanned_once or self.root.path not in tally.unreadable
        self._check_watches(tally)
        self._publish(scanned_at=now)

    def _walk(self, tally: Tally, start: bytes | None = None) -> list[Found]:
        follow = self.settings.follow_symlinks
        return list(
            scanner.walk(self.root, self.rules, tally, start=start, follow_symlinks=follow, skip=self.skip)
        )

    def _mark_missing(self, candidates: list[bytes], tally: Tally, now: float) -> None:
        """Known files the walk did not meet: missing if their folder could be looked at, and the root still stands."""
        gone = []
        for path in candidates:
            if any(path.startswith(folder + b"/") for folder in tally.unreadable):
                continue
            if not os.path.lexists(path):  # else only ignored now, or a new-comer
                gone.append(path)
        if gone and self._still_there():
            library.mark_missing(self.conn, gone, now)

    def _still_there(self) -> bool:
        """Whether the root is still what we attached to; a share may go away in the midst of a scan."""
        try:
            status = os.stat(self.root.path)
            return self._known is not None and status.st_dev == self._known.device
        except OSError:
            return False

    def _follow(self, dirty: hints.Dirty, now: float) -> None:
        for folder in dirty.folders:
            if not os.path.isdir(folder):  # went, or moved: what it held is for a scan to say
                self._next_scan = now
            elif folder == self.root.path or scanner.is_inside(
                os.path.join(folder, b"x"),
                self.root,
                self.rules,
                follow_symlinks=self.settings.follow_symlinks,
            ):
                tally = Tally()
                for found in self._walk(tally, start=folder):
                    self._observe(found, now)
        gone = []
        for path in dirty.paths:
            if self.rules.kind(os.path.basename(path)) is Kind.CLOUD:
                # Only a scan knows how many there are. Files may be moved to the cloud by the thousand: wait a little.
                self._next_scan = min(self._next_scan, now + self._poll_s)
            try:
                found_one = scanner.look(
                    path, self.root, self.rules, follow_symlinks=self.settings.follow_symlinks
                )
            except FileNotFoundError:
                self.settler.discard(path)
                if os.path.isdir(os.path.dirname(path)):
                    gone.append(path)
                continue
            except OSError as error:
                log.debug("cannot look at a file: %s", error.strerror, extra={"path": path})
                continue
            if found_one is not None and found_one.kind is not Kind.CLOUD:
                self._observe(found_one, now)
        if gone and self._still_there():
            library.mark_missing(self.conn, gone, now)

    def _observe(self, found: Found, now: float) -> None:
        if self._not_documents.get(found.path) != (found.size, found.mtime_ns):
            self.settler.observe(found.path, found.size, found.mtime_ns, now)

    def _queue_settled(self, now: float) -> bool:
        seen = []
        for path in self.settler.due(now):
            try:
                found = scanner.look(
                    path, self.root, self.rules, follow_symlinks=self.settings.follow_symlinks
                )
                if found is None or found.kind is Kind.CLOUD:
                    self.settler.discard(path)
                    continue
                if not self.settler.confirm(path, found.size, found.mtime_ns, now):
                    continue
                if found.kind is Kind.UNKNOWN and not scanner.is_document(path):
                    self._not_documents[path] = (found.size, found.mtime_ns)
                    continue
            except OSError as error:  # gone, or not readable: the next scan or hint brings it back
                log.debug("cannot look at a file: %s", error.strerror, extra={"path": path})
                self.settler.discard(path)
                continue
            seen.append(self._seen(found))
        if seen:
            library.register(self.conn, seen, now)
            log.info("queued %d files", len(seen), extra={"path": self.root.path})
        return bool(seen)

    def _seen(self, found: Found) -> library.SeenFile:
        return library.SeenFile(
            path=found.path,
            size=found.size,
            mtime_ns=found.mtime_ns,
            root_id=self.root_id,
            out_dir=self.root.out_dir,
            base=(self.root.base or self.root.path) if self.root.out_dir else None,
        )

    # --- what people are told ------------------------------------------------------------------------

    def _check_watches(self, tally: Tally) -> None:
        if self.mode != "native":
            return
        missing = hints.unwatched(tally.folders) > 0
        if missing and self._unwatched_before:
            self._warn_of_limit()
        elif missing:
            self._next_scan = min(self._next_scan, self._next_scan - self.settings.rescan_s + PRESENCE_S)
        self._unwatched_before = missing

    def _report_unreadable(self, tally: Tally) -> None:
        self._denied = None
        for folder, error in tally.unreadable.items():
            answer = mac_access.explain(error)
            if folder == self.root.path:
                self._denied = f"{answer.message}: {answer.remedy}"
            if folder not in self._reported:
                self._say(
                    f"{os.fsdecode(folder)}: {answer.message}; looked at again later. Remedy: {answer.remedy}"
                )
        self._reported = set(tally.unreadable)

    def _publish(self, message: str | None = None, *, scanned_at: float | None = None) -> None:
        parts = [part for part in (message or self._message,) if part]
        if self._in_cloud:
            parts.append(f"waiting: {self._in_cloud} in iCloud")
        if self._denied:
            parts.append(self._denied)
        elif self._reported:
            parts.append(f"{len(self._reported)} folders cannot be listed")
        library.set_root_state(
            self.conn, self.root_id, "gone" if self.state == "gone" else "ok", "; ".join(parts) or None
        )
        library.set_root_watch(self.conn, self.root_id, mode=self.mode, scanned_at=scanned_at)

    def _say(self, line: str, level: int = logging.WARNING) -> None:
        log.log(level, "%s", line)
        self._on_event(line)
