"""One line per record, whatever names contain."""

from __future__ import annotations

import logging
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


def test_a_home_that_cannot_be_written_does_not_stop_anything(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    logs.to_file(Settings(home=tmp_path / "file" / "home"))
    logging.getLogger("daemon.x").error("lost")
