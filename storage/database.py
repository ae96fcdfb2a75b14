"""The database file: opened, brought up to date, and used in whole transactions.

Only `open_database` may change the schema, and only then is sqlite-utils imported: it brings pandas along where that
is installed, which costs more than everything else a command does.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

from storage.errors import (
    AccessError,
    DamagedError,
    DatabaseError,
    DiskFullError,
    Fault,
    OcrdError,
    StorageError,
    from_os_error,
)
from storage.failpoints import reach

# Names of the steps in storage.migrations, known here so that nothing is imported to see that none is pending.
STEPS = (
    "schema",
    "full_text",
    "attempts",
    "waiting_files",
    "serving",
    "folded_names",
    "forgotten",
    "filtering",
)
BUSY_TIMEOUT_MS = 30_000

_NEWER = "use the newer ocrd that wrote it, or set OCRD_HOME to another folder"
_OLDER = "run `ocrd batch` or `ocrd watch` once; it brings the database up to date"
_NONE = "run `ocrd batch FILE` or `ocrd watch FOLDER` first"


def open_database(path: Path) -> sqlite3.Connection:
    """The database at `path` for reading and writing; made, or brought up to date, where that is needed.

    A new folder gets mode 0700, a new file 0600. Transactions are explicit: see `transaction`.
    Raises: `DatabaseError` when the file is damaged, foreign or of a newer ocrd, or a `StorageError`.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _create(path)
    except OSError as error:
        raise from_os_error(error, file=path) from error
    with _explained(path):
        conn = _connect(path.absolute().as_uri())
        try:
            pending = _pending(conn, path)  # before anything is changed: it may be somebody else's
            conn.execute("PRAGMA journal_mode = WAL")
            conn.execute("PRAGMA synchronous = FULL")
            conn.execute(
                "PRAGMA checkpoint_fullfsync = ON"
            )  # macOS: a checkpoint leaves the drive's cache too
            conn.execute("PRAGMA foreign_keys = ON")
            if pending:
                _migrate(conn, path)
        except BaseException:
            conn.close()
            raise
    return conn


def _create(path: Path) -> None:
    """An empty file for the owner only, if there is none.

    A file that exists is never opened here: closing any descriptor of it would drop the locks that other connections
    of this process hold (POSIX; https://www.sqlite.org/howtocorrupt.html, 2.2), and the next process to leave would
    then take itself for the last one and delete the write-ahead log under our feet.
    """
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def open_readonly(path: Path, *, any_thread: bool = False) -> sqlite3.Connection:
    """The database at `path` for reading only; nothing is created or changed.

    `any_thread`: the connection may be handed from one thread to another (never used by two at once).
    Raises: `DatabaseError` when there is none, or it is damaged, foreign or of another version.
    """
    if not path.is_file():
        raise DatabaseError("there is no database yet", file=path, remedy=_NONE)
    with _explained(path):
        conn = _connect(path.absolute().as_uri() + "?mode=ro", any_thread=any_thread)
        try:
            if pending := _pending(conn, path):
                raise DatabaseError(
                    f"the database is of an older ocrd (without {pending[0]!r})", file=path, remedy=_OLDER
                )
        except BaseException:
            conn.close()
            raise
    return conn


@contextlib.contextmanager
def transaction(conn: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """All of the block's changes or none. Takes the write lock at once, so that no reader has to become a writer.

    Raises: `RuntimeError` inside another transaction; our errors for what SQLite says of disk and file.
    """
    if conn.in_transaction:
        raise RuntimeError("a transaction is open already")
    with _explained(None):
        conn.execute("BEGIN IMMEDIATE")
        try:
            yield conn
            reach("database.commit")
            conn.execute("COMMIT")
        except BaseException:
            if conn.in_transaction:  # SQLite has already rolled back on some errors (disk full)
                conn.execute("ROLLBACK")
            raise


def explain(error: sqlite3.Error, path: Path | None = None) -> OcrdError | None:
    """Our error for what SQLite says of disk and file; None where the statement is at fault, which is a bug of ours."""
    code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
    message = f"the database: {error}"
    if code == sqlite3.SQLITE_FULL:
        return DiskFullError(message, file=path)
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return DamagedError(message, file=path)
    if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
        return AccessError(message, file=path)
    if code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL):
        return StorageError(message, file=path)
    return None


def is_transient(error: Exception) -> bool:
    """Whether a failure may pass by itself (no space, a locked or unreachable file), so that trying again is right."""
    ours = explain(error) if isinstance(error, sqlite3.Error) else error
    return isinstance(ours, OcrdError) and ours.fault is Fault.TRANSIENT


@contextlib.contextmanager
def _explained(path: Path | None) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        if (ours := explain(error, path)) is not None:
            raise ours from error
        raise


def _connect(uri: str, *, any_thread: bool = False) -> sqlite3.Connection:
    conn = sqlite3.connect(
        uri,
        uri=True,
        timeout=BUSY_TIMEOUT_MS / 1000,
        isolation_level=None,
        check_same_thread=not any_thread,
    )
    conn.row_factory = sqlite3.Row
    return conn


def _pending(conn: sqlite3.Connection, path: Path) -> list[str]:
    """The steps not yet applied. Raises: `DatabaseError` for a foreign file or one with steps we don't know."""
    tables = {row[0] for row in conn.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if "_sqlite_migrations" not in tables:
        if tables:
            raise DatabaseError(
                "this is no database of ocrd", file=path, remedy="set OCRD_HOME to another folder"
            )
        return list(STEPS)
    applied = {
        row[0] for row in conn.execute("SELECT name FROM _sqlite_migrations WHERE migration_set = 'ocrd'")
    }
    if unknown := sorted(applied - set(STEPS)):
        raise DatabaseError(
            f"the database was written by a newer ocrd (step {unknown[0]!r})", file=path, remedy=_NEWER
        )
    return [step for step in STEPS if step not in applied]


def _migrate(conn: sqlite3.Connection, path: Path) -> None:
    """Apply what is pending, one process at a time; a database with content is copied first."""
    lock = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        pending = _pending(conn, path)  # another process may have done it while we waited
        if not pending:
            return
        if len(pending) < len(STEPS):
            _keep_copy(conn, path.with_name(f"ocrd-before-{pending[0]}.db"))
        with _without_pandas():
            from sqlite_utils import Database

        from storage.migrations import migrations

        migrations.apply(Database(conn, execute_plugins=False))
    finally:
        os.close(lock)


@contextlib.contextmanager
def _without_pandas() -> Iterator[None]:
    """Hide pandas from sqlite-utils, which imports it where it finds it: 72 MB that a new daemon would keep."""
    if "pandas" in sys.modules:
        yield
        return
    sys.modules["pandas"] = None  # type: ignore[assignment]  # how Python marks a module as not to be found
    try:
        yield
    finally:
        del sys.modules["pandas"]


def _keep_copy(conn: sqlite3.Connection, copy: Path) -> None:
    temporary = copy.with_name(copy.name + ".tmp")
    temporary.unlink(missing_ok=True)
    os.close(os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))  # VACUUM INTO takes an empty file
    conn.execute("VACUUM INTO ?", (str(temporary),))
    reach("migrate.copied")
    temporary.replace(copy)
