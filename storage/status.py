"""What `ocrd status` shows: read from the database with the standard library alone, fast in a large library.

Every path is counted once, under one of six states:
total = queued + running + done + failed + needs_password + missing, so with waiting = queued + running and
skipped = needs_password + missing: in = done + failed + skipped + waiting. A file is done once its sidecars are
written. Pages are counted once per content, however many paths carry it.
"""

from __future__ import annotations

import json
import socket
import sqlite3
from collections.abc import Callable, Iterator
from typing import Any

from storage.control import DISK_FULL, paused, starved
from storage.names import name_key
from storage.staging import is_running

DONE_SHOWN = 500
RATE_WINDOW_S = 300.0
SILENT_S = 60.0  # a process that has not been heard of for so long is not there

_STATES = ("queued", "running", "done", "failed", "needs_password", "missing")


def snapshot(
    conn: sqlite3.Connection,
    *,
    now: float,
    all_documents: bool = False,
    is_alive: Callable[[sqlite3.Row], bool] | None = None,
) -> dict[str, Any]:
    """The state of everything, as `ocrd status --json` prints it; `all_documents`: not just the last 500 done."""
    conn.execute("BEGIN")  # counts and documents of one moment, whatever workers do meanwhile
    try:
        head = summary(conn, now=now, is_alive=is_alive)
        head["documents"] = list(iter_documents(conn, all_documents=all_documents))
    finally:
        conn.execute("COMMIT")
    return head


def summary(
    conn: sqlite3.Connection, *, now: float, is_alive: Callable[[sqlite3.Row], bool] | None = None
) -> dict[str, Any]:
    """The snapshot without its documents."""
    control = dict(conn.execute("SELECT key, value FROM control").fetchall())
    alive = is_alive or _is_alive(now)
    processes = [row for row in conn.execute("SELECT * FROM workers ORDER BY owner") if alive(row)]
    supervised = any(row["role"] == "supervisor" for row in processes)
    counts = count(conn)
    pauses = paused(conn)
    if supervised and not any(p.kind == DISK_FULL for p in pauses) and (noticed := starved(conn)):
        pauses.append(noticed)
    rate = _rate(conn, now)
    return {
        "state": _state(supervised, bool(pauses), counts),
        "watcher": control.get("watcher", "off") if supervised else "off",
        "roots": [
            dict(row)
            for row in conn.execute(
                "SELECT path, recursive, watched, mode, state, message, scanned_at FROM roots ORDER BY path"
            )
        ],
        "counts": counts,
        "rate_pages_per_min": round(rate, 2),
        "eta_s": _eta(conn, rate),
        "rss_mb": round(float(sum(row["rss_mb"] or 0.0 for row in processes)), 1),
        "peak_rss_mb": _peak(control, processes),
        "workers": [
            {
                "pid": row["pid"],
                "path": row["path"],
                "page": row["page"],
                "stage": row["stage"],
                "rss_mb": row["rss_mb"],
            }
            for row in processes
            if row["role"] == "worker"
        ],
        "engine": "; ".join(filter(None, (control.get("engine"), control.get("engine_note")))) or None,
        "pause": [{"kind": p.kind, "reason": p.reason, "path": p.path, "since": p.since} for p in pauses],
        "pause_reason": pauses[0].reason if pauses else None,
    }


def _is_alive(now: float) -> Callable[[sqlite3.Row], bool]:
    host = socket.gethostname()

    def alive(row: sqlite3.Row) -> bool:
        if now - row["heartbeat"] > SILENT_S or row["host"] != host:
            return bool(now - row["heartbeat"] <= SILENT_S)
        return is_running(row["pid"])

    return alive


def _state(supervised: bool, is_paused: bool, counts: dict[str, int]) -> str:
    if not supervised:
        return "stopped"
    if is_paused:
        return "paused"
    return "running" if counts["waiting"] else "idle"


def _peak(control: dict[str, str], processes: list[sqlite3.Row]) -> float:
    present = float(sum(row["peak_rss_mb"] or 0.0 for row in processes))
    return round(max(present, float(control.get("peak_rss_mb", 0.0))), 1)


# Word for word as in the partial index. A file of which this holds is not done, and the view says what it is instead.
UNFINISHED = "(state <> 'linked' OR sidecar_state IN ('due', 'failed') OR missing_since IS NOT NULL)"
_COUNT_UNFINISHED = (
    "SELECT state, count(*) FROM file_status"
    f" WHERE id IN (SELECT id FROM files WHERE {UNFINISHED}) GROUP BY state"
)
# The others are what their document is: done for the most part, so the rest is counted.
_COUNT_UNREAD = (
    "SELECT documents.state, count(*) FROM documents JOIN files ON files.document_id = documents.id"
    " WHERE documents.state IN ('queued', 'running', 'failed', 'needs_password') AND files.state = 'linked'"
    " AND files.sidecar_state NOT IN ('due', 'failed') AND files.missing_since IS NULL GROUP BY documents.state"
)


def count(conn: sqlite3.Connection) -> dict[str, int]:
    """Files by state (each path once) and pages by state (each content once)."""
    counts = dict.fromkeys(_STATES, 0)
    for query in (_COUNT_UNFINISHED, _COUNT_UNREAD):
        for state, files in conn.execute(query):
            counts[state] += files
    total = int(conn.execute("SELECT count(*) FROM files").fetchone()[0])
    counts["done"] = total - sum(counts.values())
    counts["total"] = total
    counts["waiting"] = counts["queued"] + counts["running"]
    counts["skipped"] = counts["needs_password"] + counts["missing"]
    pages = conn.execute(
        "SELECT COALESCE(sum(pages), 0) AS pages_total, COALESCE(sum(pages_done), 0) AS pages_done,"
        " COALESCE(sum(pages_failed), 0) AS pages_failed, COALESCE(sum(pages_blank), 0) AS pages_blank"
        " FROM documents WHERE superseded_by IS NULL"
    ).fetchone()
    counts.update(
        {name: pages[name] for name in ("pages_total", "pages_done", "pages_failed", "pages_blank")}
    )
    return counts


def _rate(conn: sqlite3.Connection, now: float) -> float:
    """Pages a minute over the last minutes; 0.0 when none was finished."""
    row = conn.execute(
        "SELECT count(*) AS pages, min(finished_at) AS first FROM page_jobs WHERE finished_at > ?",
        (now - RATE_WINDOW_S,),
    ).fetchone()
    if row["pages"] < 2:
        return 0.0
    return float(row["pages"]) * 60.0 / max(1.0, now - float(row["first"]))


def _eta(conn: sqlite3.Connection, rate: float) -> float | None:
    row = conn.execute(
        "SELECT COALESCE(sum(pages_pending + pages_leased), 0) FROM documents"
        " WHERE state IN ('queued', 'running') AND parked = 0"
    ).fetchone()
    if row[0] == 0:
        return 0.0
    return round(float(row[0]) * 60.0 / rate, 1) if rate > 0 else None


# The flags save a look for warnings and attempts where there are none, which is nearly everywhere.
_COLUMNS = (
    "file_status.*, EXISTS (SELECT 1 FROM pages WHERE pages.document_id = file_status.document_id"
    " AND pages.warnings <> '[]') AS warned,"
    " EXISTS (SELECT 1 FROM page_jobs WHERE page_jobs.document_id = file_status.document_id"
    " AND page_jobs.error_code IS NOT NULL) AS erred,"
    " COALESCE((SELECT max(page_jobs.attempts) FROM page_jobs WHERE page_jobs.document_id = file_status.document_id"
    " AND page_jobs.attempts > 0), 0) AS page_attempts"
)
_NOT_DONE = (
    f"SELECT {_COLUMNS} FROM file_status WHERE file_status.state <> 'done' AND id IN ("
    f"SELECT id FROM files WHERE {UNFINISHED}"
    " UNION SELECT files.id FROM documents JOIN files ON files.document_id = documents.id"
    " WHERE documents.state IN ('queued', 'running', 'failed', 'needs_password')) ORDER BY id"
)
_DONE = (
    f"SELECT {_COLUMNS} FROM (SELECT id, finished_at FROM documents WHERE state = 'done'"
    " ORDER BY finished_at DESC LIMIT :documents) AS latest"
    " CROSS JOIN files ON files.document_id = latest.id CROSS JOIN file_status ON file_status.id = files.id"
    " WHERE file_status.state = 'done' ORDER BY latest.finished_at DESC, file_status.id LIMIT :files"
)


def iter_documents(conn: sqlite3.Connection, *, all_documents: bool = False) -> Iterator[dict[str, Any]]:
    """One entry per path: all that are not done, then those done, the latest first."""
    for row in conn.execute(_NOT_DONE):
        yield _entry(conn, row)
    # Some of the latest documents may have no file that is done (missing, sidecars due): look at a few more.
    limits = (
        {"documents": -1, "files": -1}
        if all_documents
        else {"documents": 4 * DONE_SHOWN, "files": DONE_SHOWN}
    )
    for row in conn.execute(_DONE, limits):
        yield _entry(conn, row)


_FAILED_FILES = (
    # By itself SQLite would rather read the files in order.
    f"SELECT id FROM files INDEXED BY files_unfinished WHERE {UNFINISHED}"
    " AND (state = 'failed' OR sidecar_state = 'failed')"
    " AND missing_since IS NULL ORDER BY id DESC LIMIT :limit"
)
_FAILED_DOCUMENTS = (
    "SELECT files.id FROM documents CROSS JOIN files ON files.document_id = documents.id"
    " WHERE documents.state IN ('failed', 'needs_password') AND files.state <> 'intake'"
    " AND files.missing_since IS NULL ORDER BY files.id DESC LIMIT :limit"
)
_PARTLY_FAILED = (
    "SELECT files.id FROM documents CROSS JOIN files ON files.document_id = documents.id"
    " WHERE documents.pages_failed > 0 AND files.state <> 'intake' AND files.missing_since IS NULL"
    " ORDER BY files.id DESC LIMIT :limit"
)
_ENTRIES = f"SELECT {_COLUMNS} FROM file_status WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id DESC"


def failed_ids(conn: sqlite3.Connection, limit: int) -> list[int]:
    """Ids of the last files that failed, wholly or partly, or need a password; the latest first."""
    found: set[int] = set()
    for query in (_FAILED_FILES, _FAILED_DOCUMENTS, _PARTLY_FAILED):
        found.update(row[0] for row in conn.execute(query, {"limit": limit}))
    return sorted(found, reverse=True)[:limit]


_CODES = (
    "SELECT error_code, count(*) FROM page_jobs WHERE error_code IS NOT NULL GROUP BY error_code",
    "SELECT error_code, count(*) FROM documents WHERE state IN ('failed', 'needs_password') AND pages IS NULL"
    " GROUP BY error_code",
    f"SELECT error_code, count(*) FROM files WHERE {UNFINISHED} AND error_code IS NOT NULL GROUP BY error_code",
)


def failures_by_code(conn: sqlite3.Connection) -> list[tuple[str, int]]:
    """(code, how many) of pages that failed, documents that cannot be opened, and files that cannot be read."""
    counts: dict[str, int] = {}
    for query in _CODES:
        for code, number in conn.execute(query):
            if code is not None:
                counts[code] = counts.get(code, 0) + number
    return sorted(counts.items())


def being_read(conn: sqlite3.Connection) -> list[tuple[int, sqlite3.Row]]:
    """(file id, row of `workers`) of each process that is at a file."""
    found = []
    for row in conn.execute("SELECT * FROM workers WHERE path IS NOT NULL ORDER BY owner").fetchall():
        file = conn.execute(_FILE_AT, (row["path"], name_key(row["path"].encode()), row["path"])).fetchone()
        if file is not None:
            found.append((int(file["id"]), row))
    return found


# A path is known to processes as people see it; where bytes of it are escaped, its name leads to it.
_FILE_AT = (
    "SELECT id FROM files WHERE path_bytes = CAST(? AS BLOB)"
    " UNION ALL SELECT id FROM files WHERE name_key = ? AND path = ? LIMIT 1"
)


def notable(conn: sqlite3.Connection, *, failures: int) -> list[dict[str, Any]]:
    """The few entries a person wants to see: what is being read, and the last files that failed, wholly or partly."""
    reading = [file_id for file_id, _ in being_read(conn)]
    failing = [file_id for file_id in failed_ids(conn, failures) if file_id not in reading]
    rows = (conn.execute(_ENTRIES, (json.dumps(ids),)) for ids in (reading, failing))
    return [_entry(conn, row) for found in rows for row in found]


def entry(conn: sqlite3.Connection, file_id: int) -> dict[str, Any] | None:
    """The entry of one file, as in the snapshot."""
    row = conn.execute(f"SELECT {_COLUMNS} FROM file_status WHERE id = ?", (file_id,)).fetchone()
    return None if row is None else _entry(conn, row)


def _entry(conn: sqlite3.Connection, row: sqlite3.Row) -> dict[str, Any]:
    error = None
    if row["error_code"] is not None:
        error = {"code": row["error_code"], "message": row["error_message"], "remedy": row["remedy"]}
    return {
        "path": row["path"],
        "state": row["state"],
        "current": row["state"] != "missing",
        "pages": row["pages"],
        "pages_done": row["pages_done"] or 0,
        "pages_failed": row["pages_failed"] or 0,
        "attempts": max(row["attempts"], row["sidecar_attempts"], row["page_attempts"]),
        "error": error,
        "warnings": list(_warnings(conn, row)),
        "markdown": row["markdown_path"],
        "json": row["json_path"],
        "note": row["sidecar_note"],
        "finished_at": row["finished_at"],
    }


def _warnings(conn: sqlite3.Connection, row: sqlite3.Row) -> Iterator[dict[str, Any]]:
    """What to know about the file as a whole (page None), then about its pages in order."""
    for warning in json.loads(row["warnings"] or "[]"):
        yield {"code": warning["code"], "page": None, "message": warning.get("message", "")}
    if row["warned"]:
        pages = conn.execute(
            "SELECT page, warnings FROM pages WHERE document_id = ? AND warnings <> '[]' ORDER BY page",
            (row["document_id"],),
        )
        for page in pages:
            for warning in json.loads(page["warnings"]):
                yield {"code": warning["code"], "page": page["page"], "message": warning.get("message", "")}
    if row["erred"]:
        yield from _page_errors(conn, row["document_id"])


def _page_errors(conn: sqlite3.Connection, document_id: int) -> Iterator[dict[str, Any]]:
    """Pages that failed, and pages whose second reading failed, so that the first one stands."""
    rows = conn.execute(
        "SELECT page, state, error_code, error_message FROM page_jobs WHERE document_id = ? AND error_code IS NOT NULL"
        " AND state IN ('failed', 'done', 'blank') ORDER BY page",
        (document_id,),
    )
    for row in rows:
        code = "page_failed" if row["state"] == "failed" else "reread_failed"
        yield {"code": code, "page": row["page"], "message": row["error_message"], "error": row["error_code"]}
