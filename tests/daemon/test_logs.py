"""One line per record, whatever names contain."""

from __future__ import annotations

import json
import logging
import os
from dataclasses import replace
from pathlib import Path

import pytest

from daemon import logs
from storage.settings import Settings


@pytest.fixture
def log_file(tmp_path: Path):  # type: ignore[no-untyped-def]
    yield logs.to_file(Settings(home=tmp_path / "home"))
    for name in ("daemon", "pipeline", "storage"):
        for handler in logging.getLogger(name).handlers[:]:
            logging.getLogger(name).removeHandler(handler)
            handler.close()


def test_a_record_is_one_line_with_its_context(log_file: Path) -> None:
    extra = {"path": b"/in/new\nline \xe9 \xe2\x80\xaeevil.pdf", "page": 3, "seconds": 1.234}
    logging.getLogger("daemon.test").warning("odd: %s", "a\tb\x1b[31m", extra=extra)
    line = log_file.read_text("utf-8")
    assert line.count("\n") == 1
    assert "WARNING" in line and "daemon.test: odd: a\\tb\\x1b[31m" in line
    assert "path='/in/new\\nline \\xe9 \\u202eevil.pdf' page=3 seconds=1.23" in line


def test_records_below_the_level_are_left_out(tmp_path: Path, log_file: Path) -> None:
    logs.to_file(replace(Settings(home=tmp_path / "home"), log_level="WARNING"))
    logging.getLogger("storage.x").info("not this")
    logging.getLogger("storage.x").error("this")
    assert "not this" not in log_file.read_text("utf-8")
    assert log_file.read_text("utf-8").count("\n") == 1  # set up twice, written once


def test_the_terminal_may_show_more_or_less_than_the_file(
    log_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.to_console("DEBUG")
    logging.getLogger("daemon.x").debug("a detail")
    logging.getLogger("daemon.x").warning("a warning")
    assert "a detail" not in log_file.read_text("utf-8")
    assert "a warning" in log_file.read_text("utf-8")
    assert capsys.readouterr().err == "DEBUG: a detail\nWARNING: a warning\n"


def test_a_file_grown_too_large_is_put_aside_and_writers_follow(tmp_path: Path, log_file: Path) -> None:
    settings = Settings(home=tmp_path / "home")
    logging.getLogger("daemon.x").error("first")
    logs.rotate(settings, limit_bytes=1)
    logging.getLogger("daemon.x").error("second")
    assert "first" in log_file.with_name("ocrd.log.1").read_text("utf-8")
    assert "second" in log_file.read_text("utf-8")
    logs.rotate(replace(settings, home=tmp_path / "none"))


def test_json_lines_on_request(tmp_path: Path, log_file: Path) -> None:
    logs.to_file(replace(Settings(home=tmp_path / "home"), log_format="json"))
    extra = {"path": b"/in/\xe9\n.pdf", "page": 3, "seconds": 1.5}
    try:
        raise ValueError("x\x1b[2J")
    except ValueError:
        logging.getLogger("daemon.test").exception("odd: %s", "a\nb", extra=extra)
    [line] = log_file.read_text("ascii").splitlines()
    found = json.loads(line)
    assert found["message"] == "odd: a\nb" and found["level"] == "ERROR" and found["logger"] == "daemon.test"
    assert (found["path"], found["page"], found["seconds"]) == ("/in/\udce9\n.pdf", 3, 1.5)
    assert "ValueError" in found["exception"] and found["time"].endswith("+00:00")
    assert "\x1b" not in line


def test_what_a_service_manager_holds_open_is_emptied_not_renamed(tmp_path: Path, log_file: Path) -> None:
    path = log_file.with_name(logs.SERVICE_LOG_NAME)
    with path.open("ab") as held:
        held.write(b"old\n" * 10)
        held.flush()
        logs.rotate(Settings(home=tmp_path / "home"), limit_bytes=1)
        held.write(b"new\n")
    assert path.read_bytes() == b"new\n"
    copy = path.with_name(logs.SERVICE_LOG_NAME + ".1")
    assert copy.read_bytes() == b"old\n" * 10 and copy.stat().st_mode & 0o777 == 0o600


def test_logs_are_the_owner_s_whatever_the_umask(tmp_path: Path, log_file: Path) -> None:
    before = os.umask(0)
    try:
        logging.getLogger("daemon.x").error("first")
        logs.rotate(Settings(home=tmp_path / "home"), limit_bytes=1)
        logging.getLogger("daemon.x").error("second")
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in log_file.parent.iterdir()} == {0o600}
    assert log_file.parent.stat().st_mode & 0o777 == 0o700


def test_tail_is_the_last_lines(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"1\n2\n\xff3\n")
    assert logs.tail(tmp_path / "log", 2) == ["2", "\\xff3"]
    assert logs.tail(tmp_path / "none", 2) == []


def test_a_home_that_cannot_be_written_does_not_stop_anything(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    logs.to_file(Settings(home=tmp_path / "file" / "home"))
    logging.getLogger("daemon.x").error("lost")


def test_what_the_command_line_tells_itself_is_written_to_the_file_only(
    log_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.to_console("WARNING")
    logging.getLogger("daemon.test").error("the end", extra=logs.FILE_ONLY)
    logging.getLogger("daemon.test").error("something else")
    assert "the end" in log_file.read_text("utf-8")
    assert capsys.readouterr().err == "ERROR: something else\n"
