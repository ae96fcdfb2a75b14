"""The daemon as real processes, with the fake engine; waits for what must happen, never for a time."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from daemon import crew as crew_module
from daemon import processes, supervisor
from daemon.crew import Crew
from daemon.scanner import WatchRoot
from daemon.watching import check_roots, check_writable, rules_for
from storage import jobs, library, status, workers
from storage.database import open_database
from storage.errors import (
    AccessError,
    BusyError,
    ExitCode,
    OcrdError,
    SettingsError,
    StorageError,
    VanishedError,
)
from storage.settings import Settings
from tests.storage.conftest import Desk

MakeFile = Callable[..., Path]
DEADLINE_S = 120.0
DAEMON = """
import pickle, sys
from daemon import supervisor
settings, roots = pickle.load(sys.stdin.buffer)
print("started", flush=True)
end = supervisor.run(settings, roots, on_event=lambda line: print(line, flush=True))
sys.exit(end.exit_code)
"""


class Daemon:
    """`ocrd watch` in a process of its own."""

    def __init__(self, settings: Settings, folder: Path, script: str = "") -> None:
        import pickle

        self.settings = settings
        self.folder = folder
        root = WatchRoot(
            os.fsencode(folder), out_dir=os.fsencode(settings.out or folder), base=os.fsencode(folder)
        )
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", DAEMON],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=os.environ | {"OCRD_FAKE_SCRIPT": script},
        )
        assert self.process.stdin is not None
        self.process.stdin.write(pickle.dumps((settings, [root])))
        self.process.stdin.close()
        self.conn = open_database(settings.database_path)

    def until(self, true: Callable[[], object], what: str) -> None:
        """Wait until it is true; fails when it takes too long or the daemon ends before."""
        deadline = time.monotonic() + DEADLINE_S
        while not true():
            if time.monotonic() > deadline or self.process.poll() is not None:
                log = (self.settings.home / "ocrd.log").read_text("utf-8", "replace")
                pytest.fail(
                    f"waited in vain for {what}: {self.states()}, exit {self.process.poll()}\n{log[-3000:]}"
                )
            time.sleep(0.02)

    def gone(self, pids: list[int]) -> None:
        """Wait until processes have ended."""
        deadline = time.monotonic() + DEADLINE_S
        while any(processes.rss_mb(pid) for pid in pids):
            assert time.monotonic() < deadline, f"some of {pids} still run"
            time.sleep(0.02)

    def snapshot(self) -> dict[str, object]:
        return status.snapshot(self.conn, now=time.time(), all_documents=True)

    def states(self) -> dict[str, str]:
        rows = self.conn.execute("SELECT path, state FROM file_status").fetchall()
        return {Path(row["path"]).name: row["state"] for row in rows}

    def workers(self) -> list[workers.WorkerRow]:
        return [
            row for row in workers.rows(self.conn) if row.role == "worker" and processes.is_alive(row.owner)
        ]

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(DEADLINE_S)

    def close(self) -> None:
        pids = [row.pid for row in self.workers()]
        for pid in [self.process.pid] if self.process.poll() is None else []:
            os.kill(pid, signal.SIGKILL)
        self.process.wait()
        for pid in pids:
            if processes.rss_mb(pid):
                os.kill(pid, signal.SIGKILL)
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.conn.close()


Start = Callable[..., Daemon]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "in"
    path.mkdir()
    return path


@pytest.fixture
def start(settings: Settings, folder: Path, conn: sqlite3.Connection) -> Iterator[Start]:
    daemons: list[Daemon] = []

    def begin(script: str = "", **changes: object) -> Daemon:
        chosen = replace(settings, settle_s=0.2, rescan_s=2.0, **changes)  # type: ignore[arg-type]
        daemons.append(Daemon(chosen, folder, script))
        return daemons[-1]

    yield begin
    for daemon in daemons:
        daemon.close()


def test_a_dropped_file_is_read_and_the_daemon_leaves_when_told(
    start: Start, folder: Path, make_png: MakeFile, settings: Settings
) -> None:
    daemon = start()
    daemon.until(lambda: daemon.snapshot()["watcher"] == "alive", "watching")
    make_png(folder / "a.png")
    daemon.until(lambda: daemon.states() == {"a.png": "done"}, "reading")
    assert (settings.out or folder).joinpath("a.png.md").is_file()
    assert daemon.end() == ExitCode.OK
    after = daemon.snapshot()
    assert after["state"] == "stopped" and after["watcher"] == "off" and after["workers"] == []


def test_a_second_daemon_is_refused_and_told_who_runs(start: Start, folder: Path, settings: Settings) -> None:
    daemon = start()
    daemon.until(lambda: daemon.snapshot()["watcher"] == "alive", "watching")
    with pytest.raises(BusyError, match=str(daemon.process.pid)):
        supervisor.run(settings, [WatchRoot(os.fsencode(folder))])
    assert daemon.end(signal.SIGINT) == ExitCode.INTERRUPTED


def test_after_kill_9_of_everything_only_unfinished_pages_are_read(
    start: Start, folder: Path, make_pdf: MakeFile, settings: Settings
) -> None:
    first = start("delay:30ms", text_layer="ignore")
    make_pdf(folder / "book.pdf", 30)
    done = "SELECT count(*) FROM page_jobs WHERE state = 'done'"
    first.until(lambda: first.conn.execute(done).fetchone()[0] >= 3, "the first pages")
    pids = [first.process.pid, *(row.pid for row in first.workers())]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    first.process.wait()
    first.gone(pids[1:])
    read = dict(first.conn.execute("SELECT page, read_at FROM pages").fetchall())
    assert 3 <= len(read) < 30
    assert not (settings.out or folder).joinpath("book.pdf.md").exists()
    second = start(text_layer="ignore")
    second.until(lambda: second.states() == {"book.pdf": "done"}, "the rest")
    again = dict(second.conn.execute("SELECT page, read_at FROM pages").fetchall())
    assert len(again) == 30
    assert {page: again[page] for page in read} == read
    assert [file.name for file in (settings.out or folder).iterdir() if file.name.startswith(".")] == []


@pytest.mark.slow
def test_a_page_that_kills_its_worker_is_set_aside_and_everything_else_is_read(
    start: Start, folder: Path, make_pdf: MakeFile, make_png: MakeFile
) -> None:
    daemon = start("crash:3", text_layer="ignore", max_attempts=2)
    make_pdf(folder / "bad.pdf", 4)
    make_png(folder / "good.png")
    daemon.until(lambda: daemon.states() == {"bad.pdf": "done", "good.png": "done"}, "reading")
    [row] = daemon.conn.execute(
        "SELECT page, attempts, error_code FROM page_jobs WHERE state = 'failed'"
    ).fetchall()
    assert tuple(row) == (3, 2, "crash")


@pytest.mark.slow
def test_a_page_that_hangs_is_ended_and_does_not_stop_the_others(
    start: Start, folder: Path, make_pdf: MakeFile, make_png: MakeFile
) -> None:
    daemon = start("hang:2", text_layer="ignore", max_attempts=1, page_timeout_s=3.0, lease_s=2.0)
    make_pdf(folder / "bad.pdf", 2)
    make_png(folder / "good.png")
    daemon.until(lambda: daemon.states() == {"bad.pdf": "done", "good.png": "done"}, "reading")
    [row] = daemon.conn.execute("SELECT page, error_code FROM page_jobs WHERE state = 'failed'").fetchall()
    assert tuple(row) == (2, "crash")


def test_workers_leave_when_their_supervisor_is_killed(
    start: Start, folder: Path, make_png: MakeFile
) -> None:
    daemon = start()
    make_png(folder / "a.png")
    daemon.until(lambda: daemon.states() == {"a.png": "done"}, "reading")
    pids = [row.pid for row in daemon.workers()]
    assert pids
    os.kill(daemon.process.pid, signal.SIGKILL)
    daemon.process.wait()
    daemon.gone(pids)


def test_once_ends_by_itself_when_all_is_read(settings: Settings, folder: Path, make_png: MakeFile) -> None:
    make_png(folder / "a.png")
    events: list[str] = []
    chosen = replace(settings, settle_s=0.1)
    end = supervisor.run(chosen, [WatchRoot(os.fsencode(folder))], once=True, on_event=events.append)
    assert (end.exit_code, end.pages_done) == (ExitCode.OK, 1)
    assert (folder / "a.png.md").is_file()
    assert events[0].startswith("watching ")
    assert events[-1] == f"read: {folder / 'a.png'}, pages: 1"


def test_a_copy_dropped_into_the_folder_is_told(settings: Settings, folder: Path, make_png: MakeFile) -> None:
    chosen, root = replace(settings, settle_s=0.1), WatchRoot(os.fsencode(folder))
    events: list[str] = []
    make_png(folder / "a.png")
    supervisor.run(chosen, [root], once=True)
    make_png(folder / "b.png")
    supervisor.run(chosen, [root], once=True, on_event=events.append)
    assert events[-1] == f"read before: {folder / 'b.png'}, the same as {folder / 'a.png'}"


# --- in this process ---------------------------------------------------------------------------------------


def test_roots_that_cannot_be_watched_are_told_before_anything_starts(
    settings: Settings, tmp_path: Path
) -> None:
    (tmp_path / "file.pdf").touch()
    with pytest.raises(VanishedError, match="no such folder"):
        supervisor.run(settings, [WatchRoot(os.fsencode(tmp_path / "none"))])
    with pytest.raises(SettingsError, match="no folder"):
        supervisor.run(settings, [WatchRoot(os.fsencode(tmp_path / "file.pdf"))])
    check_roots(
        [WatchRoot(os.fsencode(tmp_path / "none"))], {os.fsencode(tmp_path / "none")}
    )  # known: waited for


def test_an_output_that_cannot_be_written_is_told_at_the_start(settings: Settings, folder: Path) -> None:
    (folder / "file").touch()
    with pytest.raises(AccessError, match="output folder"):
        supervisor.run(
            settings, [WatchRoot(os.fsencode(folder), out_dir=os.fsencode(folder / "file" / "out"))]
        )
    with pytest.raises(StorageError):
        check_writable(b"/proc/nope")
    check_writable(os.fsencode(folder / "new" / "out"))
    assert list((folder / "new" / "out").iterdir()) == []


def test_an_unknown_engine_is_told_at_the_start(settings: Settings, folder: Path) -> None:
    with pytest.raises(SettingsError, match="no engine"):
        supervisor.run(replace(settings, engine="tesserakt"), [WatchRoot(os.fsencode(folder))])


@pytest.fixture
def crew(settings: Settings, conn: sqlite3.Connection) -> Iterator[Crew]:
    crew = Crew(settings, doing="is tested", watching=True)
    crew.start()
    yield crew
    crew.stop()
    crew.close()


def test_the_dead_are_forgotten_and_their_jobs_taken_back_at_the_start(
    settings: Settings, conn: sqlite3.Connection
) -> None:
    host, pid, begun = processes.owner_id().rsplit(":", 2)
    dead = f"{host}:{pid}:{begun}0"
    library.register(conn, [library.SeenFile(b"/in/a.pdf", 1, 1)], 0.0)
    workers.record(conn, dead, pid=1, host=host, role="worker", now=0.0)
    assert jobs.claim_intake(conn, dead, time.time(), 3600.0)
    crew = Crew(settings, doing="is tested", watching=True)
    crew.start()
    assert conn.execute("SELECT lease_owner FROM files").fetchone()[0] is None
    assert [row.role for row in workers.rows(conn)] == ["supervisor"]
    crew.close()


def test_a_pause_for_want_of_space_ends_once_there_is_space(
    crew: Crew, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = 1 << 20
    monkeypatch.setattr(crew_module, "_free_bytes", lambda path: free)
    crew.check_space()
    assert [pause.kind for pause in jobs.paused(crew.conn)] == ["disk_full"]
    free = 1 << 40
    crew.check_space()
    assert jobs.paused(crew.conn) == []
    jobs.pause(crew.conn, "by me")
    crew.check_space()
    assert [pause.kind for pause in jobs.paused(crew.conn)] == ["user"]


@pytest.mark.parametrize(("code", "passes"), [(sqlite3.SQLITE_FULL, True), (sqlite3.SQLITE_ERROR, False)])
def test_want_of_space_for_a_note_does_not_end_the_daemon(
    code: int, passes: bool, crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        error = sqlite3.OperationalError("as the test says")
        error.sqlite_errorcode = code
        raise error

    crew.pool.limit = 0
    monkeypatch.setattr(workers, "beat", fail)
    if passes:
        crew.tick(time.time() + 3600)
    else:
        with pytest.raises(sqlite3.OperationalError):
            crew.tick(time.time())


@pytest.mark.parametrize(("code", "passes"), [(sqlite3.SQLITE_BUSY, True), (sqlite3.SQLITE_ERROR, False)])
def test_a_locked_database_does_not_end_the_daemon_that_tells_what_is_read(
    code: int, passes: bool, crew: Crew, conn: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    crew.say = said.append
    watch = supervisor._Watch(crew, [], once=False, signals=crew_module.StopSignals())
    now = time.time()
    conn.execute(
        "INSERT INTO documents (sha256, size, state, pages, added_at, finished_at) VALUES ('a', 1, 'done', 1, 0, ?)",
        (now + 1,),
    )

    def fail(*arguments: object, **options: object) -> bool:
        error = sqlite3.OperationalError("as the test says")
        error.sqlite_errorcode = code
        raise error

    watch._digest.wanted = "always"
    with monkeypatch.context() as locked:
        locked.setattr(jobs, "is_idle", fail)
        if not passes:
            with pytest.raises(sqlite3.OperationalError):
                watch._tell_finished(now + 2)
            return
        watch._tell_finished(now + 2)
    watch._tell_finished(now + 4)
    assert len(said) == 1


def test_what_is_finished_after_the_clock_was_set_back_is_told(crew: Crew, conn: sqlite3.Connection) -> None:
    said: list[str] = []
    crew.say = said.append
    watch = supervisor._Watch(crew, [], once=False, signals=crew_module.StopSignals())
    before = time.time() - 8 * 3600
    watch._tell_finished(before)
    conn.execute(
        "INSERT INTO documents (sha256, size, state, pages, added_at, finished_at) VALUES ('a', 1, 'done', 1, 0, ?)",
        (before + 1,),
    )
    watch._tell_finished(before + 2)
    assert len(said) == 1


def test_a_document_is_told_by_its_first_file_and_copies_after_it(
    crew: Crew, conn: sqlite3.Connection, folder: Path
) -> None:
    said: list[str] = []
    crew.say = said.append
    watch = supervisor._Watch(crew, [], once=False, signals=crew_module.StopSignals())
    desk = Desk(conn, time.time() + 1)
    for name in ("a.pdf", "b.pdf"):
        (folder / name).touch()
        desk.put(str(folder / name), "A")
    desk.finish()
    watch._tell_finished(desk.now + 1)
    first, copy = folder / "a.pdf", folder / "b.pdf"
    assert said == [f"read: {first}, pages: 1", f"read before: {copy}, the same as {first}"]


def test_leases_survive_the_sleep_of_the_computer(crew: Crew, settings: Settings) -> None:
    library.register(crew.conn, [library.SeenFile(b"/in/a.pdf", 1, 1)], 0.0)
    now = time.time()
    mine = processes.owner_id()
    crew.pool.limit = 0
    jobs.claim_intake(crew.conn, mine, now, settings.lease_s)
    crew.tick(now + 8 * 3600)
    assert crew.conn.execute("SELECT lease_owner FROM files").fetchone()[0] == mine
    for second in range(20, 90, 20):  # no jump any more: these pass as seconds do
        crew.tick(now + 8 * 3600 + second)
    assert crew.conn.execute("SELECT lease_owner FROM files").fetchone()[0] is None


def test_the_dead_are_found_although_the_clock_was_set_back(crew: Crew, settings: Settings) -> None:
    host, pid, begun = processes.owner_id().rsplit(":", 2)
    now = time.time()
    crew.pool.limit = 0
    crew.tick(now)
    library.register(crew.conn, [library.SeenFile(b"/in/a.pdf", 1, 1)], 0.0)
    assert jobs.claim_intake(crew.conn, f"{host}:{pid}:{begun}0", now, settings.lease_s)
    crew.tick(now - 8 * 3600)
    assert crew.conn.execute("SELECT lease_owner FROM files").fetchone()[0] is None


def test_a_watching_thread_that_dies_is_replaced_but_not_for_ever(
    settings: Settings, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []

    def die(self: threading.Thread) -> None:
        started.append(self.name)

    monkeypatch.setattr(supervisor.WatchThread, "run", die)
    monkeypatch.setattr(crew_module, "default_workers", lambda settings: 0)
    with pytest.raises(OcrdError, match="broke off"):
        supervisor.run(settings, [WatchRoot(os.fsencode(folder))])
    assert len(started) == supervisor.THREAD_RESTARTS + 1


def test_our_own_folders_are_ignored_wherever_they_lie(settings: Settings, folder: Path) -> None:
    inside = replace(settings, home=folder / "home")
    rules = rules_for(inside, [WatchRoot(os.fsencode(folder), out_dir=os.fsencode(folder / "out"))])
    assert rules.skips_folder(os.fsencode(folder / "home"))
    assert rules.skips_folder(os.fsencode(folder / "out"))
    same = WatchRoot(os.fsencode(folder), out_dir=os.fsencode(folder))
    assert os.fsencode(folder) not in rules_for(inside, [same]).folders
