"""Lists of a library: whatever the filters, the parts make up the whole, and no query reads a whole table."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from storage import folders, hours, listing, page_rows, recent, status
from storage.database import open_database
from storage.listing import Filters, Sort
from storage.names import name_key

STATES = ("done", "failed", "queued", "needs_password")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory, empty_database: Path) -> Path:
    """300 files in 12 folders, with equal names, sizes and times among them."""
    place = Path(shutil.copy(empty_database, tmp_path_factory.mktemp("listing") / "ocrd.db"))
    fresh_db = open_database(place)
    fresh_db.execute("PRAGMA synchronous = OFF")
    fresh_db.execute("BEGIN")
    rng = random.Random(7)
    for number in range(1, 301):
        state = rng.choice(STATES + ("done",) * 4)
        pages = None if state == "needs_password" else 1
        finished = None if state == "queued" else float(rng.randrange(40))
        fresh_db.execute(
            "INSERT INTO documents (id, sha256, size, state, pages, pages_failed, added_at, finished_at)"
            " VALUES (?, ?, 1, ?, ?, ?, 1, ?)",
            (number, f"{number:064x}", state, pages, int(state == "failed"), finished),
        )
        folder = f"/top/{rng.randrange(12):02d}/{'deep/' * rng.randrange(2)}"
        path = f"{folder}page {rng.randrange(200)} of {number}.pdf".encode()
        fresh_db.execute(
            "INSERT INTO files (path, path_bytes, name_key, size, mtime_ns, document_id, state, sidecar_state,"
            " first_seen, last_seen, missing_since) VALUES (?, ?, ?, ?, 1, ?, 'linked', 'written', ?, 1, ?)",
            (path.decode(), path, name_key(path), rng.randrange(20), number, float(rng.randrange(50)),
             1.0 if rng.random() < 0.05 else None),
        )  # fmt: skip
        if pages:
            fresh_db.execute(
                "INSERT INTO pages (document_id, page, text, markdown, source, engine, layer, stop_reason, width_pt,"
                " height_pt, read_at) VALUES (?, 1, '', '', ?, ?, 'absent', 'complete', 1, 1, 1)",
                (number, *rng.choice((("text-layer", None), ("engine", "vlm"), ("engine", "classic")))),
            )
    fresh_db.execute("COMMIT")
    fresh_db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    fresh_db.close()
    return place


@pytest.fixture
def library(filled: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[sqlite3.Connection]:
    """Those files, changes undone at the end; bounds so small that they matter."""
    monkeypatch.setattr(listing, "NARROW", 40)
    monkeypatch.setattr(listing, "_WINDOWS", (7, 20, 30))
    conn = open_database(filled)
    conn.execute("BEGIN")
    yield conn
    conn.execute("ROLLBACK")
    conn.close()


FILTERS = {
    "all": Filters(),
    "done": Filters(states=frozenset({"done"})),
    "failed or missing": Filters(states=frozenset({"failed", "missing"})),
    "queued by name": Filters(states=frozenset({"queued"}), name="1*"),
    "folder": Filters(folder=b"/top/03"),
    "top": Filters(folder=b"/top/"),
    "part": Filters(part="DEEP"),
    "name": Filters(name="page 1"),
    "engine": Filters(engine="vlm"),
    "many": Filters(engine="text-layer", states=frozenset({"done"}), folder=b"/top"),
    "range": Filters(since=20.0, until=30.0),
    "late": Filters(since=49.0),
    "none": Filters(states=frozenset({"running"})),
}


@pytest.mark.parametrize("filters", FILTERS.values(), ids=FILTERS.keys())
def test_parts_make_up_the_whole(library: sqlite3.Connection, filters: Filters) -> None:
    for sort in Sort:
        for descending in (True, False):
            _check_parts(library, filters, sort, descending)


def _check_parts(library: sqlite3.Connection, filters: Filters, sort: Sort, descending: bool) -> None:
    expected = _expected(library, filters, sort, descending)
    found: list[int] = []
    after = None
    for _ in range(400):
        part = listing.files(library, filters, sort=sort, descending=descending, limit=9, after=after)
        assert len(part.rows) <= 9
        found += [row["id"] for row in part.rows]
        after = part.next
        if after is None:
            break
    assert found == expected


def _expected(conn: sqlite3.Connection, filters: Filters, sort: Sort, descending: bool) -> list[int]:
    """The same by looking at every file."""
    rows = conn.execute(
        "SELECT f.*, s.state AS shown, s.finished_at, (SELECT coalesce(engine, source) FROM pages"
        " WHERE document_id = f.document_id) AS read_by FROM files f JOIN file_status s ON s.id = f.id"
    ).fetchall()
    key = {Sort.ADDED: "first_seen", Sort.FINISHED: "finished_at", Sort.NAME: "name_key", Sort.PATH: "path_bytes",
           Sort.SIZE: "size"}[sort]  # fmt: skip
    name = filters.name or ""
    kept = [
        row
        for row in rows
        if (not filters.states or row["shown"] in filters.states)
        and (filters.folder is None or row["path_bytes"].startswith(filters.folder.rstrip(b"/") + b"/"))
        and (filters.part is None or filters.part.lower() in row["path"])
        and (name in row["name_key"] or ("*" in name and row["name_key"].startswith(name.rstrip("*"))))
        and (filters.engine in (None, row["read_by"]))
        and (filters.since is None or row["first_seen"] >= filters.since)
        and (filters.until is None or row["first_seen"] < filters.until)
        and row[key] is not None
    ]
    return [row["id"] for row in sorted(kept, key=lambda row: (row[key], row["id"]), reverse=descending)]


def test_folders_are_those_directly_below(library: sqlite3.Connection) -> None:
    library.execute(
        "INSERT INTO roots (path, path_bytes, added_at) VALUES ('/top/03', CAST('/top/03' AS BLOB), 1)"
    )
    below, more = folders.level(library, b"/top")
    paths = {row[0].split("/")[2] for row in library.execute("SELECT path FROM files")}
    assert [row.path for row in below] == sorted(f"/top/{name}".encode() for name in paths) and not more
    assert [row.path for row in below if row.is_root] == [b"/top/03"]
    deep, _ = folders.level(library, b"/top/03/")
    assert [row.path for row in deep] == [b"/top/03/deep"]
    some, more = folders.level(library, b"/top", limit=2)
    assert len(some) == 2 and more


def test_the_uppermost_folders_hold_everything(library: sqlite3.Connection) -> None:
    library.execute("UPDATE files SET path_bytes = CAST('/elsewhere/x.pdf' AS BLOB) WHERE id = 1")
    tops, _ = folders.level(library)
    paths = [bytes(row[0]) for row in library.execute("SELECT path_bytes FROM files")]
    assert all(any(path.startswith(top.path + b"/") for top in tops) for path in paths)
    assert not [a for a in tops for b in tops if a.path.startswith(b.path + b"/")]


@contextmanager
def _plans(conn: sqlite3.Connection) -> Iterator[list[str]]:
    """The steps of the plans of all that is asked meanwhile."""
    asked: list[str] = []
    steps: list[str] = []
    conn.set_trace_callback(asked.append)
    yield steps
    conn.set_trace_callback(None)
    for sql in asked:
        if sql.lstrip().upper().startswith(("SELECT", "WITH")):
            steps += [row["detail"] for row in conn.execute("EXPLAIN QUERY PLAN " + sql)]


_GROWING = (
    "files",
    "f",
    "documents",
    "d",
    "page_jobs",
    "j",
    "pages",
    "p",
    "q",
    "blocks",
    "page_grams",
    "s",
    "file_status",
)


# Indexes of the few rows that want attention.
_PARTIAL = ("files_unfinished", "documents_partly")


def _whole_tables(steps: list[str]) -> list[str]:
    """Steps that read all rows of a table that grows with the library, or all of an index that lacks a column."""
    scans = [step for step in steps if step.startswith("SCAN ") and step.split()[1] in _GROWING]
    return [step for step in scans if "COVERING INDEX" not in step and not step.endswith(_PARTIAL)]


@pytest.mark.parametrize("filters", FILTERS.values(), ids=FILTERS.keys())
def test_no_list_reads_a_whole_table(library: sqlite3.Connection, filters: Filters) -> None:
    with _plans(library) as steps:
        for sort in Sort:
            first = listing.files(library, filters, sort=sort)
            listing.files(library, filters, sort=sort, descending=False, after=first.next)
    # Off an index in order, with a limit: only so much of it is read.
    assert [step for step in _whole_tables(steps) if "USING INDEX" not in step] == []


def test_no_hot_path_reads_a_whole_table(library: sqlite3.Connection) -> None:
    from storage import index

    with _plans(library) as steps:
        index.search(library, "words and more")
        index.search(library, "words", path="/top/03", engine="vlm", since=1.0)
        index.search(library, "words", engine="vlm")
        index.search(library, "harb* 漢字", path="/top/03")
        listing.failed(library, 20)
        folders.level(library)
        folders.level(library, b"/top")
        page_rows.around(library, 1, 1)
        page_rows.some(library, 1, after=0, limit=10, states=["failed"])
        recent.touched(library, recent.newest(library), 50)
        status.notable(library, failures=10)
        status.failures_by_code(library)
        hours.by_reader(library)
        hours.by_hour(library, hours=48, now=1e6)
    assert _whole_tables(steps) == []


@pytest.mark.parametrize("few_pages", [0, 1000])
@pytest.mark.parametrize("some_documents", [0, 1000])
@pytest.mark.parametrize("common_pages", [0, 50_000])
def test_no_way_to_filter_a_search_reads_a_whole_table(
    library: sqlite3.Connection,
    monkeypatch: pytest.MonkeyPatch,
    few_pages: int,
    some_documents: int,
    common_pages: int,
) -> None:
    from storage import filters, index, ranking

    monkeypatch.setattr(ranking, "FEW_PAGES", few_pages)
    monkeypatch.setattr(filters, "FEW_FILES", few_pages)
    monkeypatch.setattr(ranking, "SOME_DOCUMENTS", some_documents)
    monkeypatch.setattr(ranking, "COMMON_PAGES", common_pages)
    library.execute("UPDATE pages SET text = 'words and harbours' WHERE id % 3 > 0")
    with _plans(library) as steps:
        for query in ("words and", "harb*", "words 漢字"):
            index.search(library, query, path="/top/03")
            index.search(library, query, since=40.0)
            index.search(library, query, until=40.0)
            index.search(library, query, since=20.0, until=40.0, path="/top/03")
            index.search(library, query, name="page 1")
            index.search(library, query, engine="vlm")
            index.search(library, query, engine="vlm", path="/top/03", since=1.0)
            index.search(library, query, engine="vlm", name="page 1")
    assert _whole_tables(steps) == []
    asked = [step for step in steps if step.startswith("SEARCH p USING COVERING INDEX pages_narrow")]
    assert bool(asked) or few_pages > 0


def test_counts_are_summed_over_indexes(library: sqlite3.Connection) -> None:
    """They are read in full, but from indexes that hold nothing else."""
    with _plans(library) as steps:
        status.count(library)
    assert _whole_tables(steps) == []


def test_readings_add_up_by_hour(fresh_db: sqlite3.Connection) -> None:
    fresh_db.execute("INSERT INTO documents (sha256, size, state, added_at) VALUES ('x', 1, 'done', 1)")
    for page, at in enumerate((3600.0, 3700.0, 10800.0), 1):
        fresh_db.execute(
            "INSERT INTO pages (document_id, page, text, markdown, source, engine, layer, stop_reason, width_pt,"
            " height_pt, tokens, target_passes, drafted, accepted, read_at)"
            " VALUES (1, ?, '', '', 'engine', 'vlm', 'absent', 'complete', 1, 1, 10, 4, 8, 6, ?)",
            (page, at),
        )
    fresh_db.execute("UPDATE pages SET read_at = 10900, tokens = 20 WHERE page = 1")  # read again
    fresh_db.execute("UPDATE pages SET text = 'mended' WHERE page = 2")  # not read again
    tallies = dict(hours.by_hour(fresh_db, hours=4, now=11_000.0))
    assert list(tallies) == [0, 3600, 7200, 10800]
    assert [tally.pages for tally in tallies.values()] == [0, 2, 0, 2]
    assert tallies[10800].tokens_per_pass == 30 / 8 and tallies[0].tokens_per_pass is None
    assert hours.by_reader(fresh_db) == {"vlm": hours.Tally(4, 50, 16, 32, 24)}


def test_an_older_library_gets_its_hours(tmp_path: Path) -> None:
    from sqlite_utils import Database

    from storage.migrations import migrations

    conn = sqlite3.connect(tmp_path / "ocrd.db", isolation_level=None)
    migrations.apply(Database(conn, execute_plugins=False), stop_before="serving")
    conn.execute("INSERT INTO documents (sha256, size, state, added_at) VALUES ('x', 1, 'done', 1)")
    conn.execute(
        "INSERT INTO pages (document_id, page, text, markdown, source, layer, stop_reason, width_pt, height_pt,"
        " read_at) VALUES (1, 1, '', '', 'text-layer', 'good', 'complete', 1, 1, 7300)"
    )
    conn.close()
    newer = open_database(tmp_path / "ocrd.db")
    assert hours.by_reader(newer) == {"text-layer": hours.Tally(1)}
    newer.close()
