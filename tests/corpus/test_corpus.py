"""Real files through one `ocrd batch`, compared with what a corpus beside the repository says must come out.

The corpus is a folder with `MANIFEST.tsv` and `files/`: `OCRD_CORPUS`, or `../shared/corpus` beside this checkout.
"""

import hashlib
import json
import os
import re
import sqlite3
import subprocess
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from pipeline.engines import tessdata
from storage.errors import ExitCode, error_classes
from tests.elsewhere import CORPUS, NO_CORPUS, ROOT, manifest

OCRD = Path(sys.executable).parent / "ocrd"
# Seconds in all, and every kind of outcome: text layers, one scan, an image, blank, locked, broken, empty.
QUICK = (
    "minimal-document.pdf",
    "multicolumn.pdf",
    "c02-22.pdf",
    "inherited-rotate.pdf",
    "habibi-rotated.pdf",
    "enc-R3,V2,O=master.pdf",
    "libreoffice-writer-password.pdf",
    "G_pubsec_handler.pdf",
    "invalid.pdf",
    "G_zero.pdf",
    "G_html_named.pdf",
    "qpdf_zero_pages.pdf",
    "G_truncated.png",
    "G_bomb_900mpx.png",
    "empty#hash.pdf",
    "vertical.pdf",
    "issue11656.pdf",
    "linn.png",
    "G_incremental_2pages.pdf",
)
# The manifest gives the MediaBox here; with /Rotate 90 the page is shown upright, as its own note says.
DISPLAYED = {"rotated_skew.pdf": {"1": [612, 792]}}
HAS_KOREAN = "kor" in tessdata.available(tessdata.folders())
# What the engines that come in wheels misread, whatever we do: English is the only language data among them.
MISREAD = {
    **(
        {}
        if HAS_KOREAN
        else {"G_cjk_image.pdf": "page 3 is Korean: Tesseract's `kor` data are not installed"}
    ),
    "eurotext.tif": "German: the opening quote below the line is unknown to English data",
}


@dataclass(frozen=True)
class Row:
    """A file of the corpus and what must come out of it."""

    file: str
    sha256: str
    tier: str
    expect: dict[str, Any]


ROWS = [Row(row["file"], row["sha256"], row["tier"], row["expect"]) for row in manifest()]
needs_corpus = pytest.mark.skipif(not ROWS, reason=NO_CORPUS)


@dataclass
class Run:
    """One finished `ocrd batch` over some rows."""

    rows: list[Row]
    out: Path
    home: Path
    exit_code: int
    stderr: str
    summary: dict[str, Any]
    status: dict[str, Any]
    documents: dict[str, dict[str, Any]] = field(default_factory=dict)

    def sidecar(self, file: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.out / f"{file}.json").read_text(encoding="utf-8"))
        return found


def run_batch(rows: list[Row], folder: Path) -> Run:
    out, home = folder / "out", folder / "home"
    paths = [str(CORPUS / "files" / row.file) for row in rows]
    env = {k: v for k, v in os.environ.items() if not k.startswith("OCRD_")} | {"OCRD_HOME": str(home)}
    call = {"env": env, "capture_output": True, "text": True, "stdin": subprocess.DEVNULL}
    done = subprocess.run([OCRD, "batch", "--json", "--out", out, "--", *paths], **call, timeout=3000)
    assert done.stdout, done.stderr
    status = subprocess.run([OCRD, "status", "--json", "--all"], **call, timeout=60, check=True)
    run = Run(
        rows, out, home, done.returncode, done.stderr, json.loads(done.stdout), json.loads(status.stdout)
    )
    for document in run.summary["documents"]:
        run.documents[Path(document["path"]).name] = document
    return run


@pytest.fixture(scope="session")
def quick_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_batch([row for row in ROWS if row.file in QUICK], tmp_path_factory.mktemp("quick"))


@pytest.fixture(scope="session")
def full_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_batch(ROWS, tmp_path_factory.mktemp("full"))


def each(rows: Iterable[Row], misread: Mapping[str, str] = {}) -> Iterator[Any]:
    for row in rows:
        known = [pytest.mark.xfail(reason=misread[row.file], strict=True)] if row.file in misread else []
        if row.file in QUICK:
            yield pytest.param("quick_run", row, id=row.file, marks=known)
        yield pytest.param("full_run", row, id=f"all-{row.file}", marks=[pytest.mark.slow, *known])


RUNS = [pytest.param("quick_run", id="quick"), pytest.param("full_run", id="all", marks=pytest.mark.slow)]
every_row = pytest.mark.parametrize(("run_name", "row"), list(each(ROWS)))
every_readable_row = pytest.mark.parametrize(
    ("run_name", "row"), list(each((row for row in ROWS if row.expect["outcome"] != "error"), MISREAD))
)
every_run = pytest.mark.parametrize("run_name", RUNS)


def plain(text: str) -> str:
    """Text for comparison: ligatures apart, quotes straight, runs of white space as one space; CJK without any."""
    folded = unicodedata.normalize("NFKC", text)
    folded = re.sub("[‘’‚‛′]", "'", folded)
    folded = re.sub("[“”„‟″]", '"', folded)
    folded = re.sub("[\u200b-\u200f\u202a-\u202e\u2066-\u2069\u00ad]", "", folded)
    folded = re.sub(r"\s+", " ", folded).strip()
    cjk = "[\u3000-\u30ff\u3400-\u9fff\uac00-\ud7af]"
    return re.sub(rf"(?<={cjk}) (?={cjk})", "", folded)


def matches(text: str, page: dict[str, Any]) -> bool:
    """Whether a page says `text`. Of accents no more is asked on a scan than English language data can read."""
    wanted, found = plain(text), page_text(page)
    if page["source"] == "engine":
        wanted, found = without_accents(wanted), without_accents(found)
    return wanted in found


def without_accents(text: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFKD", text) if unicodedata.category(c) != "Mn")


def page_text(page: dict[str, Any]) -> str:
    """Everything read on a page: the running text, and the blocks that are no part of it (running heads, numbers)."""
    return plain("\n".join([page["text"], *(block["text"] for block in page["blocks"])]))


def status_code(document: dict[str, Any]) -> str | None:
    """The error of a file in `ocrd status --json`, or of its first failed page."""
    failed = [warning["error"] for warning in document["warnings"] if warning["code"] == "page_failed"]
    return (document["error"] or {}).get("code") or (failed[0] if failed else None)


def is_failed(page: dict[str, Any]) -> bool:
    return bool(page["stop_reason"] == "error")


@needs_corpus
@every_row
def test_outcome_is_the_expected_one(request: pytest.FixtureRequest, run_name: str, row: Row) -> None:
    document = request.getfixturevalue(run_name).documents[row.file]
    code = (document["error"] or {}).get("code")
    allowed = {row.expect.get("code"), *row.expect.get("alt", [])} - {None}
    match row.expect["outcome"]:
        case "ok":
            assert (document["state"], code) == ("done", None)
        case "ok_partial":
            assert document["pages_done"] > 0
        case "error":
            assert document["state"] in ("failed", "needs_password")
            assert code in allowed
        case "ok_or_error":
            assert document["state"] in ("done", "failed", "needs_password")
            assert document["state"] == "done" or not allowed or code in allowed


@needs_corpus
@every_readable_row
def test_pages_say_what_they_must(request: pytest.FixtureRequest, run_name: str, row: Row) -> None:
    run = request.getfixturevalue(run_name)
    if run.documents[row.file]["state"] != "done":
        assert row.expect["outcome"] == "ok_or_error"
        return
    pages = run.sidecar(row.file)["pages"]
    expect = row.expect
    assert [page["page"] for page in pages] == list(range(1, len(pages) + 1))
    assert len(pages) == expect.get("pages", len(pages))
    for number, text in expect.get("text", []):
        assert matches(text, pages[number - 1]), (text, page_text(pages[number - 1])[:2000])
    for text in expect.get("absent", []):
        assert not [page["page"] for page in pages if plain(text) in page_text(page)]
    for number, first, second in expect.get("order", []):
        running = plain(pages[number - 1]["text"])
        assert 0 <= running.find(plain(first)) < running.find(plain(second))
    for number in expect.get("blank", []):
        assert (pages[number - 1]["stop_reason"], pages[number - 1]["text"]) == ("blank", "")
    for number in expect.get("notext", []):
        assert page_text(pages[number - 1]) == ""
    for number, size in (DISPLAYED.get(row.file) or expect.get("display", {})).items():
        page = pages[int(number) - 1]
        assert [page["width_pt"], page["height_pt"]] == pytest.approx(size, abs=1)
    failed = [page["page"] for page in pages if is_failed(page)]
    assert failed == expect.get("page_errors", [] if expect["outcome"] == "ok" else failed)


@needs_corpus
@every_run
def test_every_sidecar_follows_the_schema(request: pytest.FixtureRequest, run_name: str) -> None:
    run = request.getfixturevalue(run_name)
    schema = json.loads((ROOT / "storage" / "schema" / "ocrd-1.json").read_text(encoding="utf-8"))
    check = jsonschema.validators.validator_for(schema)(schema)
    sidecars = sorted(run.out.rglob("*.json"))
    assert len(sidecars) >= sum(document["state"] == "done" for document in run.documents.values())
    for path in sidecars:
        check.validate(json.loads(path.read_text(encoding="utf-8")))
        assert path.with_suffix(".md").is_file()


@needs_corpus
@every_run
def test_everything_that_came_in_is_accounted_for(request: pytest.FixtureRequest, run_name: str) -> None:
    run = request.getfixturevalue(run_name)
    assert set(run.documents) == {row.file for row in run.rows}
    counts = run.status["counts"]
    accounted = ("done", "failed", "needs_password", "queued", "running", "missing")
    assert sum(counts[name] for name in accounted) == counts["total"] == len(run.rows)
    assert counts["total"] == counts["done"] + counts["failed"] + counts["skipped"] + counts["waiting"]
    assert counts["queued"] == counts["running"] == 0
    assert run.status["state"] != "running"
    # Status and summary tell the same story, file by file.
    states = {Path(document["path"]).name: document for document in run.status["documents"]}
    for file, document in run.documents.items():
        assert states[file]["state"] == document["state"]
        assert status_code(states[file]) == (document["error"] or {}).get("code")


@needs_corpus
@every_run
def test_exit_code_tells_that_inputs_failed_for_several_reasons(
    request: pytest.FixtureRequest, run_name: str
) -> None:
    run = request.getfixturevalue(run_name)
    codes = {kind.code: int(kind.exit_code) for kind in error_classes()}
    for document in run.documents.values():
        expected = codes[document["error"]["code"]] if document["error"] else 0
        assert document["exit_code"] == expected
    assert run.exit_code == run.summary["exit_code"] == ExitCode.MIXED
    assert "Traceback" not in run.stderr


@needs_corpus
@every_run
def test_originals_are_untouched_and_nothing_is_left_over(
    request: pytest.FixtureRequest, run_name: str
) -> None:
    run = request.getfixturevalue(run_name)
    for row in run.rows:
        assert hashlib.sha256((CORPUS / "files" / row.file).read_bytes()).hexdigest() == row.sha256
    files = {path.name for path in run.out.rglob("*") if path.is_file()}
    allowed = {f"{row.file}.{ending}" for row in run.rows for ending in ("md", "json")}
    assert files <= allowed  # no temporary file, no stray one
    with sqlite3.connect(f"file:{run.home / 'ocrd.db'}?mode=ro", uri=True) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert connection.execute("SELECT count(*) FROM page_jobs WHERE lease_owner NOT NULL").fetchone() == (
            0,
        )


@needs_corpus
@every_run
def test_search_finds_what_was_read(request: pytest.FixtureRequest, run_name: str) -> None:
    run = request.getfixturevalue(run_name)
    for query, file in (('"two columns filled"', "multicolumn.pdf"), ("あい", "vertical.pdf")):
        call = [OCRD, "search", "--home", run.home, "--json", "--", query]
        found = subprocess.run(call, capture_output=True, text=True, check=True)
        assert file in {Path(hit["path"]).name for hit in json.loads(found.stdout)}
