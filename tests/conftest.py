"""What tests of several packages share: a migrated database, and a clock that only moves when told."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import sqlite3
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from storage.database import open_database

# What a person or a CI has set for their own library, for colours, or to get out into the net, is no part of a test.
for name in [name for name in os.environ if name.startswith("OCRD_") or name == "FORCE_COLOR"]:
    if name not in {"OCRD_CORPUS", "OCRD_SPEC_PAGES", "OCRD_CHROMIUM"}:
        del os.environ[name]
os.environ["NO_PROXY"] = os.environ["no_proxy"] = "*"
# Measuring a model takes seconds in every new home: tests that are about it switch it on.
os.environ["OCRD_CALIBRATE"] = "false"
# Drawn examples are judged by what comes out, not by how long a machine that has other things to do takes.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    with _names_taken():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    with _names_taken():
        return (yield)


@contextmanager
def _names_taken() -> Iterator[None]:
    """APFS refuses names that are no UTF-8; what is tested with them cannot happen there."""
    try:
        yield
    except OSError as error:
        if sys.platform == "darwin" and error.errno == errno.EILSEQ:
            pytest.skip("this file system takes no names that are not UTF-8")
        raise


@pytest.fixture(autouse=True)
def _logs_end_with_their_test() -> Iterator[None]:
    """Commands run in this process log to streams and files that are gone after the test."""
    loggers = [logging.getLogger(name) for name in ("daemon", "pipeline", "storage")]
    before = [(logger, list(logger.handlers), logger.level) for logger in loggers]
    yield
    for logger, handlers, level in before:
        for handler in [one for one in logger.handlers if one not in handlers]:
            logger.removeHandler(handler)
            handler.close()
        logger.setLevel(level)


class Clock:
    """Seconds that stand still, of an epoch or, called, of a monotonic clock."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> float:
        self.now += seconds
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated database without content, to be copied: migrating takes seconds, copying does not."""
    path = tmp_path_factory.mktemp("database") / "ocrd.db"
    conn = open_database(path)
    conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    conn.close()
    return path


def spoil(path: Path, at: int = 100) -> None:
    """Write nonsense into the middle of a file."""
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"\xa5" * 4000)


@pytest.fixture
def database_path(tmp_path: Path, empty_database: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    return Path(shutil.copy(empty_database, home / "ocrd.db"))


@pytest.fixture
def fresh_db(database_path: Path) -> Iterator[sqlite3.Connection]:
    """An open, empty, migrated database; it does not wait for the disk."""
    conn = open_database(database_path)
    conn.execute("PRAGMA synchronous = OFF")
    yield conn
    conn.close()
