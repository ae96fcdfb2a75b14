"""Take a file in: see that it is whole, hash it, open it, and note what it is."""

from __future__ import annotations

import hashlib
import logging
import os
import sqlite3
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from daemon.scanner import SF_DATALESS
from storage import content, jobs, library
from storage.errors import (
    AccessError,
    EmptyFileError,
    InputError,
    NotADocumentError,
    OcrdError,
    PasswordError,
    StorageError,
    from_os_error,
)
from storage.failpoints import reach
from storage.work import IntakeJob

if TYPE_CHECKING:
    from storage.records import DocumentInfo
    from storage.settings import Settings

log = logging.getLogger(__name__)

CHUNK_BYTES = 1 << 20
# A watched file that cannot be opened may still be on its way (scanners pause between pages): until it has been
# left alone for this many settle times, that is no failure.
GRACE_FACTOR = 5
CLOUD_S = 60.0  # then a file that lies in the cloud is looked at again

Open = Callable[[Path, tuple[str, ...]], "DocumentInfo"]
Explain = Callable[[Exception, bytes], OcrdError]


@dataclass(frozen=True, slots=True)
class Intake:
    """What taking files in needs. `open_info` must run where PDFium may be called."""

    conn: sqlite3.Connection
    owner: str
    settings: Settings
    open_info: Open
    explain: Explain  # our error for any exception
    watching: bool  # files come from watched folders and may still grow

    def take(self, job: IntakeJob, now: float) -> content.LinkOutcome | None:
        """Hash and open one file, and note the outcome; None where it was put off or failed to be hashed."""
        try:
            before = self._look(job, now)
            if before is None:
                return None
            sha256, size = hash_file(job.path)
            reach("intake.hashed")
            if _looks(os.stat(job.path)) != _looks(before):
                self._put_off(job, now)
                return None
            info, error = self._open(job, sha256, size)
        except Exception as unexpected:
            self._fail(job, self.explain(unexpected, job.path), now)
            return None
        if isinstance(error, InputError) and self._may_still_grow(before, error, now):
            self._put_off(job, now)
            return None
        return content.link(self.conn, job, sha256, size, info, error, now)

    def _look(self, job: IntakeJob, now: float) -> os.stat_result | None:
        """The file's status, or None where it is not the file that was registered (which then is noted)."""
        self._require_inside(job)
        status = os.stat(job.path)
        if not stat.S_ISREG(status.st_mode):  # opening a pipe would wait for its writer
            raise NotADocumentError("this is no regular file", file=os.fsdecode(job.path))
        if getattr(status, "st_flags", 0) & SF_DATALESS:  # opening it would fetch it
            error = StorageError("its content is in the cloud and not here", file=os.fsdecode(job.path))
            jobs.defer(self.conn, self.owner, job, error, now, CLOUD_S)
            return None
        if job.size in (-1, status.st_size) and job.mtime_ns == status.st_mtime_ns:
            return status
        if job.size == -1:
            return status
        if self.watching and 0 <= now - status.st_mtime < self.settings.settle_s:
            self._put_off(job, now)
        else:
            register_again(self.conn, job.path, status, now)
        return None

    def _require_inside(self, job: IntakeJob) -> None:
        """See that a watched file still lies in its folder: links may have been put in its place since it was found.

        Raises: `AccessError`.
        """
        row = self.conn.execute(
            "SELECT roots.path_bytes FROM files JOIN roots ON roots.id = root_id WHERE files.id = ?",
            (job.file_id,),
        ).fetchone()
        if row is None or self.settings.follow_symlinks:
            return
        root, path = os.path.realpath(row[0]), os.path.realpath(job.path)
        if not path.startswith(root.rstrip(b"/") + b"/"):
            raise AccessError(
                "a link leads out of the watched folder",
                file=os.fsdecode(job.path),
                remedy="to have it read, set `follow_symlinks = true`",
            )

    def _open(self, job: IntakeJob, sha256: str, size: int) -> tuple[DocumentInfo | None, OcrdError | None]:
        if content.is_known(self.conn, sha256):
            return None, None
        if size == 0:
            return None, EmptyFileError("it is empty", file=os.fsdecode(job.path))
        password = job.options.get("password")
        try:
            given = (str(password),) if password else ()
            return self.open_info(Path(os.fsdecode(job.path)), given), None
        except InputError as error:
            return None, error

    def _may_still_grow(self, status: os.stat_result, error: OcrdError, now: float) -> bool:
        grace_s = GRACE_FACTOR * self.settings.settle_s
        young = 0 <= now - status.st_mtime < grace_s
        return self.watching and young and not isinstance(error, PasswordError | EmptyFileError)

    def _put_off(self, job: IntakeJob, now: float) -> None:
        error = StorageError("it may still be being written", file=os.fsdecode(job.path))
        jobs.defer(self.conn, self.owner, job, error, now, max(self.settings.settle_s, 0.1))

    def _fail(self, job: IntakeJob, error: OcrdError, now: float) -> None:
        log.warning("cannot take in a file: %s", error.message, extra={"path": job.path})
        jobs.fail_intake(self.conn, self.owner, job, error, now, self.settings.max_attempts)


def hash_file(path: bytes) -> tuple[str, int]:
    """SHA-256 and size in bytes of a file's content, read in pieces. Raises: `StorageError` and its kinds."""
    digest, size = hashlib.sha256(), 0
    try:
        with open(path, "rb", buffering=0) as file:
            while piece := file.read(CHUNK_BYTES):
                digest.update(piece)
                size += len(piece)
    except OSError as error:
        raise from_os_error(error, file=os.fsdecode(path)) from error
    return digest.hexdigest(), size


def register_again(conn: sqlite3.Connection, path: bytes, status: os.stat_result, now: float) -> None:
    """Register a known file as it looks now; its root and the place of its sidecars stay."""
    row = conn.execute(
        "SELECT root_id, out_dir_bytes, base_bytes FROM files WHERE path_bytes = ?", (path,)
    ).fetchone()
    if row is not None:
        seen = library.SeenFile(path, status.st_size, status.st_mtime_ns, *row)
        library.register(conn, [seen], now)


def _looks(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_size, status.st_mtime_ns, status.st_ino
