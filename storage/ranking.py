"""Which pages match a query best, among those that a filter lets through; quick however many there are.

Ranking (bm25) reads a row per page that matches, and counts for each term the pages that have it. So it goes by the
terms that tell something: words on very many pages (`COMMON_PAGES`) must be there, but do not rank, as bm25 itself
hardly lets them; of pages that have only such words the newest come first. And where very many pages match, the newest
of them are ranked; older ones are found once another word or a filter narrows the search.

A filter is applied in one of two ways that find the same pages. Where it lets few files through, the set of their pages
is made; else each match is asked whether the filter lets it through, the newest first, until enough are found.
"""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass

from storage.query import Query, Term

RANKED_PAGES = 5_000
COMMON_PAGES = 50_000  # counting so many takes 2 ms
MANY_MATCHES = 20_000  # more are not asked one by one, where that can be helped: 4 µs each
FEW_DOCUMENTS = 1_000  # of so many the set of pages costs next to nothing
SOME_DOCUMENTS = 50_000  # of so many it costs less than asking very many matches

FileFilter = tuple[str, list[object]]  # SQL over files f joined to documents d, and its parameters
Ranked = list[tuple[int, float]]  # (page id, score), best first


@dataclass(frozen=True, slots=True)
class Allowed:
    """Which pages are wanted: those of some files, and those somebody read."""

    files: FileFilter | None = None
    engine: str | None = None  # an engine's name, text-layer or blank

    def __bool__(self) -> bool:
        return self.files is not None or self.engine is not None


def rank(conn: sqlite3.Connection, query: Query, allowed: Allowed, ranks: int) -> Ranked:
    """The `ranks` best pages (or fewer), best first; of two alike the newer."""
    words = query.words_match
    if words is None:
        return _rank_in(conn, "page_grams_fts", query.grams_match, query.grams_match, allowed, ranks)
    best = _rank_in(conn, "pages_fts", words, _telling(conn, query), allowed, ranks)
    respelt = _rank_in(conn, "page_grams_fts", query.respelt_match, query.respelt_match, allowed, ranks)
    if not respelt:
        return best
    scores = dict(respelt) | dict(best)
    return sorted(scores.items(), key=lambda item: (-item[1], -item[0]))[:ranks]


def _telling(conn: sqlite3.Connection, query: Query) -> str:
    """The expression of the terms that are not on very many pages; "" where all of them are."""
    newest = conn.execute("SELECT max(id) FROM pages").fetchone()[0] or 0
    if newest <= COMMON_PAGES:
        return query.grams_match
    telling = [term for term in query.terms if not _is_common(conn, term)]
    return " AND ".join(term.expression for term in telling)


def _is_common(conn: sqlite3.Connection, term: Term) -> bool:
    """Whether all words of a term are on very many pages. Of a prefix that is not asked: it would take too long."""
    if term.prefix:
        return False
    words = (Term((piece,), prefix=False).expression for piece in term.pieces)
    return all(_has_more(conn, "pages_fts", word, COMMON_PAGES) for word in words)


def _rank_in(
    conn: sqlite3.Connection, table: str, match: str, telling: str, allowed: Allowed, ranks: int
) -> Ranked:
    """The best of the pages that `match`, ranked by the terms of `telling`."""
    condition, values = _condition(conn, table, match, allowed) if allowed else ("", [])
    if not telling:
        newest = f"SELECT rowid FROM {table} WHERE {table} MATCH ? {condition} ORDER BY rowid DESC LIMIT ?"
        return [(row[0], 0.0) for row in conn.execute(newest, [match, *values, ranks])]
    if telling != match:
        condition += f" AND +{table}.rowid IN (SELECT rowid FROM {table} WHERE {table} MATCH ?)"
        values = [*values, match]
    rows = conn.execute(
        f"""SELECT id, score FROM (
              SELECT rowid AS id, bm25({table}) AS score FROM {table} WHERE {table} MATCH ? {condition}
              ORDER BY rowid DESC LIMIT {max(RANKED_PAGES, ranks)})
            ORDER BY score, id DESC LIMIT ?""",
        [telling, *values, ranks],
    )
    return [(row[0], -row[1]) for row in rows]


# --- filters -----------------------------------------------------------------------------------------------


def _condition(conn: sqlite3.Connection, table: str, match: str, allowed: Allowed) -> FileFilter:
    """What is added to the condition of a search in `table`."""
    condition, values = "", list[object]()
    if allowed.files is not None:
        many = _has_more(conn, table, match, MANY_MATCHES)
        documents = _documents(conn, allowed.files, SOME_DOCUMENTS if many else FEW_DOCUMENTS)
        if documents is None:
            files, of_files = allowed.files
            condition, values = _ASKED.format(table=table, files=files), [*of_files, *of_files]
        else:  # the + keeps SQLite from running the query once per page of the set
            condition, values = f"AND +{table}.rowid IN ({_PAGES_OF})", [json.dumps(documents)]
    if allowed.engine is not None:
        condition += _READ_BY.format(table=table)
        values = [*values, allowed.engine]
    return condition, values


_PAGES_OF = "SELECT id FROM pages WHERE document_id IN (SELECT value FROM json_each(?))"
_ASKED = """AND EXISTS (SELECT 1 FROM pages p WHERE p.id = {table}.rowid AND (
    EXISTS (SELECT 1 FROM documents d JOIN files f ON f.document_id = d.id WHERE d.id = p.document_id AND {files})
    OR EXISTS (SELECT 1 FROM documents d JOIN files f ON f.document_id = d.superseded_by
               WHERE d.id = p.document_id AND {files})))"""
# All of it is in the index of who read what; the row itself, with its text, is not looked at but for its document.
_READ_BY = """ AND EXISTS (SELECT 1 FROM pages p, pages q WHERE p.id = {table}.rowid
    AND coalesce(q.engine, q.source) = ? AND q.document_id = p.document_id AND q.id = p.id)"""
_DOCUMENTS = """SELECT d.id FROM files f JOIN documents d ON d.id = f.document_id WHERE {files}
    UNION SELECT d.id FROM documents d JOIN files f ON f.document_id = d.superseded_by
          WHERE d.superseded_by IS NOT NULL AND {files} LIMIT ?"""


def _documents(conn: sqlite3.Connection, files: FileFilter, most: int) -> list[int] | None:
    """The documents that the filter lets through; None where they are more than `most`."""
    condition, values = files
    rows = conn.execute(_DOCUMENTS.format(files=condition), [*values, *values, most + 1]).fetchall()
    return None if len(rows) > most else [row[0] for row in rows]


def _has_more(conn: sqlite3.Connection, table: str, match: str, pages: int) -> bool:
    """Whether more than so many pages match."""
    counted = f"SELECT count(*) FROM (SELECT 1 FROM {table} WHERE {table} MATCH ? LIMIT ?)"
    return bool(conn.execute(counted, (match, pages + 1)).fetchone()[0] > pages)
