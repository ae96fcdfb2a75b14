from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from storage import jobs, library, results, status, workers
from storage.errors import AccessError, CorruptError, EngineError, PasswordError
from storage.records import DocumentInfo, PageWarning
from tests.storage.conftest import Desk, reading, sha, steps
from tests.storage.test_jobs import populate


def snap(desk: Desk, **options: bool) -> dict:  # type: ignore[type-arg]
    shown = status.snapshot(desk.conn, now=desk.now, is_alive=lambda row: row["pid"] != 0, **options)
    counts = shown["counts"]
    assert counts["total"] == counts["done"] + counts["failed"] + counts["skipped"] + counts["waiting"]
    assert counts["total"] == desk.one("SELECT count(*) FROM files")
    states = desk.conn.execute("SELECT state, count(*) FROM file_status GROUP BY state").fetchall()
    assert {state: counts[state] for state, _ in states} == dict(states)
    json.dumps(shown, allow_nan=False)
    return shown


def entry(desk: Desk, path: str) -> dict:  # type: ignore[type-arg]
    (found,) = [document for document in snap(desk)["documents"] if document["path"] == path]
    return found


def fail_to_open(desk: Desk, path: str, error: CorruptError) -> None:
    desk.see(path)
    library.link(desk.conn, desk.intake()[0], sha(path), 10, None, error, desk.now)


def test_empty_library(desk: Desk) -> None:
    shown = snap(desk)
    assert shown["state"] == "stopped"
    assert shown["watcher"] == "off"
    assert set(shown) >= {
        "state", "watcher", "roots", "counts", "rate_pages_per_min", "eta_s", "rss_mb", "peak_rss_mb", "workers",
        "engine", "documents",
    }  # fmt: skip
    assert set(shown["counts"]) >= {
        "queued", "running", "done", "failed", "needs_password", "missing", "pages_total", "pages_done",
        "pages_failed", "pages_blank",
    }  # fmt: skip
    assert not any(shown["counts"].values())


def test_every_path_is_counted_once(desk: Desk, tmp_path: Path) -> None:
    for name in ("done.pdf", "copy.pdf"):
        (tmp_path / name).touch()
        desk.put(str(tmp_path / name), "done", 3)
    desk.put("/in/gone.pdf", "gone", 2)
    desk.finish()
    library.mark_missing(desk.conn, [b"/in/gone.pdf"], desk.now)
    fail_to_open(desk, "/in/bad.pdf", CorruptError("x"))
    fail_to_open(desk, "/in/locked.pdf", PasswordError("x"))
    desk.put("/in/running.pdf", "running", 2)
    desk.claim(limit=1)
    desk.put("/in/queued.pdf", "queued", 4)
    desk.see("/in/new.pdf")
    counts = snap(desk)["counts"]
    expected = {"queued": 2, "running": 1, "done": 2, "failed": 1, "needs_password": 1, "missing": 1}
    assert {name: counts[name] for name in expected} == expected
    assert (counts["pages_total"], counts["pages_done"]) == (3 + 2 + 2 + 4, 3 + 2)


def test_one_entry_per_path_whatever_happened_to_it(desk: Desk) -> None:
    desk.put("/in/r.pdf", "A")
    desk.finish()
    desk.put("/in/r.pdf", "B", 3)
    found = entry(desk, "/in/r.pdf")
    assert (found["state"], found["current"], found["pages"], found["pages_done"]) == ("queued", True, 3, 0)
    assert snap(desk)["counts"]["pages_total"] == 3
    desk.finish()
    assert entry(desk, "/in/r.pdf")["state"] == "done"


def test_file_says_why_it_failed_and_what_to_do(desk: Desk) -> None:
    fail_to_open(desk, "/in/locked.pdf", PasswordError("encrypted"))
    found = entry(desk, "/in/locked.pdf")
    assert found["state"] == "needs_password"
    assert found["error"]["code"] == "password"
    assert found["error"]["message"] == "encrypted"
    assert "--password" in found["error"]["remedy"]


def test_document_with_some_failed_pages_is_done_with_a_warning_each(desk: Desk) -> None:
    desk.put("/in/a.pdf", "A", 3)
    first, second, third = desk.claim()
    results.save(
        desk.conn, "w", first, reading(1, warnings=(PageWarning("low_confidence", "0.4"),)), desk.now
    )
    jobs.fail_page(desk.conn, "w", second, EngineError("it broke"), desk.now, max_attempts=1)
    desk.save(third, blank=True)
    desk.publish_all()
    found = entry(desk, "/in/a.pdf")
    assert (found["state"], found["error"], found["pages_done"], found["pages_failed"]) == (
        "done",
        None,
        2,
        1,
    )
    assert [(warning["code"], warning["page"]) for warning in found["warnings"]] == [
        ("low_confidence", 1),
        ("page_failed", 2),
    ]
    assert found["attempts"] == 1
    counts = snap(desk)["counts"]
    assert (counts["pages_failed"], counts["pages_blank"]) == (1, 1)


def test_document_whose_pages_all_failed_failed_with_their_error(desk: Desk) -> None:
    desk.put("/in/a.pdf", "A", 2)
    for job in desk.claim():
        jobs.fail_page(desk.conn, "w", job, EngineError("it broke"), desk.now, max_attempts=1)
    desk.publish_all()
    found = entry(desk, "/in/a.pdf")
    assert found["state"] == "failed"
    assert (found["error"]["code"], found["error"]["message"]) == ("engine", "it broke")
    assert snap(desk)["counts"]["failed"] == 1


def test_waiting_document_says_for_what(desk: Desk) -> None:
    desk.put("/in/a.pdf", "A", 2)
    (job,) = desk.claim(limit=1)
    jobs.fail_page(desk.conn, "w", job, AccessError("Permission denied"), desk.now)
    found = entry(desk, "/in/a.pdf")
    assert (found["state"], found["error"]["code"], found["attempts"]) == ("queued", "permission", 0)


def test_second_reading_that_failed_is_a_warning(desk: Desk) -> None:
    desk.put("/in/a.pdf", "A", 1)
    desk.finish()
    library.retry(desk.conn, [b"/in/a.pdf"], {"engine": "other"}, desk.now)
    jobs.fail_page(desk.conn, "w", desk.claim()[0], EngineError("x"), desk.now, max_attempts=1)
    desk.publish_all()
    found = entry(desk, "/in/a.pdf")
    assert found["state"] == "done"
    assert [warning["code"] for warning in found["warnings"]] == ["reread_failed"]


def test_warnings_of_the_file_as_a_whole(desk: Desk) -> None:
    desk.see("/in/a.pdf")
    info = DocumentInfo("application/pdf", 1, warnings=(PageWarning("xfa", "dynamic form"),))
    library.link(desk.conn, desk.intake()[0], sha("A"), 10, info, None, desk.now)
    assert entry(desk, "/in/a.pdf")["warnings"] == [{"code": "xfa", "page": None, "message": "dynamic form"}]


def test_all_that_are_not_done_and_the_last_500_done(desk: Desk) -> None:
    populate(desk.conn, 1000, 1)
    shown = snap(desk)["documents"]
    assert [document["state"] for document in shown] == ["queued"] * 100 + ["done"] * 500
    assert [document["path"] for document in shown[100:102]] == ["/900.pdf", "/899.pdf"], "the latest first"
    everything = snap(desk, all_documents=True)["documents"]
    assert len({document["path"] for document in everything}) == len(everything) == 1000


def test_missing_files_do_not_push_done_ones_out(desk: Desk) -> None:
    populate(desk.conn, 1500, 1)
    library.mark_missing(desk.conn, [b"/%d.pdf" % number for number in range(1001, 1351)], desk.now)
    shown = snap(desk)["documents"]
    assert sum(document["state"] == "done" for document in shown) == 500
    assert sum(document["state"] == "missing" for document in shown) == 350


def test_rate_and_remaining_time(desk: Desk) -> None:
    desk.put("/in/a.pdf", "A", 100)
    for job in desk.claim(limit=61):
        desk.save(job)
        desk.now += 1
    shown = snap(desk)
    assert shown["rate_pages_per_min"] == pytest.approx(60, rel=0.05)
    assert shown["eta_s"] == pytest.approx(39, rel=0.05)
    desk.now += 3600
    shown = snap(desk)
    assert shown["rate_pages_per_min"] == 0
    assert shown["eta_s"] is None, "nobody works on it"


def test_nothing_to_do_takes_no_time(desk: Desk) -> None:
    assert snap(desk)["eta_s"] == 0


def test_processes_that_live(desk: Desk) -> None:
    for pid, role in ((1, "supervisor"), (2, "worker"), (0, "worker")):
        workers.record(desk.conn, f"o{pid}", pid=pid, host="h", role=role, now=desk.now)
        workers.beat(
            desk.conn, f"o{pid}", now=desk.now, path="/in/a.pdf", page=3, rss_mb=100.0, peak_rss_mb=150.0
        )
    workers.put(desk.conn, "watcher", "alive")
    workers.put(desk.conn, "engine", "classic")
    shown = snap(desk)
    assert (shown["state"], shown["watcher"], shown["engine"]) == ("idle", "alive", "classic")
    assert [(worker["pid"], worker["path"], worker["page"]) for worker in shown["workers"]] == [
        (2, "/in/a.pdf", 3)
    ]
    assert (shown["rss_mb"], shown["peak_rss_mb"]) == (200.0, 300.0)
    desk.see("/in/a.pdf")
    assert snap(desk)["state"] == "running"
    jobs.pause(desk.conn, "by hand")
    shown = snap(desk)
    assert (shown["state"], shown["pause_reason"]) == ("paused", "by hand")
    workers.remove(desk.conn, "o1")
    shown = snap(desk)
    assert (shown["state"], shown["watcher"]) == ("stopped", "off")


def test_process_long_not_heard_of_is_not_there(desk: Desk) -> None:
    import os
    import socket

    workers.record(
        desk.conn, "o", pid=os.getpid(), host=socket.gethostname(), role="supervisor", now=desk.now
    )
    assert status.snapshot(desk.conn, now=desk.now + 5)["state"] == "idle"
    assert status.snapshot(desk.conn, now=desk.now + 1000)["state"] == "stopped"


def test_process_that_was_killed_is_not_there(desk: Desk) -> None:
    import socket
    import subprocess
    import sys

    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    workers.record(desk.conn, "o", pid=child.pid, host=socket.gethostname(), role="supervisor", now=desk.now)
    assert status.snapshot(desk.conn, now=desk.now)["state"] == "stopped"


def test_roots_are_shown(desk: Desk) -> None:
    root = library.add_root(desk.conn, b"/in", now=desk.now)
    library.set_root_state(desk.conn, root, "gone", "not mounted")
    (shown,) = snap(desk)["roots"]
    assert (shown["path"], shown["state"], shown["message"]) == ("/in", "gone", "not mounted")


def test_large_library_is_shown_in_one_pass(fresh_db: sqlite3.Connection) -> None:
    populate(fresh_db, 20_000, 2)
    shown: dict[str, Any] = {}
    cost = steps(fresh_db, lambda: shown.update(status.snapshot(fresh_db, now=1.0)))
    assert cost < 100 * 20_000
    assert shown["counts"]["pages_total"] == 40_000


def test_file_whose_sidecars_are_due_waits_until_somebody_writes_them(desk: Desk) -> None:
    desk.put("/in/a.pdf", "A")
    desk.read_all()
    assert entry(desk, "/in/a.pdf")["state"] == "queued"
    assert jobs.claim_publish(desk.conn, "w", desk.now, 60.0) is not None
    assert entry(desk, "/in/a.pdf")["state"] == "running"
    jobs.release(desk.conn, "w")
    assert entry(desk, "/in/a.pdf")["state"] == "queued"


def test_file_to_be_opened_anew_has_no_error_left(desk: Desk) -> None:
    fail_to_open(desk, "/in/locked.pdf", PasswordError("it needs a password"))
    assert entry(desk, "/in/locked.pdf")["error"]["code"] == "password"
    library.retry(desk.conn, [b"/in/locked.pdf"], {"password": "x"}, desk.now)
    found = entry(desk, "/in/locked.pdf")
    assert (found["state"], found["error"]) == ("queued", None)
    assert status.notable(desk.conn, failures=1) == []


def test_a_disk_too_full_to_note_the_pause_shows_as_one(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    workers.record(desk.conn, "o", pid=1, host="h", role="supervisor", now=desk.now)
    assert snap(desk)["pause"] == []
    full = shutil._ntuple_diskusage(1 << 40, 1 << 40, 0)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: full)
    shown = snap(desk)
    assert shown["state"] == "paused"
    assert [(pause["kind"], pause["path"]) for pause in shown["pause"]] == [
        ("disk_full", desk.conn.execute("PRAGMA database_list").fetchone()["file"])
    ]
    jobs.pause(desk.conn, "no space", kind="disk_full")
    assert len(snap(desk)["pause"]) == 1
    workers.remove(desk.conn, "o")
    jobs.resume(desk.conn)
    assert snap(desk)["pause"] == [], "nobody is at work: nobody waits"
