"""Search what was read: page, snippet, score and boxes for any string a person types.

Reads through sqlite3 alone, so that a search starts at once.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice

from storage import snippet
from storage.filters import file_filter
from storage.folding import grams, normal
from storage.query import Query, parse
from storage.ranking import Allowed, rank
from storage.records import FURNITURE, Box

__all__ = ["Hit", "HitState", "grams", "search"]

PATHS_SHOWN = 1_000  # files of one content
_FURNITURE = tuple(sorted(FURNITURE))


class HitState(StrEnum):
    """Whether the text found is what the file says today."""

    CURRENT = "current"
    MISSING = "missing"  # the file is gone; its text stays until `ocrd forget`
    SUPERSEDED = "superseded"  # the file has changed and is being read again


@dataclass(frozen=True, slots=True)
class Hit:
    """A page that matches; or a file, when only its name was searched for."""

    path: str  # as people see it (undecodable bytes escaped)
    page: int | None  # from 1; None: the file as a whole
    label: str | None  # printed page label
    snippet: str
    score: float  # higher is better; comparable within one search
    boxes: tuple[Box, ...]  # of the matching blocks, page points
    document_id: int | None  # None: not opened yet
    page_id: int | None
    state: HitState
    paths: tuple[str, ...] = ()  # all files with this content, `path` first
    file_id: int | None = None  # of `path`


def search(
    conn: sqlite3.Connection,
    query: str,
    *,
    path: str | None = None,
    since: float | None = None,
    limit: int = 20,
    name: str | None = None,
    marks: tuple[str, str] = ("[", "]"),
    until: float | None = None,
    engine: str | None = None,
    offset: int = 0,
) -> list[Hit]:
    """Best pages for `query`, best first; any string is safe (see `storage.query`).

    `path`: a folder or file, absolute, relative to the working folder, or any part of a path; or a glob over it.
    `since`: epoch seconds; content added, or a file of it first seen, then or later; `until`: first seen before.
    `name`: part of a file name, or a glob over it; without a query it lists the files. `engine`: who read the page,
    an engine's name, `text-layer` or `blank`. `offset`: so many of the best are left out. `marks` go around matches in
    the snippet, whose text has no control characters: use some as marks to be sure they are marks.
    """
    parsed = parse(query)
    allowed = Allowed(file_filter(conn, path, since, name, until), engine)
    wanted = _Wanted(allowed, max(0, limit), max(0, offset), marks)
    if parsed.terms:
        return _search_pages(conn, parsed, wanted)
    return _search_names(conn, wanted) if name and not query.strip() else []


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Which of the matching pages."""

    allowed: Allowed
    limit: int
    offset: int
    marks: tuple[str, str]


# --- pages -------------------------------------------------------------------------------------------------


def _search_pages(conn: sqlite3.Connection, query: Query, wanted: _Wanted) -> list[Hit]:
    finder = snippet.Finder(query.terms)
    hits: list[Hit] = []
    end = wanted.offset + wanted.limit
    ranks = end + 5
    while wanted.limit:
        ranked = rank(conn, query, wanted.allowed, ranks)
        found = (
            _page_hit(conn, row, score, files, finder, wanted.marks)
            for row, score, files in islice(_visible(conn, ranked), wanted.offset, end)
        )
        hits = list(found)
        if len(hits) == wanted.limit or len(ranked) < ranks:
            break
        ranks *= 4  # pages of superseded documents took the places
    return hits


_PAGE = """
SELECT p.id, p.document_id, p.page, p.label, p.text, d.superseded_by,
       new.id IS NOT NULL AND (new.state = 'done' OR EXISTS (
           SELECT 1 FROM pages q WHERE q.document_id = new.id AND q.page = p.page)) AS is_replaced
FROM pages p JOIN documents d ON d.id = p.document_id LEFT JOIN documents new ON new.id = d.superseded_by
WHERE p.id IN ({})
"""


_File = tuple[int, str, bool]  # id, path, whether it is missing


def _visible(
    conn: sqlite3.Connection, ranked: Sequence[tuple[int, float]]
) -> Iterator[tuple[sqlite3.Row, float, list[_File]]]:
    """The rows of the ranked pages in that order, with their files; without those that a new reading has replaced.

    A page that no file leads to any more is left out too.
    """
    for start in range(0, len(ranked), 50):
        part = ranked[start : start + 50]
        ids = [page_id for page_id, _ in part]
        rows = {row[0]: row for row in conn.execute(_PAGE.format(",".join("?" * len(ids))), ids)}
        for page_id, score in part:
            row = rows.get(page_id)
            if row is not None and not row[6] and (files := _files_of(conn, row[5] or row[1])):
                yield row, score, files


def _page_hit(
    conn: sqlite3.Connection,
    row: sqlite3.Row,
    score: float,
    files: list[_File],
    finder: snippet.Finder,
    marks: tuple[str, str],
) -> Hit:
    page_id, document_id, page, label, text, superseded_by, _ = row
    state = HitState.SUPERSEDED if superseded_by else HitState.MISSING if files[0][2] else HitState.CURRENT
    paths = tuple(path for _, path, _ in files)
    shown = snippet.make(text, finder, marks)
    boxes = _boxes(conn, page_id, finder)
    return Hit(paths[0], page, label, shown, score, boxes, document_id, page_id, state, paths, files[0][0])


def _files_of(conn: sqlite3.Connection, document_id: int) -> list[_File]:
    """The files with this content, those that are there first."""
    return [
        (row[0], row[1], row[2] is not None)
        for row in conn.execute(
            "SELECT id, path, missing_since FROM files WHERE document_id = ?"
            " ORDER BY missing_since IS NOT NULL, id LIMIT ?",
            [document_id, PATHS_SHOWN],
        )
    ]


def _boxes(conn: sqlite3.Connection, page_id: int, finder: snippet.Finder) -> tuple[Box, ...]:
    """Boxes of the blocks with a match, in reading order; a phrase may begin in one and end in another."""
    blocks = conn.execute(
        """SELECT "left", top, "right", bottom, text, category FROM blocks WHERE page_id = ? ORDER BY position""",
        [page_id],
    ).fetchall()
    body = [block for block in blocks if block[5] not in _FURNITURE]
    texts = [normal(block[4]) for block in body]
    spans = finder.find("\n".join(texts))
    boxes: list[Box] = []
    start = at = 0
    for block, text in zip(body, texts, strict=True):
        end = start + len(text)
        while at < len(spans) and spans[at][1] <= start:
            at += 1
        if any(first < end for first, _, _ in spans[at : at + 1]):
            boxes.append((block[0], block[1], block[2], block[3]))
        start = end + 1
    return tuple(boxes)


# --- file names --------------------------------------------------------------------------------------------


_NAMES_ORDER = "f.missing_since IS NOT NULL, f.first_seen DESC, f.id DESC"


def _search_names(conn: sqlite3.Connection, wanted: _Wanted) -> list[Hit]:
    condition, values = wanted.allowed.files.condition if wanted.allowed.files else ("1", [])
    if wanted.allowed.engine is not None:
        condition += (
            " AND EXISTS (SELECT 1 FROM pages WHERE coalesce(engine, source) = ? AND document_id = d.id)"
        )
        values = [*values, wanted.allowed.engine]
    rows = conn.execute(
        # What is sorted has no text: of the files that are shown alone the first page is read.
        f"""SELECT f.path, f.missing_since, f.document_id, p.id, p.text, f.id
            FROM (SELECT f.id FROM files f LEFT JOIN documents d ON d.id = f.document_id
                  WHERE {condition} ORDER BY {_NAMES_ORDER} LIMIT ? OFFSET ?) AS found
                 JOIN files f ON f.id = found.id LEFT JOIN pages p ON p.document_id = f.document_id AND p.page = 1
            ORDER BY {_NAMES_ORDER}""",
        [*values, wanted.limit, wanted.offset],
    )
    return [
        Hit(
            path=row[0],
            page=None,
            label=None,
            snippet=snippet.make(row[4] or "", None, ("", "")),
            score=0.0,
            boxes=(),
            document_id=row[2],
            page_id=row[3],
            state=HitState.CURRENT if row[1] is None else HitState.MISSING,
            paths=(row[0],),
            file_id=row[5],
        )
        for row in rows
    ]
