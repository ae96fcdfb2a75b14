"""The run of `ocrd export`: which documents are meant, and where what they become goes."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from storage import library, results
from storage.errors import from_os_error
from storage.exports import Format
from storage.names import bounds_below, display_path
from storage.staging import Staging

MODE = 0o666  # less the umask: whoever asks for a file gets an ordinary one


@dataclass(frozen=True, slots=True)
class Chosen:
    """A document to be exported."""

    path: bytes
    document_id: int
    name: bytes  # of its output, below the output folder, without suffix


def choose(conn: sqlite3.Connection, paths: Sequence[Path]) -> tuple[list[Chosen], list[str]]:
    """The documents at, or in folders below, the paths; and the paths of which nothing was read."""
    found: dict[bytes, Chosen] = {}
    nothing = []
    for path in paths:
        given = os.path.abspath(os.fsencode(path.expanduser()))  # noqa: PTH100 - resolve() follows links
        chosen = _below(conn, given) or _named(conn, str(path))
        found |= {one.path: one for one in chosen if one.path not in found}
        if not chosen:
            nothing.append(str(path))
    return list(found.values()), nothing


def _below(conn: sqlite3.Connection, folder: bytes) -> list[Chosen]:
    start, end = bounds_below(folder)
    rows = conn.execute(
        "SELECT path_bytes, document_id FROM files JOIN documents ON documents.id = document_id"
        " WHERE path_bytes >= ? AND path_bytes < ? AND pages_done > 0 ORDER BY path_bytes",
        (start, end),
    )
    return [Chosen(bytes(row[0]), row[1], bytes(row[0])[len(start) :]) for row in rows]


def _named(conn: sqlite3.Connection, text: str) -> list[Chosen]:
    rows = [row for row in library.find_files(conn, text) if row.document_id is not None]
    if len({row.document_id for row in rows}) != 1:
        return []  # none, or a part of a name that could be any of several
    path, document_id = rows[0].path, rows[0].document_id
    done = conn.execute("SELECT pages_done FROM documents WHERE id = ?", (document_id,)).fetchone()
    return [Chosen(path, document_id, os.path.basename(path))] if document_id and done[0] else []  # noqa: PTH119


def export(
    conn: sqlite3.Connection,
    chosen: Chosen,
    kind: Format,
    out: Path | None,
    put: Callable[[str], None],
) -> list[Path]:
    """Write a document's files below `out`, each whole or not at all; without `out`, hand their texts to `put`.

    Returns the files written. Raises: storage errors, `EngineUnavailableError`.
    """
    result = results.load_document(conn, chosen.document_id)
    written = []
    name = display_path(os.path.basename(chosen.path))  # noqa: PTH119
    for suffix, text in kind.write(result, name, display_path(chosen.path)):
        if out is None:
            put(text)
        else:
            target = out / os.fsdecode(chosen.name + suffix.encode("ascii"))
            _write(target, text)
            written.append(target)
    return written


def _write(target: Path, text: str) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with Staging(os.fsencode(target.parent), MODE) as stage:
            stage.open().write(text.encode("utf-8", "replace"))
            stage.publish(os.fsencode(target))
    except OSError as error:
        raise from_os_error(error, file=target) from error
