"""Files of the library as a person looks through them: sorted, filtered, some at a time.

No request reads all rows. Without filters the wanted rows are read off an index. Filters that leave few files start
from those files; any other filter is tried on a bounded number of rows, and what comes back says where to go on.
"""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from storage.names import bounds_below, name_filter
from storage.status import UNFINISHED, failed_ids

NARROW = 2_000  # so few files are looked at one by one
_WINDOWS = (200, 800, 2_000, 2_000, 2_000)  # rows a filter is tried on in one request, step by step

Position = tuple[Any, int]  # what a file is sorted by, and its id


class Sort(StrEnum):
    """What files are sorted by."""

    ADDED = "added"
    FINISHED = "finished"  # files that are neither done nor failed are left out
    NAME = "name"
    PATH = "path"
    SIZE = "size"


_KEYS = {
    Sort.ADDED: "f.first_seen",
    Sort.FINISHED: "d.finished_at",
    Sort.NAME: "f.name_key",
    Sort.PATH: "f.path_bytes",
    Sort.SIZE: "f.size",
}


@dataclass(frozen=True, slots=True)
class Filters:
    """Which files are wanted; all conditions hold at once."""

    states: frozenset[str] = frozenset()  # of `file_status`; none: any
    folder: bytes | None = None  # files in it and below it
    part: str | None = None  # a part of the path
    name: str | None = None  # a part of the name, or a glob over it
    engine: str | None = None  # who read a page of it: an engine's name, text-layer, blank
    since: float | None = None  # first seen then or later
    until: float | None = None  # first seen before


@dataclass(frozen=True, slots=True)
class Listing:
    """Rows of `COLUMNS`, and where the next ones begin; None: there are no more."""

    rows: list[sqlite3.Row] = field(default_factory=list)
    next: Position | None = None


COLUMNS = (
    "s.*, f.path_bytes, f.name_key, f.size, f.mtime_ns, f.first_seen, d.options, d.attachments, d.sha256"
)
_ROWS = (
    f"SELECT {COLUMNS} FROM json_each(?) AS wanted CROSS JOIN files f ON f.id = wanted.value"
    " CROSS JOIN file_status s ON s.id = f.id LEFT JOIN documents d ON d.id = f.document_id"
)


def files(
    conn: sqlite3.Connection,
    filters: Filters,
    *,
    sort: Sort = Sort.ADDED,
    descending: bool = True,
    limit: int = 50,
    after: Position | None = None,
) -> Listing:
    """At most `limit` files behind `after`; there may be fewer, even none, while `next` says where to go on."""
    few = _few(conn, filters)
    if few is not None:
        return _from_few(conn, filters, few, sort, descending, limit, after)
    found: list[sqlite3.Row] = []
    at = after
    for size in _WINDOWS if _is_filtered(filters, sort) else (limit + 1,):
        window = _window(conn, filters, sort, descending, at, size)
        found += _rows(conn, [number for _, number in window], filters)
        if len(found) > limit:
            return Listing(found[:limit], _position(found[limit - 1], sort))
        if len(window) < size:
            return Listing(found)
        at = window[-1]
    return Listing(found, at)


def file(conn: sqlite3.Connection, file_id: int) -> sqlite3.Row | None:
    """The file of that id, as a row of `COLUMNS`."""
    return next(iter(_rows(conn, [file_id], Filters())), None)


def by_ids(conn: sqlite3.Connection, file_ids: list[int]) -> list[sqlite3.Row]:
    """The files of those ids that there are, in that order."""
    return _rows(conn, file_ids, Filters())


def of_document(conn: sqlite3.Connection, document_id: int, limit: int = 100) -> list[sqlite3.Row]:
    """The files with that content, those that are there first."""
    ids = conn.execute(
        "SELECT id FROM files WHERE document_id = ? ORDER BY missing_since IS NOT NULL, id LIMIT ?",
        (document_id, limit),
    )
    return _rows(conn, [row[0] for row in ids], Filters())


def failed(conn: sqlite3.Connection, limit: int) -> list[sqlite3.Row]:
    """The latest files that failed, wholly or in part, or need a password."""
    return _rows(conn, failed_ids(conn, limit), Filters())


# --- how rows are found ------------------------------------------------------------------------------------


def _few(conn: sqlite3.Connection, filters: Filters) -> list[int] | None:
    """The ids among which all wanted files are, where those are few."""
    if filters.folder is not None:
        ids = conn.execute(
            "SELECT id FROM files WHERE path_bytes > ? AND path_bytes < ? LIMIT ?",
            (*bounds_below(filters.folder), NARROW + 1),
        ).fetchall()
        if len(ids) <= NARROW:
            return [row[0] for row in ids]
    if filters.states and "done" not in filters.states:
        ids = conn.execute(_NOT_DONE, (NARROW + 1, NARROW + 1)).fetchall()
        if len(ids) <= NARROW:
            return list({row[0] for row in ids})
    return None


_NOT_DONE = (
    f"SELECT id FROM (SELECT id FROM files WHERE {UNFINISHED} LIMIT ?) UNION ALL SELECT id FROM ("
    " SELECT files.id FROM documents CROSS JOIN files ON files.document_id = documents.id"
    " WHERE documents.state IN ('queued', 'running', 'failed', 'needs_password') LIMIT ?)"
)


def _from_few(
    conn: sqlite3.Connection,
    filters: Filters,
    ids: list[int],
    sort: Sort,
    descending: bool,
    limit: int,
    after: Position | None,
) -> Listing:
    found = {_position(row, sort): row for row in _rows(conn, ids, filters)}
    places = sorted((place for place in found if place[0] is not None), reverse=descending)
    if after is not None:
        places = [place for place in places if (place < after if descending else place > after)]
    shown = places[:limit]
    return Listing([found[place] for place in shown], shown[-1] if len(places) > limit else None)


def _is_filtered(filters: Filters, sort: Sort) -> bool:
    """Whether a row off the index may not be wanted."""
    in_range = filters.since is None and filters.until is None
    in_folder = filters.folder is None
    return not (
        (in_range or sort is Sort.ADDED)
        and (in_folder or sort is Sort.PATH)
        and not filters.states
        and not filters.part
        and not filters.name
        and not filters.engine
    )


def _window(
    conn: sqlite3.Connection,
    filters: Filters,
    sort: Sort,
    descending: bool,
    after: Position | None,
    size: int,
) -> list[Position]:
    """The next `size` files in order, read off the index of what they are sorted by."""
    key = _KEYS[sort]
    conditions, values = ["1"], list[object]()
    if sort is Sort.FINISHED:
        conditions.append("d.finished_at IS NOT NULL")
    if sort is Sort.ADDED:
        for bound, compared in ((filters.since, ">="), (filters.until, "<")):
            if bound is not None:
                conditions.append(f"{key} {compared} ?")
                values.append(bound)
    if sort is Sort.PATH and filters.folder is not None:
        conditions.append(f"{key} > ? AND {key} < ?")
        values += bounds_below(filters.folder)
    if after is not None:
        beyond = "<" if descending else ">"
        conditions.append(f"{key} {beyond}= ? AND ({key} {beyond} ? OR f.id {beyond} ?)")
        values += [after[0], after[0], after[1]]
    order = "DESC" if descending else "ASC"
    source = "files f"
    if sort is Sort.FINISHED:
        source = "documents d CROSS JOIN files f ON f.document_id = d.id"
    rows = conn.execute(
        f"SELECT {key}, f.id FROM {source} WHERE {' AND '.join(conditions)}"
        f" ORDER BY {key} {order}, f.id {order} LIMIT ?",
        (*values, size),
    )
    return [(row[0], row[1]) for row in rows]


def _rows(conn: sqlite3.Connection, ids: list[int], filters: Filters) -> list[sqlite3.Row]:
    """The wanted ones of the files, in the order of `ids`."""
    conditions, values = ["1"], list[object]()
    if filters.states:
        conditions.append(f"s.state IN ({','.join('?' * len(filters.states))})")
        values += sorted(filters.states)
    if filters.folder is not None:
        conditions.append("f.path_bytes > ? AND f.path_bytes < ?")
        values += bounds_below(filters.folder)
    if filters.part:
        conditions.append("instr(lower(f.path), lower(?)) > 0")
        values.append(filters.part)
    if filters.name:
        condition, pair = name_filter(filters.name)
        conditions.append(condition)
        values += pair
    if filters.engine is not None:
        conditions.append(
            "EXISTS (SELECT 1 FROM pages WHERE coalesce(engine, source) = ? AND document_id = f.document_id)"
        )
        values.append(filters.engine)
    for bound, compared in ((filters.since, ">="), (filters.until, "<")):
        if bound is not None:
            conditions.append(f"f.first_seen {compared} ?")
            values.append(bound)
    found = {
        row["id"]: row
        for row in conn.execute(f"{_ROWS} WHERE {' AND '.join(conditions)}", (json.dumps(ids), *values))
    }
    return [found[number] for number in ids if number in found]


def _position(row: sqlite3.Row, sort: Sort) -> Position:
    return row[_KEYS[sort].partition(".")[2]], row["id"]
