from __future__ import annotations

import os
import sqlite3
import unicodedata
from pathlib import Path

import pytest

from storage import jobs, library
from storage.errors import AccessError, CorruptError, PasswordError, VanishedError
from storage.library import LinkOutcome, Registered
from storage.records import DocumentInfo, PageWarning
from tests.storage.conftest import Desk, sha, steps

# --- registering -------------------------------------------------------------------------------------------


def test_any_number_of_events_is_one_job(desk: Desk) -> None:
    # https://github.com/jonaswinkler/paperless-ng/issues/820
    assert desk.see("/in/a.pdf", mtime=7) == Registered(new=1)
    for _ in range(5):
        assert desk.see("/in/a.pdf", "/in/a.pdf", mtime=7) == Registered(unchanged=1)
    (job,) = desk.intake()
    assert desk.intake() == []
    assert desk.link(job, "A") is LinkOutcome.NEW
    desk.see("/in/a.pdf", mtime=7)
    assert desk.intake() == []
    desk.finish()
    assert desk.states() == {"/in/a.pdf": "done"}
    desk.check()


def test_known_file_is_not_read_again(desk: Desk) -> None:
    # https://github.com/ocrmypdf/OCRmyPDF/issues/484
    desk.see("/in/a.pdf", mtime=7)
    desk.link(desk.intake()[0], "A")
    desk.finish()
    assert desk.see("/in/a.pdf", mtime=7) == Registered(unchanged=1)
    assert desk.read_all() == []
    assert desk.publish_all() == []


def test_ten_thousand_files_at_once_cost_no_more_each_than_few(desk: Desk) -> None:
    found: list[Registered] = []
    paths = [f"/in/{number}.pdf" for number in range(10_000)]
    few = steps(desk.conn, lambda: desk.see(*(f"/few/{number}.pdf" for number in range(500))))
    many = steps(desk.conn, lambda: found.append(desk.see(*paths, mtime=1)))
    assert found == [Registered(new=10_000)]
    assert many < 1.5 * few * 20
    assert desk.see(*paths, mtime=1) == Registered(unchanged=10_000)
    assert desk.one("SELECT count(*) FROM files") == 10_500


def test_interrupted_registering_can_be_repeated(desk: Desk) -> None:
    def files() -> object:
        for number in range(1500):
            yield library.SeenFile(b"/in/%d.pdf" % number, 10, 1)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        library.register(desk.conn, files(), desk.now)  # type: ignore[arg-type]
    seen = [library.SeenFile(b"/in/%d.pdf" % number, 10, 1) for number in range(1600)]
    library.register(desk.conn, seen, desk.now)
    assert desk.one("SELECT count(*) FROM files") == 1600


def test_known_files_are_those_of_the_root_that_are_there(desk: Desk) -> None:
    root = library.add_root(desk.conn, b"/in", now=desk.now)
    assert library.add_root(desk.conn, b"/in", recursive=False, mode="polling", now=desk.now) == root
    desk.put("/in/a.pdf", "A", root_id=root)
    desk.put("/in/b.pdf", "B", root_id=root)
    desk.put("/other/c.pdf", "C")
    desk.finish()
    library.mark_missing(desk.conn, [b"/in/b.pdf"], desk.now)
    assert library.known_files(desk.conn, root) == {b"/in/a.pdf": (10, 2)}


# --- names -------------------------------------------------------------------------------------------------


def test_name_that_is_no_utf8_is_kept_in_bytes_and_escaped_for_people(desk: Desk) -> None:
    library.register(desk.conn, [library.SeenFile(b"/in/caf\xe9 \xff.pdf", 10, 1)], desk.now)
    (job,) = desk.intake()
    assert job.path == b"/in/caf\xe9 \xff.pdf"
    assert desk.one("SELECT path FROM files") == "/in/caf\\xe9 \\xff.pdf"
    desk.link(job, "A")
    assert desk.claim()[0].path == b"/in/caf\xe9 \xff.pdf"


@pytest.mark.parametrize("stored", ["NFC", "NFD"])
@pytest.mark.parametrize("asked", ["NFC", "NFD"])
def test_both_spellings_of_a_name_find_the_file(desk: Desk, stored: str, asked: str) -> None:
    # https://github.com/redaxo/core/issues/621
    name = unicodedata.normalize(stored, "Übergröße é.pdf")  # type: ignore[arg-type]
    desk.see(f"/in/{name}")
    asked_name = unicodedata.normalize(asked, "ÜBERGRÖSSE É")  # type: ignore[arg-type]
    assert [row.path for row in library.find_files(desk.conn, asked_name)] == [f"/in/{name}".encode()]
    assert desk.one("SELECT path FROM files") == f"/in/{name}"  # as on disk


def test_two_spellings_of_one_file_are_one_job(desk: Desk, tmp_path: Path) -> None:
    composed = tmp_path / unicodedata.normalize("NFC", "é.pdf")
    decomposed = tmp_path / unicodedata.normalize("NFD", "é.pdf")
    composed.write_bytes(b"x")
    if not decomposed.exists():  # where the file system tells them apart, a link makes them one file
        os.link(composed, decomposed)
    desk.see(str(composed))
    desk.see(str(decomposed))
    assert len(desk.intake()) == 1


def test_two_files_of_one_spelling_are_two_jobs(desk: Desk, tmp_path: Path) -> None:
    composed = tmp_path / unicodedata.normalize("NFC", "é.pdf")
    decomposed = tmp_path / unicodedata.normalize("NFD", "é.pdf")
    composed.write_bytes(b"x")
    if decomposed.exists():
        pytest.skip("this file system takes both spellings for one file")
    decomposed.write_bytes(b"y")
    desk.see(str(composed))
    desk.see(str(decomposed))
    assert len(desk.intake()) == 2


def test_files_are_found_by_path_then_name_then_part_of_it(desk: Desk, tmp_path: Path) -> None:
    desk.see("/in/report.pdf", "/in/sub/report.pdf", "/in/old report.pdf")
    assert [row.path for row in library.find_files(desk.conn, "/in/report.pdf")] == [b"/in/report.pdf"]
    assert len(library.find_files(desk.conn, "Report.PDF")) == 2
    assert [row.path for row in library.find_files(desk.conn, "old")] == [b"/in/old report.pdf"]
    assert library.find_files(desk.conn, "nothing") == []
    assert library.find_files(desk.conn, "") == []


# --- content: duplicates, renames ---------------------------------------------------------------------------


def files_in(folder: Path, *names: str) -> list[str]:
    for name in names:
        (folder / name).write_bytes(b"x")
    return [str(folder / name) for name in names]


def test_same_content_is_read_once(desk: Desk, tmp_path: Path) -> None:
    a, b = files_in(tmp_path, "a.pdf", "b.pdf")
    assert desk.put(a, "A", 3) is LinkOutcome.NEW
    (first,) = desk.claim(limit=1)
    assert desk.put(b, "A", 3) is LinkOutcome.DUPLICATE
    desk.save(first)
    assert [page for _, page in desk.read_all()] == [2, 3]
    assert len(desk.publish_all()) == 2
    desk.check()


def test_duplicate_gets_sidecars_of_its_own(desk: Desk, tmp_path: Path) -> None:
    a, b = files_in(tmp_path, "a.pdf", "b.pdf")
    desk.put(a, "A")
    desk.finish()
    assert desk.put(b, "A") is LinkOutcome.DUPLICATE
    assert desk.read_all() == []
    assert desk.publish_all() == [b.encode()]
    assert desk.states() == {a: "done", b: "done"}


@pytest.mark.parametrize("noticed_first", ["old", "new"])
def test_renamed_file_keeps_its_document(desk: Desk, tmp_path: Path, noticed_first: str) -> None:
    (old,) = files_in(tmp_path, "old.pdf")
    new = str(tmp_path / "new.pdf")
    root = library.add_root(desk.conn, os.fsencode(tmp_path), now=desk.now)
    desk.put(old, "A", root_id=root)
    desk.finish()
    document = desk.one("SELECT document_id FROM files")
    Path(old).rename(new)
    if noticed_first == "old":
        library.mark_missing(desk.conn, [old.encode()], desk.now)
        assert desk.states() == {old: "missing"}
    assert desk.put(new, "A", root_id=root) is LinkOutcome.RENAMED
    library.mark_missing(desk.conn, [old.encode()], desk.now)
    assert desk.one("SELECT document_id FROM files") == document
    assert desk.publish_all() == [new.encode()]
    assert desk.states() == {new: "done"}
    desk.check()


def test_file_renamed_before_it_was_read_is_read_under_its_new_name(desk: Desk) -> None:
    desk.put("/in/old.pdf", "A")
    library.mark_missing(desk.conn, [b"/in/old.pdf"], desk.now)
    desk.put("/in/new.pdf", "A")
    assert [job.path for job in desk.claim()] == [b"/in/new.pdf"]


def test_moving_two_copies_leaves_two_files(desk: Desk, tmp_path: Path) -> None:
    a, b = files_in(tmp_path, "a.pdf", "b.pdf")
    desk.put(a, "A")
    desk.put(b, "A")
    desk.finish()
    (tmp_path / "sub").mkdir()
    moved = [str(Path(path).rename(tmp_path / "sub" / Path(path).name)) for path in (a, b)]
    assert [desk.put(path, "A") for path in moved] == [LinkOutcome.RENAMED] * 2
    desk.publish_all()
    assert desk.states() == dict.fromkeys(moved, "done")


def test_copy_made_while_the_root_of_the_first_is_away_is_no_rename(desk: Desk, tmp_path: Path) -> None:
    root = library.add_root(desk.conn, os.fsencode(tmp_path / "unmounted"), now=desk.now)
    desk.put(str(tmp_path / "unmounted" / "a.pdf"), "A", root_id=root)
    desk.finish()
    assert desk.put(str(tmp_path / "b.pdf"), "A") is LinkOutcome.DUPLICATE
    assert len(desk.states()) == 2


# --- content: changed ---------------------------------------------------------------------------------------


def test_changed_content_replaces_the_old_once_it_is_read(desk: Desk) -> None:
    # https://github.com/ente/ente/issues/6433 and https://github.com/mihaelamj/cupertino/issues/62
    desk.put("/in/r.pdf", "A", 2)
    desk.finish("Linzensoep")
    assert desk.put("/in/r.pdf", "B", 1) is LinkOutcome.CHANGED
    assert desk.found("Linzensoep") == ["Linzensoep"] * 2, "findable until the new content is read"
    assert desk.states() == {"/in/r.pdf": "queued"}
    desk.finish("whisky")
    assert desk.found("Linzensoep") == []
    assert desk.found("whisky") == ["whisky"]
    assert desk.one("SELECT count(*) FROM documents") == 1
    assert desk.one("SELECT count(*) FROM blocks") == 1
    assert desk.states() == {"/in/r.pdf": "done"}
    desk.check()


def test_touched_file_is_not_read_again(desk: Desk) -> None:
    desk.put("/in/r.pdf", "A")
    desk.finish()
    assert desk.put("/in/r.pdf", "A") is LinkOutcome.UNCHANGED
    assert desk.read_all() == []
    desk.publish_all()
    assert desk.states() == {"/in/r.pdf": "done"}


def test_file_that_changes_thrice_before_it_is_read_keeps_its_first_text_until_then(desk: Desk) -> None:
    desk.put("/in/r.pdf", "A")
    desk.finish("first")
    desk.put("/in/r.pdf", "B")
    desk.put("/in/r.pdf", "C", 2)
    desk.claim(limit=1)
    desk.put("/in/r.pdf", "D")
    assert desk.one("SELECT count(*) FROM documents") == 2
    assert desk.found("first") == ["first"]
    desk.finish("last")
    assert desk.found("first") == []
    assert desk.one("SELECT count(*) FROM documents") == 1
    desk.check()


def test_content_changed_back_is_not_read_again(desk: Desk) -> None:
    desk.put("/in/r.pdf", "A")
    desk.finish("first")
    desk.put("/in/r.pdf", "B", 2)
    desk.save(desk.claim(limit=1)[0], "half")
    desk.put("/in/r.pdf", "A")
    assert desk.read_all() == []
    desk.publish_all()
    assert desk.states() == {"/in/r.pdf": "done"}
    assert desk.found("first") == ["first"]
    assert desk.found("half") == []
    desk.check()


def test_pages_being_read_of_content_that_changed_are_taken_back(desk: Desk) -> None:
    desk.put("/in/r.pdf", "A", 3)
    held = desk.claim(limit=2)
    assert desk.save(held[0], "old")
    desk.see("/in/r.pdf")
    assert not desk.save(held[1], "old or new, who knows")
    assert desk.claim() == [], "nothing more is read of it before it is hashed"
    desk.link(desk.intake()[0], "B", 1)
    desk.finish("new")
    assert desk.found("old") == []
    desk.check()


def test_content_that_another_file_carries_too_stays(desk: Desk, tmp_path: Path) -> None:
    a, b = files_in(tmp_path, "a.pdf", "b.pdf")
    desk.put(a, "A")
    desk.put(b, "A")
    desk.finish("first")
    desk.put(a, "B")
    desk.finish("second")
    assert desk.found("first") == ["first"]
    assert desk.states() == {a: "done", b: "done"}
    desk.check()


def test_changed_content_that_cannot_be_opened_keeps_the_old_text(desk: Desk) -> None:
    desk.put("/in/r.pdf", "A")
    desk.finish("first")
    desk.see("/in/r.pdf")
    (job,) = desk.intake()
    outcome = library.link(desk.conn, job, sha("broken"), 10, None, CorruptError("no trailer"), desk.now)
    assert outcome is LinkOutcome.FAILED
    assert desk.states() == {"/in/r.pdf": "failed"}
    assert desk.found("first") == ["first"]
    desk.put("/in/r.pdf", "C")
    desk.finish("third")
    assert desk.found("first") == []
    desk.check()


def test_file_that_changes_while_it_is_hashed_is_hashed_again(desk: Desk) -> None:
    # https://github.com/ocrmypdf/OCRmyPDF/issues/552
    desk.see("/in/slow.pdf", size=10)
    (job,) = desk.intake()
    desk.see("/in/slow.pdf", size=20)
    assert desk.link(job, "part") is LinkOutcome.STALE
    (job,) = desk.intake()
    info = DocumentInfo("application/pdf", 1)
    assert library.link(desk.conn, job, sha("longer"), 25, info, None, desk.now) is LinkOutcome.STALE, (
        "it grew"
    )
    (job,) = desk.intake()
    assert job.size == 25
    assert library.link(desk.conn, job, sha("whole"), 25, info, None, desk.now) is LinkOutcome.NEW
    assert desk.one("SELECT count(*) FROM documents") == 1


def test_file_moved_over_another_takes_its_place(desk: Desk, tmp_path: Path) -> None:
    a, b = files_in(tmp_path, "a.pdf", "b.pdf")
    desk.put(a, "A")
    desk.put(b, "B")
    desk.finish()
    Path(b).rename(a)
    assert desk.put(a, "B") is LinkOutcome.CHANGED
    desk.finish()
    library.mark_missing(desk.conn, [b.encode()], desk.now)
    assert desk.states() == {a: "done"}
    assert desk.one("SELECT count(*) FROM documents") == 1
    desk.check()


# --- missing, forgotten -------------------------------------------------------------------------------------


def test_deleted_file_is_missing_and_its_text_findable_until_forgotten(desk: Desk) -> None:
    desk.put("/in/a.pdf", "A", 2)
    desk.finish("text")
    library.mark_missing(desk.conn, [b"/in/a.pdf", b"/in/never-seen.pdf"], desk.now)
    assert desk.states() == {"/in/a.pdf": "missing"}
    assert desk.found("text") == ["text"] * 2
    assert library.forget(desk.conn, [b"/in/a.pdf"]) == 1
    assert desk.found("text") == []
    assert [
        desk.one(f"SELECT count(*) FROM {name}") for name in ("files", "documents", "page_jobs", "blocks")
    ] == [0] * 4
    desk.check()


def test_returned_file_is_no_longer_missing(desk: Desk) -> None:
    desk.see("/in/a.pdf", mtime=5)
    desk.link(desk.intake()[0], "A", 2)
    desk.save(desk.claim(limit=1)[0])
    jobs.release(desk.conn, "w")
    library.mark_missing(desk.conn, [b"/in/a.pdf"], desk.now)
    assert desk.claim() == [], "there is nothing to read it from"
    desk.see("/in/a.pdf", mtime=5)
    assert [job.page for job in desk.claim()] == [2]
    jobs.release(desk.conn, "w")
    desk.finish()
    assert desk.states() == {"/in/a.pdf": "done"}


def test_file_missing_before_its_sidecars_were_written_gets_them_when_back(desk: Desk) -> None:
    desk.see("/in/a.pdf", mtime=5)
    desk.link(desk.intake()[0], "A")
    desk.read_all()
    library.mark_missing(desk.conn, [b"/in/a.pdf"], desk.now)
    assert desk.publish_all() == []
    desk.see("/in/a.pdf", mtime=5)
    assert desk.publish_all() == [b"/in/a.pdf"]


@pytest.mark.parametrize("stage", ["seen", "hashing", "linked", "leased", "unreadable"])
def test_file_gone_before_anything_was_read_leaves_no_trace(desk: Desk, stage: str) -> None:
    # https://github.com/virantha/pypdfocr/issues/41
    desk.see("/in/gone.pdf")
    if stage != "seen":
        (job,) = desk.intake()
        if stage == "unreadable":
            library.link(desk.conn, job, sha("x"), 10, None, CorruptError("x"), desk.now)
        elif stage != "hashing":
            desk.link(job, "A", 2)
    if stage == "leased":
        desk.claim()
    library.mark_missing(desk.conn, [b"/in/gone.pdf"], desk.now)
    assert desk.states() == {}
    assert desk.one("SELECT count(*) FROM documents") == 0
    assert jobs.is_idle(desk.conn, desk.now)


def test_file_without_pages_fails(desk: Desk) -> None:
    desk.put("/in/zero.pdf", "zero", 0)
    assert desk.states() == {"/in/zero.pdf": "failed"}
    assert desk.one("SELECT error_code FROM documents") == "no_pages"


def test_file_found_gone_by_the_intake_leaves_no_trace(desk: Desk) -> None:
    desk.see("/in/gone.pdf")
    (job,) = desk.intake()
    jobs.fail_intake(desk.conn, "w", job, VanishedError("No such file"), desk.now)
    assert desk.states() == {}


def test_changed_file_gone_before_it_was_read_keeps_its_old_text(desk: Desk) -> None:
    desk.put("/in/a.pdf", "A")
    desk.finish("first")
    desk.put("/in/a.pdf", "B")
    library.mark_missing(desk.conn, [b"/in/a.pdf"], desk.now)
    assert desk.states() == {"/in/a.pdf": "missing"}
    assert desk.found("first") == ["first"]
    desk.check()
    desk.see("/in/a.pdf", mtime=desk.mtime)
    assert len(desk.intake()) == 1, "when it returns it may be anything"


def test_missing_file_whose_content_turns_up_elsewhere_has_moved(desk: Desk) -> None:
    desk.put("/in/a.pdf", "A")
    desk.finish()
    library.mark_missing(desk.conn, [b"/in/a.pdf"], desk.now)
    assert desk.put("/archive/2024.pdf", "A") is LinkOutcome.RENAMED
    desk.publish_all()
    assert desk.states() == {"/archive/2024.pdf": "done"}


def test_forgetting_a_folder_forgets_what_is_below_it_only(desk: Desk) -> None:
    for path in ("/in/a.pdf", "/in/sub/b.pdf", "/in/sub-c.pdf", "/in/sub/deep/d.pdf", "/in/sub.pdf"):
        desk.put(path, path)
    desk.finish()
    assert library.forget(desk.conn, [b"/in/sub/"]) == 2
    assert set(desk.states()) == {"/in/a.pdf", "/in/sub-c.pdf", "/in/sub.pdf"}
    desk.check()


def test_forgetting_one_of_two_copies_keeps_the_text(desk: Desk, tmp_path: Path) -> None:
    a, b = files_in(tmp_path, "a.pdf", "b.pdf")
    desk.put(a, "A")
    desk.put(b, "A")
    desk.finish("text")
    library.forget(desk.conn, [a.encode()])
    assert desk.found("text") == ["text"]
    desk.check()


def test_forgetting_a_file_forgets_what_its_content_replaced(desk: Desk) -> None:
    desk.put("/in/a.pdf", "A")
    desk.finish("first")
    desk.put("/in/a.pdf", "B")
    library.forget(desk.conn, [b"/in/a.pdf"])
    assert desk.found("first") == []
    desk.check()


# --- roots --------------------------------------------------------------------------------------------------


def test_root_that_is_gone_holds_its_work_and_loses_nothing(desk: Desk) -> None:
    root = library.add_root(desk.conn, b"/mnt/share", now=desk.now)
    desk.put("/mnt/share/read.pdf", "A", root_id=root)
    desk.finish("text")
    desk.put("/mnt/share/half.pdf", "B", 2, root_id=root)
    desk.see("/mnt/share/new.pdf", root_id=root)
    library.set_root_state(desk.conn, root, "gone", "not mounted")
    assert desk.intake() == []
    assert desk.claim() == []
    assert jobs.is_idle(desk.conn, desk.now)
    assert jobs.next_due(desk.conn) is None
    assert desk.found("text") == ["text"]
    assert set(desk.states().values()) == {"done", "queued"}
    library.set_root_state(desk.conn, root, "ok")
    assert len(desk.intake()) == 1
    assert len(desk.claim()) == 2


def test_content_with_a_copy_outside_the_lost_root_is_read_from_there(desk: Desk, tmp_path: Path) -> None:
    root = library.add_root(desk.conn, os.fsencode(tmp_path), now=desk.now)
    (a,) = files_in(tmp_path, "a.pdf")
    desk.put(a, "A", root_id=root)
    desk.put("/elsewhere/b.pdf", "A")
    library.set_root_state(desk.conn, root, "gone")
    assert [job.path for job in desk.claim()] == [b"/elsewhere/b.pdf"]


def test_file_that_cannot_be_found_while_its_root_is_away_is_not_cancelled(
    desk: Desk, tmp_path: Path
) -> None:
    root = library.add_root(desk.conn, os.fsencode(tmp_path / "unmounted"), now=desk.now)
    desk.see(str(tmp_path / "unmounted" / "a.pdf"), root_id=root)
    (job,) = desk.intake()
    jobs.fail_intake(desk.conn, "w", job, VanishedError("No such file"), desk.now)
    assert list(desk.states().values()) == ["queued"]
    assert desk.intake() == [], "not at once"


# --- failures and trying again ------------------------------------------------------------------------------


def test_file_that_cannot_be_opened_fails_once_for_all_its_copies(desk: Desk) -> None:
    for path in ("/in/a.pdf", "/in/b.pdf"):
        desk.see(path)
        (job,) = desk.intake()
        assert (
            library.link(desk.conn, job, sha("x"), 10, None, CorruptError("no trailer"), desk.now)
            is LinkOutcome.FAILED
        )
    assert set(desk.states().values()) == {"failed"}
    assert desk.one("SELECT error_code || ': ' || error_message FROM documents") == "corrupt: no trailer"
    assert desk.claim() == []


def test_password_given_later_opens_the_file(desk: Desk) -> None:
    desk.see("/in/locked.pdf")
    (job,) = desk.intake()
    library.link(desk.conn, job, sha("x"), 10, None, PasswordError("encrypted"), desk.now)
    assert desk.states() == {"/in/locked.pdf": "needs_password"}
    assert library.retry(desk.conn, [b"/in/locked.pdf"], {"password": "secret"}, desk.now) == 1
    assert desk.states() == {"/in/locked.pdf": "queued"}
    (job,) = desk.intake()
    assert job.options == {"password": "secret"}
    desk.link(job, "x", 2)
    assert [page.options for page in desk.claim()] == [{"password": "secret"}] * 2
    jobs.release(desk.conn, "w")
    desk.finish()
    assert desk.states() == {"/in/locked.pdf": "done"}
    assert desk.one("SELECT error_code FROM documents") is None


def test_retry_of_all_that_failed_leaves_the_rest_alone(desk: Desk) -> None:
    desk.put("/in/good.pdf", "A")
    desk.finish()
    desk.see("/in/bad.pdf")
    jobs.fail_intake(desk.conn, "w", desk.intake()[0], CorruptError("x"), desk.now)
    assert library.retry(desk.conn, None, {}, desk.now) == 1
    assert desk.states() == {"/in/bad.pdf": "queued", "/in/good.pdf": "done"}


def test_retry_of_a_named_file_reads_all_its_pages_with_the_options(desk: Desk) -> None:
    desk.put("/in/a.pdf", "A", 3)
    desk.finish("first")
    assert library.retry(desk.conn, [b"/in/a.pdf"], {"engine": "rapidocr", "dpi": 300}, desk.now) == 1
    assert desk.found("first") == ["first"] * 3, "findable until it is read again"
    claimed = desk.claim()
    assert [job.page for job in claimed] == [1, 2, 3]
    assert claimed[0].options == {"engine": "rapidocr", "dpi": 300}
    for job in claimed:
        desk.save(job, "second")
    assert desk.publish_all() == [b"/in/a.pdf"]
    assert desk.found("first") == []
    assert desk.found("second") == ["second"] * 3
    desk.check()


def test_file_denied_for_now_is_tried_later_and_says_why(desk: Desk) -> None:
    desk.see("/in/a.pdf")
    delays = []
    for _ in range(3):
        (job,) = desk.intake()
        jobs.fail_intake(desk.conn, "w", job, AccessError("Permission denied"), desk.now)
        due = jobs.next_due(desk.conn)
        assert due is not None
        delays.append(due - desk.now)
        assert desk.intake() == []
        desk.now = due
    assert delays == sorted(set(delays)), "longer each time"
    assert desk.states() == {"/in/a.pdf": "queued"}
    assert desk.one("SELECT error_code FROM files") == "permission"
    assert desk.one("SELECT attempts FROM files") == 0
    desk.link(desk.intake()[0], "A")
    assert desk.one("SELECT error_code FROM files") is None


def test_what_the_file_tells_is_kept(desk: Desk) -> None:
    desk.see("/in/a.pdf")
    info = DocumentInfo(
        "application/pdf", 3, labels=("i", None, "1"), title="Ein Titel", attachments=("data.csv",),
        warnings=(PageWarning("xfa", "dynamic form"),),
    )  # fmt: skip
    library.link(desk.conn, desk.intake()[0], sha("A"), 10, info, None, desk.now)
    row = desk.conn.execute("SELECT title, labels, attachments, warnings FROM documents").fetchone()
    assert tuple(row) == (
        "Ein Titel", '["i", null, "1"]', '["data.csv"]', '[{"code": "xfa", "message": "dynamic form"}]',
    )  # fmt: skip


def test_new_place_for_sidecars_gets_them_without_reading_again(desk: Desk) -> None:
    desk.see("/in/a.pdf", mtime=3)
    desk.link(desk.intake()[0], "A")
    desk.finish()
    desk.see("/in/a.pdf", mtime=3, out_dir=b"/out", base=b"/in")
    job = jobs.claim_publish(desk.conn, "w", desk.now, 60)
    assert job is not None
    assert (job.out_dir, job.base) == (b"/out", b"/in")
    assert desk.read_all() == []


def test_nothing_is_left_half_done_when_linking_fails(fresh_db: sqlite3.Connection) -> None:
    desk = Desk(fresh_db)
    desk.see("/in/a.pdf")
    (job,) = desk.intake()
    fresh_db.execute(f"PRAGMA max_page_count = {desk.one('PRAGMA page_count')}")
    from storage.errors import DiskFullError

    with pytest.raises(DiskFullError):
        desk.link(job, "A", 100_000)
    fresh_db.execute("PRAGMA max_page_count = 1073741823")
    assert desk.one("SELECT count(*) FROM documents") == 0
    assert desk.link(job, "A", 10) is LinkOutcome.NEW
