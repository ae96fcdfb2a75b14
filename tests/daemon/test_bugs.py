"""Public bug reports about watch folders and queues, each as a check.

Watcher and worker run in this process, on one clock.
The numbers are those of the corpus' list of reports, where the whole story is.
"""

from __future__ import annotations

import ast
import errno
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import threading
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from daemon import ignore
from daemon.hints import Hints
from daemon.scanner import WatchRoot
from daemon.watcher import RootWatcher
from daemon.watching import WatchThread, rules_for
from daemon.worker import Worker
from pipeline.document import DocumentReader
from pipeline.engines.fake import FakeEngine
from storage import index, jobs, library, status
from storage.database import open_database, open_readonly
from storage.settings import Settings
from tests.elsewhere import CORPUS, NO_CORPUS, corpus

MakeFile = Callable[..., Path]
needs_corpus = pytest.mark.skipif(not CORPUS.is_dir(), reason=NO_CORPUS)
TEMPORARY = ("part", "crdownload", "download", "tmp", "filepart")


class Still:
    """An observer that sees nothing; what it would have seen is hinted by hand."""

    def is_alive(self) -> bool:
        return True

    def stop(self) -> None:
        pass


class House:
    """A watched folder, its watcher and a worker, on one clock."""

    def __init__(self, settings: Settings, conn: sqlite3.Connection, folder: Path, **options: object) -> None:
        self.settings, self.conn, self.folder = settings, conn, folder
        self.now = (
            2_000_000_000.0  # files made meanwhile are old: none of them is taken for one still growing
        )
        folder.mkdir(exist_ok=True)
        root = WatchRoot(
            os.fsencode(folder),
            out_dir=os.fsencode(settings.out) if settings.out else None,
            base=os.fsencode(folder) if settings.out else None,
        )
        options.setdefault("start_observer", lambda root, hints: Still())
        options.setdefault("file_system", lambda path: "ext4")
        rules = rules_for(settings, [root])
        self.watcher = RootWatcher(root, settings, rules, conn, now=self.now, **options)  # type: ignore[arg-type]
        self.script = ""
        self.worker = self.new_worker()

    def new_worker(self, owner: str = "worker") -> Worker:
        return Worker(
            self.conn,
            owner,
            self.settings,
            watching=True,
            clock=lambda: self.now,
            make_engine=lambda name, settings: FakeEngine(self.script, sleep=lambda seconds: None),
        )

    def pass_time(self, seconds: float, step: float = 0.5) -> None:
        """Watcher and worker do what they do while time passes."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + step)
            self.watcher.tick(self.now)
            while self.worker.turn():
                pass

    def hint(self, *paths: Path, is_folder: bool = False) -> None:
        for path in paths:
            self.watcher.hints.add(os.fsencode(path), is_folder=is_folder)

    def put(self, source: Path | bytes, name: str) -> Path:
        """Write a file into the folder, with the event that raises."""
        target = self.folder / name
        target.write_bytes(source if isinstance(source, bytes) else source.read_bytes())
        self.hint(target)
        return target

    def wait_idle(self) -> None:
        """Long enough for everything to come to rest, a rescan included."""
        self.pass_time(6.0)
        self.pass_time(self.settings.rescan_s, step=self.settings.rescan_s)
        self.pass_time(6.0)

    def status(self) -> dict[str, Any]:
        return status.snapshot(self.conn, now=self.now, all_documents=True)

    def documents(self) -> dict[str, dict[str, Any]]:
        return {os.path.relpath(entry["path"], self.folder): entry for entry in self.status()["documents"]}

    def states(self) -> dict[str, str]:
        return {name: entry["state"] for name, entry in self.documents().items()}

    def close(self) -> None:
        self.watcher.close()
        self.worker.close()


@pytest.fixture
def house(settings: Settings, conn: sqlite3.Connection, tmp_path: Path) -> Iterator[House]:
    house = House(settings, conn, tmp_path / "in")
    house.pass_time(1.0)
    yield house
    house.close()


@pytest.fixture
def document(tmp_path: Path, make_pdf: MakeFile) -> Path:
    return make_pdf(tmp_path / "sources" / "minimal.pdf")


@pytest.fixture
def other(tmp_path: Path, make_pdf: MakeFile) -> Path:
    return make_pdf(tmp_path / "sources" / "other.pdf", 3, "two columns filled")


def test_b01_a_partial_copy_waits_and_is_never_reported_as_failed(
    house: House, tmp_path: Path, make_pdf: MakeFile
) -> None:
    """https://github.com/ocrmypdf/OCRmyPDF/issues/552"""
    whole = make_pdf(tmp_path / "book.pdf", 40).read_bytes()
    for part in range(6, 13):
        house.put(whole[: len(whole) * part // 12], "slow.pdf")
        house.pass_time(1.0)
        assert house.documents() == {}
    house.wait_idle()
    [entry] = house.documents().values()
    assert (entry["state"], entry["pages"]) == ("done", 40)


def test_b01_a_scanner_that_pauses_between_pages_makes_no_failure_either(
    house: House, tmp_path: Path, make_pdf: MakeFile
) -> None:
    """https://github.com/ocrmypdf/OCRmyPDF/issues/552"""
    whole = make_pdf(tmp_path / "book.pdf", 40).read_bytes()
    for part in range(1, 5):
        target = house.put(whole[: len(whole) * part // 4], "slow.pdf")
        os.utime(target, (house.now, house.now))
        house.pass_time(4.0)  # settles each time
        assert "failed" not in house.states().values()
    house.wait_idle()
    assert house.states() == {"slow.pdf": "done"}


def test_b03_any_number_of_events_makes_one_job(house: House, document: Path) -> None:
    """https://github.com/jonaswinkler/paperless-ng/issues/820"""
    for _ in range(5):
        target = house.put(document, "a.pdf")
        target.touch()
        house.hint(target, target)
        house.pass_time(0.3, step=0.1)
    house.wait_idle()
    assert house.states() == {"a.pdf": "done"}
    assert house.status()["counts"]["failed"] == 0


@pytest.mark.parametrize("extension", TEMPORARY)
def test_b05_b06_unfinished_names_are_ignored_until_renamed(
    extension: str, house: House, document: Path
) -> None:
    """https://github.com/jonaswinkler/paperless-ng/issues/462, https://github.com/olback/library-loader/issues/53"""
    unfinished = house.put(document, f"x.pdf.{extension}")
    house.put(document, "~$draft.pdf")
    house.wait_idle()
    assert house.documents() == {}
    unfinished.rename(house.folder / "x.pdf")
    house.hint(unfinished, house.folder / "x.pdf")
    house.wait_idle()
    assert house.states() == {"x.pdf": "done"}


def test_b07_files_that_cannot_be_opened_stop_neither_watcher_nor_worker(
    house: House, document: Path
) -> None:
    """https://github.com/ocrmypdf/OCRmyPDF/issues/1715"""
    for name in ("libreoffice-writer-password.pdf", "qpdf_zero_pages.pdf", "bad1.pdf"):
        house.put(corpus(name), name)
    house.pass_time(3.0)
    house.put(document, "after.pdf")
    house.wait_idle()
    entries = house.documents()
    assert entries["after.pdf"]["state"] == "done"
    assert entries["libreoffice-writer-password.pdf"]["error"]["code"] == "password"
    assert entries["qpdf_zero_pages.pdf"]["error"]["code"] != "password"  # PDFium's error of the file before
    assert len(entries) == 4


def test_b07_a_turn_of_the_watcher_that_fails_is_followed_by_another(
    settings: Settings,
    tmp_path: Path,
    conn: sqlite3.Connection,
    document: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """https://github.com/ocrmypdf/OCRmyPDF/issues/1715"""
    folder = tmp_path / "in"
    folder.mkdir()
    shutil.copy(document, folder / "after.pdf")
    root = WatchRoot(os.fsencode(folder))
    real, fails = RootWatcher.tick, iter((True,))

    def tick(self: RootWatcher, now: float) -> bool:
        if next(fails, False):
            raise ValueError("an exception nobody thought of")
        return real(self, now)

    monkeypatch.setattr(RootWatcher, "tick", tick)
    quick = replace(settings, settle_s=0.05)
    queued = threading.Event()

    def make(conn: sqlite3.Connection) -> RootWatcher:
        return RootWatcher(
            root, quick, ignore.IgnoreRules(), conn, now=0.0, start_observer=lambda root, hints: Still()
        )

    thread = WatchThread(quick, root, make, queued=queued.set)
    thread.start()
    try:
        assert queued.wait(60.0)
        assert thread.is_alive()
    finally:
        thread.end()
        thread.join(60.0)


def test_b08_what_is_done_is_not_read_again_after_a_restart(
    house: House, settings: Settings, conn: sqlite3.Connection, document: Path
) -> None:
    """https://github.com/ocrmypdf/OCRmyPDF/issues/484"""
    house.put(document, "a.pdf")
    house.wait_idle()
    read_at = conn.execute("SELECT page, read_at FROM pages").fetchall()
    after = House(settings, conn, house.folder)
    after.now = house.now + 100
    after.wait_idle()
    after.close()
    assert [tuple(row) for row in conn.execute("SELECT page, read_at FROM pages")] == [
        tuple(row) for row in read_at
    ]
    assert after.states() == {"a.pdf": "done"}


def test_b09_our_own_output_never_enters_the_queue(
    settings: Settings, conn: sqlite3.Connection, tmp_path: Path, document: Path
) -> None:
    """https://github.com/virantha/pypdfocr/issues/41"""
    house = House(replace(settings, out=tmp_path / "in" / "out"), conn, tmp_path / "in")
    house.put(document, "a.pdf")
    house.wait_idle()
    assert (house.folder / "out" / "a.pdf.md").is_file()
    for path in house.folder.rglob("*"):
        house.hint(path, is_folder=path.is_dir())
    house.wait_idle()
    assert house.states() == {"a.pdf": "done"}
    house.close()


def test_b09_sidecars_beside_the_source_never_enter_the_queue(
    settings: Settings, conn: sqlite3.Connection, tmp_path: Path, document: Path
) -> None:
    """https://github.com/virantha/pypdfocr/issues/41"""
    house = House(replace(settings, out=None), conn, tmp_path / "in")
    house.put(document, "a.pdf")
    house.wait_idle()
    assert sorted(path.name for path in house.folder.iterdir()) == ["a.pdf", "a.pdf.json", "a.pdf.md"]
    house.hint(*house.folder.iterdir())
    house.wait_idle()
    assert house.states() == {"a.pdf": "done"}
    house.close()


@pytest.mark.parametrize("when", ["before it settles", "before it is taken in", "before it is read"])
def test_b09_a_file_that_vanishes_early_is_a_quiet_end(when: str, house: House, document: Path) -> None:
    """https://github.com/virantha/pypdfocr/issues/41"""
    gone = house.put(document, "gone.pdf")
    house.now += 0.5
    house.watcher.tick(house.now)
    if when != "before it settles":
        house.now += 3
        house.watcher.tick(house.now)
        assert house.states() == {"gone.pdf": "queued"}
    if when == "before it is read":
        house.worker._take_in()
    gone.unlink()
    house.wait_idle()
    assert house.documents() == {}
    assert house.status()["counts"]["failed"] == 0


def test_b10_events_merged_and_out_of_order_do_not_matter(house: House, document: Path, other: Path) -> None:
    """https://github.com/gorakhargosh/watchdog/issues/749"""
    house.put(document, "c.pdf").unlink()
    house.put(other, "c.pdf")
    house.hint(house.folder / "c.pdf", house.folder / "never.pdf")
    house.wait_idle()
    [entry] = house.documents().values()
    assert (entry["state"], entry["pages"]) == ("done", 3)
    [hit] = index.search(house.conn, '"two columns filled"', limit=1)
    assert Path(hit.path).name == "c.pdf"


def test_b12_system_files_are_ignored_without_a_failure(house: House, document: Path) -> None:
    """https://github.com/syncthing/syncthing/issues/1631"""
    house.put(b"\x00\x05\x16\x07\x00\x02\x00\x00Mac OS X        ", "._scan.pdf")
    for name in (".DS_Store", "Thumbs.db", "desktop.ini"):
        house.put(b"", name)
    house.put(document, "scan.pdf")
    house.wait_idle()
    assert house.states() == {"scan.pdf": "done"}


def test_b13_a_file_in_icloud_is_waited_for(house: House, document: Path) -> None:
    """https://github.com/transmission/transmission/issues/1065"""
    stub = house.put(b"bplist00", ".report.pdf.icloud")
    house.wait_idle()
    assert house.documents() == {}
    assert "in iCloud" in house.status()["roots"][0]["message"]
    stub.unlink()
    house.put(document, "report.pdf")
    house.wait_idle()
    assert house.states() == {"report.pdf": "done"}
    assert "iCloud" not in (house.status()["roots"][0]["message"] or "")


def test_b13_a_file_whose_content_is_elsewhere_is_not_opened(
    house: House, document: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """https://github.com/transmission/transmission/issues/1065"""
    target = house.put(document, "report.pdf")
    real, dataless = os.lstat, True

    class Dataless:
        st_flags = 0x40000000

        def __init__(self, status: os.stat_result) -> None:
            self.st_mode, self.st_size, self.st_mtime_ns = status.st_mode, status.st_size, status.st_mtime_ns

    def lstat(path: Any, **options: Any) -> Any:
        status = real(path, **options)
        return Dataless(status) if dataless and os.fsencode(path) == os.fsencode(target) else status

    monkeypatch.setattr(os, "lstat", lstat)
    house.pass_time(6.0)
    assert house.documents() == {}
    dataless = False
    house.hint(target)
    house.wait_idle()
    assert house.states() == {"report.pdf": "done"}


def test_b14_a_moved_in_folder_is_scanned_and_watched(
    house: House, tmp_path: Path, document: Path, other: Path
) -> None:
    """https://github.com/gorakhargosh/watchdog/issues/1094 (that later events arrive: see test_watcher)"""
    deep = tmp_path / "sub" / "deep"
    deep.mkdir(parents=True)
    shutil.copy(document, deep / "1.pdf")
    (tmp_path / "sub").rename(house.folder / "sub")
    house.hint(house.folder / "sub", is_folder=True)
    house.pass_time(6.0)
    house.put(other, "sub/deep/2.pdf")
    house.pass_time(6.0)
    assert house.states() == {"sub/deep/1.pdf": "done", "sub/deep/2.pdf": "done"}


def test_b16_at_the_inotify_limit_folders_are_scanned_and_the_limit_is_named(
    settings: Settings,
    conn: sqlite3.Connection,
    tmp_path: Path,
    document: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """https://github.com/gorakhargosh/watchdog/issues/673"""

    def refuse(root: WatchRoot, hints: Hints) -> Still:
        raise OSError(errno.ENOSPC, "inotify watch limit reached")

    house = House(settings, conn, tmp_path / "in", start_observer=refuse)
    house.pass_time(1.0)
    (house.folder / "t" / "299").mkdir(parents=True)
    shutil.copy(document, house.folder / "t" / "299" / "x.pdf")
    house.pass_time(settings.poll_s + 6)
    assert house.states() == {"t/299/x.pdf": "done"}
    assert "max_user_watches" in caplog.text and "disk full" not in caplog.text
    assert jobs.paused(conn) == []
    house.close()


def test_b17_many_workers_and_readers_never_find_the_database_locked(
    settings: Settings, conn: sqlite3.Connection, tmp_path: Path, make_png: MakeFile
) -> None:
    """https://github.com/coleifer/huey/issues/445"""
    for number in range(40):
        make_png(tmp_path / "in" / f"{number}.png", number)
    seen = [
        library.SeenFile(os.fsencode(path), path.stat().st_size, path.stat().st_mtime_ns)
        for path in (tmp_path / "in").iterdir()
    ]
    library.register(conn, seen, 0.0)
    failures: list[BaseException] = []
    over = threading.Event()
    quiet = replace(settings, out=tmp_path / "out")

    def work(number: int) -> None:
        mine = open_database(settings.database_path)
        worker = Worker(mine, f"w{number}", quiet, make_engine=lambda name, settings: FakeEngine())
        try:
            while worker.turn() or not jobs.is_idle(mine, 1e12):
                pass
        except BaseException as error:
            failures.append(error)
        finally:
            worker.close()
            mine.close()

    def look() -> None:
        mine = open_readonly(settings.database_path)
        try:
            while not over.is_set():
                status.snapshot(mine, now=0.0)
                index.search(mine, "page")
        except BaseException as error:
            failures.append(error)
        finally:
            mine.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    readers = [threading.Thread(target=look) for _ in range(2)]
    for thread in (*threads, *readers):
        thread.start()
    for thread in threads:
        thread.join(600)
    over.set()
    for thread in readers:
        thread.join(60)
    assert failures == []
    assert status.count(conn)["done"] == 40
    rows = conn.execute("SELECT count(*) FROM page_jobs WHERE attempts > 0 OR state <> 'done'").fetchone()
    assert rows[0] == 0


def test_b18_jobs_of_the_killed_go_back_and_no_half_sidecar_shows(
    house: House, tmp_path: Path, make_pdf: MakeFile
) -> None:
    """https://github.com/procrastinate-org/procrastinate/issues/307 (with real processes: see test_supervisor)"""
    house.put(make_pdf(tmp_path / "book.pdf", 12), "book.pdf")
    house.watcher.tick(house.now)
    house.now += 3
    house.watcher.tick(house.now)
    house.worker._take_in()
    for _ in range(5):
        house.worker._read_page()
    dead, house.worker = house.worker, house.new_worker("another")  # as after kill -9: nothing is given back
    assert house.conn.execute("SELECT count(*) FROM page_jobs WHERE state = 'leased'").fetchone()[0] > 0
    assert list((house.settings.out or tmp_path).glob("**/*")) == []
    before = house.conn.execute("SELECT page, read_at FROM pages").fetchall()
    house.now += 5
    jobs.recover(house.conn, house.now, lambda owner: owner == "another")
    house.wait_idle()
    [entry] = house.documents().values()
    assert (entry["state"], entry["pages"], entry["pages_done"]) == ("done", 12, 12)
    after = dict(house.conn.execute("SELECT page, read_at FROM pages").fetchall())
    assert all(after[row["page"]] == row["read_at"] for row in before)
    dead.close()


def test_b24_a_decomposed_name_is_one_file_found_by_either_spelling(house: House, document: Path) -> None:
    """https://github.com/redaxo/core/issues/621"""
    name = unicodedata.normalize("NFD", "Übergröße é.pdf")
    house.put(document, name)
    house.wait_idle()
    typed = unicodedata.normalize("NFC", "Übergröße é")
    assert [Path(hit.path).name for hit in index.search(house.conn, "", name=typed)] == [name]
    house.hint(house.folder / unicodedata.normalize("NFC", name))  # as FSEvents may spell it
    house.wait_idle()
    assert house.states() == {name: "done"}


def test_b26_a_source_folder_that_cannot_be_written_to_is_no_obstacle(
    house: House, document: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """https://github.com/jonaswinkler/paperless-ng/issues/1508 (an unwritable output: see test_supervisor)"""
    house.put(document, "a.pdf")
    house.folder.chmod(0o555)
    try:
        house.wait_idle()
    finally:
        house.folder.chmod(0o755)
    assert house.states() == {"a.pdf": "done"}
    assert [path.name for path in house.folder.iterdir()] == ["a.pdf"]


def test_b27_without_space_no_part_of_a_sidecar_stays_and_it_is_written_later(
    house: House, document: Path, other: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """https://github.com/atlanhq/application-sdk/pull/3188"""

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", full)
        house.put(document, "a.pdf")
        house.put(other, "b.pdf")
        house.pass_time(6.0)
    assert [pause.kind for pause in jobs.paused(house.conn)] == ["disk_full"]
    assert set(house.states().values()) <= {"queued", "running"}
    assert [path for path in (house.settings.out or house.folder).rglob("*") if path.is_file()] == []
    jobs.resume(house.conn, "disk_full")
    house.pass_time(6.0)
    house.wait_idle()
    assert house.states() == {"a.pdf": "done", "b.pdf": "done"}
    for sidecar in (house.settings.out or house.folder).glob("*.json"):
        json.loads(sidecar.read_text("utf-8"))


def test_b33_pages_come_out_in_page_order_from_many_workers(
    house: House, tmp_path: Path, make_pdf: MakeFile
) -> None:
    """https://github.com/sbs20/scanservjs/issues/304"""
    house.put(make_pdf(tmp_path / "book.pdf", 130), "book.pdf")
    house.watcher.tick(house.now)
    house.now += 3
    house.watcher.tick(house.now)
    workers = [house.worker, house.new_worker("b"), house.new_worker("c"), house.new_worker("d")]
    workers[0]._take_in()
    busy = True
    while busy:  # each has its own pages in hand all the time
        busy = sum(worker._read_page() for worker in workers) > 0
    house.wait_idle()
    out = house.settings.out or house.folder
    written = json.loads((out / "book.pdf.json").read_text("utf-8"))
    assert [page["page"] for page in written["pages"]] == list(range(1, 131))
    markdown = (out / "book.pdf.md").read_text("utf-8")
    assert [int(number) for number in re.findall(r"reads page (\d+) of 130", markdown)] == list(range(1, 131))
    for worker in workers[1:]:
        worker.close()


def test_b34_pages_are_not_prepared_without_bound(house: House, tmp_path: Path, make_pdf: MakeFile) -> None:
    """https://github.com/pmgraham/datagrunt/issues/93 (memory itself: tests/bench/memory.py)"""
    house.put(make_pdf(tmp_path / "book.pdf", 60), "book.pdf")
    house.watcher.tick(house.now)
    house.now += 3
    house.watcher.tick(house.now)
    house.worker._take_in()
    most = 0
    while house.worker._read_page():
        most = max(most, len(house.worker._ahead))
    assert most <= 3


def test_b35_pdfium_is_called_from_one_thread_whatever_is_done(
    house: House, document: Path, other: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """https://github.com/pypdfium2-team/pypdfium2/issues/309"""
    from pipeline import source

    threads: set[str] = set()
    real_open, real_prepare, real_exit = source.open_source, DocumentReader.prepare, DocumentReader.__exit__

    def note(real: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*arguments: Any, **options: Any) -> Any:
            threads.add(threading.current_thread().name)
            return real(*arguments, **options)

        return noted

    monkeypatch.setattr(source, "open_source", note(real_open))
    monkeypatch.setattr(DocumentReader, "prepare", note(real_prepare))
    monkeypatch.setattr(DocumentReader, "__exit__", note(real_exit))
    for number in range(4):
        house.put(document.read_bytes() + b"\n%%%d" % number, f"m{number}.pdf")
        house.put(other.read_bytes() + b"\n%%%d" % number, f"g{number}.pdf")
    house.wait_idle()
    house.worker.idle()
    assert set(house.states().values()) == {"done"} and len(house.states()) == 8
    assert len(threads) == 1 and threads.pop().startswith("pdfium")
    texts = {
        row[0]
        for row in house.conn.execute(
            "SELECT text FROM pages JOIN documents ON documents.id = document_id WHERE pages = 1"
        )
    }
    assert len(texts) == 1


def test_b39_extensions_in_capitals_are_extensions(
    house: House, document: Path, tmp_path: Path, make_png: MakeFile
) -> None:
    """https://github.com/the-paperless-project/paperless/issues/24"""
    house.put(document, "SCAN0001.PDF")
    house.put(make_png(tmp_path / "x.png"), "x.PnG")
    house.wait_idle()
    assert house.states() == {"SCAN0001.PDF": "done", "x.PnG": "done"}


def test_b40_changed_content_is_read_anew_and_replaces_the_old(
    house: House, document: Path, other: Path, tmp_path: Path
) -> None:
    """https://github.com/ente/ente/issues/6433"""
    house.put(document, "r.pdf")
    house.wait_idle()
    assert index.search(house.conn, "again")
    temporary = house.put(other, ".r.tmp")
    temporary.rename(house.folder / "r.pdf")  # editors save like this
    house.hint(temporary, house.folder / "r.pdf")
    house.wait_idle()
    assert [entry["pages"] for entry in house.documents().values()] == [3]
    hits = index.search(house.conn, "columns")
    assert {hit.path for hit in hits} == {str(house.folder / "r.pdf")}
    assert house.conn.execute("SELECT count(*) FROM documents").fetchone()[0] == 1


def test_b40_new_content_with_the_old_time_is_noticed_by_its_size(
    house: House, document: Path, other: Path
) -> None:
    """https://github.com/ente/ente/issues/6433"""
    target = house.put(document, "r.pdf")
    house.wait_idle()
    times = target.stat()
    house.put(other, "r.pdf")
    os.utime(target, ns=(times.st_atime_ns, times.st_mtime_ns))
    house.wait_idle()
    assert [(entry["state"], entry["pages"]) for entry in house.documents().values()] == [("done", 3)]


# --- every awkward name at once ----------------------------------------------------------------------------


@needs_corpus
def test_awkward_names_and_kinds_of_file_each_end_as_expected(house: House) -> None:
    made = subprocess.run(
        [sys.executable, str(CORPUS / "make_traps.py"), str(house.folder)],
        capture_output=True,
        check=True,
    )
    expected = [line.split("\t") for line in made.stdout.decode("utf-8").splitlines()]
    assert len(expected) > 40
    house.watcher.scan(house.now)
    house.wait_idle()
    house.pass_time(house.settings.settle_s * 12)
    rows = house.conn.execute(
        "SELECT files.path_bytes, file_status.state, coalesce(files.error_code, documents.error_code) AS code"
        " FROM files JOIN file_status USING (id) LEFT JOIN documents ON documents.id = files.document_id"
    ).fetchall()
    found = {
        os.path.relpath(row["path_bytes"], os.fsencode(house.folder)): (row["state"], row["code"])
        for row in rows
    }
    wrong = []
    for name, what in expected:
        state, code = found.pop(path_of(name), (None, None))
        if not ended_as(what, state, code):
            wrong.append(f"{name}: {what}; it is {state} ({code})")
    assert wrong == []
    assert found == {}


def path_of(name: str) -> bytes:
    if name.startswith("'d'*60"):
        return b"/".join([b"d" * 60] * 20 + [b"deep.pdf"])
    value = ast.literal_eval(name)
    return value if isinstance(value, bytes) else os.fsencode(value)


def ended_as(what: str, state: str | None, code: str | None) -> bool:
    if what.startswith("SKIPPED"):
        return state is None
    if what.startswith(("done", "mtime")) or ": done" in what:
        return state == "done"
    if "error permission" in what:  # as root it is read
        return state == "done" or code == "permission"
    if "empty_file" in what or "not_a_document" in what:
        return state == "failed" and code in what
    if what.startswith("hard link"):
        return state == "done"
    return state is None  # ignored, waiting in the cloud, links, pipes, folders
