"""What the paths given to `ocrd batch` stand for, and what became of each file."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from daemon import scanner
from daemon.ignore import Kind
from daemon.scanner import Tally, WatchRoot
from daemon.watching import rules_for
from storage import jobs, library
from storage.errors import ExitCode, class_of, from_os_error

if TYPE_CHECKING:
    from storage.settings import Settings


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one file."""

    path: bytes
    state: str  # queued | running | done | failed | needs_password | missing
    pages: int | None = None
    pages_done: int = 0
    error_code: str | None = None
    error_message: str | None = None
    remedy: str | None = None
    markdown_path: str | None = None
    exit_code: ExitCode = ExitCode.OK


def expand(settings: Settings, paths: Sequence[Path]) -> tuple[list[library.SeenFile], list[Outcome]]:
    """The files that paths stand for, and outcomes for paths that cannot be used.

    A file is taken whatever its name; of a folder, what `ocrd watch` would take. With `--out` the tree below the
    paths' common folder is mirrored, as `ocrd watch` does it, so that equal names in two folders never meet.
    """
    out_dir = None if settings.out is None else os.fsencode(settings.out)
    base = _common_folder(paths) if out_dir else None
    found: dict[bytes, library.SeenFile] = {}
    broken: list[Outcome] = []
    for path in paths:
        given = scanner.on_disk(os.path.abspath(os.fsencode(path)))
        try:
            status = os.stat(given)
            if stat.S_ISDIR(status.st_mode):
                root = WatchRoot(given, out_dir=out_dir, base=base)
                files, failures = _below(settings, root)
                broken += failures
            elif stat.S_ISREG(status.st_mode):
                seen = library.SeenFile(given, status.st_size, status.st_mtime_ns, None, out_dir, base)
                files = [seen]
            else:
                broken.append(unusable(given, "not_a_document", "this is neither a file nor a folder", None))
                continue
        except OSError as error:
            ours = from_os_error(error, file=os.fsdecode(given))
            message = "there is no such file or folder" if ours.code == "vanished" else ours.message
            remedy = "check the spelling" if ours.code == "vanished" else ours.remedy
            broken.append(unusable(given, ours.code, message, remedy))
            continue
        for file in files:
            found.setdefault(file.path, file)
    return list(found.values()), broken


def _common_folder(paths: Sequence[Path]) -> bytes | None:
    """The lowest folder that holds all of the paths that are there."""
    given = [scanner.on_disk(os.path.abspath(os.fsencode(path))) for path in paths]
    folders = [
        path if os.path.isdir(path) else os.path.dirname(path) for path in given if os.path.exists(path)
    ]
    return os.path.commonpath(folders) if folders else None


def _below(settings: Settings, root: WatchRoot) -> tuple[list[library.SeenFile], list[Outcome]]:
    tally = Tally()
    rules = rules_for(settings, [root])
    files = []
    for file in scanner.walk(root, rules, tally, follow_symlinks=settings.follow_symlinks):
        if file.kind is Kind.UNKNOWN:
            with contextlib.suppress(OSError):
                if not scanner.is_document(file.path):
                    continue
        files.append(library.SeenFile(file.path, file.size, file.mtime_ns, None, root.out_dir, root.base))
    failures = []
    for folder, error in tally.unreadable.items():
        ours = from_os_error(error, file=os.fsdecode(folder))
        failures.append(unusable(folder, ours.code, f"cannot be listed: {ours.message}", ours.remedy))
    return sorted(files, key=lambda file: file.path), failures


def unusable(path: bytes, code: str, message: str, remedy: str | None) -> Outcome:
    """The outcome of a path that cannot even be queued."""
    return Outcome(
        path, "failed", error_code=code, error_message=message, remedy=remedy, exit_code=exit_code_of(code)
    )


def exit_code_of(code: str) -> ExitCode:
    """The exit status for an error code as it stands in the database."""
    kind = class_of(code)
    return ExitCode.INTERNAL if kind is None else kind.exit_code


_PAUSES = ("user", "power")  # kinds of pause that are no errors

# A row per file of the table `given` (id, position).
OUTCOMES = """
SELECT files.path_bytes, file_status.state, documents.pages, documents.pages_done, documents.pages_failed,
  file_status.error_code AS code, file_status.error_message AS message, file_status.remedy,
  files.markdown_path, failed.page AS failed_page, failed.error_code AS page_code, failed.error_message AS page_message
FROM given JOIN files USING (id) JOIN file_status USING (id)
  LEFT JOIN documents ON documents.id = files.document_id
  LEFT JOIN page_jobs AS failed ON failed.document_id = documents.id AND failed.page =
    (SELECT min(page) FROM page_jobs WHERE document_id = documents.id AND state = 'failed')
ORDER BY given.position
"""


def outcome_of(row: sqlite3.Row, pause: jobs.Pause | None) -> Outcome:
    """What became of a file, from its row of `OUTCOMES` and the pause in force."""
    code, message, remedy = row["code"], row["message"], row["remedy"]
    if row["state"] == "done" and row["pages_failed"]:
        code, remedy = row["page_code"], "run `ocrd retry FILE`"
        failed = f"{row['pages_failed']} of {row['pages']} pages failed"
        message = f"{failed}; page {row['failed_page']}: {row['page_message']}"
    elif row["state"] == "done":
        code = message = remedy = None
    elif row["state"] in ("queued", "running") and code is None and pause is not None:
        code, message, remedy = (
            pause.kind,
            pause.reason,
            "it goes on with the next `ocrd batch` or `ocrd watch`",
        )
    return Outcome(
        path=bytes(row["path_bytes"]),
        state=row["state"],
        pages=row["pages"],
        pages_done=row["pages_done"] or 0,
        error_code=code,
        error_message=message,
        remedy=remedy,
        markdown_path=row["markdown_path"],
        exit_code=_exit_code(row["state"], code),
    )


def _exit_code(state: str, code: str | None) -> ExitCode:
    if code in _PAUSES:
        return ExitCode.BUSY
    if code is not None:
        return exit_code_of(code)
    return (
        ExitCode.OK if state == "done" else ExitCode.STORAGE
    )  # not read in the end: interrupted, or its file is away
