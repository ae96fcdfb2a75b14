from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from storage import jobs, library, results, status
from storage.database import open_database
from storage.errors import (
    AccessError,
    DiskFullError,
    EngineError,
    OcrdError,
    PasswordError,
    StorageError,
    TooLargeError,
    VanishedError,
)
from tests.storage.conftest import LEASE_S, Desk, check_counters, reading, sha, steps


def nobody(_: str) -> bool:
    return False


def everybody(_: str) -> bool:
    return True


def pages(claimed: list[jobs.PageJob]) -> list[int]:
    return [job.page for job in claimed]


# --- order --------------------------------------------------------------------------------------------------


def test_pages_of_a_document_come_in_order(desk: Desk) -> None:
    # https://github.com/sbs20/scanservjs/issues/304
    desk.put("/in/a.pdf", "A", 1200)
    assert [page for _, page in desk.read_all()] == list(range(1, 1201))


def test_two_workers_share_a_document(desk: Desk) -> None:
    desk.put("/in/a.pdf", "A", 10)
    assert pages(desk.claim("w1")) == [1, 2, 3, 4]
    assert pages(desk.claim("w2")) == [5, 6, 7, 8]
    jobs.release(desk.conn, "w1")
    assert pages(desk.claim("w3", limit=6)) == [1, 2, 3, 4, 9, 10]


def test_small_new_document_overtakes_a_large_one(desk: Desk) -> None:
    desk.put("/in/book.pdf", "book", 400)
    desk.claim()
    desk.put("/in/letter.pdf", "letter", 2)
    assert [job.path for job in desk.claim()] == [b"/in/letter.pdf"] * 2


def test_documents_of_a_size_come_first_come_first_served(desk: Desk) -> None:
    for name in "abc":
        desk.put(f"/in/{name}.pdf", name, 2)
    assert [desk.claim()[0].path for _ in range(3)] == [b"/in/a.pdf", b"/in/b.pdf", b"/in/c.pdf"]


def test_large_document_never_starves(desk: Desk) -> None:
    desk.put("/in/book.pdf", "book", 40)
    turns = 0
    while desk.one("SELECT pages_done FROM documents WHERE pages = 40") != 40:
        desk.put(f"/in/{turns}.pdf", f"letter {turns}", 1)  # there is always a letter waiting
        for job in desk.claim():
            desk.save(job)
        turns += 1
        assert turns <= jobs.OLDEST_EVERY * 10


def test_suspect_page_comes_alone(desk: Desk) -> None:
    desk.put("/in/a.pdf", "A", 6)
    desk.claim(limit=2)
    jobs.recover(desk.conn, desk.now, nobody)
    for page in (1, 2):
        (job,) = desk.claim()
        assert (job.page, job.alone) == (page, True)
        desk.save(job)
    rest = desk.claim()
    assert [(job.page, job.alone) for job in rest] == [(page, False) for page in (3, 4, 5, 6)]


def test_sidecars_are_due_when_the_last_page_is_in(desk: Desk) -> None:
    desk.put("/in/a.pdf", "A", 2)
    first, second = desk.claim()
    desk.save(second)
    assert jobs.claim_publish(desk.conn, "w", desk.now, LEASE_S) is None
    desk.save(first)
    assert desk.states() == {"/in/a.pdf": "queued"}
    job = jobs.claim_publish(desk.conn, "w", desk.now, LEASE_S)
    assert job is not None
    assert jobs.claim_publish(desk.conn, "w2", desk.now, LEASE_S) is None
    assert not jobs.finish_publish(desk.conn, "w2", job, "a", "b"), "not theirs"
    assert jobs.finish_publish(desk.conn, "w", job, "a.md", "a.json")
    assert desk.states() == {"/in/a.pdf": "done"}


# --- leases, death, blame -----------------------------------------------------------------------------------


def test_what_a_killed_daemon_had_finished_is_not_read_again(desk: Desk) -> None:
    # https://github.com/procrastinate-org/procrastinate/issues/307
    desk.put("/in/a.pdf", "A", 20)
    finished = set()
    for owner in ("w1", "w2"):
        claimed = desk.claim(owner)
        assert desk.save(claimed[0], owner=owner)
        finished.add(claimed[0].page)
    recovered = jobs.recover(desk.conn, desk.now, nobody)
    assert (recovered.pages, recovered.suspects, recovered.failed) == (6, 6, 0)
    again = [page for _, page in desk.read_all()]
    assert sorted(again) == sorted(set(range(1, 21)) - finished)
    assert desk.one("SELECT max(attempts) FROM page_jobs") == 0, "nobody can say which page it was"


def test_only_page_of_a_dead_worker_is_blamed(desk: Desk) -> None:
    desk.put("/in/a.pdf", "A", 2)
    for attempt in range(3):
        (job,) = desk.claim(limit=1)
        assert (job.page, job.attempts, job.alone) == (1, attempt, attempt > 0)
        recovered = jobs.recover(desk.conn, desk.now, nobody, max_attempts=3)
        assert (recovered.pages, recovered.failed) == (1, int(attempt == 2))
    assert [page for _, page in desk.read_all()] == [2]
    row = desk.conn.execute("SELECT state, error_code, attempts FROM page_jobs WHERE page = 1").fetchone()
    assert tuple(row) == ("failed", "crash", 3)
    desk.publish_all()
    assert desk.states() == {"/in/a.pdf": "done"}, "the other page was read"


def test_page_that_kills_its_worker_costs_the_others_nothing(desk: Desk) -> None:
    desk.put("/in/a.pdf", "A", 8)
    deaths = 0
    while claimed := desk.claim():
        for job in claimed:
            if job.page == 3:
                deaths += 1
                jobs.recover(desk.conn, desk.now, nobody)
                break
            desk.save(job)
    assert deaths == 4, "once among others, then alone until its attempts are spent"
    states = [row[0] for row in desk.conn.execute("SELECT state FROM page_jobs ORDER BY page")]
    assert states == ["done", "done", "failed", *["done"] * 5]
    assert desk.one("SELECT max(attempts) FROM page_jobs WHERE page <> 3") == 0


def test_living_workers_keep_what_they_hold(desk: Desk) -> None:
    desk.put("/in/a.pdf", "A", 8)
    alive, dead = desk.claim("alive"), desk.claim("dead")
    recovered = jobs.recover(desk.conn, desk.now, lambda owner: owner == "alive")
    assert recovered.pages == 4
    assert all(desk.save(job, owner="alive") for job in alive)
    assert not any(desk.save(job, owner="dead") for job in dead)


def test_expired_lease_is_claimed_again(desk: Desk) -> None:
    desk.put("/in/a.pdf", "A", 1)
    (job,) = desk.claim("hung")
    desk.now += LEASE_S - 1
    jobs.extend_leases(desk.conn, "hung", desk.now, LEASE_S)
    desk.now += LEASE_S - 1
    assert jobs.recover(desk.conn, desk.now, everybody).pages == 0
    desk.now += 2
    assert jobs.recover(desk.conn, desk.now, everybody).pages == 1
    (again,) = desk.claim("other")
    assert (again.page, again.attempts) == (1, 1)
    assert not desk.save(job, "late", owner="hung")
    assert desk.found("late") == []
    assert desk.save(again, "in time", owner="other")


def test_given_back_work_counts_nothing(desk: Desk) -> None:
    desk.put("/in/a.pdf", "A", 4)
    desk.see("/in/b.pdf")
    held = desk.claim()
    desk.intake()
    desk.save(held[0])
    jobs.release(desk.conn, "w")
    again = desk.claim()
    assert [(job.page, job.attempts, job.alone) for job in again] == [(p, 0, False) for p in (2, 3, 4)]
    assert [job.attempts for job in desk.intake()] == [0]


def test_file_that_kills_its_worker_at_opening_fails_alone(desk: Desk) -> None:
    desk.see(*[f"/in/{number}.pdf" for number in range(5)])
    deaths = 0
    while claimed := desk.intake(limit=3):
        for job in claimed:
            if job.path == b"/in/1.pdf":
                deaths += 1
                jobs.recover(desk.conn, desk.now, nobody)
                break
            desk.link(job, str(job.path))
    assert deaths == 4
    assert desk.states()["/in/1.pdf"] == "failed"
    assert desk.one("SELECT error_code FROM files WHERE state = 'failed'") == "crash"
    assert desk.one("SELECT count(*) FROM files WHERE state = 'linked'") == 4


def test_writer_of_sidecars_that_died_is_replaced(desk: Desk) -> None:
    desk.put("/in/a.pdf", "A")
    desk.read_all()
    for _ in range(3):
        assert jobs.claim_publish(desk.conn, "w", desk.now, LEASE_S) is not None
        jobs.recover(desk.conn, desk.now, nobody)
    assert jobs.claim_publish(desk.conn, "w", desk.now, LEASE_S) is None
    assert desk.states() == {"/in/a.pdf": "failed"}
    assert desk.one("SELECT error_code FROM files") == "crash"
    assert library.retry(desk.conn, None, {}, desk.now) == 1
    assert desk.publish_all() == [b"/in/a.pdf"]


# --- failures -----------------------------------------------------------------------------------------------


def test_bug_is_tried_until_attempts_are_spent(desk: Desk) -> None:
    desk.put("/in/a.pdf", "A", 1)
    for attempt in range(2):
        (job,) = desk.claim()
        assert job.attempts == attempt
        jobs.fail_page(desk.conn, "w", job, EngineError("it broke"), desk.now, max_attempts=2)
    assert desk.claim() == []
    row = desk.conn.execute("SELECT state, error_code, error_message FROM documents").fetchone()
    assert tuple(row) == ("failed", "engine", "it broke"), "all pages failed: the document carries the error"
    assert desk.publish_all() == [b"/in/a.pdf"], "the sidecars say so"
    check_counters(desk.conn)


def test_final_fault_fails_at_once(desk: Desk) -> None:
    desk.put("/in/a.pdf", "A", 2)
    first, second = desk.claim()
    jobs.fail_page(desk.conn, "w", first, TooLargeError("900 megapixels"), desk.now, max_attempts=3)
    desk.save(second)
    row = desk.conn.execute("SELECT state, pages_done, pages_failed, error_code FROM documents").fetchone()
    assert tuple(row) == ("done", 1, 1, None)


@pytest.mark.parametrize("error", [StorageError("I/O error"), AccessError("Permission denied")])
def test_transient_fault_counts_nothing_and_waits(desk: Desk, error: StorageError) -> None:
    desk.put("/in/a.pdf", "A", 4)
    held = desk.claim(limit=1)
    delays = []
    for _ in range(5):
        jobs.fail_page(desk.conn, "w", held[0], error, desk.now, max_attempts=1)
        assert desk.claim() == []
        assert jobs.is_idle(desk.conn, desk.now)
        due = jobs.next_due(desk.conn)
        assert due is not None
        delays.append(due - desk.now)
        desk.now = due
        assert not jobs.is_idle(desk.conn, desk.now)
        held = desk.claim(limit=1)
        assert [(job.page, job.attempts) for job in held] == [(1, 0)]
    assert delays == sorted(set(delays)), "longer each time"
    assert desk.one("SELECT error_code FROM documents") == error.code
    desk.save(held[0])
    assert desk.one("SELECT error_code FROM documents") is None
    assert [page for _, page in desk.read_all()] == [2, 3, 4]


def test_fault_reported_by_who_lost_the_lease_changes_nothing(desk: Desk) -> None:
    desk.put("/in/a.pdf", "A", 1)
    (job,) = desk.claim("old")
    jobs.recover(desk.conn, desk.now, nobody)
    (again,) = desk.claim("new")
    before = list(map(tuple, desk.conn.execute("SELECT * FROM page_jobs")))
    for error in (
        EngineError("x"),
        TooLargeError("x"),
        StorageError("x"),
        VanishedError("x"),
        DiskFullError("x"),
    ):
        jobs.fail_page(desk.conn, "old", job, error, desk.now, max_attempts=1)
    jobs.defer(desk.conn, "old", job, StorageError("x"), desk.now, 5)
    assert list(map(tuple, desk.conn.execute("SELECT * FROM page_jobs"))) == before
    assert jobs.pause_reason(desk.conn) is None
    assert desk.states() == {"/in/a.pdf": "running"}
    assert desk.save(again, owner="new")


def test_file_that_vanishes_while_it_is_read_is_missing_not_failed(desk: Desk) -> None:
    desk.put("/in/a.pdf", "A", 3)
    first, second, third = desk.claim()
    desk.save(first, "text")
    jobs.fail_page(desk.conn, "w", second, VanishedError("No such file"), desk.now)
    jobs.fail_page(desk.conn, "w", third, VanishedError("No such file"), desk.now)
    assert desk.states() == {"/in/a.pdf": "missing"}
    assert desk.found("text") == ["text"]
    assert desk.claim() == []
    desk.check()


def test_page_is_read_from_another_copy_when_one_vanishes(desk: Desk, tmp_path: Path) -> None:
    a, b = tmp_path / "a.pdf", tmp_path / "b.pdf"
    a.touch()
    desk.put(str(a), "A", 2)
    desk.put(str(b), "A", 2)
    claimed = desk.claim()
    a.unlink()
    for job in claimed:
        assert job.path == bytes(a)
        jobs.fail_page(desk.conn, "w", job, VanishedError("No such file"), desk.now)
    assert [job.path for job in desk.claim()] == [bytes(b)] * 2


def test_file_that_is_there_is_not_missing_whatever_vanished(desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "a.pdf"
    path.touch()
    desk.put(str(path), "A")
    jobs.fail_page(desk.conn, "w", desk.claim()[0], VanishedError("No such file: a model"), desk.now)
    assert desk.states() == {str(path): "queued"}
    assert desk.claim() == [], "not at once"


def test_file_gone_before_its_sidecars_were_written_is_missing_not_failed(desk: Desk) -> None:
    desk.put("/in/a.pdf", "A")
    desk.read_all()
    job = jobs.claim_publish(desk.conn, "w", desk.now, LEASE_S)
    assert job is not None
    jobs.fail_publish(desk.conn, "w", job, VanishedError("No such folder"), desk.now)
    assert desk.states() == {"/in/a.pdf": "missing"}


def test_failed_second_reading_keeps_the_first(desk: Desk) -> None:
    desk.put("/in/a.pdf", "A", 2)
    desk.finish("first")
    library.retry(desk.conn, [b"/in/a.pdf"], {"engine": "other"}, desk.now)
    one, two = desk.claim()
    desk.save(one, "second")
    jobs.fail_page(desk.conn, "w", two, PasswordError("x"), desk.now)
    assert sorted(desk.found("first") + desk.found("second")) == ["first", "second"]
    row = desk.conn.execute("SELECT state, pages_done, pages_failed FROM documents").fetchone()
    assert tuple(row) == ("done", 2, 0)
    desk.check()


@pytest.mark.parametrize(
    ("error", "again"),
    [(AccessError("No"), True), (EngineError("bug"), True), (PasswordError("x"), False)],
)
def test_sidecars_that_cannot_be_written_are_shown_as_failed(
    desk: Desk, error: OcrdError, again: bool
) -> None:
    # https://github.com/atlanhq/application-sdk/pull/3188
    desk.put("/in/a.pdf", "A")
    desk.read_all()
    job = jobs.claim_publish(desk.conn, "w", desk.now, LEASE_S)
    assert job is not None
    jobs.fail_publish(desk.conn, "w", job, error, desk.now)
    assert desk.states() == {"/in/a.pdf": "failed"}
    assert desk.one("SELECT error_code FROM files") == error.code
    assert jobs.pause_reason(desk.conn) is None, "reading goes on"
    assert desk.publish_all() == []
    desk.now += 100
    assert (desk.publish_all() == [b"/in/a.pdf"]) == again
    assert desk.states() == {"/in/a.pdf": "done" if again else "failed"}


def test_without_space_for_sidecars_nothing_has_failed_and_the_queue_waits(desk: Desk) -> None:
    desk.put("/in/a.pdf", "A")
    desk.read_all()
    for _ in range(5):  # more often than there are attempts
        job = jobs.claim_publish(desk.conn, "w", desk.now, LEASE_S)
        assert job is not None
        jobs.fail_publish(desk.conn, "w", job, DiskFullError("No space", file="/out"), desk.now)
        assert desk.states() == {"/in/a.pdf": "queued"}
        assert [(pause.kind, pause.path) for pause in jobs.paused(desk.conn)] == [("disk_full", "/out")]
        desk.now += 60
        assert jobs.claim_publish(desk.conn, "w", desk.now, LEASE_S) is None
        jobs.resume(desk.conn, "disk_full")
    assert desk.publish_all() == [b"/in/a.pdf"]
    assert desk.states() == {"/in/a.pdf": "done"}


# --- pause --------------------------------------------------------------------------------------------------


def test_paused_queue_hands_out_nothing_and_takes_what_is_finished(desk: Desk) -> None:
    desk.put("/in/a.pdf", "A", 4)
    desk.see("/in/b.pdf")
    (held,) = desk.claim(limit=1)
    jobs.pause(desk.conn, "by hand")
    assert desk.claim() == []
    assert desk.intake() == []
    assert desk.save(held)
    assert jobs.pause_reason(desk.conn) == "by hand"
    jobs.resume(desk.conn)
    assert jobs.pause_reason(desk.conn) is None
    assert pages(desk.claim()) == [2, 3, 4]
    assert len(desk.intake()) == 1


def test_full_disk_pauses_until_there_is_space(desk: Desk) -> None:
    desk.put("/in/a.pdf", "A", 2)
    (job,) = desk.claim(limit=1)
    jobs.fail_page(
        desk.conn, "w", job, DiskFullError("No space left", file="/var/lib/ocrd/ocrd.db"), desk.now
    )
    assert desk.claim() == []
    (pause,) = jobs.paused(desk.conn)
    assert (pause.kind, pause.path, pause.since) == ("disk_full", "/var/lib/ocrd/ocrd.db", desk.now)
    assert "free some space" in str(jobs.pause_reason(desk.conn)).lower()
    jobs.resume(desk.conn, "disk_full")
    assert [(job.page, job.attempts) for job in desk.claim()] == [(1, 0), (2, 0)]


def test_space_does_not_lift_a_pause_by_hand(desk: Desk) -> None:
    desk.put("/in/a.pdf", "A", 2)
    jobs.pause(desk.conn, "No space", kind="disk_full", path="/", now=desk.now)
    jobs.pause(desk.conn, "by hand")
    jobs.resume(desk.conn, "disk_full")
    assert jobs.pause_reason(desk.conn) == "by hand"
    assert desk.claim() == []


def test_idle_is_when_nothing_is_to_do(desk: Desk) -> None:
    def idle() -> bool:
        return jobs.is_idle(desk.conn, desk.now)

    assert idle()
    desk.see("/in/a.pdf")
    assert not idle()
    (job,) = desk.intake()
    assert not idle(), "being hashed"
    desk.link(job, "A", 1)
    assert not idle()
    (page,) = desk.claim()
    assert not idle(), "being read"
    desk.save(page)
    assert not idle(), "sidecars due"
    desk.publish_all()
    assert idle()


# --- cost ---------------------------------------------------------------------------------------------------


def populate(conn: sqlite3.Connection, documents: int, pages_each: int) -> None:
    """A large library, nine tenths of it read."""
    conn.execute("BEGIN")
    done = documents * 9 // 10
    conn.executemany(
        "INSERT INTO documents (id, sha256, size, media_type, state, pages, pages_pending, pages_done, added_at,"
        " finished_at) VALUES (?, ?, 1, 'application/pdf', ?, ?, ?, ?, 1, ?)",
        (
            (n, str(n), "done", pages_each, 0, pages_each, float(n))
            if n <= done
            else (n, str(n), "queued", pages_each, pages_each, 0, None)
            for n in range(1, documents + 1)
        ),
    )
    conn.executemany(
        "INSERT INTO files (path, path_bytes, name_key, size, mtime_ns, document_id, state, sidecar_state, first_seen,"
        " last_seen) VALUES (?, ?, ?, 1, 1, ?, 'linked', ?, 1, 1)",
        (
            (f"/{n}.pdf", b"/%d.pdf" % n, f"{n}.pdf", n, "written" if n <= done else "none")
            for n in range(1, documents + 1)
        ),
    )
    conn.executemany(
        "INSERT INTO page_jobs (document_id, page, state, finished_at) VALUES (?, ?, ?, ?)",
        (
            (n, page, "done" if n <= done else "pending", float(n) if n <= done else None)
            for n in range(1, documents + 1)
            for page in range(1, pages_each + 1)
        ),
    )
    conn.execute("COMMIT")


def everything_hot(desk: Desk) -> None:
    """All that happens once per page or more often, with something to find each time."""
    conn = desk.conn
    desk.see("/new/a.pdf", "/new/b.pdf", "/new/é.pdf")
    for job in desk.intake():
        desk.link(job, str(job.path), 6)
    for number in range(jobs.OLDEST_EVERY):
        claimed = desk.claim(f"w{number}", limit=2)
        results.save(conn, f"w{number}", claimed[0], reading(claimed[0].page), desk.now)
    jobs.fail_page(conn, "w7", claimed[1], AccessError("x"), desk.now)
    desk.now += 1000
    jobs.extend_leases(conn, "w0", desk.now, LEASE_S)
    jobs.release(conn, "w1")
    jobs.recover(conn, desk.now, lambda owner: owner == "w0")
    (job,) = desk.claim(limit=1)
    jobs.fail_page(conn, "w", job, EngineError("x"), desk.now, max_attempts=1)
    jobs.is_idle(conn, desk.now)
    jobs.next_due(conn)
    desk.publish_all()
    desk.see("/new/a.pdf")
    library.mark_missing(conn, [b"/new/b.pdf"], desk.now)


# A partial index holds only what is to be done, so walking it is no scan of a table.
ALLOWED_SCAN = re.compile(
    r"SCAN (json_each|due|CONSTANT|control|roots|workers|\d+-ROW|\(subquery|SUBQUERY|latest"
    r"|main\.page\w*_fts_config"  # one row each
    r"|documents USING (COVERING )?INDEX documents_(ready|oldest|deferred)"
    r"|files USING (COVERING )?INDEX files_(intake|publish|leased)"
    r"|page_jobs USING (COVERING )?INDEX page_jobs_leased)"
)


@pytest.mark.parametrize("analysed", [False, True])
def test_hot_paths_scan_no_table(desk: Desk, analysed: bool) -> None:
    populate(desk.conn, 500, 4)
    if analysed:
        desk.conn.execute("ANALYZE")
    statements: list[str] = []
    desk.conn.set_trace_callback(statements.append)
    everything_hot(desk)
    desk.conn.set_trace_callback(None)
    plans = [statement for statement in statements if re.match(r"(SELECT|UPDATE|DELETE|INSERT)\b", statement)]
    assert len(plans) > 50
    bad = []
    for statement in dict.fromkeys(plans):
        for row in desk.conn.execute("EXPLAIN QUERY PLAN " + statement):
            detail = row[3]
            if (detail.startswith("SCAN") and not ALLOWED_SCAN.match(detail)) or "ORDER BY" in detail:
                bad.append(f"{detail}   <-   {statement[:90]}")
    assert not bad, "\n".join(bad)


def test_work_per_claim_does_not_grow_with_the_library(desk: Desk) -> None:
    def measure(owner: str) -> dict[str, int]:
        claimed: list[jobs.PageJob] = []
        return {
            "claim": steps(desk.conn, lambda: claimed.extend(desk.claim(owner))),
            "save": steps(desk.conn, lambda: desk.save(claimed[0], owner=owner)),
            "idle": steps(desk.conn, lambda: jobs.is_idle(desk.conn, desk.now)),
            "recover": steps(desk.conn, lambda: jobs.recover(desk.conn, desk.now, everybody)),
            "release": steps(desk.conn, lambda: jobs.release(desk.conn, owner)),
            "intake": steps(desk.conn, desk.intake),
        }

    populate(desk.conn, 100, 10)
    measure("warm up")
    small = measure("w1")
    desk.conn.execute("DELETE FROM files")
    desk.conn.execute("DELETE FROM documents")
    populate(desk.conn, 10_000, 10)
    large = measure("w2")
    grown = {name: (small[name], large[name]) for name in large if large[name] > 1.5 * small[name] + 200}
    assert grown == {}


@pytest.mark.slow
def test_among_a_million_pages_the_next_are_found_in_a_few_steps(desk: Desk) -> None:
    def cost(action: Callable[[], object], times: int) -> float:
        return sum(steps(desk.conn, action) for _ in range(times)) / times

    populate(desk.conn, 100_000, 10)
    assert cost(desk.claim, 50) < 3_000
    assert cost(lambda: jobs.is_idle(desk.conn, desk.now), 50) < 200
    assert cost(lambda: jobs.recover(desk.conn, desk.now, everybody), 5) < 6_000
    assert cost(lambda: status.summary(desk.conn, now=desk.now), 1) < 12_000_000  # counts 100,000 documents


# --- several processes --------------------------------------------------------------------------------------

CLAIMER = """
import sys
from pathlib import Path
from storage import jobs, results
from storage.database import open_database
from tests.storage.conftest import reading
conn, owner, now = open_database(Path(sys.argv[1])), sys.argv[2], 1000.0
while not jobs.is_idle(conn, now):
    while (publish := jobs.claim_publish(conn, owner, now, 600)) is not None:
        print("published", publish.file_id)
        assert jobs.finish_publish(conn, owner, publish, "a", "b")
    for job in jobs.claim_pages(conn, owner, now, 600, 3):
        assert results.save(conn, owner, job, reading(job.page, f"lorem {job.document_id}"), now)
        print("read", job.document_id, job.page)
"""
READER = """
import sys
from pathlib import Path
from storage import index, status
from storage.database import open_readonly
for _ in range(30):
    conn = open_readonly(Path(sys.argv[1]))
    shown = status.snapshot(conn, now=1000.0)
    counts = shown["counts"]
    assert sum(counts[name] for name in ("done", "failed", "skipped", "waiting")) == counts["total"]
    assert len(shown["documents"]) == counts["total"]
    index.search(conn, "lorem")
    conn.close()
"""


def test_several_workers_and_readers_get_along(database_path: Path) -> None:
    # https://github.com/coleifer/huey/issues/445
    conn = open_database(database_path)
    desk = Desk(conn)
    for number in range(60):
        desk.put(f"/in/{number}.pdf", str(number), 1 + number % 4)
    scripts = [(CLAIMER, f"w{number}") for number in range(4)] + [(READER, "r")] * 2
    running = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(database_path), name],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        for script, name in scripts
    ]
    lines: list[str] = []
    for process in running:
        out, error = process.communicate(timeout=600)
        assert process.returncode == 0, error
        lines += out.splitlines()
    read = [line for line in lines if line.startswith("read")]
    assert len(read) == len(set(read)) == sum(1 + number % 4 for number in range(60))
    published = [line for line in lines if line.startswith("published")]
    assert len(published) == len(set(published)) == 60
    assert set(desk.states().values()) == {"done"}
    desk.check()
    conn.close()


KILLED = """
import os, signal, sys
from pathlib import Path
from storage import jobs, results
from storage.database import open_database
from tests.storage.conftest import reading
conn, count = open_database(Path(sys.argv[1])), 0
while claimed := jobs.claim_pages(conn, f"k{os.getpid()}", 1000.0, 60, 3):
    for job in claimed:
        print(job.page, flush=True)
        if job.page % 7 == 5 and not job.alone:
            os.kill(os.getpid(), signal.SIGKILL)
        assert results.save(conn, f"k{os.getpid()}", job, reading(job.page, "text"), 1000.0)
"""


def test_killed_again_and_again_it_reads_each_page_once_but_the_one_it_died_on(database_path: Path) -> None:
    # https://github.com/procrastinate-org/procrastinate/issues/307
    conn = open_database(database_path)
    desk = Desk(conn)
    desk.put("/in/a.pdf", "A", 20)
    read: list[int] = []
    deaths = 0
    while not conn.execute("SELECT finished_at FROM documents").fetchone()[0]:
        command = [sys.executable, "-c", KILLED, str(database_path)]
        run = subprocess.run(
            command, capture_output=True, text=True, cwd=Path(__file__).parents[2], timeout=600
        )
        read += map(int, run.stdout.split())
        deaths += run.returncode != 0
        jobs.recover(conn, 1000.0, nobody)
        assert deaths < 9, run.stderr
    assert deaths == 3
    assert sorted(read) == sorted([*range(1, 21), 5, 12, 19])
    assert desk.one("SELECT count(*) FROM pages") == 20
    desk.check()
    conn.close()


def test_intake_claimed_by_two_is_linked_once(desk: Desk) -> None:
    desk.see("/in/a.pdf")
    (late,) = desk.intake()
    desk.now += LEASE_S + 1
    jobs.recover(desk.conn, desk.now, everybody)
    (job,) = desk.intake()
    assert desk.link(job, "A", 3) is library.LinkOutcome.NEW
    assert desk.link(late, "A", 3) is library.LinkOutcome.STALE
    assert desk.one("SELECT count(*) FROM page_jobs") == 3


def test_known_content_needs_no_opening(desk: Desk) -> None:
    from storage.content import is_known

    assert not is_known(desk.conn, sha("A"))
    desk.put("/in/a.pdf", "A", 3)
    assert is_known(desk.conn, sha("A"))
    desk.see("/in/b.pdf")
    (job,) = desk.intake()
    library.link(desk.conn, job, sha("A"), 10, None, None, desk.now)
    assert desk.one("SELECT count(*) FROM page_jobs") == 3
