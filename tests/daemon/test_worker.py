"""A worker in this very process, turn by turn, with the fake engine and a clock the tests hold."""

from __future__ import annotations

import gc
import json
import os
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from daemon import worker as worker_module
from daemon.activity import Activity, Heartbeat
from daemon.worker import Worker, explained
from pipeline import document as document_module
from pipeline.document import DocumentReader
from pipeline.engines.base import Engine, EngineReading, PageImage
from pipeline.engines.fake import FakeEngine
from storage import content, jobs, library, results, status, workers
from storage.errors import DiskFullError, EngineError, OcrdError, StorageError, VanishedError
from storage.settings import Settings

START = 1_000_000.0
MakeFile = Callable[..., Path]


class Bench:
    """A library, workers, and the clock."""

    def __init__(self, settings: Settings, conn: sqlite3.Connection) -> None:
        self.settings = settings
        self.conn = conn
        self.now = START
        self.workers: list[Worker] = []

    def worker(self, script: str = "", *, settings: Settings | None = None, **options: object) -> Worker:
        worker = Worker(
            self.conn,
            f"worker{len(self.workers)}",
            settings or self.settings,
            clock=lambda: self.now,
            make_engine=lambda name, settings: FakeEngine(script, sleep=lambda seconds: None),
            **options,  # type: ignore[arg-type]
        )
        self.workers.append(worker)
        return worker

    def add(self, *files: Path) -> None:
        out = None if self.settings.out is None else os.fsencode(self.settings.out)
        seen = []
        for file in files:
            looks = file.stat()
            seen.append(
                library.SeenFile(os.fsencode(file), looks.st_size, looks.st_mtime_ns, None, out, None)
            )
        library.register(self.conn, seen, self.now)

    def run(self, worker: Worker, turns: int = 200) -> None:
        """Until the worker finds nothing to do."""
        while worker.turn():
            turns -= 1
            assert turns, "it does not come to an end"

    def states(self) -> dict[str, str]:
        rows = self.conn.execute("SELECT path, state FROM file_status")
        return {Path(row["path"]).name: row["state"] for row in rows}

    def error(self, name: str) -> str | None:
        entries = {Path(entry["path"]).name: entry for entry in status.iter_documents(self.conn)}
        error = entries[name]["error"]
        return None if error is None else error["code"]

    def pages(self, state: str) -> list[int]:
        rows = self.conn.execute("SELECT page FROM page_jobs WHERE state = ? ORDER BY page", (state,))
        return [row[0] for row in rows]


@pytest.fixture
def bench(settings: Settings, conn: sqlite3.Connection) -> Iterator[Bench]:
    bench = Bench(settings, conn)
    yield bench
    for worker in bench.workers:
        worker.close()


# --- the way of a file -------------------------------------------------------------------------------------


def test_files_are_taken_in_read_and_published(
    bench: Bench, tmp_path: Path, make_pdf: MakeFile, make_png: MakeFile
) -> None:
    bench.add(make_pdf(tmp_path / "a.pdf", 3), make_png(tmp_path / "b.png"))
    bench.run(bench.worker())
    assert bench.states() == {"a.pdf": "done", "b.png": "done"}
    assert bench.pages("done") == [1, 1, 2, 3]
    written = json.loads((bench.settings.out or tmp_path).joinpath("b.png.json").read_text("utf-8"))
    assert [page["page"] for page in written["pages"]] == [1]


def test_what_is_done_is_never_read_again(bench: Bench, tmp_path: Path, make_png: MakeFile) -> None:
    file = make_png(tmp_path / "a.png")
    bench.add(file)
    bench.run(bench.worker())
    bench.add(file)
    again = bench.worker("error")
    assert not again.turn()
    assert bench.states() == {"a.png": "done"}


def test_a_copy_is_linked_without_being_read(bench: Bench, tmp_path: Path, make_png: MakeFile) -> None:
    bench.add(make_png(tmp_path / "a.png"))
    bench.run(bench.worker())
    bench.add(make_png(tmp_path / "copy.png"))
    bench.run(bench.worker("error"))
    assert bench.states() == {"a.png": "done", "copy.png": "done"}
    assert bench.conn.execute("SELECT count(*) FROM documents").fetchone()[0] == 1


def test_bad_files_fail_with_their_reason_and_stop_nobody(
    bench: Bench, tmp_path: Path, make_png: MakeFile
) -> None:
    (tmp_path / "empty.pdf").touch()
    (tmp_path / "page.pdf").write_bytes(b"<!DOCTYPE html><html></html>")
    (tmp_path / "half.pdf").write_bytes(b"%PDF-1.7\n1 0 obj\n<<")
    bench.add(*sorted(tmp_path.glob("*.pdf")), make_png(tmp_path / "good.png"))
    bench.run(bench.worker())
    assert bench.states() == {
        "empty.pdf": "failed",
        "page.pdf": "failed",
        "half.pdf": "failed",
        "good.png": "done",
    }
    assert bench.error("empty.pdf") == "empty_file"
    assert bench.error("page.pdf") == "not_a_document"
    assert bench.error("half.pdf") == "corrupt"


# --- files that change or go ------------------------------------------------------------------------------


def test_a_file_that_vanished_before_it_was_taken_in_is_dropped_quietly(
    bench: Bench, tmp_path: Path, make_png: MakeFile
) -> None:
    file = make_png(tmp_path / "gone.png")
    bench.add(file)
    file.unlink()
    bench.run(bench.worker())
    assert bench.states() == {}


def test_a_file_whose_root_went_away_is_waited_for(bench: Bench, tmp_path: Path, make_png: MakeFile) -> None:
    root = tmp_path / "share"
    file = make_png(root / "a.png")
    root_id = library.add_root(bench.conn, os.fsencode(root), now=bench.now)
    looks = file.stat()
    seen = library.SeenFile(os.fsencode(file), looks.st_size, looks.st_mtime_ns, root_id)
    library.register(bench.conn, [seen], bench.now)
    root.rename(tmp_path / "unmounted")
    worker = bench.worker()
    bench.run(worker)
    assert bench.states() == {"a.png": "queued"}
    (tmp_path / "unmounted").rename(root)
    bench.now += 3600
    bench.run(worker)
    assert bench.states() == {"a.png": "done"}


def test_a_file_changed_since_it_was_seen_is_taken_as_it_is_now(
    bench: Bench, tmp_path: Path, make_png: MakeFile
) -> None:
    file = make_png(tmp_path / "a.png", 1)
    bench.add(file)
    make_png(file, 2)
    os.utime(file, (START, START - 100))
    bench.run(bench.worker())
    assert bench.states() == {"a.png": "done"}
    row = bench.conn.execute("SELECT size, mtime_ns FROM files").fetchone()
    assert (row["size"], row["mtime_ns"]) == (file.stat().st_size, file.stat().st_mtime_ns)


def test_a_file_changed_between_intake_and_reading_is_taken_in_anew(
    bench: Bench, tmp_path: Path, make_png: MakeFile
) -> None:
    file = make_png(tmp_path / "a.png", 1)
    bench.add(file)
    worker = bench.worker()
    worker._take_in()
    make_png(file, 2)
    os.utime(file, (START, START - 100))
    bench.run(worker)
    assert bench.states() == {"a.png": "done"}
    [text] = [row[0] for row in bench.conn.execute("SELECT text FROM pages")]
    with DocumentReader(file, bench.settings, FakeEngine()) as reader:
        assert text == reader.read_page(1).text


def test_a_watched_file_that_cannot_be_opened_may_still_be_on_its_way(
    bench: Bench, tmp_path: Path, make_pdf: MakeFile
) -> None:
    file = make_pdf(tmp_path / "slow.pdf", 2)
    whole = file.read_bytes()
    file.write_bytes(b"%PDF-1.7\n1 0 obj\n<<")
    os.utime(file, (START, START - 1))
    bench.add(file)
    worker = bench.worker(watching=True)
    bench.run(worker)
    assert bench.states() == {"slow.pdf": "queued"}
    file.write_bytes(whole)
    os.utime(file, (START, START))
    bench.now += 3.0
    bench.run(worker)
    assert bench.states() == {"slow.pdf": "done"}


def test_a_watched_file_left_alone_long_enough_is_corrupt(bench: Bench, tmp_path: Path) -> None:
    file = tmp_path / "half.pdf"
    file.write_bytes(b"%PDF-1.7\n1 0 obj\n<<")
    os.utime(file, (START, START - 60))
    bench.add(file)
    bench.run(bench.worker(watching=True))
    assert bench.error("half.pdf") == "corrupt"


@pytest.mark.parametrize("mtime", [0, 2**32])
def test_a_corrupt_file_from_another_century_fails_at_once(mtime: int, bench: Bench, tmp_path: Path) -> None:
    file = tmp_path / "half.pdf"
    file.write_bytes(b"%PDF-1.7\n1 0 obj\n<<")
    os.utime(file, (mtime, mtime))
    bench.add(file)
    bench.run(bench.worker(watching=True))
    assert bench.error("half.pdf") == "corrupt"


# --- pages -------------------------------------------------------------------------------------------------


class Recorder:
    """An engine that notes the pages it reads and the thread it is called from."""

    name = "fake"

    def __init__(self) -> None:
        self.pages: list[int] = []
        self.threads: set[str] = set()

    def version(self) -> str:
        return "recorder"

    def read(self, page: PageImage, *, hint: object = ()) -> EngineReading:
        self.pages.append(page.page)
        self.threads.add(threading.current_thread().name)
        return FakeEngine().read(page)

    def close(self) -> None:
        pass


def test_the_next_pages_are_prepared_while_one_is_read_but_no_more_than_that(
    bench: Bench, tmp_path: Path, make_pdf: MakeFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared: list[int] = []
    seen: list[int] = []
    threads: set[str] = set()
    real = DocumentReader.prepare

    def prepare(self: DocumentReader, number: int, previous: object = ()) -> object:
        prepared.append(number)
        threads.add(threading.current_thread().name)
        return real(self, number)

    monkeypatch.setattr(DocumentReader, "prepare", prepare)

    class Slow(Recorder):
        def read(self, page: PageImage, *, hint: object = ()) -> EngineReading:
            seen.append(len(prepared) - page.page)
            return super().read(page)

    engine = Slow()
    settings = replace(bench.settings, text_layer="ignore")
    bench.add(make_pdf(tmp_path / "a.pdf", 12))
    worker = bench.worker(settings=settings)
    worker._make_engine = lambda name, settings: engine
    bench.run(worker)
    assert engine.pages == list(range(1, 13)) == prepared
    assert max(seen) <= worker_module.AHEAD + 1
    assert len(threads) == 1 and threads != engine.threads


def test_a_suspect_page_is_read_with_nothing_else_in_flight(
    bench: Bench, tmp_path: Path, make_pdf: MakeFile
) -> None:
    bench.add(make_pdf(tmp_path / "a.pdf", 6))
    bench.worker()._take_in()
    bench.conn.execute("UPDATE page_jobs SET suspect = 1 WHERE page = 3")
    leased: list[int] = []

    class Watching(Recorder):
        def read(self, page: PageImage, *, hint: object = ()) -> EngineReading:
            if page.page == 3:
                leased.extend(bench.pages("leased"))
            return super().read(page)

    worker = bench.worker(settings=replace(bench.settings, text_layer="ignore"))
    worker._make_engine = lambda name, settings: Watching()
    bench.run(worker)
    assert leased == [3]
    assert bench.states() == {"a.pdf": "done"}


def test_a_page_that_keeps_failing_is_set_aside_and_the_others_are_read(
    bench: Bench, tmp_path: Path, make_pdf: MakeFile
) -> None:
    bench.add(make_pdf(tmp_path / "a.pdf", 4))
    bench.run(bench.worker("error:2", settings=replace(bench.settings, text_layer="ignore")))
    assert bench.pages("failed") == [2]
    assert bench.pages("done") == [1, 3, 4]
    assert bench.states() == {"a.pdf": "done"}
    row = bench.conn.execute("SELECT attempts, error_code FROM page_jobs WHERE page = 2").fetchone()
    assert (row["attempts"], row["error_code"]) == (3, "engine")


def test_sidecars_have_pages_in_order_whatever_order_they_were_read_in(
    bench: Bench, tmp_path: Path, make_pdf: MakeFile
) -> None:
    bench.add(make_pdf(tmp_path / "a.pdf", 15))
    first = bench.worker()
    first._take_in()
    bench.conn.execute(
        "UPDATE page_jobs SET suspect = 1 WHERE page IN (1, 2, 9)"
    )  # these come alone, at other times
    second = bench.worker()
    for _ in range(100):
        if not first._read_page() and not second._read_page():
            break
    bench.run(first)
    written = json.loads((bench.settings.out or tmp_path).joinpath("a.pdf.json").read_text("utf-8"))
    assert [page["page"] for page in written["pages"]] == list(range(1, 16))


def test_options_of_a_retry_are_used_for_its_document_alone(
    bench: Bench, tmp_path: Path, make_png: MakeFile
) -> None:
    a, b = make_png(tmp_path / "a.png", 1), make_png(tmp_path / "b.png", 2)
    bench.add(a, b)
    bench.run(bench.worker())
    names: list[tuple[str, int]] = []

    def make(name: str, settings: Settings) -> Engine:
        names.append((settings.engine, settings.dpi))
        return FakeEngine()

    library.retry(bench.conn, [os.fsencode(a)], {"engine": "tesseract", "dpi": 150}, bench.now)
    worker = bench.worker()
    worker._make_engine = make
    bench.run(worker)
    assert names == [("tesseract", 150)]


def test_new_small_files_come_before_the_rest_of_a_large_one(
    bench: Bench, tmp_path: Path, make_pdf: MakeFile
) -> None:
    bench.add(make_pdf(tmp_path / "large.pdf", 60))
    worker = bench.worker()
    worker.turn()
    bench.add(make_pdf(tmp_path / "small.pdf", 1, "small"))
    worker.turn()
    worker.turn()
    worker.turn()
    assert bench.states()["small.pdf"] == "done"
    assert bench.states()["large.pdf"] in ("queued", "running")
    bench.run(worker)
    assert bench.states()["large.pdf"] == "done"


@pytest.mark.parametrize("where", ["prepare", "read"])
def test_pages_that_fail_leave_no_pixels_behind(
    where: str, bench: Bench, tmp_path: Path, make_pdf: MakeFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(image: PageImage) -> bool:
        raise ValueError("of some library")

    bench.add(make_pdf(tmp_path / "a.pdf", 8))
    worker = bench.worker("error", settings=replace(bench.settings, text_layer="ignore", max_attempts=1))
    if where == "prepare":
        monkeypatch.setattr(document_module.blank, "is_blank", fail)
    gc.collect()

    def held() -> int:
        return sum(isinstance(thing, PageImage) for thing in gc.get_objects())

    before = held()  # by fixtures of other tests
    gc.disable()  # what hangs in rings of references stays
    try:
        bench.run(worker)
        left = held() - before
    finally:
        gc.enable()
    assert bench.pages("failed") == list(range(1, 9))
    assert left <= 1  # the last one


# --- stopping, losing, recovering -------------------------------------------------------------------------


def test_stopping_finishes_the_page_and_gives_the_others_back_uncounted(
    bench: Bench, tmp_path: Path, make_pdf: MakeFile
) -> None:
    bench.add(make_pdf(tmp_path / "a.pdf", 10))
    worker = bench.worker(settings=replace(bench.settings, text_layer="ignore"))

    class Stopping(Recorder):
        def read(self, page: PageImage, *, hint: object = ()) -> EngineReading:
            worker.stop = page.page == 3
            return super().read(page)

    worker._make_engine = lambda name, settings: Stopping()
    while not worker.stop:
        worker.turn()
    worker.close()
    bench.workers.remove(worker)
    assert bench.pages("done") == [1, 2, 3]
    assert bench.pages("leased") == []
    assert bench.conn.execute("SELECT sum(attempts), sum(suspect) FROM page_jobs").fetchone()[:] == (0, 0)


def test_pages_of_a_dead_worker_are_read_by_another_and_finished_ones_are_not(
    bench: Bench, tmp_path: Path, make_pdf: MakeFile
) -> None:
    bench.add(make_pdf(tmp_path / "a.pdf", 9))
    dead = bench.worker()
    dead._take_in()
    for _ in range(3):
        dead._read_page()
    read_at = {row["page"]: row["read_at"] for row in bench.conn.execute("SELECT page, read_at FROM pages")}
    assert sorted(read_at) == [1, 2, 3]
    bench.now += 10
    jobs.recover(bench.conn, bench.now, lambda owner: owner != dead.owner)
    bench.run(bench.worker())
    assert bench.states() == {"a.pdf": "done"}
    now_at = {row["page"]: row["read_at"] for row in bench.conn.execute("SELECT page, read_at FROM pages")}
    assert {page: now_at[page] for page in read_at} == read_at
    assert bench.conn.execute("SELECT max(attempts) FROM page_jobs").fetchone()[0] == 0  # nobody was to blame


def test_what_is_read_under_a_lost_lease_is_not_saved(
    bench: Bench, tmp_path: Path, make_png: MakeFile
) -> None:
    bench.add(make_png(tmp_path / "a.png"))
    worker = bench.worker()

    class Losing(Recorder):
        def read(self, page: PageImage, *, hint: object = ()) -> EngineReading:
            bench.conn.execute("UPDATE page_jobs SET lease_owner = 'other'")
            return super().read(page)

    worker._make_engine = lambda name, settings: Losing()
    bench.run(worker)
    assert bench.pages("leased") == [1]
    assert bench.conn.execute("SELECT count(*) FROM pages").fetchone()[0] == 0


def test_without_space_what_was_read_is_kept_and_saved_later(
    bench: Bench, tmp_path: Path, make_png: MakeFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.add(make_png(tmp_path / "a.png", 1), make_png(tmp_path / "b.png", 2))
    worker, engine = bench.worker(), Recorder()
    worker._make_engine = lambda name, settings: engine
    with monkeypatch.context() as full:

        def refuse(*arguments: object) -> bool:
            raise DiskFullError("database or disk is full")

        full.setattr(results, "save", refuse)
        for _ in range(5):
            worker.turn()
        assert [pause.kind for pause in jobs.paused(bench.conn)] == ["disk_full"]
        assert len(engine.pages) == 1
    jobs.resume(bench.conn, "disk_full")
    bench.run(worker)
    assert bench.states() == {"a.png": "done", "b.png": "done"}
    assert len(engine.pages) == 2


def test_a_sidecar_that_finds_no_space_is_written_later_and_leaves_no_part(
    bench: Bench, tmp_path: Path, make_png: MakeFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.add(make_png(tmp_path / "a.png"))
    worker = bench.worker()
    with monkeypatch.context() as full:

        def refuse(descriptor: int) -> None:
            raise OSError(28, "No space left on device")

        full.setattr(os, "fsync", refuse)
        bench.run(worker)
    out = bench.settings.out or tmp_path
    assert bench.states() == {"a.png": "queued"}
    assert bench.error("a.png") is None
    [pause] = jobs.paused(bench.conn)
    assert pause.kind == "disk_full"
    assert str(pause.path).startswith(str(out))  # the disk that is full, not the original's
    assert [file for file in out.rglob("*") if file.is_file()] == []
    assert not worker.turn()
    jobs.resume(bench.conn, "disk_full")
    bench.now += 5
    bench.run(worker)
    assert bench.states() == {"a.png": "done"}


@pytest.mark.parametrize(
    "name", ["content.link", "results.save", "jobs.fail_page", "jobs.finish_publish", "jobs.claim_pages"]
)
def test_a_locked_database_strands_no_job_in_the_hands_of_a_living_worker(
    name: str, bench: Bench, tmp_path: Path, make_pdf: MakeFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The heartbeat keeps leases however often a turn breaks off: what the worker forgot would never be read."""
    bench.add(make_pdf(tmp_path / "a.pdf", 3, salt="a"), make_pdf(tmp_path / "b.pdf", 2, salt="b"))
    marker = tmp_path / "failed once"
    worker = bench.worker(settings=replace(bench.settings, text_layer="ignore"))

    class Once(Recorder):
        def read(self, page: PageImage, *, hint: object = ()) -> EngineReading:
            if name == "jobs.fail_page" and not marker.exists():
                marker.touch()
                raise EngineError("a bug", page=page.page)
            return super().read(page)

    engine = Once()
    worker._make_engine = lambda name, settings: engine
    module = {"content": content, "results": results, "jobs": jobs}[name.partition(".")[0]]
    function, broken = name.partition(".")[2], 0
    with monkeypatch.context() as locked:

        def refuse(*arguments: object) -> object:
            raise StorageError("the database: database is locked")

        locked.setattr(module, function, refuse)
        if function == "finish_publish":
            locked.setattr(jobs, "fail_publish", refuse)
        for _ in range(4):
            try:
                worker.turn()
            except StorageError:
                broken += 1
            jobs.extend_leases(bench.conn, worker.owner, bench.now, 60.0)
    assert broken or function == "save"
    bench.now += 600  # what was put off is due
    bench.run(worker)
    assert bench.states() == {"a.pdf": "done", "b.pdf": "done"}
    assert len(engine.pages) == 5  # and what was read was kept


@pytest.mark.parametrize(("swapped", "allowed"), [("file", False), ("folder", False), ("file", True)])
def test_a_file_exchanged_for_a_link_out_of_the_watched_folder_is_not_opened(
    swapped: str, allowed: bool, bench: Bench, tmp_path: Path, make_png: MakeFile
) -> None:
    """Between being found and being opened: whoever may write to the folder must not read what the daemon may read."""
    root, foreign = tmp_path / "watched", tmp_path / "foreign"
    mine = make_png(root / "sub" / "a.png", 1)
    secret = make_png(foreign / "a.png", 2)
    looks = mine.stat()
    root_id = library.add_root(bench.conn, os.fsencode(root), now=bench.now)
    out = os.fsencode(tmp_path / "out")
    seen = library.SeenFile(
        os.fsencode(mine), looks.st_size, looks.st_mtime_ns, root_id, out, os.fsencode(root)
    )
    library.register(bench.conn, [seen], bench.now)
    if swapped == "file":
        mine.unlink()
        mine.symlink_to(secret)
    else:
        shutil.rmtree(mine.parent)
        mine.parent.symlink_to(foreign)
    bench.run(bench.worker(settings=replace(bench.settings, follow_symlinks=allowed)))
    bench.now += 600
    bench.run(bench.workers[0])
    assert bench.states() == {"a.png": "done" if allowed else "queued"}
    assert bench.error("a.png") == (None if allowed else "permission")
    assert (tmp_path / "out").exists() == allowed


def test_a_file_exchanged_for_a_pipe_is_refused_without_waiting_for_its_writer(
    bench: Bench, tmp_path: Path, make_png: MakeFile
) -> None:
    file = make_png(tmp_path / "a.png")
    bench.add(file)
    file.unlink()
    os.mkfifo(file)
    bench.run(bench.worker())
    assert bench.states() == {"a.png": "failed"}
    assert bench.error("a.png") == "not_a_document"


def test_nothing_is_claimed_while_paused(bench: Bench, tmp_path: Path, make_png: MakeFile) -> None:
    bench.add(make_png(tmp_path / "a.png"))
    jobs.pause(bench.conn, "because")
    worker = bench.worker()
    assert not worker.turn()
    jobs.resume(bench.conn)
    bench.run(worker)
    assert bench.states() == {"a.png": "done"}


def test_the_open_file_is_let_go_when_there_is_nothing_to_do(
    bench: Bench, tmp_path: Path, make_png: MakeFile
) -> None:
    file = make_png(tmp_path / "a.png")
    bench.add(file)
    worker = bench.worker()
    bench.run(worker)
    assert worker._reader is not None
    worker.idle()
    assert worker._reader is None


# --- what is told --------------------------------------------------------------------------------------


def test_any_failure_becomes_one_of_ours() -> None:
    ours = EngineError("x")
    assert explained(ours, "/f") is ours
    assert isinstance(explained(FileNotFoundError(2, "No such file"), "/f"), VanishedError)
    assert isinstance(explained(OSError(28, "No space"), "/f"), DiskFullError)
    busy = sqlite3.OperationalError("database is locked")
    busy.sqlite_errorcode = sqlite3.SQLITE_BUSY
    assert isinstance(explained(busy, "/f"), StorageError)
    assert explained(ValueError("text of the page"), "/f", 3).code == "internal"
    assert "text of the page" not in str(explained(ValueError("text of the page"), "/f", 3))
    assert isinstance(explained(MemoryError(), "/f"), OcrdError)


def test_a_heartbeat_keeps_leases_and_shows_what_is_done(
    bench: Bench, tmp_path: Path, make_png: MakeFile
) -> None:
    bench.add(make_png(tmp_path / "a.png"))
    jobs.claim_intake(bench.conn, "me", bench.now, 60.0)
    workers.record(bench.conn, "me", pid=1, host="here", role="worker", now=bench.now)
    activity = Activity()
    heartbeat = Heartbeat(bench.settings.database_path, "me", activity, 60.0, clock=lambda: bench.now)
    activity.begin(b"/in/\xe9.png", 2, "read", bench.now)
    bench.now += 50
    heartbeat.beat(bench.conn)
    bench.now += 50
    assert jobs.recover(bench.conn, bench.now, lambda owner: True).files == 0
    [row] = workers.rows(bench.conn)
    assert (row.path, row.page, row.stage, row.stage_since) == ("/in/\\xe9.png", 2, "read", START)
    assert row.rss_mb and row.rss_mb > 1
    activity.rest()
    heartbeat.beat(bench.conn)
    assert workers.rows(bench.conn)[0].stage is None


def test_a_heart_that_missed_a_beat_goes_on(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    heartbeat = Heartbeat(bench.settings.database_path, "me", Activity(), lease_s=0.04)
    beats = []

    def beat(conn: sqlite3.Connection) -> None:
        beats.append(conn)
        if len(beats) == 1:
            raise RuntimeError("as the test says")
        heartbeat.end()

    monkeypatch.setattr(heartbeat, "beat", beat)
    heartbeat.run()  # in this thread
    assert len(beats) == 2


def test_what_an_engine_says_of_itself_is_in_the_status(
    bench: Bench, make_png: MakeFile, tmp_path: Path
) -> None:
    worker = bench.worker()
    bench.add(make_png(tmp_path / "a.png"))
    workers.put(bench.conn, "engine", "vlm")
    engine = FakeEngine("", sleep=lambda seconds: None)
    engine.notice = "drafts off: slower"  # type: ignore[attr-defined]
    worker._make_engine = lambda name, settings: engine
    bench.run(worker)
    assert status.snapshot(bench.conn, now=bench.now)["engine"] == "vlm; drafts off: slower"
