"""`ocrd show`: what the library holds of a file, to standard output."""

from __future__ import annotations

import sqlite3
import sys
from itertools import chain
from typing import TYPE_CHECKING

from daemon import console, page_output
from daemon.commands import flags
from storage.errors import ExitCode

if TYPE_CHECKING:
    from storage.library import FileRow


def show(connection: sqlite3.Connection, file: str, *, pages: str | None, output: str) -> ExitCode:
    """Print the pages (as in `2-4,7`) of the one file meant by `file`, a path or a name.

    Returns `NO_MATCH`, with a message, where that is no file, several, or none of which anything was read.
    """
    from storage import library, results

    found = library.find_files(connection, file)
    chosen = _one_of(found)
    if chosen is not None and chosen.document_id is not None:
        count = results.load_document(connection, chosen.document_id).page_count
        wanted = set(flags.page_numbers(pages, count)) if count else set()
        read = iter(results.load_document(connection, chosen.document_id, only=wanted).pages)
        if (first := next(read, None)) is not None:
            page_output.write(chain([first], read), output)
            return ExitCode.OK
    print(f"ocrd: {_why_not(connection, file, found, chosen)}", file=sys.stderr)
    return ExitCode.NO_MATCH


def _one_of(found: list[FileRow]) -> FileRow | None:
    """The file, if all that were found carry one and the same document."""
    return found[0] if found and len({row.document_id for row in found}) == 1 else None


def _why_not(connection: sqlite3.Connection, file: str, found: list[FileRow], chosen: FileRow | None) -> str:
    """One line, safe to show."""
    import os

    if not found:
        return console.escape_name(
            f"the library holds no {file or 'file without a name'}. See `ocrd status`, or `ocrd search --name`"
        )
    if chosen is None:
        paths = ", ".join(os.fsdecode(row.path) for row in found[:5])
        return console.escape_name(f"{file} may be {paths}{', …' if len(found) > 5 else ''}. Give the path")
    failed = connection.execute(
        "SELECT error_message, remedy FROM file_status WHERE id = ? AND error_message IS NOT NULL",
        (chosen.file_id,),
    ).fetchone()
    if failed is not None:
        return console.failure(os.fsdecode(chosen.path), *failed)
    return console.escape_name(
        f"{file}: nothing that was asked for has been read ({chosen.state}). See `ocrd status`"
    )
