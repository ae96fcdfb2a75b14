"""Copies of the database: made while it is in use, kept for some days, put in its place where it is damaged.

A copy is made by `VACUUM INTO`: one consistent moment, whatever is written meanwhile, without the write-ahead log.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from storage.database import explain
from storage.errors import DamagedError, DiskFullError, OcrdError, from_os_error
from storage.failpoints import reach

EVERY_S = 86_400.0
SPARE_BYTES = 256 << 20  # a disk is not filled to the brim by copies
FAULTS_TOLD = 5
_NAME = re.compile(r"ocrd-(\d{8}T\d{6}Z)\.db\Z")
_STAMP = "%Y%m%dT%H%M%SZ"
_COMPANIONS = ("-wal", "-shm", "-journal")
_NO_COPY = "there is no backup: move it away to start anew; sidecars stay, and everything is read again"


@dataclass(frozen=True, slots=True)
class Restored:
    """A damaged database was replaced."""

    copy: Path  # the copy that is now in its place
    taken_at: float
    aside: Path  # where the damaged file is


def copies(folder: Path) -> list[Path]:
    """The copies in a folder, the latest first."""
    try:
        found = [path for path in folder.iterdir() if _NAME.match(path.name)]
    except OSError:
        return []
    return sorted(found, key=lambda path: path.name, reverse=True)


def taken_at(copy: Path) -> float:
    """When a copy was made, by its name; epoch seconds."""
    match = _NAME.match(copy.name)
    if match is None:
        raise ValueError(f"{copy.name} is not named as a copy")
    return datetime.strptime(match[1], _STAMP).replace(tzinfo=UTC).timestamp()


def is_due(folder: Path, now: float) -> bool:
    """Whether the last copy is a day old; one from the future (the clock was wrong) does not count as new."""
    found = copies(folder)
    return not found or not 0 <= now - taken_at(found[0]) < EVERY_S


def make(
    database: Path,
    folder: Path,
    now: float,
    *,
    keep: int,
    free_bytes: Callable[[Path], int] | None = None,
    connected: Callable[[sqlite3.Connection], None] | None = None,
) -> Path:
    """Copy the database into the folder, see that the copy is whole, and delete all but the latest `keep`.

    `connected` gets the connection, whose `interrupt` ends the copying (`sqlite3.OperationalError`).
    Raises: `DamagedError` where the database cannot be read, `DiskFullError` before anything is written, other
    storage errors; no half copy stays.
    """
    target = folder / f"ocrd-{_stamp(now)}.db"
    temporary = folder / ".making.tmp"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _require_space(database, folder, free_bytes or _free_bytes)
        temporary.unlink(missing_ok=True)
        os.close(
            os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        )  # VACUUM INTO takes an empty file
        _copy(database, temporary, connected)
        if faults := check(temporary):
            raise DamagedError(f"a copy of it is not whole: {faults[0]}", file=database)
        _sync(temporary)
        reach("backup.copied")
        temporary.replace(target)
    except OSError as error:
        raise from_os_error(error, file=folder) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    for old in copies(folder)[max(1, keep) :]:
        old.unlink(missing_ok=True)
    return target


def sweep(folder: Path) -> None:
    """Remove a copy that its maker did not live to finish; for whoever knows that none is being made."""
    for half in (".making.tmp", ".making.tmp-journal"):
        with contextlib.suppress(OSError):
            (folder / half).unlink()


def _copy(database: Path, target: Path, connected: Callable[[sqlite3.Connection], None] | None) -> None:
    conn = sqlite3.connect(database.absolute().as_uri() + "?mode=ro", uri=True, isolation_level=None)
    try:
        if connected is not None:
            connected(conn)
        conn.execute("VACUUM INTO ?", (str(target),))
    except sqlite3.Error as error:
        if (ours := explain(error, database)) is not None:
            raise ours from error
        raise
    finally:
        conn.close()


def check(database: Path) -> list[str]:
    """What SQLite finds wrong with a database (`quick_check`); empty = whole. Reads the whole file."""
    try:
        with contextlib.closing(
            sqlite3.connect(database.absolute().as_uri() + "?mode=ro", uri=True, isolation_level=None)
        ) as conn:
            rows = conn.execute(f"PRAGMA quick_check({FAULTS_TOLD})").fetchall()
    except sqlite3.Error as error:
        ours = explain(error, database)
        if isinstance(ours, DamagedError) or ours is None:
            return [str(error)]
        raise ours from error
    return [str(row[0]) for row in rows if row[0] != "ok"]


# --- a damaged one is replaced -----------------------------------------------------------------------------


def suspect_mark(database: Path) -> Path:
    """A file that says: damage was met in this database; look before it is used again."""
    return database.with_name(database.name + ".suspect")


def suspect(database: Path) -> None:
    """Leave that mark; never fails."""
    with contextlib.suppress(OSError):
        suspect_mark(database).touch(mode=0o600)


def restore(database: Path, folder: Path, now: float, *, why: str) -> Restored:
    """Put the latest whole copy in the database's place; the damaged file is moved aside, never deleted.

    The caller sees to it that no process works on the database. A crash in between is made good by `finish_restore`.
    Raises: `DamagedError` where there is no whole copy, storage errors.
    """
    for copy in copies(folder):
        if not check(copy):
            break
    else:
        raise DamagedError(f"the database is damaged ({why})", file=database, remedy=_NO_COPY)
    try:
        waiting = _waiting(database)
        waiting.unlink(missing_ok=True)
        os.close(os.open(waiting, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        shutil.copyfile(copy, waiting)
        _sync(waiting)
        waiting.replace(_ready(database))
        reach("restore.ready")
        aside = _move_aside(database, now)
        reach("restore.aside")
        _put_in_place(database)
    except OSError as error:
        raise from_os_error(error, file=database) from error
    return Restored(copy, taken_at(copy), aside)


def finish_restore(database: Path, now: float) -> bool:
    """Complete a `restore` that a crash interrupted; whether there was one."""
    ready = _ready(database)
    if not ready.exists():
        return False
    try:
        _move_aside(database, now)
        _put_in_place(database)
    except OSError as error:
        raise from_os_error(error, file=database) from error
    return True


def _waiting(database: Path) -> Path:
    return database.with_name(database.name + ".restoring.tmp")


def _ready(database: Path) -> Path:
    """The copy, whole, on its way into place: from here on the old file is no longer the database."""
    return database.with_name(database.name + ".restored")


def _move_aside(database: Path, now: float) -> Path:
    """Move the file and its companions. A log left behind would be taken for the new file's."""
    base = f"ocrd-damaged-{_stamp(now)}"
    aside = next(
        path
        for number in range(1, 1000)
        if not (path := database.with_name(f"{base}{f'-{number}' if number > 1 else ''}.db")).exists()
    )
    for companion in ("", *_COMPANIONS):
        with contextlib.suppress(FileNotFoundError):
            database.with_name(database.name + companion).rename(aside.with_name(aside.name + companion))
    return aside


def _put_in_place(database: Path) -> None:
    _ready(database).replace(database)
    _sync(database.parent)
    suspect_mark(database).unlink(missing_ok=True)


def _stamp(now: float) -> str:
    return time.strftime(_STAMP, time.gmtime(now))


def _require_space(database: Path, folder: Path, free_bytes: Callable[[Path], int]) -> None:
    needed = database.stat().st_size + SPARE_BYTES
    if (free := free_bytes(folder)) < needed:
        raise DiskFullError(
            f"no space for a backup: {needed >> 20:,} MiB are needed, {free >> 20:,} MiB are free",
            file=folder,
            remedy="free some space, or keep none with `backups = 0` in the settings",
        )


def _free_bytes(folder: Path) -> int:
    return shutil.disk_usage(folder).free


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_damage(error: BaseException) -> bool:
    """Whether an error says that the database file itself is damaged."""
    ours: OcrdError | None = explain(error) if isinstance(error, sqlite3.Error) else None
    return isinstance(error if ours is None else ours, DamagedError)
