"""The API's search, and what can be filtered by."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from daemon.server import shapes
from daemon.server.database import Library, Reading
from daemon.server.failures import Refused
from daemon.server.library_api_parameters import (
    PROBLEMS,
    Engine,
    Folder,
    Name,
    Since,
    Until,
    Words,
    problem,
)
from storage import folders, hours, index
from storage.query import parse

router = APIRouter(prefix="/api", tags=["search"], responses=PROBLEMS)

THREADS = 4  # searches at once: SQLite lets go of the interpreter while it looks, snippets do not
MOST_WAITING = 400  # those being looked for included
_BEGIN, _END = "\x02", "\x03"  # a snippet has no control characters, so these can only be marks


class _Searchers:
    """The threads that search, and how much there is for them to do."""

    def __init__(self) -> None:
        self.threads = ThreadPoolExecutor(THREADS, "search")
        self.waiting = 0  # asked for and not answered; counted on the event loop


_searchers = _Searchers()


@router.get(
    "/search",
    response_model=shapes.SearchAnswer,
    responses={429: problem("Too many searches wait.")},
)
async def search(
    request: Request,
    q: Words = "",
    folder: Folder = None,
    name: Name = None,
    engine: Engine = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    offset: Annotated[int, Query(ge=0, le=1000)] = 0,
) -> Response:
    """The pages that match, best first; with `name` alone the files so named."""
    if _searchers.waiting >= MOST_WAITING:
        raise Refused(429, "too many searches wait", code="busy", headers={"Retry-After": "1"})

    library: Library = request.app.state.library  # a dependency would take a thread of its own

    def work() -> str:
        with library.reading() as conn:
            hits = index.search(
                conn,
                q,
                path=folder,
                name=name,
                engine=engine,
                since=since,
                until=until,
                limit=limit + 1,
                offset=offset,
                marks=(_BEGIN, _END),
            )
        note = "" if not q.strip() else parse(q).note
        more = len(hits) > limit and offset + limit <= 1000
        answer = shapes.SearchAnswer(
            query=q, note=note, hits=list(map(hit, hits[:limit])), next=offset + limit if more else None
        )
        return answer.model_dump_json()

    # Answered as text: what was just checked need not be checked again.
    _searchers.waiting += 1
    try:
        text = await asyncio.get_running_loop().run_in_executor(_searchers.threads, work)
    finally:
        _searchers.waiting -= 1
    return Response(text, media_type="application/json")


def hit(found: index.Hit) -> shapes.Hit:
    """A hit as the API tells it."""
    return shapes.Hit(
        document_id=found.file_id or 0,
        content_id=found.document_id,
        page_id=found.page_id if found.page is not None else None,
        number=found.page,
        label=found.label,
        path=found.path,
        name=found.path.rpartition("/")[2],
        paths=list(found.paths[:100]),
        state=found.state,
        score=round(found.score, 4),
        snippet=pieces(found.snippet),
        boxes=list(found.boxes),
    )


def pieces(snippet: str) -> list[shapes.Piece]:
    """A snippet with marks as runs."""
    parts = snippet.replace(_END, _BEGIN).split(_BEGIN)
    return [shapes.Piece(text=text, match=bool(i % 2)) for i, text in enumerate(parts) if text]


@router.get("/folders")
def list_folders(
    conn: Reading,
    below: Annotated[str | None, Query(max_length=4096)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 500,
) -> shapes.FolderList:
    """The folders with documents directly below one; without `below` the uppermost ones."""
    rows, more = folders.level(conn, os.fsencode(below) if below else None, limit)
    found = [
        shapes.Folder(path=row.shown, name=row.shown.rpartition("/")[2] or "/", is_root=row.is_root)
        for row in rows
    ]
    return shapes.FolderList(below=below, folders=found, more=more)


@router.get("/facets")
def get_facets(conn: Reading) -> shapes.Facets:
    """What documents and pages can be filtered by."""
    return shapes.Facets(
        engines=sorted(hours.by_reader(conn)),
        states=list(shapes.DocumentState),
        roots=[row["path"] for row in conn.execute("SELECT path FROM roots ORDER BY path")],
        oldest=_oldest(conn),
    )


def _oldest(conn: sqlite3.Connection) -> float | None:
    row = conn.execute("SELECT first_seen FROM files ORDER BY first_seen LIMIT 1").fetchone()
    return None if row is None else row[0]
