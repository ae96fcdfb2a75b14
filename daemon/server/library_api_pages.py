"""The API's pages: text, blocks, boxes, who read it; and its picture."""

from __future__ import annotations

import sqlite3
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from daemon.server import page_images, shapes
from daemon.server.database import LibraryOf, Reading
from daemon.server.failures import Refused
from daemon.server.library_api_parameters import (
    PROBLEMS,
    DocumentId,
    PageId,
    PageNumber,
    Responses,
    Words,
    problem,
)
from daemon.server.library_api_shaping import PAGE_STATES, document_row, found, page, page_url
from storage import highlight, listing, page_rows, results
from storage.query import parse
from storage.records import PageReading

router = APIRouter(prefix="/api", tags=["pages"], responses=PROBLEMS)

_NO_PAGE: Responses = {404: problem("There is no such page.")}
Boxes = Annotated[bool, Query(description="With the lines and words of each block.")]
Width = Annotated[int, Query(ge=64, le=4000, description="Pixels; the picture may have fewer, never more.")]
_IMAGE: Responses = {
    200: {"content": {"image/png": {}, "image/jpeg": {}}, "description": "The picture."},
    304: {"description": "The client has it."},
    404: problem("There is no such page, or its file is gone."),
    409: problem("The file has changed since it was read."),
    413: problem("Too large to be drawn."),
    415: problem("It cannot be drawn."),
    429: problem("Too many pictures are asked for at once."),
    500: problem("It cannot be drawn."),
}


@router.get("/pages/{page_id}", responses=_NO_PAGE)
def get_page(conn: Reading, page_id: PageId, q: Words = "", words: Boxes = False) -> shapes.Page:
    """A page that was read. `q`: its matches are marked."""
    row, content_id, number = _place(conn, page_id)
    return _page(conn, row, content_id, number, q=q, words=words)


@router.get("/documents/{document_id}/pages/{number}", responses=_NO_PAGE)
def get_page_of(
    conn: Reading, document_id: DocumentId, number: PageNumber, q: Words = "", words: Boxes = False
) -> shapes.Page:
    """A page by its number, whether it was read, waits or failed."""
    row = document_row(conn, document_id)
    return _page(conn, row, row["document_id"], number, q=q, words=words)


@router.get("/pages/{page_id}/image", response_class=Response, responses=_IMAGE)
async def get_image(
    request: Request,
    library: LibraryOf,
    page_id: PageId,
    width: Width = 1200,
    format: page_images.Format = page_images.Format.AUTO,
) -> Response:
    """The picture of a page that was read."""

    def place(conn: sqlite3.Connection) -> tuple[sqlite3.Row, int, int]:
        return _place(conn, page_id)

    return await page_images.respond(request, library, place, width, format)


@router.get("/documents/{document_id}/pages/{number}/image", response_class=Response, responses=_IMAGE)
async def get_image_of(
    request: Request,
    library: LibraryOf,
    document_id: DocumentId,
    number: PageNumber,
    width: Width = 1200,
    format: page_images.Format = page_images.Format.AUTO,
) -> Response:
    """The picture of a page by its number."""

    def place(conn: sqlite3.Connection) -> tuple[sqlite3.Row, int, int]:
        row = document_row(conn, document_id)
        if not 1 <= number <= (row["pages"] or 0):
            raise _no_page()
        return row, row["document_id"], number

    return await page_images.respond(request, library, place, width, format)


def _place(conn: sqlite3.Connection, page_id: int) -> tuple[sqlite3.Row, int, int]:
    """A file with that page (or with what replaces it), the content, and the page's number. Raises: `Refused` 404."""
    placed = page_rows.place(conn, page_id)
    if placed is None:
        raise _no_page()
    content_id, number = placed
    carriers = listing.of_document(conn, content_id, limit=1)
    if not carriers and (successor := page_rows.successor(conn, content_id)) is not None:
        carriers = listing.of_document(conn, successor, limit=1)
    return found(next(iter(carriers), None)), content_id, number


def _no_page() -> Refused:
    return Refused(404, "there is no such page", code="not_found")


def _page(
    conn: sqlite3.Connection, row: sqlite3.Row, content_id: int | None, number: int, *, q: str, words: bool
) -> shapes.Page:
    rows = page_rows.around(conn, content_id, number) if content_id is not None else []
    this = next((one for one in rows if one.number == number), None)
    if this is None or content_id is None:
        raise _no_page()
    read = results.load_page(conn, content_id, number)
    links = {
        one.number: shapes.PageLink(
            number=one.number, page_id=one.page_id, url=page_url(row["id"], one.number)
        )
        for one in rows
    }
    marked = highlight.marked(read.blocks, parse(q)) if q and isinstance(read, PageReading) else []
    return page(
        row,
        number,
        read,
        page_id=this.page_id,
        read_at=None if this.page_id is None else page_rows.read_at(conn, this.page_id),
        state=PAGE_STATES[this.state],
        label=this.label,
        neighbours=(links.get(number - 1), links.get(number + 1)),
        matches=[shapes.Match(block=one.block, boxes=list(one.boxes)) for one in marked],
        words=words,
    )
