"""The run of `ocrd batch`, with real workers and the fake engine."""

from __future__ import annotations

import os
import sqlite3
import time
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from daemon import batch
from daemon.batch import Progress
from daemon.given import expand
from daemon.processes import LOCK_NAME, HomeLock
from storage import jobs
from storage.errors import AccessError, BusyError, ExitCode
from storage.settings import Settings

MakeFile = Callable[..., Path]


def test_every_file_and_every_bad_path_is_accounted_for(
    settings: Settings, tmp_path: Path, make_pdf: MakeFile, make_png: MakeFile
) -> None:
    folder = tmp_path / "in"
    make_pdf(folder / "a.pdf", 3)
    make_png(folder / "sub" / "b.png")
    (folder / "empty.pdf").touch()
    (folder / "notes.txt").write_text("not ours")
    (folder / ".hidden.pdf").touch()
    progress: list[Progress] = []
    paths = [folder, folder / "a.pdf", tmp_path / "none.pdf"]
    summary = batch.run(settings, paths, on_progress=progress.append)
    by_name = {Path(os.fsdecode(outcome.path)).name: outcome for outcome in summary.documents}
    assert {name: outcome.state for name, outcome in by_name.items()} == {
        "a.pdf": "done",
        "b.png": "done",
        "empty.pdf": "failed",
        "none.pdf": "failed",
    }
    assert (by_name["a.pdf"].pages, by_name["a.pdf"].pages_done) == (3, 3)
    assert by_name["empty.pdf"].exit_code == ExitCode.BAD_INPUT
    assert by_name["none.pdf"].exit_code == ExitCode.STORAGE
    assert summary.exit_code == ExitCode.MIXED
    assert summary.counts["total"] == 4 == summary.counts["done"] + summary.counts["failed"]
    assert (progress[-1].files, progress[-1].files_done, progress[-1].pages_done) == (4, 4, 4)
    assert by_name["b.png"].markdown_path == str((settings.out or tmp_path) / "sub" / "b.png.md")
    assert Path(by_name["b.png"].markdown_path).is_file()


def test_a_second_run_reads_nothing_again_but_tries_what_failed(
    settings: Settings, tmp_path: Path, make_png: MakeFile, conn: sqlite3.Connection
) -> None:
    good, bad = make_png(tmp_path / "in" / "good.png", 1), tmp_path / "in" / "bad.png"
    bad.write_bytes(b"<html>")
    first = batch.run(settings, [good, bad])
    assert first.exit_code == ExitCode.BAD_INPUT
    read_at = conn.execute("SELECT read_at FROM pages").fetchall()[0][0]
    attempts = conn.execute("SELECT id FROM files WHERE state = 'intake'").fetchall()
    assert attempts == []
    second = batch.run(settings, [good, bad])
    assert [outcome.state for outcome in second.documents] == ["done", "failed"]
    assert [run.counts["read_before"] for run in (first, second)] == [0, 1]
    assert [run.counts["pages_before"] for run in (first, second)] == [0, 1]
    assert conn.execute("SELECT read_at FROM pages").fetchall()[0][0] == read_at
    make_png(bad, 2)
    third = batch.run(settings, [good, bad])
    assert third.exit_code == ExitCode.OK
    assert [outcome.state for outcome in third.documents] == ["done", "done"]


def test_pages_that_failed_show_in_outcome_and_exit_code(
    settings: Settings, tmp_path: Path, make_pdf: MakeFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OCRD_FAKE_SCRIPT", "error:2")
    file = make_pdf(tmp_path / "a.pdf", 3)
    summary = batch.run(replace(settings, text_layer="ignore", max_attempts=1), [file])
    [outcome] = summary.documents
    assert (outcome.state, outcome.pages_done, outcome.error_code) == ("done", 2, "engine")
    assert outcome.error_message is not None and "page 2" in outcome.error_message
    assert summary.exit_code == outcome.exit_code == ExitCode.ENGINE


def test_an_unwritable_output_is_told_before_anything_is_read(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(AccessError, match="output folder"):
        batch.run(replace(settings, out=tmp_path / "file" / "out"), [tmp_path])
    assert not (settings.home / LOCK_NAME).exists()


def test_a_queue_paused_by_a_person_is_not_worked_on(
    settings: Settings, tmp_path: Path, conn: sqlite3.Connection
) -> None:
    jobs.pause(conn, "going home")
    with pytest.raises(BusyError, match="going home"):
        batch.run(settings, [tmp_path])


def test_it_takes_over_when_whoever_worked_on_the_home_leaves(
    settings: Settings, tmp_path: Path, make_png: MakeFile
) -> None:
    lock = HomeLock(settings.home, "watches /scans")
    lock.acquire(time.time())
    messages: list[str] = []

    def hear(progress: Progress) -> None:
        messages.append(progress.message)
        lock.release()

    summary = batch.run(settings, [make_png(tmp_path / "a.png")], on_progress=hear)
    assert summary.exit_code == ExitCode.OK
    assert "watches /scans" in messages[0]


# --- what paths stand for ----------------------------------------------------------------------------------


def test_a_file_is_taken_whatever_its_name_and_a_folder_gives_what_watching_would(
    settings: Settings, tmp_path: Path, make_pdf: MakeFile
) -> None:
    named = make_pdf(tmp_path / "strange.xyz")
    make_pdf(tmp_path / "in" / "SCAN")
    make_pdf(tmp_path / "in" / "a.pdf.part")
    (tmp_path / "in" / "Makefile").write_text("all:\n")
    files, broken = expand(settings, [named, tmp_path / "in"])
    assert [Path(os.fsdecode(file.path)).name for file in files] == ["strange.xyz", "SCAN"]
    assert broken == []


def test_either_spelling_of_a_name_means_the_file_on_disk(
    settings: Settings, tmp_path: Path, make_pdf: MakeFile
) -> None:
    on_disk = make_pdf(tmp_path / unicodedata.normalize("NFD", "Übergröße.pdf"))
    typed = tmp_path / unicodedata.normalize("NFC", "Übergröße.pdf")
    files, broken = expand(settings, [on_disk, typed])
    assert [file.path for file in files] == [os.fsencode(on_disk)]
    assert broken == []


def test_pipes_and_nothing_are_outcomes(settings: Settings, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.pdf")
    files, broken = expand(settings, [tmp_path / "fifo.pdf", tmp_path / "none"])
    assert files == []
    assert [outcome.error_code for outcome in broken] == ["not_a_document", "vanished"]


def test_the_tree_is_mirrored_from_the_folder_that_was_given(
    settings: Settings, tmp_path: Path, make_pdf: MakeFile
) -> None:
    file = make_pdf(tmp_path / "in" / "x" / "a.pdf")
    [from_folder], _ = expand(settings, [tmp_path / "in"])
    [from_file], _ = expand(settings, [file])
    assert from_folder.base == os.fsencode(tmp_path / "in")
    assert from_file.base == os.fsencode(tmp_path / "in" / "x")
    [beside], _ = expand(replace(settings, out=None), [file])
    assert (beside.out_dir, beside.base) == (None, None)


def test_with_out_equal_names_in_two_folders_do_not_meet(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / "in" / name).mkdir(parents=True)
        (tmp_path / "in" / name / "a.txt").write_bytes(b"x")
        (tmp_path / "in" / name / "a.pdf").write_bytes(b"%PDF-1.4 " + name.encode())
    settings = Settings(tmp_path / "home", out=tmp_path / "out")
    files, broken = expand(settings, [tmp_path / "in" / "one", tmp_path / "in" / "two" / "a.pdf"])
    assert not broken
    assert {(os.path.relpath(file.path, file.base or b"")) for file in files} == {b"one/a.pdf", b"two/a.pdf"}
