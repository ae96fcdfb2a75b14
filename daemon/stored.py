"""`ocrd show`: what the library holds of a file, to standard output."""

from __future__ import annotations

import sqlite3
import sys
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
    if chosen is None or chosen.document_id is None:
        print(f"ocrd: {console.escape_name(_why_not(file, found))}", file=sys.stderr)
        return ExitCode.NO_MATCH
    count = results.load_document(connection, chosen.document_id).page_count
    wanted = set(flags.page_numbers(pages, count))
    page_output.write(results.load_document(connection, chosen.document_id, only=wanted).pages, output)
    return ExitCode.OK


def _one_of(found: list[FileRow]) -> FileRow | None:
    """The file, if all that were found carry one and the same document."""
    return found[0] if found and len({row.document_id for row in found}) == 1 else None


def _why_not(file: str, found: list[FileRow]) -> str:
    import os

    if not found:
        return f"the library holds no {file}. See `ocrd status`, or `ocrd search --name`"
    if len(found) == 1:
        return f"{file} has not been read ({found[0].state}). See `ocrd status`"
    paths = ", ".join(os.fsdecode(row.path) for row in found[:5])
    return f"{file} may be {paths}{', …' if len(found) > 5 else ''}. Give the path"
