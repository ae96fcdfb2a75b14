"""What was read: saved page by page, each in one transaction, and handed back as a document."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Container, Iterator, Mapping
from dataclasses import asdict, dataclass, field

from storage import documents
from storage.database import transaction
from storage.errors import DatabaseError
from storage.failpoints import reach
from storage.folding import grams
from storage.lines import decode_lines, encode_lines, round_box, round_confidence
from storage.records import (
    Block,
    Category,
    DecodeStats,
    LayerVerdict,
    PageReading,
    PageWarning,
    ReadingAttempt,
    StopReason,
)
from storage.work import PageJob


@dataclass(frozen=True, slots=True)
class FailedPage:
    """A page that could not be read, and why."""

    page: int
    code: str
    message: str
    remedy: str
    label: str | None = None


@dataclass(frozen=True, slots=True)
class DocumentResult:
    """A document as far as it has been read. `pages` can be gone through once; pages not yet read are left out."""

    document_id: int
    sha256: str
    size: int
    media_type: str
    title: str | None
    page_count: int
    pages: Iterator[PageReading | FailedPage]
    attachments: tuple[str, ...] = ()
    warnings: tuple[PageWarning, ...] = ()  # of the file as a whole
    options: Mapping[str, object] = field(default_factory=dict)  # what `retry` asked for; never a password
    added_at: float = 0.0
    finished_at: float | None = None


_PAGE_COLUMNS = (
    "document_id", "page", "label", "text", "markdown", "source", "engine", "model", "revision", "prompt", "layer",
    "layer_reason", "stop_reason", "confidence", "width_pt", "height_pt", "dpi", "width_px", "height_px", "tokens",
    "target_passes", "drafted", "accepted", "warnings", "seconds", "attempts", "read_at",
)  # fmt: skip
# An upsert, not a replacement: the update trigger takes the old text out of the full-text index.
_SAVE_PAGE = (
    f"INSERT INTO pages ({', '.join(_PAGE_COLUMNS)}) VALUES ({', '.join('?' * len(_PAGE_COLUMNS))})"
    " ON CONFLICT(document_id, page) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in _PAGE_COLUMNS[2:])
    + " RETURNING id"
)


def save(conn: sqlite3.Connection, owner: str, job: PageJob, reading: PageReading, now: float) -> bool:
    """Save a page, in one transaction with its job; the last page of a document settles it.

    Returns False, with nothing written, if the lease was lost or the page is wished otherwise by now.
    Raises: `DiskFullError` and other `StorageError`s of the database, with nothing written; `ValueError`.
    """
    if reading.page != job.page:
        raise ValueError(f"page {reading.page} is no reading of page {job.page}")
    blocks = [_block_values(position, block) for position, block in enumerate(reading.blocks)]
    values = _page_values(job.document_id, reading, now)
    folded = grams(_clean(reading.text))
    with transaction(conn):
        if documents.give_back_if_outdated(conn, owner, job):
            return False
        cursor = conn.execute(
            "UPDATE page_jobs SET state = ?, lease_owner = NULL, lease_expires = NULL, suspect = 0, error_code = NULL,"
            " error_message = NULL, remedy = NULL, finished_at = ?"
            " WHERE document_id = ? AND page = ? AND state = 'leased' AND lease_owner = ?",
            ("blank" if reading.is_blank else "done", now, job.document_id, job.page, owner),
        )
        if cursor.rowcount == 0:
            return False
        page_id = conn.execute(_SAVE_PAGE, values).fetchone()["id"]
        reach("index.write")
        conn.execute("DELETE FROM blocks WHERE page_id = ?", (page_id,))
        conn.executemany(
            'INSERT INTO blocks (page_id, position, category, "left", top, "right", bottom, text, markdown, level,'
            " confidence, lines) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            ((page_id, *block) for block in blocks),
        )
        save_grams(conn, page_id, folded)
        conn.execute(
            "UPDATE documents SET deferrals = 0, error_code = NULL, error_message = NULL, remedy = NULL"
            " WHERE id = ? AND (deferrals > 0 OR error_code IS NOT NULL)",
            (job.document_id,),
        )
        documents.settle(conn, job.document_id, now)
    reach("page.saved")
    return True


def save_grams(conn: sqlite3.Connection, page_id: int, folded: str) -> None:
    """Keep what finds a page in scripts without spaces, inside the caller's transaction; "" = nothing."""
    if folded:
        conn.execute(
            "INSERT INTO page_grams (page_id, grams) VALUES (?, ?)"
            " ON CONFLICT(page_id) DO UPDATE SET grams = excluded.grams",
            (page_id, folded),
        )
    else:
        conn.execute("DELETE FROM page_grams WHERE page_id = ?", (page_id,))


def _clean(text: str) -> str:
    """The text as SQLite can keep it: half surrogate pairs (out of broken text layers) and NUL replaced."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("\0", "\ufffd")


def _page_values(document_id: int, reading: PageReading, now: float) -> tuple[object, ...]:
    decode = reading.decode
    return (
        document_id, reading.page, None if reading.label is None else _clean(reading.label), _clean(reading.text),
        _clean(reading.markdown), reading.source, reading.engine, reading.model, reading.revision, reading.prompt,
        reading.layer.value, reading.layer_reason, reading.stop_reason.value, round_confidence(reading.confidence),
        reading.width_pt, reading.height_pt, reading.dpi, reading.width_px, reading.height_px,
        *((None,) * 4 if decode is None else (decode.tokens, decode.target_passes, decode.drafted, decode.accepted)),
        _clean(json.dumps([asdict(warning) for warning in reading.warnings], ensure_ascii=False)),
        json.dumps({name: round(value, 4) for name, value in reading.seconds.items()}),
        json.dumps([{**asdict(attempt), "seconds": round(attempt.seconds, 4)} for attempt in reading.attempts]),
        now,
    )  # fmt: skip


def _block_values(position: int, block: Block) -> tuple[object, ...]:
    return (
        position, block.category.value, *round_box(block.box), _clean(block.text), _clean(block.markdown), block.level,
        round_confidence(block.confidence), _clean(encode_lines(block.lines)),
    )  # fmt: skip


def load_document(
    conn: sqlite3.Connection, document_id: int, only: Container[int] | None = None
) -> DocumentResult:
    """The document with its pages in order, or `only` some of them, fetched one by one as they are asked for.

    Raises: `DatabaseError` if there is no such document.
    """
    row = conn.execute("SELECT * FROM documents WHERE id = ?", (document_id,)).fetchone()
    if row is None:
        raise DatabaseError(f"no document {document_id}", remedy="see `ocrd status`")
    return DocumentResult(
        row["id"],
        row["sha256"],
        row["size"],
        row["media_type"] or "",
        row["title"],
        row["pages"] or 0,
        _pages(conn, document_id, json.loads(row["labels"] or "[]"), only),
        tuple(json.loads(row["attachments"])),
        _warnings(row["warnings"]),
        {name: value for name, value in json.loads(row["options"]).items() if name != "password"},
        row["added_at"],
        row["finished_at"],
    )


def _pages(
    conn: sqlite3.Connection, document_id: int, labels: list[str | None], only: Container[int] | None
) -> Iterator[PageReading | FailedPage]:
    numbers = [
        row[0]
        for row in conn.execute(
            "SELECT page FROM page_jobs WHERE document_id = ? AND state IN ('done', 'blank', 'failed') ORDER BY page",
            (document_id,),
        )
    ]
    for number in numbers:
        if only is not None and number not in only:
            continue
        page = load_page(conn, document_id, number)
        if isinstance(page, FailedPage) and number <= len(labels):
            yield FailedPage(page.page, page.code, page.message, page.remedy, labels[number - 1])
        elif page is not None:
            yield page


def load_page(conn: sqlite3.Connection, document_id: int, page: int) -> PageReading | FailedPage | None:
    """One page of a document (from 1): as read, as failed, or None while it is neither."""
    job = conn.execute(
        "SELECT * FROM page_jobs WHERE document_id = ? AND page = ?", (document_id, page)
    ).fetchone()
    if job is not None and job["state"] == "failed":
        return FailedPage(page, job["error_code"], job["error_message"] or "", job["remedy"] or "")
    row = conn.execute(
        "SELECT * FROM pages WHERE document_id = ? AND page = ?", (document_id, page)
    ).fetchone()
    return None if row is None else _reading(row, _blocks(conn, row["id"]))


def read_before(conn: sqlite3.Connection, document_id: int, page: int) -> tuple[Block, ...]:
    """The blocks of an earlier reading of the page (from 1) that an engine brought to its end; else nothing.

    Not what a text layer says: who has such a page read again has found it wrong.
    """
    row = conn.execute(
        "SELECT id FROM pages WHERE document_id = ? AND page = ? AND source = 'engine' AND stop_reason = 'complete'",
        (document_id, page),
    ).fetchone()
    return () if row is None else _blocks(conn, row["id"])


def _blocks(conn: sqlite3.Connection, page_id: int) -> tuple[Block, ...]:
    rows = conn.execute("SELECT * FROM blocks WHERE page_id = ? ORDER BY position", (page_id,))
    return tuple(
        Block(
            Category(row["category"]),
            (row["left"], row["top"], row["right"], row["bottom"]),
            row["text"],
            row["markdown"],
            row["level"],
            row["confidence"],
            decode_lines(row["lines"]),
        )
        for row in rows
    )


def _reading(row: sqlite3.Row, blocks: tuple[Block, ...]) -> PageReading:
    decode = None
    if row["tokens"] is not None:
        decode = DecodeStats(row["tokens"], row["target_passes"], row["drafted"], row["accepted"])
    return PageReading(
        page=row["page"],
        width_pt=row["width_pt"],
        height_pt=row["height_pt"],
        blocks=blocks,
        text=row["text"],
        markdown=row["markdown"],
        stop_reason=StopReason(row["stop_reason"]),
        source=row["source"],
        engine=row["engine"],
        label=row["label"],
        layer=LayerVerdict(row["layer"]),
        layer_reason=row["layer_reason"],
        model=row["model"],
        revision=row["revision"],
        prompt=row["prompt"],
        dpi=row["dpi"],
        width_px=row["width_px"],
        height_px=row["height_px"],
        confidence=row["confidence"],
        decode=decode,
        warnings=_warnings(row["warnings"]),
        seconds=json.loads(row["seconds"]),
        attempts=_attempts(row["attempts"]),
    )


def _attempts(text: str) -> tuple[ReadingAttempt, ...]:
    return tuple(
        ReadingAttempt(item["rung"], StopReason(item["stop_reason"]), item["tokens"], item["seconds"])
        for item in json.loads(text)
    )


def _warnings(text: str) -> tuple[PageWarning, ...]:
    return tuple(PageWarning(item["code"], item.get("message", "")) for item in json.loads(text))
