"""Which pages match a query best, among those that a filter lets through; quick however many there are.

Ranking (bm25) reads a row per page that matches, and counts for each term the pages that have it. So it goes by the
terms that tell something: words on very many pages (`COMMON_PAGES`) must be there, but do not rank, as bm25 itself
hardly lets them; of pages that have only such words the newest come first. And where very many pages match, the newest
of them are ranked; older ones are found once another word or a filter narrows the search.

A filter is applied in one of several ways that find the same pages. Where it lets few pages through, the set of them is
made, and only what lies between the first and the last of them is looked at; very few are looked up one by one. Else
each match is asked whether the filter lets it through, the newest first, until enough are found: by the set of
documents where they are not too many, else file by file.
"""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass

from storage.query import Query, Term

RANKED_PAGES = 5_000
COMMON_PAGES = 50_000  # counting so many takes 2 ms
FEW_PAGES = 20_000  # of so many the set is made: 0.5 µs each, and 0.2 µs for a match to be looked for in it
FEW_DOCUMENTS = 5_000  # more have more pages
LOOKED_UP = 200  # of so many each is looked up among the matches of common words: 100 µs each
SOME_DOCUMENTS = (
    20_000  # of so many the set is made: a match looked for in it takes 1 µs, one asked about its files 3
)
NEWEST_PAGES = 1_000  # are asked, to see whether the newest matches are worth asking

Condition = tuple[str, list[object]]  # SQL, and its parameters
Ranked = list[tuple[int, float]]  # (page id, score), best first


@dataclass(frozen=True, slots=True)
class FileFilter:
    """A condition on files f joined to their documents d."""

    condition: Condition
    ways: tuple[
        Condition, ...
    ]  # the same in parts, of which each is found by an index; one of them must hold


@dataclass(frozen=True, slots=True)
class Allowed:
    """Which pages are wanted: those of some files, and those somebody read."""

    files: FileFilter | None = None
    engine: str | None = None  # an engine's name, text-layer or blank

    def __bool__(self) -> bool:
        return self.files is not None or self.engine is not None


def rank(conn: sqlite3.Connection, query: Query, allowed: Allowed, ranks: int) -> Ranked:
    """The `ranks` best pages (or fewer), best first; of two alike the newer."""
    passed = _passed(conn, allowed) if allowed else _Passed()
    if passed.pages == ():
        return []
    words = query.words_match
    if words is None:
        return _rank_in(conn, "page_grams_fts", query.grams_match, query.grams_match, passed, ranks)
    best = _rank_in(conn, "pages_fts", words, _telling(conn, query), passed, ranks)
    respelt = _rank_in(conn, "page_grams_fts", query.respelt_match, query.respelt_match, passed, ranks)
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


def _has_more(conn: sqlite3.Connection, table: str, match: str, pages: int) -> bool:
    """Whether more than so many pages match."""
    counted = f"SELECT count(*) FROM (SELECT 1 FROM {table} WHERE {table} MATCH ? LIMIT ?)"
    return bool(conn.execute(counted, (match, pages + 1)).fetchone()[0] > pages)


def _rank_in(
    conn: sqlite3.Connection, table: str, match: str, telling: str, passed: _Passed, ranks: int
) -> Ranked:
    """The best of the pages that `match`, ranked by the terms of `telling`."""
    condition, values = passed.asked(table)
    if not telling and passed.pages is not None and len(passed.pages) <= LOOKED_UP:
        one_by_one = f"""SELECT {table}.rowid FROM json_each(?) one CROSS JOIN {table}
                         WHERE {table} MATCH ? AND {table}.rowid = one.value {condition}"""
        found = conn.execute(one_by_one, [json.dumps(passed.pages), match, *values])
        return [(row, 0.0) for row in sorted((row[0] for row in found), reverse=True)[:ranks]]
    if passed.pages is not None:  # the + keeps SQLite from running the query once per page of the set
        condition += f""" AND {table}.rowid BETWEEN ? AND ?
                          AND +{table}.rowid IN (SELECT value FROM json_each(?))"""
        values = [*values, passed.pages[0], passed.pages[-1], json.dumps(passed.pages)]
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


@dataclass(frozen=True, slots=True)
class _Passed:
    """What a filter lets through: of `pages` (all, where None) those for which every condition holds."""

    pages: tuple[int, ...] | None = None  # in order
    conditions: tuple[Condition, ...] = ()

    def asked(self, table: str) -> Condition:
        """What is added to the condition of a search in `table`, but for `pages`."""
        sql = "".join(condition.format(table=table) for condition, _ in self.conditions)
        return sql, [value for _, values in self.conditions for value in values]


def _passed(conn: sqlite3.Connection, allowed: Allowed) -> _Passed:
    """The quickest way to tell what is allowed."""
    pages: tuple[int, ...] | None = None
    conditions: list[Condition] = []
    if allowed.files is not None:
        documents = _documents(conn, allowed.files, SOME_DOCUMENTS)
        if documents is None and not _passes_newest(conn, allowed.files):
            documents = _documents(conn, allowed.files)  # old ones: all newer matches would be asked in vain
        if documents is None:
            files, values = allowed.files.condition
            conditions.append((_ASKED.format(table="{table}", files=files), [*values, *values]))
        else:
            if len(documents) <= FEW_DOCUMENTS:
                pages = _few(conn, _PAGES_OF, json.dumps(documents))
            if pages is None:
                conditions += [
                    (_IS_OF, [json.dumps(documents)]),
                    (_NOT_AFTER, [_last(conn, json.dumps(documents))]),
                ]
    if allowed.engine is not None:
        if pages is None:
            pages = _few(conn, _PAGES_READ_BY, allowed.engine)
            if pages is not None:
                return _Passed(pages, tuple(conditions))
        conditions.append((_READ_BY, [allowed.engine]))
    return _Passed(pages, tuple(conditions))


# `pages_narrow` has all that is asked of a page: the row itself, with its text, is never looked at. SQLite would take
# the row, as it is found by its id.
_IS_OF = """ AND EXISTS (SELECT 1 FROM pages p INDEXED BY pages_narrow WHERE p.id = {table}.rowid
    AND +p.document_id IN (SELECT value FROM json_each(?)))"""
_ASKED = """ AND EXISTS (SELECT 1 FROM pages p INDEXED BY pages_narrow WHERE p.id = {table}.rowid AND (
    EXISTS (SELECT 1 FROM documents d JOIN files f ON f.document_id = d.id WHERE d.id = p.document_id AND {files})
    OR EXISTS (SELECT 1 FROM documents d JOIN files f ON f.document_id = d.superseded_by
               WHERE d.id = p.document_id AND {files})))"""
_READ_BY = """ AND EXISTS (SELECT 1 FROM pages p INDEXED BY pages_narrow WHERE p.id = {table}.rowid
    AND coalesce(p.engine, p.source) = ?)"""
_PASSED_OF_NEWEST = """SELECT count(*) FROM pages newest INDEXED BY pages_narrow
    WHERE newest.id > (SELECT max(id) FROM pages) - ? {asked}"""
_NOT_AFTER = " AND {table}.rowid <= ?"
_LAST_OF_NEWEST = """SELECT id FROM pages INDEXED BY pages_narrow WHERE id > (SELECT max(id) FROM pages) - ?
    AND +document_id IN (SELECT value FROM json_each(?)) ORDER BY id DESC LIMIT 1"""
_LAST = "SELECT max(id) FROM pages WHERE document_id IN (SELECT value FROM json_each(?))"
_PAGES_OF = "SELECT id FROM pages WHERE document_id IN (SELECT value FROM json_each(?))"
_PAGES_READ_BY = "SELECT id FROM pages WHERE coalesce(engine, source) = ?"
_DOCUMENTS = (
    "SELECT d.id FROM files f JOIN documents d ON d.id = f.document_id WHERE {files}",
    "SELECT d.id FROM documents d JOIN files f ON f.document_id = d.superseded_by"
    " WHERE d.superseded_by IS NOT NULL AND {files}",
)


def _last(conn: sqlite3.Connection, documents: str) -> int:
    """The newest page of these documents, looked for among the newest of all, and if it is not there among theirs."""
    row = conn.execute(_LAST_OF_NEWEST, [FEW_PAGES, documents]).fetchone()
    return int((row or conn.execute(_LAST, [documents]).fetchone())[0] or 0)


def _few(conn: sqlite3.Connection, sql: str, value: object) -> tuple[int, ...] | None:
    """The pages found, in order; None where they are many."""
    rows = conn.execute(f"{sql} LIMIT ?", [value, FEW_PAGES + 1]).fetchall()
    return None if len(rows) > FEW_PAGES else tuple(sorted(row[0] for row in rows))


def _passes_newest(conn: sqlite3.Connection, files: FileFilter) -> bool:
    """Whether a fifth of the newest pages, or more, is let through."""
    condition, values = files.condition
    sql = _PASSED_OF_NEWEST.format(asked=_ASKED.format(table="newest", files=condition))
    return bool(conn.execute(sql, [NEWEST_PAGES, *values, *values]).fetchone()[0] * 5 >= NEWEST_PAGES)


def _documents(conn: sqlite3.Connection, files: FileFilter, most: int | None = None) -> list[int] | None:
    """The documents that the filter lets through; None where they are more than `most`."""
    limit = -1 if most is None else most + 1
    found: set[int] = set()
    for condition, values in files.ways:
        for sql in _DOCUMENTS:
            rows = conn.execute(f"{sql.format(files=condition)} LIMIT ?", [*values, limit])
            found.update(row[0] for row in rows)
            if most is not None and len(found) > most:
                return None
    return sorted(found)
