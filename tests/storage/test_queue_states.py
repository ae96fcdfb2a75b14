"""Whatever workers do, in whatever order: every page ends exactly once, nobody shares one, none is lost."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from storage import jobs, library, results
from storage.errors import AccessError, EngineError, OcrdError, TooLargeError
from storage.records import DocumentInfo
from storage.work import PageJob
from tests.storage.conftest import LEASE_S, check_counters, reading, sha

MAX_ATTEMPTS = 2
OWNERS = ("w1", "w2", "w3")
Held = tuple[str, int, PageJob]  # owner, its incarnation, what it was handed


class Queue(RuleBasedStateMachine):
    """The real queue in a database in memory, beside a model of who was handed what."""

    schema: bytes  # a migrated database

    held = Bundle("held")

    @initialize()
    def open(self) -> None:
        self.conn = sqlite3.connect(":memory:", isolation_level=None)
        self.conn.row_factory = sqlite3.Row
        self.conn.deserialize(self.schema)
        self.conn.execute("PRAGMA foreign_keys = ON")
        self.now = 1000.0
        self.documents = 0
        self.sizes: dict[int, int] = {}
        self.lives = dict.fromkeys(OWNERS, 0)
        self.leases: dict[tuple[int, int], Held] = {}  # what must be leased, and to whom
        self.ended: dict[tuple[int, int], str] = {}
        self.attempts: dict[tuple[int, int], int] = {}

    def teardown(self) -> None:
        if hasattr(self, "conn"):
            self._drain()
            self.conn.close()

    def _owner(self, name: str) -> str:
        return f"{name}.{self.lives[name]}"

    def _is_alive(self, owner: str) -> bool:
        name, _, life = owner.partition(".")
        return self.lives[name] == int(life)

    @rule(pages=st.integers(1, 7))
    def add_document(self, pages: int) -> None:
        self.documents += 1
        name = f"/nowhere/{self.documents}.pdf".encode()
        library.register(self.conn, [library.SeenFile(name, 10, 1)], self.now)
        (job,) = jobs.claim_intake(self.conn, "scanner.0", self.now, LEASE_S)
        info = DocumentInfo("application/pdf", pages)
        library.link(self.conn, job, sha(str(self.documents)), 10, info, None, self.now)
        self.sizes[self.documents] = pages

    @rule(target=held, name=st.sampled_from(OWNERS), limit=st.integers(1, 4))
    def claim(self, name: str, limit: int) -> object:
        owner = self._owner(name)
        claimed = jobs.claim_pages(self.conn, owner, self.now, LEASE_S, limit)
        assert len({job.document_id for job in claimed}) <= 1
        assert [job.page for job in claimed] == sorted(job.page for job in claimed)
        assert not any(job.alone for job in claimed) or len(claimed) == 1
        for job in claimed:
            key = (job.document_id, job.page)
            assert key not in self.leases, "somebody holds it"
            assert key not in self.ended, "it has ended"
            assert job.attempts == self.attempts.get(key, 0)
            self.leases[key] = (owner, self.lives[name], job)
        return multiple(*((owner, self.lives[name], job) for job in claimed))

    def _still_holds(self, what: Held) -> bool:
        lease = self.leases.get((what[2].document_id, what[2].page))
        return lease is not None and lease[0] == what[0]

    @rule(what=consumes(held), blank=st.booleans())
    def save(self, what: Held, blank: bool) -> None:
        owner, _, job = what
        holds = self._still_holds(what)
        assert results.save(self.conn, owner, job, reading(job.page, blank=blank), self.now) == holds
        if holds:
            del self.leases[job.document_id, job.page]
            self.ended[job.document_id, job.page] = "blank" if blank else "done"

    @rule(
        what=consumes(held), error=st.sampled_from([EngineError("x"), TooLargeError("x"), AccessError("x")])
    )
    def fail(self, what: Held, error: OcrdError) -> None:
        owner, _, job = what
        holds = self._still_holds(what)
        jobs.fail_page(self.conn, owner, job, error, self.now, MAX_ATTEMPTS)
        if not holds:
            return
        key = (job.document_id, job.page)
        del self.leases[key]
        if isinstance(error, TooLargeError):
            self.ended[key] = "failed"
        elif isinstance(error, EngineError):
            self._count(key)

    def _count(self, key: tuple[int, int]) -> None:
        self.attempts[key] = self.attempts.get(key, 0) + 1
        if self.attempts[key] >= MAX_ATTEMPTS:
            self.ended[key] = "failed"

    @rule(name=st.sampled_from(OWNERS))
    def release(self, name: str) -> None:
        jobs.release(self.conn, self._owner(name))
        self.leases = {key: held for key, held in self.leases.items() if held[0] != self._owner(name)}

    @rule(names=st.sets(st.sampled_from(OWNERS), min_size=1))
    def crash(self, names: set[str]) -> None:
        dead = {self._owner(name) for name in names}
        for name in names:
            self.lives[name] += 1
        jobs.recover(self.conn, self.now, self._is_alive, max_attempts=MAX_ATTEMPTS)
        self._take_back(dead)

    def _take_back(self, owners: set[str]) -> None:
        for owner in owners:
            lost = [key for key, held in self.leases.items() if held[0] == owner]
            for key in lost:
                del self.leases[key]
            if len(lost) == 1:
                self._count(lost[0])

    @rule(seconds=st.sampled_from([1.0, LEASE_S / 2, LEASE_S * 2]), keep=st.sets(st.sampled_from(OWNERS)))
    def time_passes(self, seconds: float, keep: set[str]) -> None:
        """Those in `keep` extend their leases in time; nobody else does."""
        for name in keep:
            jobs.extend_leases(self.conn, self._owner(name), self.now + seconds, LEASE_S)
        self.now += seconds
        before = set(self.leases)
        jobs.recover(self.conn, self.now, lambda _: True, max_attempts=MAX_ATTEMPTS)
        left = {
            (row["document_id"], row["page"])
            for row in self.conn.execute("SELECT document_id, page FROM page_jobs WHERE state = 'leased'")
        }
        lost_to = {key: self.leases.pop(key)[0] for key in before - left}
        for owner in set(lost_to.values()):
            assert owner.partition(".")[0] not in keep
            lost = [key for key, loser in lost_to.items() if loser == owner]
            if len(lost) == 1:
                self._count(lost[0])

    @rule(document=st.integers(1, 5))
    def retry(self, document: int) -> None:
        """A person asks for what failed again."""
        if document not in self.sizes:
            return
        failed = [key for key, state in self.ended.items() if key[0] == document and state == "failed"]
        if not failed:
            return
        library.retry(self.conn, [f"/nowhere/{document}.pdf".encode()], {}, self.now)
        for key in failed:
            del self.ended[key]
            self.attempts.pop(key, None)

    @invariant()
    def rows_are_as_the_model_says(self) -> None:
        if not hasattr(self, "conn"):
            return
        rows = self.conn.execute("SELECT document_id, page, state, lease_owner FROM page_jobs").fetchall()
        assert len(rows) == sum(self.sizes.values()), "none is lost, none is twice"
        for row in rows:
            key = (row["document_id"], row["page"])
            held = self.leases.get(key)
            expected = "leased" if held else self.ended.get(key, "pending")
            assert (row["state"], row["lease_owner"]) == (expected, held[0] if held else None)
        check_counters(self.conn)

    @invariant()
    def what_is_read_is_what_was_saved(self) -> None:
        if not hasattr(self, "conn"):
            return
        saved = {tuple(row) for row in self.conn.execute("SELECT document_id, page FROM pages")}
        assert saved == {key for key, state in self.ended.items() if state != "failed"}
        due = {
            row[0] for row in self.conn.execute("SELECT document_id FROM files WHERE sidecar_state <> 'none'")
        }
        settled = {
            document
            for document, pages in self.sizes.items()
            if all((document, page) in self.ended for page in range(1, pages + 1))
        }
        assert settled <= due, "the sidecars of what is settled are due"

    def _drain(self) -> None:
        """One good worker ends it all."""
        for name in OWNERS:
            jobs.release(self.conn, self._owner(name))
        for _ in range(1 + sum(self.sizes.values())):
            self.now += 10_000
            for job in jobs.claim_pages(self.conn, "last.0", self.now, LEASE_S):
                assert results.save(self.conn, "last.0", job, reading(job.page), self.now)
        states = {row[0] for row in self.conn.execute("SELECT DISTINCT state FROM page_jobs")}
        assert states <= {"done", "blank", "failed"}
        assert jobs.claim_intake(self.conn, "last.0", self.now, LEASE_S) == []
        check_counters(self.conn)


@pytest.fixture(scope="module")
def schema(empty_database: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[bytes]:
    copy = tmp_path_factory.mktemp("schema") / "ocrd.db"
    conn = sqlite3.connect(copy, isolation_level=None)
    with sqlite3.connect(empty_database) as original:
        original.backup(conn)
    original.close()
    conn.execute("PRAGMA journal_mode = DELETE")  # a database in memory has no write-ahead log
    yield conn.serialize()
    conn.close()


def test_queue_keeps_its_promises(schema: bytes) -> None:
    machine = type("Machine", (Queue,), {"schema": schema})
    run_state_machine_as_test(machine, settings=settings(max_examples=60, stateful_step_count=30))
