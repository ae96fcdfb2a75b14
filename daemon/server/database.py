"""Connections to the database for requests: read-only ones from a small pool, and one writer at a time."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, cast

from fastapi import Depends, Request

from storage.database import open_database, open_readonly

KEPT = 8  # idle connections kept open; more are opened when more requests run at once


class Library:
    """The database of a home, as requests use it. Thread-safe."""

    def __init__(self, path: Path, kept: int = KEPT) -> None:
        self.path = path
        self.kept = kept
        self._idle: list[sqlite3.Connection] = []
        self._lock = threading.Lock()
        self._writing = threading.Lock()

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A read-only connection for one thread at a time. Raises: `DatabaseError`."""
        with self._lock:
            conn = self._idle.pop() if self._idle else None
        conn = conn or open_readonly(self.path, any_thread=True)
        is_ours = True
        try:
            yield conn
        except asyncio.CancelledError:
            # The request was given up, its thread perhaps not: closed under it, SQLite takes the process with it.
            is_ours = False
            raise
        finally:
            if is_ours:
                self._take_back(conn)

    def _take_back(self, conn: sqlite3.Connection) -> None:
        if conn.in_transaction:
            conn.rollback()
        with self._lock:
            keep = len(self._idle) < self.kept
            if keep:
                self._idle.append(conn)
        if not keep:
            conn.close()

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A connection for writing, closed afterwards; one at a time. Raises: `DatabaseError`, `StorageError`."""
        with self._writing, contextlib.closing(open_database(self.path)) as conn:
            yield conn

    def close(self) -> None:
        """Close the idle connections."""
        with self._lock:
            idle, self._idle = self._idle, []
        for conn in idle:
            conn.close()


def library(request: Request) -> Library:
    """The app's library; a dependency."""
    return cast("Library", request.app.state.library)


def connection(request: Request) -> Iterator[sqlite3.Connection]:
    """A read-only connection for the request; a dependency. Raises: `DatabaseError`."""
    with library(request).reading() as conn:
        yield conn


Reading = Annotated[sqlite3.Connection, Depends(connection)]  # a parameter `conn: Reading` of an endpoint
# `library: LibraryOf`; then `with library.writing() as conn`.
LibraryOf = Annotated[Library, Depends(library)]
