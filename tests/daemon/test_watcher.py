"""One watched root on a clock the tests hold; hints are given by hand, except where the real observer is tried."""

# ruff: noqa: PTH123 (paths are bytes here)
from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from daemon import hints as hints_module
from daemon import watcher as watcher_module
from daemon.hints import Hints, WatchdogObserver
from daemon.scanner import WatchRoot
from daemon.watcher import RootWatcher
from daemon.watching import rules_for
from storage import library, workers
from storage.settings import Settings

PDF = b"%PDF-1.4 not much of one\n"


class StillObserver:
    """Delivers nothing, lives until it is told to die."""

    def __init__(self) -> None:
        self.alive = True

    def is_alive(self) -> bool:
        return self.alive

    def stop(self) -> None:
        self.alive = False


class Watch:
    """A watcher of a folder, and the clock."""

    def __init__(self, folder: Path, settings: Settings, conn: sqlite3.Connection, **options: object) -> None:
        self.folder = folder
        self.now = 1_000_000.0
        self.conn = conn
        self.observers: list[StillObserver] = []
        self.events: list[str] = []
        root = WatchRoot(os.fsencode(folder), out_dir=os.fsencode(settings.out) if settings.out else None)
        options.setdefault("start_observer", self._observe)
        options.setdefault("file_system", lambda path: "ext4")
        self.watcher = RootWatcher(
            root,
            settings,
            rules_for(settings, [root]),
            conn,
            now=self.now,
            on_event=self.events.append,
            **options,
        )  # type: ignore[arg-type]

    def _observe(self, root: WatchRoot, found: Hints) -> StillObserver:
        self.observers.append(StillObserver())
        return self.observers[-1]

    def hint(self, *names: str, is_folder: bool = False) -> None:
        for name in names:
            self.watcher.hints.add(os.fsencode(self.folder / name), is_folder=is_folder)

    def tick(self, seconds: float = 0.0) -> bool:
        """Time passes, then the watcher has its turn."""
        self.now += seconds
        return self.watcher.tick(self.now)

    def settle(self) -> None:
        """Give everything the time to come to rest."""
        for _ in range(3):
            self.tick(2.1)

    def files(self, where: str = "missing_since IS NULL") -> list[str]:
        rows = self.conn.execute(f"SELECT path_bytes FROM files WHERE {where}").fetchall()
        return sorted(os.path.relpath(os.fsdecode(row[0]), self.folder) for row in rows)

    def root(self) -> sqlite3.Row:
        row: sqlite3.Row = self.conn.execute("SELECT * FROM roots").fetchone()
        return row


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "in"
    path.mkdir()
    return path


@pytest.fixture
def watch(folder: Path, settings: Settings, conn: sqlite3.Connection) -> Watch:
    return Watch(folder, settings, conn)


def link_all(conn: sqlite3.Connection) -> None:
    """As if every file had been taken in and read."""
    for row in conn.execute("SELECT id, path FROM files WHERE state = 'intake'").fetchall():
        document = conn.execute(
            "INSERT INTO documents (sha256, size, state, pages, pages_done, added_at) VALUES (?, 1, 'done', 1, 1, 0)",
            (row["path"],),
        ).lastrowid
        conn.execute("UPDATE files SET state = 'linked', document_id = ? WHERE id = ?", (document, row["id"]))


# --- from hint or scan to the queue ------------------------------------------------------------------------


def test_files_there_at_the_start_are_queued_once_they_rest(watch: Watch) -> None:
    (watch.folder / "a.pdf").write_bytes(PDF)
    watch.tick()
    assert watch.files() == []
    assert not watch.watcher.is_quiet
    assert watch.tick(2.1)
    assert watch.files() == ["a.pdf"]
    assert watch.watcher.is_quiet


def test_any_number_of_hints_queues_a_file_once(watch: Watch) -> None:
    watch.tick()
    (watch.folder / "a.pdf").write_bytes(PDF)
    for _ in range(20):
        watch.hint("a.pdf", "a.pdf")
        watch.tick(0.2)
    assert watch.files() == ["a.pdf"]
    assert watch.conn.execute("SELECT count(*) FROM files").fetchone()[0] == 1


def test_a_file_that_grows_is_not_queued_before_it_rests(watch: Watch) -> None:
    watch.tick()
    file = watch.folder / "slow.pdf"
    for size in range(1, 12):
        file.write_bytes(PDF * size)
        watch.hint("slow.pdf")
        watch.tick(1.5)
        assert watch.files() == []
    watch.settle()
    assert watch.files() == ["slow.pdf"]


def test_growth_that_raises_no_events_is_noticed_too(watch: Watch) -> None:
    watch.tick()
    file = watch.folder / "slow.pdf"
    file.write_bytes(PDF)
    watch.hint("slow.pdf")
    watch.tick()
    for size in range(2, 8):
        file.write_bytes(PDF * size)
        watch.tick(2.1)
        assert watch.files() == []
    watch.tick(2.1)
    assert watch.files() == ["slow.pdf"]


def test_an_empty_file_is_queued_in_the_end(watch: Watch) -> None:
    watch.tick()
    (watch.folder / "empty.pdf").touch()
    watch.hint("empty.pdf")
    watch.tick()
    watch.tick(10.0)
    assert watch.files() == []
    watch.tick(10.1)
    assert watch.files() == ["empty.pdf"]


def test_what_vanishes_before_it_rests_is_never_queued(watch: Watch) -> None:
    watch.tick()
    (watch.folder / "gone.pdf").write_bytes(PDF)
    watch.hint("gone.pdf")
    watch.tick(0.5)
    (watch.folder / "gone.pdf").unlink()
    watch.settle()
    assert watch.conn.execute("SELECT count(*) FROM files").fetchone()[0] == 0


def test_a_scan_finds_what_no_hint_told(watch: Watch, settings: Settings) -> None:
    watch.tick()
    (watch.folder / "silent.pdf").write_bytes(PDF)
    watch.settle()
    assert watch.files() == []
    watch.tick(settings.rescan_s)
    watch.settle()
    assert watch.files() == ["silent.pdf"]


def test_a_burst_too_large_to_list_becomes_a_scan(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hints_module, "LIMIT", 3)
    watch.tick()
    for number in range(8):
        (watch.folder / f"{number}.pdf").write_bytes(PDF)
        watch.hint(f"{number}.pdf")
    watch.settle()
    assert len(watch.files()) == 8


def test_a_moved_in_folder_is_looked_through(watch: Watch, tmp_path: Path) -> None:
    watch.tick()
    deep = tmp_path / "elsewhere" / "deep"
    deep.mkdir(parents=True)
    (deep / "1.pdf").write_bytes(PDF)
    (tmp_path / "elsewhere").rename(watch.folder / "sub")
    watch.hint("sub", is_folder=True)
    watch.settle()
    assert watch.files() == ["sub/deep/1.pdf"]


def test_a_hidden_folder_is_not_looked_through(watch: Watch) -> None:
    watch.tick()
    (watch.folder / ".trash").mkdir()
    (watch.folder / ".trash" / "1.pdf").write_bytes(PDF)
    watch.hint(".trash", is_folder=True)
    watch.hint(".trash/1.pdf")
    watch.settle()
    assert watch.files() == []


def test_our_output_inside_the_root_never_enters(
    folder: Path, settings: Settings, conn: sqlite3.Connection
) -> None:
    watch = Watch(folder, replace(settings, out=folder / "out"), conn)
    (folder / "out").mkdir()
    (folder / "out" / "a.pdf").write_bytes(PDF)
    (folder / "b.pdf").write_bytes(PDF)
    watch.tick()
    watch.hint("out/a.pdf")
    watch.hint("out", is_folder=True)
    watch.settle()
    assert watch.files() == ["b.pdf"]


def test_content_decides_on_files_without_extension_and_is_asked_once(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    (watch.folder / "SCAN").write_bytes(PDF)
    (watch.folder / "Makefile").write_bytes(b"all:\n")
    watch.tick()
    watch.settle()
    assert watch.files() == ["SCAN"]
    monkeypatch.setattr(watcher_module.scanner, "is_document", lambda path: pytest.fail("opened again"))
    watch.watcher.scan(watch.now)
    watch.settle()


# --- what goes, and what comes back ------------------------------------------------------------------------


def test_a_deleted_file_is_missing_and_unmissed_when_it_returns(watch: Watch) -> None:
    file = watch.folder / "a.pdf"
    file.write_bytes(PDF)
    watch.tick()
    watch.settle()
    link_all(watch.conn)
    kept = file.stat()
    file.unlink()
    watch.hint("a.pdf")
    watch.tick(0.1)
    assert watch.files("missing_since IS NOT NULL") == ["a.pdf"]
    file.write_bytes(PDF)
    os.utime(file, ns=(kept.st_atime_ns, kept.st_mtime_ns))
    watch.hint("a.pdf")
    watch.settle()
    assert watch.files() == ["a.pdf"]


def test_a_deletion_without_event_is_found_by_the_scan(watch: Watch, settings: Settings) -> None:
    for name in ("a.pdf", "b.pdf"):
        (watch.folder / name).write_bytes(PDF)
    watch.tick()
    watch.settle()
    link_all(watch.conn)
    (watch.folder / "a.pdf").unlink()
    watch.tick(settings.rescan_s)
    assert watch.files() == ["b.pdf"]


def test_a_folder_that_went_takes_its_files_along(watch: Watch) -> None:
    (watch.folder / "sub").mkdir()
    (watch.folder / "sub" / "a.pdf").write_bytes(PDF)
    watch.tick()
    watch.settle()
    link_all(watch.conn)
    shutil.rmtree(watch.folder / "sub")
    watch.hint("sub", is_folder=True)
    watch.tick(0.1)
    assert watch.files("missing_since IS NOT NULL") == ["sub/a.pdf"]


def test_a_folder_that_cannot_be_listed_loses_nothing(
    watch: Watch, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    (watch.folder / "sub").mkdir()
    (watch.folder / "sub" / "a.pdf").write_bytes(PDF)
    watch.tick()
    watch.settle()
    link_all(watch.conn)
    real = os.scandir

    def refuse(path: bytes) -> object:
        if os.fsencode(path) == os.fsencode(watch.folder / "sub"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", refuse)
    watch.tick(settings.rescan_s)
    assert watch.files() == ["sub/a.pdf"]
    assert "1 folders cannot be listed" in watch.root()["message"]


def test_a_root_that_vanishes_is_gone_and_its_files_are_not_missing(watch: Watch, tmp_path: Path) -> None:
    (watch.folder / "a.pdf").write_bytes(PDF)
    watch.tick()
    watch.settle()
    link_all(watch.conn)
    watch.folder.rename(tmp_path / "away")
    watch.hint("a.pdf")
    watch.tick(2.1)
    assert watch.root()["state"] == "gone"
    assert watch.files() == ["a.pdf"]
    assert not watch.observers[0].alive
    (tmp_path / "away").rename(watch.folder)
    (watch.folder / "b.pdf").write_bytes(PDF)
    watch.tick(2.1)
    assert watch.root()["state"] == "ok"
    watch.settle()
    assert watch.files() == ["a.pdf", "b.pdf"]
    assert len(watch.observers) == 2


def test_an_empty_mount_point_left_behind_is_a_root_that_is_away(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    (watch.folder / "a.pdf").write_bytes(PDF)
    watch.tick()
    watch.settle()
    link_all(watch.conn)
    (watch.folder / "a.pdf").unlink()  # the share is unmounted: an empty folder of another device shows
    real = os.stat

    def other_device(path: object, **options: object) -> object:
        status = real(path, **options)  # type: ignore[arg-type]
        if path == os.fsencode(watch.folder):
            return SimpleNamespace(st_dev=status.st_dev + 1, st_ino=status.st_ino, st_mode=status.st_mode)
        return status

    monkeypatch.setattr(os, "stat", other_device)
    watch.hint("a.pdf")
    watch.tick(2.1)
    assert watch.root()["state"] == "gone"
    assert watch.files() == ["a.pdf"]
    monkeypatch.undo()
    watch.tick(2.1)
    assert watch.root()["state"] == "ok"


def test_a_share_not_mounted_yet_at_the_start_is_waited_for(
    folder: Path, settings: Settings, conn: sqlite3.Connection
) -> None:
    first = Watch(folder, settings, conn)
    workers.put(conn, f"mount:{first.watcher.root_id}", "1")  # as the last run left it
    library.register(
        conn, [library.SeenFile(os.fsencode(folder / "a.pdf"), 1, 1, first.watcher.root_id)], 0.0
    )
    link_all(conn)
    first.tick()
    assert first.root()["state"] == "gone"
    assert first.files() == ["a.pdf"]
    assert first.watcher.is_quiet


# --- where no events come from -----------------------------------------------------------------------------


def test_a_network_file_system_is_polled(folder: Path, settings: Settings, conn: sqlite3.Connection) -> None:
    def refuse(root: WatchRoot, found: Hints) -> StillObserver:
        raise AssertionError("observed a network file system")

    watch = Watch(folder, settings, conn, file_system=lambda path: "nfs4", start_observer=refuse)
    watch.tick()
    assert watch.root()["mode"] == "polling"
    assert "nfs4" in watch.root()["message"]
    (folder / "a.pdf").write_bytes(PDF)
    watch.tick(settings.poll_s)
    watch.settle()
    assert watch.files() == ["a.pdf"]


def test_a_clock_set_back_stops_no_scan(folder: Path, settings: Settings, conn: sqlite3.Connection) -> None:
    watch = Watch(folder, settings, conn, file_system=lambda path: "nfs4")
    watch.tick()
    (folder / "a.pdf").write_bytes(PDF)
    watch.tick(-86_400.0)
    watch.settle()
    assert watch.files() == ["a.pdf"]
    shutil.rmtree(folder)
    watch.tick(-86_400.0)
    assert watch.watcher.state == "gone"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE])
def test_the_inotify_limit_means_polling_and_is_named(
    number: int, folder: Path, settings: Settings, conn: sqlite3.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(root: WatchRoot, found: Hints) -> StillObserver:
        raise OSError(number, "inotify watch limit reached")

    watch = Watch(folder, settings, conn, start_observer=refuse)
    (folder / "x.pdf").write_bytes(PDF)
    watch.tick()
    watch.settle()
    assert watch.files() == ["x.pdf"]
    assert "fs.inotify.max_user_watches" in caplog.text
    assert "No space" not in caplog.text and "disk" not in caplog.text
    assert "fs.inotify.max_user_watches" in watch.root()["message"]


def test_folders_that_silently_stay_unwatched_mean_polling(
    watch: Watch, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hints_module, "unwatched", lambda folders: 250)
    watch.tick()
    assert watch.root()["mode"] == "native"  # may be a folder made this moment: looked at twice
    watch.tick(2.1)
    assert watch.root()["mode"] == "polling"
    assert "max_user_watches" in watch.events[-1]


def test_a_dead_observer_is_started_again_and_what_it_missed_is_found(watch: Watch) -> None:
    watch.tick()
    watch.observers[0].alive = False
    (watch.folder / "a.pdf").write_bytes(PDF)
    watch.tick(5.1)
    assert len(watch.observers) == 2
    assert watch.watcher.restarts == 1
    assert "started again" in watch.events[-1]
    watch.settle()
    assert watch.files() == ["a.pdf"]


def test_a_file_in_the_cloud_is_waited_for(watch: Watch) -> None:
    (watch.folder / ".report.pdf.icloud").write_bytes(b"bplist00")
    watch.tick()
    watch.settle()
    assert watch.files() == []
    assert "waiting: 1 in iCloud" in watch.root()["message"]


def test_files_that_go_to_the_cloud_and_come_back_are_noticed_soon(watch: Watch) -> None:
    watch.tick()
    stub = watch.folder / ".report.pdf.icloud"
    stub.write_bytes(b"bplist00")
    watch.watcher.hints.add(os.fsencode(stub))
    watch.tick(1.0)
    watch.tick(watch.watcher.settings.poll_s + 1.0)
    assert "waiting: 1 in iCloud" in watch.root()["message"]
    stub.unlink()
    watch.watcher.hints.add(os.fsencode(stub))
    watch.tick(1.0)
    watch.tick(watch.watcher.settings.poll_s + 1.0)
    assert watch.root()["message"] is None


# --- hints -------------------------------------------------------------------------------------------------


def test_paths_that_macos_resolved_are_given_back_as_they_were_asked_for(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    found = Hints(os.fsencode(tmp_path / "link"))
    found.add(os.fsencode(tmp_path.resolve() / "real" / "a.pdf"))
    assert found.drain().paths == {os.fsencode(tmp_path / "link" / "a.pdf")}


@pytest.fixture
def observed(tmp_path: Path) -> Iterator[tuple[Path, Hints]]:
    root = tmp_path / "root"
    root.mkdir()
    found = Hints(os.fsencode(root))
    observer = WatchdogObserver(os.fsencode(root), recursive=True, hints=found)
    yield root, found
    observer.stop()


def hinted(found: Hints, wanted: Callable[[set[bytes]], bool]) -> set[bytes]:
    """Hints until they are as wanted, or too much time went by."""
    seen: set[bytes] = set()
    deadline = time.monotonic() + 60
    while not wanted(seen) and time.monotonic() < deadline:
        found.arrived.wait(0.5)
        dirty = found.drain()
        seen |= dirty.paths | dirty.folders
    return seen


def test_the_real_observer_hints_at_files_made_moved_and_in_moved_folders(
    observed: tuple[Path, Hints],
) -> None:
    root, found = observed
    (root.parent / "in" / "deep").mkdir(parents=True)
    (root.parent / "in").rename(root / "sub")
    assert os.fsencode(root / "sub") in hinted(found, lambda seen: os.fsencode(root / "sub") in seen)
    later = os.fsencode(root / "sub" / "deep" / "later.pdf")
    with open(later, "wb") as file:
        file.write(PDF)
    assert later in hinted(found, lambda seen: later in seen)
    (root / "x.pdf.part").write_bytes(PDF)
    (root / "x.pdf.part").rename(root / "x.pdf")
    assert os.fsencode(root / "x.pdf") in hinted(found, lambda seen: os.fsencode(root / "x.pdf") in seen)


def test_reading_a_file_is_no_hint(observed: tuple[Path, Hints]) -> None:
    root, found = observed
    file = root / "a.pdf"
    file.write_bytes(PDF)
    wrote(root / "between.pdf", found)  # events come in order: those of the first file are through
    file.read_bytes()
    assert os.fsencode(file) not in wrote(root / "after.pdf", found)


def wrote(path: Path, found: Hints) -> set[bytes]:
    """Write a file; the hints until it has arrived, and nothing more comes."""
    path.write_bytes(PDF)
    seen = hinted(found, lambda seen: os.fsencode(path) in seen)
    assert os.fsencode(path) in seen
    while found.arrived.wait(0.3):
        seen |= found.drain().paths
    return seen


@pytest.mark.skipif(not Path("/proc/self/fdinfo").is_dir(), reason="inotify is Linux only")
def test_folders_beyond_the_observer_are_counted(observed: tuple[Path, Hints]) -> None:
    root, _ = observed
    (root.parent / "other").mkdir()
    inside, outside = (
        (root, root.stat().st_ino),
        (root.parent / "other", (root.parent / "other").stat().st_ino),
    )
    pairs = [(os.fsencode(path), inode) for path, inode in (inside, outside)]
    assert hints_module.unwatched(pairs[:1]) == 0
    assert hints_module.unwatched(pairs) == 1
    assert hints_module.unwatched(pairs[::-1]) == 0  # inode numbers that tell nothing
