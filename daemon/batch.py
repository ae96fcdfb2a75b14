"""The run of `ocrd batch`: queue the given paths, have them read, say how far it is, end when they are done.

Where a daemon works on the same home, it does the work; the batch only queues and waits.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from daemon import logs, notices, power
from daemon.crew import TICK_S, Crew, StopSignals
from daemon.given import OUTCOMES, Outcome, expand, outcome_of, unusable
from daemon.watching import check_writable
from storage import jobs, library
from storage.errors import BusyError, ExitCode

if TYPE_CHECKING:
    from storage.settings import Settings

__all__ = ["Outcome", "Progress", "Summary", "run"]

LOOK_S = 0.25  # how often progress is told
PATIENCE_S = 3.0  # for something put off (a share that answers late), before a batch reports it

_FILES_DONE = "SELECT count(*) FROM given JOIN file_status USING (id) WHERE file_status.state = 'done'"
_PAGES_DONE = (
    "SELECT coalesce(sum(pages_done + pages_failed), 0) FROM documents"
    " WHERE id IN (SELECT document_id FROM given JOIN files USING (id) WHERE files.state <> 'intake')"
)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a batch is."""

    files: int
    files_done: int  # whatever became of them
    pages: int  # of the files opened so far
    pages_done: int  # read or failed
    path: bytes | None  # what is being read
    page: int | None
    seconds: float
    pages_before: int = 0  # of those done, read before this batch
    message: str = ""  # something happened that a person may want to know


@dataclass(frozen=True, slots=True)
class Summary:
    """What became of all files."""

    documents: tuple[Outcome, ...]
    # Files per state; pages_total, pages_done, pages_blank, pages_failed; read_before and pages_before: the files and
    # pages of those done that this batch found done.
    counts: dict[str, int]
    seconds: float
    exit_code: ExitCode


def run(
    settings: Settings, paths: Sequence[Path], *, on_progress: Callable[[Progress], None] | None = None
) -> Summary:
    """Read files, and all that is in folders, and wait until each is done or has failed.

    A path that cannot be used at all is an outcome like any other. Files read before and unchanged are not read again,
    failed ones are.
    Raises: `AccessError` if nothing can be written to `--out`, `SettingsError`, `EngineUnavailableError`,
    `DatabaseError`, `BusyError` while the queue is paused by a person.
    """
    logs.to_file(settings)
    if settings.out is not None:
        check_writable(os.fsencode(settings.out))
    started = time.monotonic()
    crew = Crew(settings, doing="runs a batch", watching=False)
    try:
        for pause in jobs.paused(crew.conn):
            if pause.kind == "user":
                raise BusyError(f"the queue is paused: {pause.reason}", remedy="run `ocrd resume` first")
        files, broken = expand(settings, paths)
        batch = _Batch(crew, files, broken, on_progress or (lambda progress: None), started)
        batch.register(settings)
        with StopSignals() as signals:
            summary = batch.run(signals)
        if batch.is_leading:
            notify(settings, summary)
        return summary
    finally:
        crew.close()


def notify(settings: Settings, summary: Summary) -> None:
    """Tell the desktop that a batch has ended, as the settings want it."""
    digest = notices.Digest(settings.notify)
    for outcome in summary.documents:
        failed = outcome.error_code is not None or outcome.state in ("failed", "needs_password")
        digest.add(os.fsdecode(outcome.path), failed=failed)
    if (told := digest.due(0.0, idle=True)) is not None:
        notices.send(*told, wait=True)


class _Batch:
    """A crew at work on given files."""

    def __init__(
        self,
        crew: Crew,
        files: list[library.SeenFile],
        broken: list[Outcome],
        on_progress: Callable[[Progress], None],
        started: float,
    ) -> None:
        self.crew = crew
        self.conn = crew.conn
        self.files = files
        self.broken = broken
        self.started = started
        self.messages: list[str] = []
        self._tell = on_progress
        self.is_leading = False
        self.read_before = self.pages_before = 0
        self._next_look = float("-inf")
        self._waiting_since: float | None = None
        crew.say = self.messages.append

    def register(self, settings: Settings) -> None:
        """Queue the files; those that failed before are tried again."""
        library.register(self.conn, self.files, time.time())
        self.conn.execute("CREATE TEMP TABLE given (id INTEGER PRIMARY KEY, position INTEGER NOT NULL)")
        self.conn.executemany(
            "INSERT OR IGNORE INTO given SELECT id, ? FROM files WHERE path_bytes = ?",
            ((position, file.path) for position, file in enumerate(self.files)),
        )
        failed = self.conn.execute(
            "SELECT path_bytes FROM given JOIN files USING (id) JOIN file_status USING (id)"
            " WHERE file_status.state IN ('failed', 'needs_password')"
        ).fetchall()
        if failed:
            library.retry(self.conn, [bytes(row[0]) for row in failed], {}, time.time())
        self.read_before = int(self.conn.execute(_FILES_DONE).fetchone()[0])
        self.pages_before = int(self.conn.execute(_PAGES_DONE).fetchone()[0])

    def run(self, signals: StopSignals) -> Summary:
        """Until every file is settled, or a signal."""
        try:
            while not signals.count and self.crew.fatal is None:
                now = time.time()
                self._lead()
                if self.is_leading:
                    self.crew.tick(now)
                if time.monotonic() >= self._next_look:
                    began = time.monotonic()
                    done = self._look(now)
                    # Looking at many files takes time: spend a tenth of ours on it at most.
                    self._next_look = time.monotonic() + max(LOOK_S, 10 * (time.monotonic() - began))
                    if done:
                        break
                self.crew.wake.wait(min(TICK_S, 0.1))
                self.crew.wake.clear()
        finally:
            if self.is_leading:
                self.crew.stop(signals=signals)
        if self.crew.fatal is not None:
            raise self.crew.fatal
        return self._summary(interrupted=signals.last == signal.SIGINT)

    def _lead(self) -> None:
        """Do the work ourselves, unless and until somebody else does."""
        if self.is_leading:
            return
        try:
            self.crew.start()
            self.is_leading = True
        except BusyError:
            if self._next_look == float("-inf"):
                self.messages.append(
                    f"{self.crew.lock.describe()}: it reads the files, this command only waits"
                )

    def _look(self, now: float) -> bool:
        """Tell how far it is; whether it is over."""
        row = self.conn.execute(
            "SELECT count(*) AS files, sum(file_status.state NOT IN ('queued', 'running')) AS done FROM given"
            " JOIN file_status USING (id)"
        ).fetchone()
        pages = self.conn.execute(
            "SELECT coalesce(sum(pages), 0) AS pages, coalesce(sum(pages_done + pages_failed), 0) AS done"
            " FROM documents WHERE id IN (SELECT document_id FROM given JOIN files USING (id))"
        ).fetchone()
        at = self.conn.execute(
            "SELECT path, page FROM workers WHERE role = 'worker' AND path IS NOT NULL"
            " ORDER BY page IS NULL, stage_since DESC LIMIT 1"
        ).fetchone()
        for message in self.messages or [""]:
            self._tell(
                Progress(
                    files=row["files"] + len(self.broken),
                    files_done=(row["done"] or 0) + len(self.broken),
                    pages=pages["pages"],
                    pages_done=pages["done"],
                    path=os.fsencode(at["path"]) if at else None,
                    page=at["page"] if at else None,
                    seconds=time.monotonic() - self.started,
                    pages_before=self.pages_before,
                    message=message,
                )
            )
        self.messages.clear()
        return (row["done"] or 0) >= row["files"] or self._only_waits(now)

    def _only_waits(self, now: float) -> bool:
        """Whether all that is left is put off for longer than a batch waits."""
        held = any(pause.kind in ("disk_full", power.KIND) for pause in jobs.paused(self.conn))
        if not held and not jobs.is_idle(self.conn, now):
            self._waiting_since = None
            return False
        if self._waiting_since is None:
            self._waiting_since = now
        return now - self._waiting_since > PATIENCE_S

    def _summary(self, *, interrupted: bool) -> Summary:
        documents = tuple(self.broken) + tuple(self._outcomes())
        counts = dict.fromkeys(("queued", "running", "done", "failed", "needs_password", "missing"), 0)
        for outcome in documents:
            counts[outcome.state] += 1
        counts["total"] = len(documents)
        counts["skipped"] = counts["needs_password"] + counts["missing"]
        counts["waiting"] = counts["queued"] + counts["running"]
        pages = self.conn.execute(
            "SELECT coalesce(sum(pages), 0), coalesce(sum(pages_done), 0), coalesce(sum(pages_blank), 0),"
            " coalesce(sum(pages_failed), 0) FROM documents"
            " WHERE id IN (SELECT document_id FROM given JOIN files USING (id))"
        ).fetchone()
        counts |= dict(zip(("pages_total", "pages_done", "pages_blank", "pages_failed"), pages, strict=True))
        counts |= {"read_before": self.read_before, "pages_before": self.pages_before}
        codes = {outcome.exit_code for outcome in documents} - {ExitCode.OK}
        code = ExitCode.OK if not codes else codes.pop() if len(codes) == 1 else ExitCode.MIXED
        if interrupted:
            code = ExitCode.INTERRUPTED
        return Summary(documents, counts, time.monotonic() - self.started, code)

    def _outcomes(self) -> list[Outcome]:
        pause = next(iter(jobs.paused(self.conn)), None)
        outcomes = [outcome_of(row, pause) for row in self.conn.execute(OUTCOMES)]
        # A file that vanished before anything was read of it has left no row.
        gone = {file.path for file in self.files} - {outcome.path for outcome in outcomes}
        return outcomes + [unusable(path, "vanished", "it went away", None) for path in sorted(gone)]
