"""What a search is filtered by, as conditions on files: folder, part of a path, name, dates."""

from __future__ import annotations

import sqlite3
import unicodedata
from collections.abc import Sequence
from pathlib import Path

from storage.names import bounds_below, name_filter
from storage.ranking import Condition, FileFilter

FEW_FILES = 10_000  # of a date: their content is looked at, 1 µs each


def file_filter(
    conn: sqlite3.Connection, path: str | None, since: float | None, name: str | None, until: float | None
) -> FileFilter | None:
    """The condition that `search` puts on files; None where it puts none."""
    clauses: list[Condition] = []
    quick: list[Condition] = []
    if path:
        clauses.append(_path_filter(path))
        quick.append(clauses[-1])
    if name:
        sql, values = name_filter(_readable(name))
        clauses.append((sql, values))
        # All names stand in an index, a tenth as large as the table.
        quick.append((f"f.id IN (SELECT f.id FROM files f WHERE {sql})", values))
    before: list[Condition] = [] if until is None else [("f.first_seen < ?", [until])]
    clauses += before
    if since is None:
        return FileFilter(_all_of(clauses), (_all_of([*quick, *before]),)) if clauses else None
    seen: Condition = ("f.first_seen >= ?", [since])
    added: Condition = ("d.added_at >= ?", [since])  # its content is newer than the file
    either: Condition = (f"({seen[0]} OR {added[0]})", [since, since])
    if until is not None and _has_many_files(conn, until):
        before_added: list[Condition] = [("+f.first_seen < ?", [until])]  # found by the date of the content
    else:
        before_added = before
    ways = (_all_of([*quick, *before, seen]), _all_of([*quick, *before_added, added]))
    return FileFilter(_all_of([*clauses, either]), ways)


def _has_many_files(conn: sqlite3.Connection, until: float) -> bool:
    """Whether more than a few were first seen before."""
    seen = "SELECT count(*) FROM (SELECT 1 FROM files WHERE first_seen < ? LIMIT ?)"
    return bool(conn.execute(seen, [until, FEW_FILES + 1]).fetchone()[0] > FEW_FILES)


def _all_of(clauses: Sequence[Condition]) -> Condition:
    return " AND ".join(sql for sql, _ in clauses), [value for _, values in clauses for value in values]


def _path_filter(path: str) -> Condition:
    if any(c in path for c in "*?["):
        path = _readable(path)
        return _glob_filter([path if path.startswith(("/", "*")) else f"*/{path}"])
    plain = path.rstrip("/") or "/"
    clauses = [_below_filter(str(Path(plain.replace("\0", "")).absolute()))]
    parts = [] if plain.startswith(("/", ".")) else [f"*/{_readable(plain)}"]
    if "\\x" in path:  # as people see a name that is no text
        parts.append(_readable(plain))
    if parts:
        clauses.append(_glob_filter([pattern for part in parts for pattern in (part, part + "/*")]))
    return f"({' OR '.join(sql for sql, _ in clauses)})", [value for _, values in clauses for value in values]


def _below_filter(path: str) -> Condition:
    """That very file, or whatever lies below that folder: a range of the index."""
    clauses: list[str] = []
    values: list[object] = []
    for spelt in _spellings([path.rstrip("/")]):
        key = _as_stored(spelt)
        clauses.append("f.path_bytes = ? OR (f.path_bytes > ? AND f.path_bytes < ?)")
        values += [key, *bounds_below(key)]
    return f"({' OR '.join(clauses)})", values


def _as_stored(path: str) -> bytes:
    try:
        return path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a lone surrogate that stands for no byte: no file is called so
        return path.encode("utf-8", "replace")


def _glob_filter(patterns: list[str]) -> Condition:
    spelt = _spellings(patterns)
    return "(" + " OR ".join(["f.path GLOB ?"] * len(spelt)) + ")", list(spelt)


def _spellings(names: list[str]) -> list[str]:
    """Names are kept as on disk, composed or not: both spellings are asked for."""
    return sorted({unicodedata.normalize(form, name) for name in names for form in ("NFC", "NFD")})


def _readable(text: str) -> str:
    """Text that SQLite takes: undecodable bytes of the command line escaped as `files.path` has them."""
    try:
        escaped = text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:  # a lone surrogate that stands for no byte
        escaped = text.encode("utf-8", "replace").decode()
    return escaped.replace("\0", "")
