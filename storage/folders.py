"""The folders that files of the library lie in, level by level; each is found by one step along the index of paths."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from storage.names import bounds_below, display_path

_STEPS = 5_000  # in one request


@dataclass(frozen=True, slots=True)
class FolderRow:
    """A folder with files in it or below it."""

    path: bytes
    is_root: bool

    @property
    def shown(self) -> str:
        """The path for people."""
        return display_path(self.path)


def level(
    conn: sqlite3.Connection, below: bytes | None = None, limit: int = 500
) -> tuple[list[FolderRow], bool]:
    """The folders directly below one, in order, and whether there are more than are told.

    Without `below`: the watched folders, and the uppermost ones that hold other files.
    """
    roots = {bytes(row[0]) for row in conn.execute("SELECT path_bytes FROM roots")}
    found: dict[bytes, None] = {}
    steps = iter(range(_STEPS))
    for folder in _children(conn, below, steps) if below is not None else _tops(conn, roots, steps):
        found[folder] = None
        if len(found) > limit:
            break
    more = len(found) > limit or next(steps, None) is None
    kept = [folder for folder in found if below is not None or not _is_inside(folder, found)]
    return [FolderRow(folder, folder in roots) for folder in islice(sorted(kept), limit)], more


def _children(conn: sqlite3.Connection, below: bytes, steps: Iterator[int]) -> Iterator[bytes]:
    at, end = bounds_below(below)
    start = len(at)
    for _ in steps:
        path = _first_path(conn, at, end)
        if path is None:
            return
        name, slash, _ = path[start:].partition(b"/")
        if slash:
            yield path[:start] + name
            at = path[:start] + name + b"0"  # past all that lies below it
        else:
            at = path + b"\0"


def _tops(conn: sqlite3.Connection, roots: set[bytes], steps: Iterator[int]) -> Iterator[bytes]:
    at, end = b"/", b"0"
    for _ in steps:
        path = _first_path(conn, at, end)
        if path is None:
            return
        parents = [path[:i] for i in range(1, len(path)) if path[i : i + 1] == b"/"]
        folder = next((parent for parent in parents if parent in roots), parents[-1] if parents else b"/")
        yield folder
        at = folder.rstrip(b"/") + b"0"


def _is_inside(folder: bytes, others: dict[bytes, None]) -> bool:
    return any(folder[:i] in others for i in range(1, len(folder)) if folder[i : i + 1] == b"/")


def _first_path(conn: sqlite3.Connection, at: bytes, end: bytes) -> bytes | None:
    row = conn.execute(
        "SELECT path_bytes FROM files WHERE path_bytes >= ? AND path_bytes < ? ORDER BY path_bytes LIMIT 1",
        (at, end),
    ).fetchone()
    return None if row is None else bytes(row[0])
