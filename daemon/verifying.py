"""The run of `ocrd verify`: look at database, sources and sidecars; put right what can be put right."""

from __future__ import annotations

import sqlite3
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from daemon import processes
from daemon.publish import provenance, publish
from storage import jobs, verify
from storage.database import open_database
from storage.errors import OcrdError
from storage.names import display_path
from storage.verify import Entry, Fault, Finding

if TYPE_CHECKING:
    from storage.settings import Settings


@dataclass(frozen=True, slots=True)
class Report:
    """What was looked at, and what did not agree."""

    files: int
    findings: tuple[Finding, ...]
    repaired: tuple[Finding, ...]
    unread: tuple[bytes, ...] = ()  # paths at and below which nothing has been read

    @property
    def is_well(self) -> bool:
        """Whether all agrees now."""
        return len(self.findings) == len(self.repaired)


def run(
    settings: Settings,
    paths: Sequence[bytes],
    *,
    repair: bool,
    on_finding: Callable[[Finding], None] | None = None,
) -> Report:
    """Verify the database, and of the files at or below `paths` (all, if empty) sources and sidecars.

    Raises: as `open_database`, and `OcrdError` where a sidecar cannot be written.
    """
    conn = open_database(settings.database_path)
    try:
        found = verify.entries(conn, paths)
        findings = []
        for finding in _findings(conn, settings, found):
            findings.append(finding)
            if on_finding is not None:
                on_finding(finding)
        repaired = verify.repair(conn, settings.database_path, findings) if repair else []
        if repaired:
            repaired = _published(conn, settings, repaired)
        return Report(len(found), tuple(findings), tuple(repaired), tuple(_unread(paths, found)))
    finally:
        conn.close()


def _unread(paths: Sequence[bytes], found: Sequence[Entry]) -> Iterator[bytes]:
    read = [entry.path for entry in found]  # in order
    for path in paths:
        below = path.rstrip(b"/") + b"/"
        at, after = bisect_left(read, path), bisect_left(read, below)
        if read[at : at + 1] != [path] and not (after < len(read) and read[after].startswith(below)):
            yield path


def _findings(conn: sqlite3.Connection, settings: Settings, found: Sequence[Entry]) -> Iterator[Finding]:
    yield from verify.check_database(conn, settings.database_path)
    for entry in found:
        if (finding := verify.check_source(entry)) is not None:
            yield finding
        yield from verify.check_grams(conn, entry)
        try:
            yield from verify.check_sidecars(conn, entry, {}, words=settings.words)
        except OcrdError as error:
            yield Finding(Fault.PAGES, display_path(entry.path), error.message, entry.file_id)


def _published(conn: sqlite3.Connection, settings: Settings, repaired: Sequence[Finding]) -> list[Finding]:
    """Write the sidecars that became due (a daemon may do some of it); what is still due is not put right."""
    owner, now = processes.owner_id(), time.time()
    told = provenance(settings)
    while (job := jobs.claim_publish(conn, owner, now, settings.lease_s)) is not None:
        try:
            publish(conn, owner, job, settings, told)
        except OcrdError as error:
            jobs.fail_publish(conn, owner, job, error, now, settings.max_attempts)
    waiting = {
        row[0] for row in conn.execute("SELECT id FROM files WHERE sidecar_state IN ('due', 'failed')")
    }
    about = (Fault.SIDECAR_CHANGED, Fault.SIDECAR_MISSING)
    return [finding for finding in repaired if finding.fault not in about or finding.file_id not in waiting]
