"""One worker process: takes files in, reads pages, writes sidecars, until told to stop.

Three threads. *main* claims, runs the engine and saves. *pdfium* is the only one that ever calls PDFium; it prepares
the next pages while one is read. *heartbeat* (see `daemon.activity`) keeps the leases and says what goes on.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import time
import traceback
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from daemon.activity import Activity
from daemon.asks.answering import Answerer
from daemon.asks.places import mark_path
from daemon.intake import Intake, register_again
from daemon.publish import provenance, publish
from storage import jobs, results, workers
from storage.database import explain
from storage.errors import ChangedError, DiskFullError, Fault, OcrdError, from_os_error
from storage.failpoints import reach
from storage.work import PageJob, PublishJob

if TYPE_CHECKING:
    from daemon.asks.desk import Desk
    from pipeline.document import DocumentReader, Prepared
    from pipeline.engines.base import Engine
    from storage.records import Block, DocumentInfo, PageReading
    from storage.settings import Settings

log = logging.getLogger(__name__)

AHEAD = 2  # pages prepared while one is read
IN_A_ROW = 4  # pages for those who wait, then one of the queue's
PAGES_A_TURN = 4  # then look for sidecars and new files again


def create_engine(name: str, settings: Settings) -> Engine:
    """A new engine by its name. Raises: as `pipeline.engines.registry.create`."""
    from pipeline.engines import registry

    return registry.create(name, settings)


class Worker:
    """Works through the queue, a turn at a time. Belongs to one thread; `stop` may be set from a signal handler."""

    def __init__(
        self,
        conn: sqlite3.Connection,
        owner: str,
        settings: Settings,
        *,
        watching: bool = False,
        activity: Activity | None = None,
        clock: Callable[[], float] = time.time,
        make_engine: Callable[[str, Settings], Engine] = create_engine,
        desk: Desk | None = None,
    ) -> None:
        self.conn = conn
        self.owner = owner
        self.settings = settings
        self.stop = False
        self.activity = activity or Activity()
        self.clock = clock
        self._make_engine = make_engine
        self._engines: dict[str, Engine] = {}  # made in the pdfium thread
        self._pdfium = ThreadPoolExecutor(1, "pdfium")
        self._reader: tuple[object, DocumentReader] | None = None  # touched by the pdfium thread only
        self._claimed: deque[PageJob] = deque()
        self._ahead: deque[tuple[PageJob, Future[tuple[DocumentReader, Prepared]]]] = deque()
        self._unsaved: deque[tuple[PageJob, PageReading]] = deque()
        self._adrift = False  # a turn broke off: what it had claimed is in nobody's hands
        self._solo = False  # a page that may kill us is being read: nothing else is in flight
        self._intake = Intake(conn, owner, settings, self._open_info, self._explain, watching)
        self._noticed = ""
        self.answers: Answerer | None = None  # to those who wait for a reading
        if desk is not None:
            self.answers = Answerer(
                desk,
                settings,
                self._pdfium,
                self._engine,
                self.activity,
                explain=lambda error: explained(error, ""),
                mark=mark_path(settings.home, owner),
                clock=clock,
            )

    # --- turns ---------------------------------------------------------------------------------------

    def turn(self) -> bool:
        """Do the most urgent work there is, for some pages' time; False if there was none."""
        if self._adrift:
            self._give_back()
        answered = self._answer()
        if self._unsaved and not self._save_kept():
            return answered
        self._adrift = True
        busy = self._publish() or answered
        busy = self._take_in() or busy
        for number in range(PAGES_A_TURN):
            if number:  # before the first one it has been done
                self._answer()
            if self.stop or self._unsaved or not self._read_page():
                break
            busy = True
        self._adrift = False
        return busy

    def _answer(self, most: int = IN_A_ROW) -> bool:
        """Those who wait go before the backlog, a few pages at a time."""
        answered = False
        for _ in range(most):
            if self.answers is None or self.stop or not self.answers.answer():
                break
            answered = True
        return answered

    def _give_back(self) -> None:
        """Give back all but what is read and not saved yet: our heartbeat would keep what we forgot for ever."""
        for _, future in self._ahead:
            future.cancel()
        self._ahead.clear()
        self._claimed.clear()
        self._solo = False
        jobs.release(self.conn, self.owner, keep=[job for job, _ in self._unsaved])

    def idle(self) -> None:
        """Nothing is to be done: let go of the open file."""
        self.activity.rest()
        if self._reader is not None:
            self._pdfium.submit(self._close_reader).result()

    def close(self, *, wait: bool = True) -> None:
        """Give back what is not finished, and end the threads."""
        for _, future in self._ahead:
            future.cancel()
        self._ahead.clear()
        self._claimed.clear()
        if self.answers is not None:
            self.answers.close()
        try:
            jobs.release(self.conn, self.owner)
        except (OcrdError, sqlite3.Error):
            log.warning("could not give back what was not finished: its lease will run out", exc_info=True)
        if wait:
            self._pdfium.submit(self._close_reader)
            for engine in self._engines.values():
                engine.close()
        self._pdfium.shutdown(wait=wait, cancel_futures=not wait)

    # --- sidecars ------------------------------------------------------------------------------------

    def _publish(self) -> bool:
        done = False
        while not self.stop:
            job = jobs.claim_publish(self.conn, self.owner, self.clock(), self.settings.lease_s)
            if job is None:
                break
            done = True
            self._publish_one(job)
            self._answer(1)
        return done

    def _publish_one(self, job: PublishJob) -> None:
        self.activity.begin(job.path, None, "publish", self.clock())
        started = time.perf_counter()
        try:
            publish(self.conn, self.owner, job, self.settings, self._provenance)
            log.info("sidecars written", extra={"path": job.path, "seconds": time.perf_counter() - started})
        except Exception as unexpected:
            error = self._explain(unexpected, job.path)
            log.warning("cannot write sidecars: %s", error.message, extra={"path": job.path})
            jobs.fail_publish(self.conn, self.owner, job, error, self.clock(), self.settings.max_attempts)
        self.activity.rest()

    # --- new files -----------------------------------------------------------------------------------

    def _take_in(self) -> bool:
        claimed = jobs.claim_intake(self.conn, self.owner, self.clock(), self.settings.lease_s)
        for number, job in enumerate(claimed):
            if self.stop:
                jobs.release(self.conn, self.owner)  # pages in flight are given back too: we leave anyway
                return number > 0
            self.activity.begin(job.path, None, "intake", self.clock())
            outcome = self._intake.take(job, self.clock())
            if outcome is not None:
                log.info("taken in: %s", outcome.value, extra={"path": job.path})
            self._answer(1)
        self.activity.rest()
        return bool(claimed)

    def _open_info(self, path: Path, passwords: tuple[str, ...]) -> DocumentInfo:
        from pipeline.document import open_info

        return self._pdfium.submit(open_info, path, self.settings, passwords).result()

    # --- pages ---------------------------------------------------------------------------------------

    def _read_page(self) -> bool:
        self._fill()
        if not self._ahead:
            return False
        job, future = self._ahead.popleft()
        self._solo = job.alone
        self._fill()
        started = time.perf_counter()
        self.activity.begin(job.path, job.page, "prepare", self.clock())
        try:
            reader, prepared = future.result()
            self.activity.stage("read", self.clock())
            reach("page.read")
            reading = reader.read(prepared)
        except Exception as unexpected:
            self._fail_page(job, self._explain(unexpected, job.path, job.page))
            traceback.clear_frames(unexpected.__traceback__)
        else:
            self.activity.stage("save", self.clock())
            self._save(job, reading)
            self._pass_on_notice()
            seconds = time.perf_counter() - started
            log.debug("page read", extra={"path": job.path, "page": job.page, "seconds": seconds})
        # A failed future refers to an exception that refers to this frame: the page's pixels would hang in that ring.
        del future
        self._solo = False
        self.activity.rest()
        return True

    def _pass_on_notice(self) -> None:
        """What an engine has to say of itself goes to `ocrd status`."""
        engines = list(self._engines.values())  # a copy: the pdfium thread may be adding one
        notices = [str(note) for engine in engines if (note := getattr(engine, "notice", ""))]
        if notices and notices[0] != self._noticed:
            self._noticed = notices[0]
            workers.put(self.conn, "engine_note", self._noticed)

    def _fill(self) -> None:
        """Have the next pages prepared; claim more where there is none."""
        while len(self._ahead) <= AHEAD and not self._solo:
            job = self._next_job()
            if job is None:
                return
            self._ahead.append((job, self._pdfium.submit(self._prepare, job, self._read_before(job))))

    def _read_before(self, job: PageJob) -> tuple[Block, ...]:
        """What an engine read of this very page another time: the best draft of what it will read now."""
        return results.read_before(self.conn, job.document_id, job.page)

    def _next_job(self) -> PageJob | None:
        if any(job.alone for job, _ in self._ahead):
            return None
        if not self._claimed and not self.stop:
            now = self.clock()
            self._claimed.extend(jobs.claim_pages(self.conn, self.owner, now, self.settings.lease_s))
            reach("page.claimed")
        if not self._claimed or (self._claimed[0].alone and self._ahead):
            return None
        return self._claimed.popleft()

    def _fail_page(self, job: PageJob, error: OcrdError) -> None:
        log.warning("cannot read a page: %s", error.message, extra={"path": job.path, "page": job.page})
        if isinstance(error, ChangedError):
            try:
                register_again(self.conn, job.path, os.stat(job.path), self.clock())
            except OSError:
                log.debug("a changed file went away", extra={"path": job.path})
        jobs.fail_page(self.conn, self.owner, job, error, self.clock(), self.settings.max_attempts)

    def _save(self, job: PageJob, reading: PageReading) -> None:
        try:
            if not results.save(self.conn, self.owner, job, reading, self.clock()):
                log.info("the page was taken from us", extra={"path": job.path, "page": job.page})
        except OcrdError as error:
            if error.fault is not Fault.TRANSIENT:
                raise
            # What was read is kept until it can be saved (space, a lock let go); reading goes on after that.
            self._unsaved.append((job, reading))
            log.warning("what was read cannot be saved yet: %s", error.message)
            if isinstance(error, DiskFullError):
                self._pause(error)

    def _save_kept(self) -> bool:
        kept, self._unsaved = self._unsaved, deque()
        for job, reading in kept:
            self._save(job, reading)
        return not self._unsaved

    def _pause(self, error: OcrdError) -> None:
        path = str(error.file or self.settings.home)
        try:
            jobs.pause(self.conn, error.message, kind="disk_full", path=path, now=self.clock())
        except OcrdError:
            log.debug("no space to note the pause either")

    # --- in the pdfium thread ------------------------------------------------------------------------

    def _prepare(self, job: PageJob, previous: tuple[Block, ...]) -> tuple[DocumentReader, Prepared]:
        try:
            reader = self._reader_for(job)
            return reader, reader.prepare(job.page, previous)
        except Exception as error:
            if not isinstance(error, OcrdError):
                self._close_reader()  # whatever state it is in
            # What the frames hold of PDFium's is let go in this thread, not wherever the exception ends.
            traceback.clear_frames(error.__traceback__)
            raise

    def _reader_for(self, job: PageJob) -> DocumentReader:
        key = (
            job.document_id,
            job.path,
            job.sha256,
            tuple(sorted((k, str(v)) for k, v in job.options.items())),
        )
        if self._reader is not None and self._reader[0] == key:
            return self._reader[1]
        self._close_reader()
        from pipeline.document import DocumentReader

        _require_unchanged(job)
        settings = settings_for(job, self.settings)
        password = job.options.get("password")
        reader = DocumentReader(
            Path(os.fsdecode(job.path)),
            settings,
            self._engine(settings),
            (str(password),) if password else (),
        )
        reader.__enter__()
        self._reader = (key, reader)
        return reader

    def _close_reader(self) -> None:
        if self._reader is not None:
            reader, self._reader = self._reader[1], None
            reader.__exit__(None, None, None)

    def _engine(self, settings: Settings) -> Engine:
        key = settings.engine
        if settings.model != self.settings.model:
            key = f"{key} {settings.model}"  # somebody asks for another model than the worker's
        if key not in self._engines:
            self._engines[key] = self._make_engine(settings.engine, settings)
        return self._engines[key]

    # --- faults --------------------------------------------------------------------------------------

    def _explain(self, error: Exception, path: bytes, page: int | None = None) -> OcrdError:
        return explained(error, os.fsdecode(path), page)

    @cached_property
    def _provenance(self) -> dict[str, object]:
        return provenance(self.settings)


def _require_unchanged(job: PageJob) -> None:
    try:
        status = os.stat(job.path)
    except OSError as error:
        raise from_os_error(error, file=os.fsdecode(job.path), page=job.page) from error
    if job.size >= 0 and (status.st_size, status.st_mtime_ns) != (job.size, job.mtime_ns):
        raise ChangedError("it changed since it was taken in", file=os.fsdecode(job.path), page=job.page)


def settings_for(job: PageJob, settings: Settings) -> Settings:
    """The settings with what `retry` asked for this document."""
    wanted = {name: job.options[name] for name in ("engine", "dpi", "text_layer") if job.options.get(name)}
    return replace(settings, **wanted) if wanted else settings  # type: ignore[arg-type]  # checked by `retry`


def explained(error: Exception, path: str, page: int | None = None) -> OcrdError:
    """Our error for anything that went wrong with a file; what is not expected is logged with its traceback."""
    if isinstance(error, OcrdError):
        return error
    if isinstance(error, OSError):
        return from_os_error(error, file=path, page=page)
    if isinstance(error, sqlite3.Error) and (ours := explain(error)) is not None:
        return ours
    log.error("unexpected failure", exc_info=error, extra={"path": path, "page": page})
    if isinstance(error, MemoryError):
        return OcrdError(
            "out of memory", file=path, page=page, remedy="lower max_pixels or workers in the settings"
        )
    return OcrdError(f"unexpected failure ({type(error).__name__})", file=path, page=page)
