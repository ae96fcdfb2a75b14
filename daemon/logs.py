"""Where log records go: one line each, to `ocrd.log` in the home folder and, for the command line, to the terminal."""

from __future__ import annotations

import logging
import logging.handlers
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from storage.settings import Settings

LOG_NAME = "ocrd.log"
KEEP_BYTES = 10 << 20  # then the file becomes ocrd.log.1
_PACKAGES = ("daemon", "pipeline", "storage")
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
        line = escape(super().formatMessage(record))
        for name in _CONTEXT:
            value = record.__dict__.get(name)
            if value is not None:
                line += f" {name}={shown(value)}"
        return line


def shown(value: object) -> str:
    """A value for a log line: paths in quotes, control characters and undecodable bytes escaped."""
    if isinstance(value, bytes | os.PathLike):
        value = os.fsdecode(value)
    if isinstance(value, str):
        return "'" + escape(value) + "'"
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def escape(text: str) -> str:
    """`text` on one line, without characters that a terminal acts upon or that cannot be encoded."""
    return "".join(
        char if char == " " or (char.isprintable() and not _is_override(char)) else _escaped(char)
        for char in text
    )


def _is_override(char: str) -> bool:
    return "\u202a" <= char <= "\u202e" or "\u2066" <= char <= "\u2069"


def _escaped(char: str) -> str:
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that was no UTF-8
        return f"\\x{code - 0xDC00:02x}"
    return char.encode("unicode_escape").decode("ascii")


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
        _add(logger, _file_handler(path, settings.log_level))
    return path


def to_console(level: str | int) -> None:
    """Send our packages' records from `level` on to standard error as well."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setLevel(level)
    handler.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
    for name in _PACKAGES:
        _add(logging.getLogger(name), handler)


def _add(logger: logging.Logger, handler: logging.Handler) -> None:
    """Add a handler; the logger lets through what any of its handlers wants."""
    logger.addHandler(handler)
    logger.setLevel(min(handler.level for handler in logger.handlers))


def rotate(settings: Settings, limit_bytes: int = KEEP_BYTES) -> None:
    """Rename a log file that has grown too large; only the supervisor calls this."""
    path = settings.home / LOG_NAME
    try:
        if path.stat().st_size > limit_bytes:
            path.replace(path.with_name(LOG_NAME + ".1"))
    except OSError:
        return  # not there yet, or a folder we cannot write: logging is never worth failing for


def _file_handler(path: Path, level: str) -> logging.Handler:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600)
        handler: logging.Handler = logging.handlers.WatchedFileHandler(
            path, encoding="utf-8", errors="backslashreplace", delay=True
        )
    except OSError:
        handler = logging.NullHandler()
    handler.set_name(LOG_NAME)
    handler.setLevel(level)
    handler.setFormatter(LineFormatter())
    return handler
