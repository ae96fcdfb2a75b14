"""What a model that asks over MCP is told: plain data of bounded size, each page under a name it can cite.

Knows nothing of the protocol (that is `server`). Every answer opens the database anew, for reading only: a
library made, restored or replaced while the server runs is simply there.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daemon.mcp.references import reference, resolve, shortened
from daemon.mcp.shapes import (
    UNTRUSTED,
    DocumentEntry,
    DocumentsAnswer,
    PageAnswer,
    PageHit,
    SearchAnswer,
    StatusAnswer,
)
from storage.database import open_readonly
from storage.errors import UnknownReferenceError

if TYPE_CHECKING:
    from storage.index import Hit
    from storage.records import PageReading

PART_CHARS = 16_000  # of page text in one answer: some 4,000 tokens
PATHS_SHOWN = 5  # of files with the same content
FAILURES_SHOWN = 10
ROOTS_SHOWN = 50


@contextlib.contextmanager
def library(database: Path) -> Iterator[sqlite3.Connection]:
    """The database, for reading only, and closed afterwards. Raises: `DatabaseError`."""
    connection = open_readonly(database)
    try:
        yield connection
    finally:
        connection.close()


# --- search ------------------------------------------------------------------------------------------------


def search(
    database: Path, query: str, *, path: str | None, name: str | None, since: float | None, limit: int
) -> SearchAnswer:
    """The best pages for a query. `since`: epoch seconds. Raises: `DatabaseError`."""
    from storage import index
    from storage.query import parse

    with library(database) as connection:
        hits = index.search(connection, query, path=path, name=name, since=since, limit=limit + 1)
    note = "" if name and not query.strip() else parse(query).note
    return SearchAnswer([_hit(hit) for hit in hits[:limit]], len(hits) > limit, note, UNTRUSTED)


def _hit(hit: Hit) -> PageHit:
    ref = "" if hit.document_id is None else reference(hit.document_id, hit.page)
    others = list(hit.paths[1 : PATHS_SHOWN + 1])
    return PageHit(
        ref, hit.path, hit.page, hit.label, hit.snippet, round(hit.score, 4), str(hit.state), others
    )


# --- one page ----------------------------------------------------------------------------------------------


def read_page(database: Path, ref: str, *, part: int, plain: bool) -> PageAnswer:
    """A page by its reference, or by a path or name with `#page=N`.

    Raises: `UnknownReferenceError` for what was not read; `DatabaseError`.
    """
    from storage import results

    with library(database) as connection:
        document_id, page = resolve(connection, ref)
        count = _page_count(connection, document_id, page)
        reading = results.load_page(connection, document_id, page)
        path = _path_of(connection, document_id)
    if reading is None:
        raise UnknownReferenceError(
            "not read yet", file=path, page=page, remedy="ask `status`, and try later"
        )
    if isinstance(reading, results.FailedPage):
        raise UnknownReferenceError(
            f"could not be read: {reading.message}", file=path, page=page, remedy=reading.remedy
        )
    return _answer(reading, document_id, path, count, part, plain)


def _answer(
    reading: PageReading, document_id: int, path: str, count: int, part: int, plain: bool
) -> PageAnswer:
    page = reading.page
    parts = parts_of(reading.text if plain else reading.markdown, PART_CHARS)
    if part > len(parts):
        raise UnknownReferenceError(
            f"there is no part {part}", file=path, page=page, remedy=f"ask for parts 1 to {len(parts)}"
        )
    return PageAnswer(
        ref=reference(document_id, page),
        path=path,
        page=page,
        pages=count,
        label=reading.label,
        part=part,
        parts=len(parts),
        text=parts[part - 1],
        source=str(reading.source),
        engine=reading.engine,
        confidence=reading.confidence,
        warnings=[shortened(f"{warning.code}: {warning.message}") for warning in reading.warnings[:20]],
        previous=reference(document_id, page - 1) if page > 1 else None,
        next=reference(document_id, page + 1) if page < count else None,
        untrusted=UNTRUSTED,
    )


def parts_of(text: str, size: int) -> list[str]:
    """`text` in pieces of at most `size` characters, cut at line ends or spaces where that costs no more than a fifth.

    Joined they are the text again; there is always one.
    """
    parts = []
    at = 0
    while len(text) - at > size:
        least = at + size * 4 // 5
        cut = max(text.rfind("\n", least, at + size), -1)
        if cut < 0:
            cut = text.rfind(" ", least, at + size)
        end = at + size if cut < 0 else cut + 1
        parts.append(text[at:end])
        at = end
    return [*parts, text[at:]]


def _path_of(connection: sqlite3.Connection, document_id: int) -> str:
    """A path of the document; of one that a changed file has left behind, that of the one that came after it."""
    from storage import listing

    (carried_by,) = connection.execute(
        "SELECT COALESCE(superseded_by, id) FROM documents WHERE id = ?", (document_id,)
    ).fetchone()
    files = listing.of_document(connection, carried_by, 1)
    return str(files[0]["path"]) if files else ""


def _page_count(connection: sqlite3.Connection, document_id: int, page: int) -> int:
    row = connection.execute(
        "SELECT pages, error_message, remedy FROM documents WHERE id = ?", (document_id,)
    ).fetchone()
    if row is None:
        raise UnknownReferenceError(f"the library holds no document {document_id}")
    if not row["pages"]:
        raise UnknownReferenceError(
            f"document {document_id} could not be opened: {row['error_message']}", remedy=row["remedy"]
        )
    if not 1 <= page <= row["pages"]:
        raise UnknownReferenceError(
            f"document {document_id} has no page {page}", remedy=f"ask for pages 1 to {row['pages']}"
        )
    return int(row["pages"])


# --- many documents ----------------------------------------------------------------------------------------


def list_documents(
    database: Path,
    *,
    folder: str | None,
    name: str | None,
    state: str | None,
    cursor: str | None,
    limit: int,
) -> DocumentsAnswer:
    """Files of the library, the last one found first, from `cursor` on.

    There may be fewer than `limit`, even none, while `next_cursor` says where to go on.
    Raises: `UnknownReferenceError` for a cursor that no answer gave; `DatabaseError`.
    """
    from storage import listing

    filters = listing.Filters(
        states=frozenset((state,) if state else ()),
        folder=None if folder is None else os.fsencode(Path(folder).expanduser().absolute()),
        name=name or None,
    )
    with library(database) as connection:
        found = listing.files(connection, filters, limit=limit, after=_position(cursor))
    further = None if found.next is None else f"{found.next[0]!r}/{found.next[1]}"
    return DocumentsAnswer([_entry(row) for row in found.rows], further, UNTRUSTED)


def _position(cursor: str | None) -> tuple[float, int] | None:
    """Where a list goes on: when the last file shown was first seen, and its id."""
    if cursor is None:
        return None
    try:
        seen, number = cursor.split("/")
        return float(seen), int(number)
    except ValueError:
        raise UnknownReferenceError(
            f"{shortened(cursor)!r} is no cursor", remedy="give `next_cursor` of the answer before"
        ) from None


def _entry(row: sqlite3.Row) -> DocumentEntry:
    error = None
    if row["error_code"]:
        error = shortened(f"{row['error_code']}: {row['error_message']}. {row['remedy'] or ''}")
    return DocumentEntry(
        ref=None if row["document_id"] is None else reference(row["document_id"]),
        path=row["path"],
        title=None if row["title"] is None else shortened(row["title"]),
        state=row["state"],
        pages=row["pages"],
        pages_read=row["pages_done"] or 0,
        pages_failed=row["pages_failed"] or 0,
        error=error,
        markdown=row["markdown_path"],
        json=row["json_path"],
    )


# --- status ------------------------------------------------------------------------------------------------


def status(database: Path, *, now: float) -> StatusAnswer:
    """What is done, running and failed. Raises: `DatabaseError`."""
    from storage import status as stored

    with library(database) as connection:
        head = stored.summary(connection, now=now)
        notable = stored.notable(connection, failures=FAILURES_SHOWN)
    counts: dict[str, int] = head["counts"]
    return StatusAnswer(
        state=head["state"],
        watcher=head["watcher"],
        folders=[root["path"] for root in head["roots"][:ROOTS_SHOWN]],
        files={name: count for name, count in counts.items() if not name.startswith("pages_")},
        pages={name[6:]: count for name, count in counts.items() if name.startswith("pages_")},
        pages_per_minute=head["rate_pages_per_min"],
        seconds_left=head["eta_s"],
        engine=head["engine"],
        pause_reason=head["pause_reason"],
        being_read=[
            f"{worker['path']}#page={worker['page']}" for worker in head["workers"] if worker["path"]
        ],
        failures=[_failure(entry) for entry in notable if entry["error"] or entry["pages_failed"]],
    )


def _failure(entry: dict[str, Any]) -> str:
    error = entry["error"]
    told = (
        f"{error['message']}. {error['remedy'] or ''}" if error else f"{entry['pages_failed']} pages failed"
    )
    return shortened(f"{entry['path']}: {told}")
