"""Where log records go: one line each, to `ocrd.log` in the home folder and, for the command line, to the terminal."""

from __future__ import annotations

import contextlib
import json
import logging
import logging.handlers
import os
import sys
import time
from collections import deque
from datetime import UTC, datetime
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING

from daemon.console import escape_name

if TYPE_CHECKING:
    from storage.settings import Settings

LOG_NAME = "ocrd.log"
SERVICE_LOG_NAME = "service.log"  # what a service manager keeps of our output; it holds the file open
KEEP_BYTES = 10 << 20  # then the file becomes ocrd.log.1
KEEP_SERVICE_BYTES = 1 << 20
_PACKAGES = ("daemon", "pipeline", "storage")
FILE_ONLY = {"is_file_only": True}  # `extra` of a record that the command line tells in its own words
_CONTEXT = ("path", "page", "stage", "seconds")


class LineFormatter(logging.Formatter):
    """`2026-01-31T12:00:00Z INFO 4711 daemon.worker: message path='…' page=3`: one line whatever a path contains."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(process)d %(name)s: %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        """The record's time in UTC."""
        return time.strftime(datefmt or "%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created))

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line without a traceback."""
        line = escape_name(super().formatMessage(record))
        for name in _CONTEXT:
            value = record.__dict__.get(name)
            if value is not None:
                line += f" {name}={shown(value)}"
        return line


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, pid, logger, message, and what the record is about."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as a line; a traceback is text in `exception`."""
        found: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "pid": record.process,
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name in _CONTEXT:
            value = record.__dict__.get(name)
            if value is not None:
                found[name] = os.fsdecode(value) if isinstance(value, bytes | os.PathLike) else value
        if record.exc_info:
            found["exception"] = self.formatException(record.exc_info)
        return json.dumps(found)  # ASCII: nothing in it that a terminal acts upon


def shown(value: object) -> str:
    """A value for a log line: paths in quotes, control characters and undecodable bytes escaped."""
    if isinstance(value, str | bytes | os.PathLike):
        return "'" + escape_name(value) + "'"
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def to_file(settings: Settings) -> Path:
    """Send our packages' records to the log file of the home; returns the file.

    Many processes append to it; each notices when it was renamed (by us or by logrotate) and opens a new one.
    """
    path = settings.home / LOG_NAME
    for name in _PACKAGES:
        logger = logging.getLogger(name)
        for handler in [handler for handler in logger.handlers if handler.get_name() == LOG_NAME]:
            logger.removeHandler(handler)
            handler.close()
        _add(logger, _file_handler(path, settings))
    return path


def to_console(level: str | int) -> None:
    """Send our packages' records from `level` on to standard error as well."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setLevel(level)
    handler.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
    handler.addFilter(lambda record: not getattr(record, "is_file_only", False))
    for name in _PACKAGES:
        _add(logging.getLogger(name), handler)


def _add(logger: logging.Logger, handler: logging.Handler) -> None:
    """Add a handler; the logger lets through what any of its handlers wants."""
    logger.addHandler(handler)
    logger.setLevel(min(handler.level for handler in logger.handlers))


def rotate(settings: Settings, limit_bytes: int = KEEP_BYTES) -> None:
    """Put aside a log file that has grown too large; only the supervisor calls this.

    Ours is renamed, its writers follow. What the service manager holds open is copied and emptied.
    """
    path = settings.home / LOG_NAME
    service = settings.home / SERVICE_LOG_NAME
    with contextlib.suppress(
        OSError
    ):  # not there, or a folder we cannot write: logging is never worth failing for
        if path.stat().st_size > limit_bytes:
            path.replace(path.with_name(LOG_NAME + ".1"))
    with contextlib.suppress(OSError):
        if service.stat().st_size > min(limit_bytes, KEEP_SERVICE_BYTES):
            copy = service.with_name(SERVICE_LOG_NAME + ".1")
            copy.touch(mode=0o600)
            copy.write_bytes(service.read_bytes()[-KEEP_SERVICE_BYTES:])
            os.truncate(service, 0)


def tail(path: Path, lines: int) -> list[str]:
    """The last lines of a log file; none where there is no such file."""
    try:
        with path.open(encoding="utf-8", errors="backslashreplace") as file:
            return [line.rstrip("\n") for line in deque(file, maxlen=lines)]
    except OSError:
        return []


def _file_handler(path: Path, settings: Settings) -> logging.Handler:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600)
        handler: logging.Handler = _FollowingHandler(
            path, encoding="utf-8", errors="backslashreplace", delay=True
        )
    except OSError:
        handler = logging.NullHandler()
    handler.set_name(LOG_NAME)
    handler.setLevel(settings.log_level)
    handler.setFormatter(JsonFormatter() if settings.log_format == "json" else LineFormatter())
    return handler


class _FollowingHandler(logging.handlers.WatchedFileHandler):
    """Opens a new file when the old one was put aside, for the owner only."""

    def _open(self) -> TextIOWrapper:
        with contextlib.suppress(OSError):
            os.close(os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        return super()._open()
