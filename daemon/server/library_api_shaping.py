"""Rows of the database as shapes of the API."""

from __future__ import annotations

import base64
import json
import os
import sqlite3
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from daemon.server import shapes
from daemon.server.failures import Refused
from storage import listing
from storage.records import DecodeStats, PageReading
from storage.records import Line as ReadLine
from storage.results import FailedPage

if TYPE_CHECKING:
    from storage.listing import Position
    from storage.records import Block

PAGE_STATES = {
    "pending": "pending",
    "leased": "reading",
    "done": "done",
    "blank": "blank",
    "failed": "failed",
}
BIGGEST_ID = 2**63 - 1


def document(row: sqlite3.Row) -> shapes.Document:
    """A row of `listing.COLUMNS`."""
    return shapes.Document(**document_fields(row))


def document_fields(row: sqlite3.Row) -> dict[str, Any]:
    """The fields of `shapes.Document`."""
    folder, _, name = row["path"].rpartition("/")
    return {
        "id": row["id"],
        "content_id": row["document_id"],
        "path": row["path"],
        "name": name,
        "folder": folder or "/",
        "state": row["state"],
        "title": row["title"],
        "media_type": row["media_type"],
        "size": max(0, row["size"]),
        "pages": row["pages"],
        "pages_done": row["pages_done"] or 0,
        "pages_blank": row["pages_blank"] or 0,
        "pages_failed": row["pages_failed"] or 0,
        "added_at": row["first_seen"],
        "finished_at": row["finished_at"],
        "error": failure(row["error_code"], row["error_message"], row["remedy"]),
    }


def failure(code: str | None, message: str | None, remedy: str | None) -> shapes.Failure | None:
    """What the columns of an error say."""
    return None if code is None else shapes.Failure(code=code, message=message or "", remedy=remedy)


def found(row: sqlite3.Row | None) -> sqlite3.Row:
    """The row. Raises: `Refused` 404 where there is none."""
    if row is None:
        raise Refused(404, "there is no such document", code="not_found")
    return row


def document_row(conn: sqlite3.Connection, document_id: int) -> sqlite3.Row:
    """The file of that id, as a row of `listing.COLUMNS`. Raises: `Refused` 404."""
    return found(listing.file(conn, document_id))


def page_url(document_id: int, number: int) -> str:
    """Where a page is found, read or not."""
    return f"/api/documents/{document_id}/pages/{number}"


def notes(warnings: Iterable[Any], page: int | None = None) -> list[shapes.Note]:
    """Warnings of a file or a page."""
    return [shapes.Note(code=w.code, message=w.message, page=page) for w in warnings]


# --- pages -------------------------------------------------------------------------------------------------


def page(
    row: sqlite3.Row,
    number: int,
    read: PageReading | FailedPage | None,
    *,
    page_id: int | None,
    read_at: float | None,
    state: str,
    label: str | None,
    neighbours: tuple[shapes.PageLink | None, shapes.PageLink | None],
    matches: list[shapes.Match],
    words: bool,
) -> shapes.Page:
    """A page of the document of `row`, as far as it has been read."""
    url = page_url(row["id"], number)
    reading = read if isinstance(read, PageReading) else None
    error = None
    if isinstance(read, FailedPage):
        error = shapes.Failure(code=read.code, message=read.message, remedy=read.remedy or None)
    return shapes.Page(
        page_id=page_id,
        url=url,
        document=document(row),
        number=number,
        label=label,
        state=shapes.PageState(state),
        error=error,
        width_pt=reading.width_pt if reading else None,
        height_pt=reading.height_pt if reading else None,
        image=url + "/image",
        text=reading.text if reading else "",
        markdown=reading.markdown if reading else "",
        blocks=[block(position, one, words=words) for position, one in enumerate(reading.blocks)]
        if reading
        else [],
        matches=matches,
        provenance=provenance(reading, read_at) if reading else None,
        warnings=notes(reading.warnings, number) if reading else [],
        previous=neighbours[0],
        next=neighbours[1],
    )


def block(position: int, read: Block, *, words: bool) -> shapes.Block:
    """A block of a page."""
    return shapes.Block(
        position=position,
        category=read.category,
        box=read.box,
        text=read.text,
        markdown=read.markdown,
        level=read.level,
        confidence=read.confidence,
        lines=[_line(line) for line in read.lines] if words else None,
    )


def _line(line: ReadLine) -> shapes.Line:
    words = [shapes.Word(text=w.text, box=w.box, confidence=w.confidence) for w in line.words]
    return shapes.Line(text=line.text, box=line.box, words=words)


def provenance(reading: PageReading, read_at: float | None) -> shapes.Provenance:
    """Who read a page, and how it went."""
    decode = None if reading.decode is None else asdict(reading.decode)
    return shapes.Provenance(
        source=reading.source,
        engine=reading.engine,
        model=reading.model,
        revision=reading.revision,
        prompt=reading.prompt,
        layer=str(reading.layer),
        layer_reason=reading.layer_reason,
        stop_reason=str(reading.stop_reason),
        confidence=reading.confidence,
        dpi=reading.dpi,
        width_px=reading.width_px,
        height_px=reading.height_px,
        **(decode or dict.fromkeys(asdict(DecodeStats()))),
        seconds=dict(reading.seconds),
        attempts=[
            shapes.Attempt(rung=a.rung, stop_reason=str(a.stop_reason), tokens=a.tokens, seconds=a.seconds)
            for a in reading.attempts
        ],
        read_at=read_at,
    )


# --- where the next ones begin -----------------------------------------------------------------------------


def to_cursor(position: Position | None) -> str | None:
    """A position in a list as text that means nothing to a client."""
    if position is None:
        return None
    key, number = position
    value = {"b": os.fsdecode(key)} if isinstance(key, bytes) else key
    return base64.urlsafe_b64encode(json.dumps([value, number]).encode()).decode().rstrip("=")


def from_cursor(text: str | None, kind: type | tuple[type, ...]) -> Position | None:
    """The position that `to_cursor` wrote. Raises: `Refused` where it is none of a list sorted by a `kind`."""
    if not text:
        return None
    try:
        key, number = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        if isinstance(key, dict):
            key = os.fsencode(key["b"])
        number = int(number)
    except (ValueError, TypeError, KeyError, RecursionError):
        key, number = None, 0
    if isinstance(key, bool) or not isinstance(key, kind) or not -1 < number <= BIGGEST_ID:
        raise Refused(400, "no cursor of this list", code="cursor", param="cursor", remedy="start without it")
    if isinstance(key, int) and abs(key) > BIGGEST_ID:
        key = float(key)
    return key, number
