"""What `ocrd batch` shows: progress, and the summary."""

import io
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from daemon import batch_view
from storage.errors import ExitCode


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def progress(**changed: Any) -> Any:
    known = {
        "files": 9,
        "files_done": 3,
        "pages": 40,
        "pages_done": 12,
        "path": b"/in/a\x1b.pdf",
        "page": 4,
        "seconds": 24.0,
        "pages_before": 0,
        "message": "",
    }
    return SimpleNamespace(**(known | changed))


def test_progress_line_has_pages_rate_and_time_left() -> None:
    line = batch_view.progress_line(progress())
    assert line == "12 of 40 pages, 3 of 9 files, 30 pages/min, about 56 s left, a\\x1b.pdf page 4"


def test_progress_line_before_the_first_page_promises_nothing() -> None:
    line = batch_view.progress_line(progress(pages=0, pages_done=0, path=None, seconds=0.0))
    assert line == "0 of 0 pages, 3 of 9 files"


def test_without_a_terminal_progress_is_a_line_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    with batch_view.batch_progress() as show:
        for second in range(0, 12):
            show(progress(seconds=float(second)))
        show(progress(seconds=11.5, message="b.pdf: is encrypted\x07"))
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if "encrypted" in line] == ["b.pdf: is encrypted\\x07"]
    assert len(lines) == 3


def test_quiet_progress_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with batch_view.batch_progress(quiet=True) as show:
        show(progress(seconds=100.0, message="done"))
    assert capsys.readouterr() == ("", "")


def test_progress_bar_draws_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", stream)
    with batch_view.batch_progress() as show:
        show(progress(message="read [bold]this[/bold].pdf"))
    assert "read [bold]this[/bold].pdf" in stream.getvalue()


def outcome(name: str, **changed: Any) -> Any:
    known = {
        "path": os.fsencode(name),
        "state": "done",
        "pages": 2,
        "pages_done": 2,
        "error_code": None,
        "error_message": None,
        "remedy": None,
        "markdown_path": f"{name}.md",  # beside the file
        "exit_code": ExitCode.OK,
    }
    return SimpleNamespace(**(known | changed))


LOCKED = {
    "state": "needs_password",
    "pages": None,
    "pages_done": 0,
    "error_code": "password",
    "error_message": "is encrypted",
    "remedy": "run `ocrd retry FILE --password …`",
    "exit_code": ExitCode.PASSWORD,
}


def summary(*documents: Any, **more: int) -> Any:
    states = ("queued", "running", "done", "failed", "needs_password", "missing")
    counts = {state: sum(document.state == state for document in documents) for state in states}
    counts |= {"total": len(documents), "waiting": counts["queued"] + counts["running"]}
    counts |= {
        "pages_done": sum(document.pages_done for document in documents),
        "pages_blank": 0,
        "pages_failed": 0,
        "read_before": 0,
        "pages_before": 0,
    }
    code = max(document.exit_code for document in documents)
    return SimpleNamespace(documents=documents, counts=counts | more, seconds=30.0, exit_code=code)


def test_what_to_type_next_searches_the_same_library(capsys: pytest.CaptureFixture[str]) -> None:
    batch_view.show_summary(summary(outcome("/in/a.pdf")), home=Path("/my library"))
    assert capsys.readouterr().out.splitlines()[-1].endswith("--home '/my library'")


def test_summary_lists_files_sums_and_remedies(capsys: pytest.CaptureFixture[str]) -> None:
    batch_view.show_summary(summary(outcome("/in/a.pdf"), outcome("/in/[b]\x1b.pdf", **LOCKED)))
    out = capsys.readouterr().out
    assert "[b]\\x1b.pdf" in out
    assert "/in/[b]\\x1b.pdf: is encrypted. Run `ocrd retry '/in/[b]\\x1b.pdf' --password …`" in out
    assert out.splitlines()[-1] == 'next: ocrd search "words you remember"'
    assert "\x1b" not in out


def test_summary_sums_pages_and_rate() -> None:
    row = batch_view.summary_row(summary(outcome("a"), outcome("b", **LOCKED), pages_blank=1))
    assert (row["Files"], row["Done"], row["Failed"], row["Locked"]) == ("2", "1", "0", "1")
    assert (row["Pages read"], row["Blank"], row["Pages/min"]) == ("2", "1", "4.0")
    assert "Waiting" not in row


def test_summary_of_many_files_lists_the_failed_ones_only(capsys: pytest.CaptureFixture[str]) -> None:
    good = [outcome(f"/in/good{number}.pdf") for number in range(50)]
    batch_view.show_summary(summary(*good, outcome("/in/locked.pdf", **LOCKED)))
    out = capsys.readouterr().out
    assert "good7" not in out
    assert "/in/locked.pdf: is encrypted" in out


def test_summary_says_where_the_text_is(capsys: pytest.CaptureFixture[str]) -> None:
    batch_view.show_summary(summary(outcome("/in/a.pdf"), outcome("/in/sub/b.pdf")))
    assert "beside it" in capsys.readouterr().out
    mirrored = [
        outcome("/in/a.pdf", markdown_path="/o\n/a.pdf.md"),
        outcome("/in/b", markdown_path="/o\n/s/b.md"),
    ]
    batch_view.show_summary(summary(*mirrored))
    assert "are below /o\\n\n" in capsys.readouterr().out


def test_interrupted_batch_says_how_to_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    batch_view.show_summary(summary(outcome("/in/a.pdf", state="queued", pages_done=1)))
    assert "1 file not finished; the same command goes on with them" in capsys.readouterr().out


def test_finished_batch_names_no_page_being_read() -> None:
    assert (
        batch_view.progress_line(progress(files_done=9, pages_done=40))
        == "40 of 40 pages, 9 of 9 files, 100 pages/min"
    )


def test_quiet_summary_is_the_failures_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    batch_view.show_summary(summary(outcome("/in/a.pdf"), outcome("/in/b.pdf", **LOCKED)), quiet=True)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("/in/b.pdf: is encrypted.")


def test_pace_and_time_left_are_those_of_the_pages_read_now() -> None:
    line = batch_view.progress_line(progress(pages_before=10))
    assert "12 of 40 pages" in line
    assert "5.0 pages/min, about 5 min 36 s left" in line


def test_files_read_before_are_told_and_count_for_no_pace(capsys: pytest.CaptureFixture[str]) -> None:
    batch_view.show_summary(summary(outcome("a.pdf"), read_before=1, pages_before=2))
    told = capsys.readouterr().out
    assert "1 file read before and unchanged; `ocrd retry FILE` reads one again" in told
    assert "–" in told
    assert (
        batch_view.summary_row(summary(outcome("a.pdf"), outcome("b.pdf"), pages_before=2))["Pages/min"]
        == "4.0"
    )
