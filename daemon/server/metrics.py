"""Counters for monitoring, in Prometheus' text format."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, cast

from fastapi import APIRouter, Request, Response

from daemon.server.database import Reading
from daemon.server.library_api_parameters import PROBLEMS
from daemon.server.shapes import DocumentState
from storage import hours, status
from storage.features import saved_counters

if TYPE_CHECKING:
    from pathlib import Path

router = APIRouter(tags=["status"], responses=PROBLEMS)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Sample = tuple[Mapping[str, str], float]


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {CONTENT_TYPE: {}}, "description": "Prometheus' text format."}},
)
def get_metrics(request: Request, conn: Reading) -> Response:
    """Queue, pages, rate, failures, tokens a pass, feature store, memory."""
    features = cast("Path", request.app.state.settings.features_path)
    listeners = len(request.app.state.feed.clients)
    return Response(render(conn, features, listeners, time.time()), media_type=CONTENT_TYPE)


def render(conn: sqlite3.Connection, features: Path, listeners: int, now: float) -> str:
    """All metrics. Counters only grow, but for what a person makes ocrd forget."""
    conn.execute("BEGIN")
    try:
        head = status.summary(conn, now=now)
        codes = status.failures_by_code(conn)
        readers = hours.by_reader(conn)
    finally:
        conn.execute("COMMIT")
    counts = head["counts"]
    lines: list[str] = []

    def put(name: str, kind: str, about: str, samples: Iterable[Sample]) -> None:
        lines.extend(_metric(f"ocrd_{name}", kind, about, samples))

    put("files", "gauge", "Files by state.", [({"state": s}, counts[s]) for s in DocumentState])
    put("pages", "gauge", "Pages by state, each content once.", _pages(counts))
    put(
        "pages_per_hour",
        "gauge",
        "Pages read an hour, by the last five minutes.",
        [({}, 60 * head["rate_pages_per_min"])],
    )
    put("state", "gauge", "1 for what the daemon does.", [({"state": head["state"]}, 1)])
    put("paused", "gauge", "1 while nothing is handed out.", [({}, int(bool(head["pause"])))])
    put(
        "failures",
        "gauge",
        "Files and pages that failed, by error code.",
        [({"code": c}, n) for c, n in codes],
    )
    for field, about in (
        ("pages", "Pages read; a page read again counts again."),
        ("tokens", "Tokens written by models."),
        ("target_passes", "Passes of models."),
        ("drafted", "Tokens drafted."),
        ("accepted", "Drafted tokens that were accepted."),
    ):
        samples = [({"reader": r}, getattr(tally, field)) for r, tally in readers.items()]
        put(f"read_{field}_total", "counter", about, samples)
    put(
        "tokens_per_pass",
        "gauge",
        "Tokens a pass of a model brought, over all time.",
        [({"reader": r}, t.tokens_per_pass) for r, t in readers.items() if t.tokens_per_pass is not None],
    )
    counters = asdict(saved_counters(features))
    put(
        "features_total",
        "counter",
        "Lookups and files of the feature store.",
        [({"event": event}, number) for event, number in counters.items()],
    )
    put(
        "worker_memory_bytes",
        "gauge",
        "Resident memory of worker processes.",
        [({"pid": str(w["pid"])}, (w["rss_mb"] or 0.0) * 1e6) for w in head["workers"]],
    )
    put("listeners", "gauge", "Clients that follow /api/events.", [({}, listeners)])
    return "\n".join(lines) + "\n"


def _pages(counts: Mapping[str, int]) -> list[Sample]:
    """Done are those with text; the states add up to all."""
    done, blank, failed = counts["pages_done"], counts["pages_blank"], counts["pages_failed"]
    return [
        ({"state": "done"}, done - blank),
        ({"state": "blank"}, blank),
        ({"state": "failed"}, failed),
        ({"state": "waiting"}, counts["pages_total"] - done - failed),
    ]


def _metric(name: str, kind: str, about: str, samples: Iterable[Sample]) -> Iterable[str]:
    yield f"# HELP {name} {about}"
    yield f"# TYPE {name} {kind}"
    for labels, value in samples:
        inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
        yield f"{name}{{{inside}}} {value:.10g}" if inside else f"{name} {value:.10g}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
