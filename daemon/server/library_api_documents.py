"""The API's documents: list, one, its pages, its files; read again."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import FileResponse

from daemon.server import shapes
from daemon.server.database import LibraryOf, Reading
from daemon.server.failures import Refused
from daemon.server.library_api_parameters import (
    PROBLEMS,
    DocumentId,
    Engine,
    Folder,
    Name,
    Responses,
    Since,
    States,
    Until,
    problem,
)
from daemon.server.library_api_shaping import (
    PAGE_STATES,
    document,
    document_fields,
    document_row,
    failure,
    from_cursor,
    page_url,
    to_cursor,
)
from storage import library as files
from storage import listing, page_rows, settings, sidecars, status

router = APIRouter(prefix="/api", tags=["documents"], responses=PROBLEMS)

_CURSOR_KINDS: dict[shapes.Sort, type | tuple[type, ...]] = {
    shapes.Sort.ADDED: (int, float),
    shapes.Sort.FINISHED: (int, float),
    shapes.Sort.SIZE: int,
    shapes.Sort.NAME: str,
    shapes.Sort.PATH: bytes,
}
_JOB_STATES = {shown: state for state, shown in PAGE_STATES.items()}
Limit = Annotated[int, Query(ge=1, le=200)]


@router.get("/documents")
def list_documents(
    conn: Reading,
    sort: shapes.Sort = shapes.Sort.ADDED,
    order: Annotated[str, Query(pattern="^(asc|desc)$")] = "desc",
    state: States = None,
    folder: Folder = None,
    name: Name = None,
    engine: Engine = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = 50,
    cursor: Annotated[str | None, Query(max_length=8000)] = None,
) -> shapes.DocumentList:
    """Some documents. While `next` is not null there may be more, even where few or none came."""
    wanted = listing.Filters(
        states=frozenset(map(str, state or ())),
        folder=os.fsencode(folder) if folder and folder.startswith("/") else None,
        part=folder if folder and not folder.startswith("/") else None,
        name=name,
        engine=engine,
        since=since,
        until=until,
    )
    found = listing.files(
        conn,
        wanted,
        sort=listing.Sort(sort),
        descending=order == "desc",
        limit=limit,
        after=from_cursor(cursor, _CURSOR_KINDS[sort]),
    )
    return shapes.DocumentList(documents=list(map(document, found.rows)), next=to_cursor(found.next))


@router.get("/documents/{document_id}", responses={404: problem("There is no such document.")})
def get_document(conn: Reading, document_id: DocumentId) -> shapes.DocumentDetail:
    """A document with all that is known of it but its pages."""
    row = document_row(conn, document_id)
    entry = status.entry(conn, document_id) or {}
    others = [] if row["document_id"] is None else listing.of_document(conn, row["document_id"])
    kept = [kind for kind in ("markdown", "json") if row[f"{kind}_path"] is not None]
    current = [worker["page"] for file_id, worker in status.being_read(conn) if file_id == document_id]
    options = json.loads(row["options"] or "{}")
    return shapes.DocumentDetail(
        **document_fields(row),
        other_paths=[other["path"] for other in others if other["id"] != document_id],
        warnings=[
            shapes.Note(code=note["code"], message=note["message"] or "", page=note["page"])
            for note in entry.get("warnings", [])[:200]
        ],
        attachments=json.loads(row["attachments"] or "[]"),
        options={key: value for key, value in options.items() if key != "password"},
        attempts=entry.get("attempts", 0),
        note=row["sidecar_note"],
        sidecars=[f"/api/documents/{document_id}/sidecars/{kind}" for kind in kept],
        first_page=page_url(document_id, 1) if row["pages"] else None,
        current_page=current[0] if current else None,
    )


@router.get("/documents/{document_id}/pages", responses={404: problem("There is no such document.")})
def list_pages(
    conn: Reading,
    document_id: DocumentId,
    after: Annotated[int, Query(ge=0, le=10**9, description="Pages behind this number.")] = 0,
    state: Annotated[list[shapes.PageState] | None, Query(max_length=5)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> shapes.PageList:
    """Some pages of a document, without their text."""
    row = document_row(conn, document_id)
    content_id = row["document_id"]
    states = [_JOB_STATES[wanted] for wanted in state or ()]
    rows = page_rows.some(conn, content_id, after=after, limit=limit + 1, states=states) if content_id else []
    pages = [
        shapes.PageItem(
            number=page.number,
            label=page.label,
            state=shapes.PageState(PAGE_STATES[page.state]),
            page_id=page.page_id,
            error=failure(page.error_code, page.error_message, page.remedy),
        )
        for page in rows[:limit]
    ]
    return shapes.PageList(
        document_id=document_id, pages=pages, next=pages[-1].number if len(rows) > limit else None
    )


# --- reading again -----------------------------------------------------------------------------------------


@router.post(
    "/documents/{document_id}/retry",
    responses={404: problem("There is no such document."), 409: problem("Its file is gone.")},
)
def retry_document(
    request: Request, library: LibraryOf, document_id: DocumentId, wish: shapes.RetryWish | None = None
) -> shapes.Document:
    """Read again what failed; where nothing failed, or something is wished, the whole document."""
    wanted = (wish or shapes.RetryWish()).model_dump(exclude_none=True)
    password = wanted.pop("password", None)
    if wanted:  # refuses what no settings file could say either
        settings.load({"home": request.app.state.settings.home, **wanted})
    options: dict[str, object] = dict(wanted)
    if password:
        options["password"] = password
    with library.writing() as conn:
        row = document_row(conn, document_id)
        if not files.retry(conn, [row["path_bytes"]], options, time.time()):
            raise Refused(
                409, "its file is gone", code="vanished", remedy="put the file back, then try again"
            )
        return document(document_row(conn, document_id))


@router.post("/retry-failed")
def retry_failed(library: LibraryOf) -> shapes.Queued:
    """Queue everything that failed again."""
    with library.writing() as conn:
        return shapes.Queued(documents=files.retry(conn, None, None, time.time()))


@router.get("/failures")
def list_failures(conn: Reading, limit: Limit = 20) -> shapes.FailureList:
    """The latest documents that failed, wholly or in part, or need a password."""
    return shapes.FailureList(documents=list(map(document, listing.failed(conn, limit))))


# --- files -------------------------------------------------------------------------------------------------

_MEDIA = {"markdown": "text/markdown; charset=utf-8", "json": "application/json"}
_GONE: Responses = {
    404: problem("There is no such document or file."),
    409: problem("The file is not what it was."),
}


@router.get(
    "/documents/{document_id}/sidecars/{kind}",
    response_class=FileResponse,
    responses={200: {"content": {media: {} for media in _MEDIA.values()}}, **_GONE},
)
def get_sidecar(conn: Reading, document_id: DocumentId, kind: shapes.SidecarKind) -> FileResponse:
    """The Markdown or JSON that was written for a document, as a download."""
    row = document_row(conn, document_id)
    path = row[f"{kind}_path"]
    if path is None:
        raise Refused(404, "it has no sidecars yet", code="no_sidecar", remedy="wait until it is done")
    file = Path(path)
    if not sidecars.is_ours(os.fsencode(file)):
        raise Refused(
            409, "the sidecar is gone or not ours", code="vanished", remedy="run `ocrd verify --repair`"
        )
    return _download(file, _MEDIA[kind])


@router.get(
    "/documents/{document_id}/file",
    response_class=FileResponse,
    responses={200: {"content": {"application/octet-stream": {}}}, **_GONE},
)
def get_original(conn: Reading, document_id: DocumentId) -> FileResponse:
    """The file itself, as a download."""
    row = document_row(conn, document_id)
    return _download(_unchanged(row), "application/octet-stream")


def _unchanged(row: sqlite3.Row) -> Path:
    """The path of a file that is as it was when it was taken in. Raises: `Refused` 404, 409."""
    path = Path(os.fsdecode(row["path_bytes"]))
    try:
        found = path.stat()
    except OSError:
        raise Refused(
            404, "the file is gone", code="vanished", remedy="put it back; what was read of it stays"
        ) from None
    if (found.st_size, found.st_mtime_ns) != (row["size"], row["mtime_ns"]):
        raise Refused(
            409,
            "the file has changed since it was read",
            code="changed",
            remedy="it is read again by `ocrd watch`, or by `ocrd batch FILE`",
        )
    return path


def _download(path: Path, media_type: str) -> FileResponse:
    try:
        return FileResponse(path, media_type=media_type, filename=path.name, stat_result=path.stat())
    except OSError as error:
        raise Refused(404, f"it cannot be read: {error.strerror}", code="vanished") from None
