"""Plain `ocrd status`: the snapshot of `storage.status`, laid out for a person. Nothing heavy is imported here."""

from __future__ import annotations

import contextlib
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from daemon import console
from daemon.console import duration, escape_name, is_terminal, pace, plural, shorten, write_json

BAR_WIDTH = 24
FAILURES_SHOWN = 10
REFRESH_S = 1.0
CLEAR = "\x1b[H\x1b[2J"

Snapshot = Mapping[str, Any]


def render(snapshot: Snapshot) -> str:
    """The status as lines: what runs now, sums, bar and ETA, the last failures with their remedy."""
    sections = [_head(snapshot), _now(snapshot), _failures(snapshot)]
    return "\n\n".join("\n".join(lines) for lines in sections if lines)


def _head(snapshot: Snapshot) -> list[str]:
    counts = snapshot["counts"]
    rows = [("State", _state(snapshot)), ("Engine", _engine(snapshot))]
    rows += [
        ("Folder" if position == 0 else "", _root(root)) for position, root in enumerate(snapshot["roots"])
    ]
    rows += [("Files", _files(counts)), ("Pages", _pages(counts)), ("Speed", _speed(snapshot))]
    if snapshot.get("rss_mb"):
        peak = snapshot.get("peak_rss_mb") or 0
        rows.append(("Memory", f"{snapshot['rss_mb']:.0f} MB now, {peak:.0f} MB at most"))
    return [f"{title:<8}{text}" for title, text in rows if text]


def _state(snapshot: Snapshot) -> str:
    state = str(snapshot["state"])
    reason = snapshot.get("pause_reason")
    watcher = snapshot.get("watcher")
    text = state + (f" ({escape_name(str(reason))})" if reason else "")
    return text + (f", watcher {watcher}" if watcher not in (None, "off") else "")


def _engine(snapshot: Snapshot) -> str:
    engine = snapshot.get("engine")
    if isinstance(engine, Mapping):
        return escape_name(" ".join(str(engine[key]) for key in ("name", "why") if engine.get(key)))
    return escape_name(str(engine)) if engine else ""


def _root(root: Mapping[str, Any]) -> str:
    text = escape_name(str(root["path"]))
    notes = [str(root[key]) for key in ("state", "message") if root.get(key) not in (None, "ok")]
    if root.get("mode") == "polling":
        notes.append("polled")
    return text + (f" ({escape_name(', '.join(notes))})" if notes else "")


def _files(counts: Mapping[str, Any]) -> str:
    names = (
        ("done", "done"),
        ("running", "being read"),
        ("queued", "waiting"),
        ("failed", "failed"),
        ("needs_password", "locked"),
        ("missing", "missing"),
    )
    shown = [f"{counts[key]:,} {name}" for key, name in names if counts.get(key)]
    return ", ".join(shown) if shown else "none yet"


def _pages(counts: Mapping[str, Any]) -> str:
    total, done, failed = counts["pages_total"], counts["pages_done"], counts["pages_failed"]
    notes = [f"{failed:,} failed"] if failed else []
    if counts.get("pages_blank"):
        notes.append(f"{counts['pages_blank']:,} blank")
    text = f"{bar(done + failed, total)} {done:,} of {total:,} read"
    return text + (f", {', '.join(notes)}" if notes else "") if total else ""


def _speed(snapshot: Snapshot) -> str:
    if snapshot["state"] in ("stopped", "idle"):  # the rate is that of the last minutes, work or none
        return ""
    rate, eta_s = snapshot.get("rate_pages_per_min"), snapshot.get("eta_s")
    parts = [f"{pace(rate)} pages/min"] if rate else []
    if eta_s:
        parts.append(f"about {duration(eta_s)} left")
    return ", ".join(parts)


def bar(done: int, total: int, width: int = BAR_WIDTH) -> str:
    """`[#####-----]`; full only when all is done."""
    filled = 0 if total <= 0 else min(width, done * width // total)
    return f"[{'#' * filled}{'-' * (width - filled)}]"


def _now(snapshot: Snapshot) -> list[str]:
    documents = {document["path"]: document for document in snapshot["documents"]}
    lines = []
    for worker in snapshot["workers"]:
        if worker.get("path"):
            document = documents.get(worker["path"], {})
            of = f" of {document['pages']}" if document.get("pages") else ""
            page = f" page {worker['page']}{of}" if worker.get("page") else ""
            lines.append(f"  {shorten(escape_name(Path(worker['path']).name), 60)}{page}")
    return ["Now reading", *lines] if lines else []


def _failures(snapshot: Snapshot) -> list[str]:
    lines = [f"  {failure(document)}" for document in snapshot["documents"] if problem(document)]
    counts = snapshot["counts"]
    more = counts["failed"] + counts["needs_password"] - FAILURES_SHOWN
    if more > 0:
        lines[FAILURES_SHOWN:] = [f"  and {plural(more, 'more', 'more')}: ocrd status --json"]
    return ["Failures", *lines] if lines else []


def problem(document: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Why a file was not read as a whole: its own error, or that of its first failed page."""
    error: Mapping[str, Any] | None = document.get("error")
    if error and error.get("code"):
        return error
    failed = [warning for warning in document.get("warnings", ()) if warning["code"] == "page_failed"]
    if not failed:
        return None
    message = (
        f"{plural(len(failed), 'page')} failed, page {failed[0]['page']}: {failed[0].get('message', '')}"
    )
    return {"code": failed[0].get("error"), "message": message, "remedy": "run `ocrd retry FILE`"}


def failure(document: Mapping[str, Any]) -> str:
    """`PATH: cause. Remedy` of one document of a snapshot."""
    error = problem(document) or {}
    return console.failure(
        str(document["path"]), str(error.get("message") or error.get("code")), error.get("remedy")
    )


def take(connection: sqlite3.Connection, now: float, as_json: bool, all_documents: bool) -> Snapshot:
    """What to show: everything for a script; for a person, without the documents there is nothing to say about."""
    from storage import status

    if as_json:
        return status.snapshot(connection, now=now, all_documents=all_documents)
    documents = status.notable(connection, failures=FAILURES_SHOWN)
    return status.summary(connection, now=now) | {"documents": documents}


def show(take: Callable[[], Snapshot], *, as_json: bool = False) -> None:
    """One snapshot to standard output."""
    snapshot = take()
    if as_json:
        write_json(snapshot)
    else:
        print(render(snapshot))


def watch(
    take: Callable[[], Snapshot], *, as_json: bool = False, ticks: Iterable[object] | None = None
) -> None:
    """Snapshots, one a second, until interrupted: redrawn on a terminal, one after the other elsewhere."""
    with contextlib.suppress(KeyboardInterrupt):  # the way to leave, no failure
        for _ in _every(REFRESH_S) if ticks is None else ticks:
            if is_terminal(sys.stdout) and not as_json:
                print(CLEAR, end="")
            show(take, as_json=as_json)
            sys.stdout.flush()


def _every(seconds: float) -> Iterable[None]:
    while True:
        yield
        time.sleep(seconds)
