"""Whatever is changed behind our back is found; what the database can put right is, byte for byte."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from daemon import batch, verifying
from daemon.cli import app
from storage import backup
from storage.settings import Settings
from storage.verify import Fault

MakeFile = Callable[..., Path]
ODD = os.fsdecode(b"odd \xff \n.png")


@pytest.fixture
def library(settings: Settings, tmp_path: Path, make_png: MakeFile, make_pdf: MakeFile) -> Settings:
    """Three files that were read, one with a name that is no text."""
    folder = tmp_path / "in"
    beside = replace(settings, out=None)
    batch.run(
        beside, [make_png(folder / "a.png", 1), make_png(folder / ODD, 2), make_pdf(folder / "b.pdf", 2)]
    )
    return beside


def faults(settings: Settings, *paths: Path, repair: bool = False) -> list[tuple[str, str]]:
    report = verifying.run(settings, [os.fsencode(path) for path in paths], repair=repair)
    return [(finding.fault.value, Path(finding.path).name) for finding in report.findings]


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_an_untouched_library_agrees(library: Settings, tmp_path: Path) -> None:
    before = content(tmp_path / "in")
    report = verifying.run(library, [], repair=True)
    assert (report.files, report.findings, report.is_well) == (3, (), True)
    assert content(tmp_path / "in") == before


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def edit(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"Page", b"page").replace(b"fox", b"box"))


def edit_provenance(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"dpi": 200', b'"dpi": 201'))


@pytest.mark.parametrize(
    ("damage", "kinds", "fault"),
    [
        (Path.unlink, (".md", ".json"), Fault.SIDECAR_MISSING),
        (cut, (".md", ".json"), Fault.SIDECAR_CHANGED),
        (edit, (".md", ".json"), Fault.SIDECAR_CHANGED),
        (edit_provenance, (".json",), None),
    ],
)
def test_a_changed_sidecar_is_found_and_written_anew(
    damage: Callable[[Path], None],
    kinds: tuple[str, ...],
    fault: Fault | None,
    library: Settings,
    tmp_path: Path,
) -> None:
    folder = tmp_path / "in"
    before = content(folder)
    names = [name + kind for name in ("a.png", "b.pdf", ODD) for kind in kinds]
    for name in names:
        damage(folder / name)
    found = [kind for kind, _ in faults(library)]
    if fault is None:
        assert content(folder) != before and found == []
        return
    assert found == [fault.value] * len(names)
    assert verifying.run(library, [], repair=True).is_well
    assert content(folder) == before
    assert faults(library) == []


def test_sources_are_looked_at_and_left_alone(library: Settings, tmp_path: Path) -> None:
    source = tmp_path / "in" / "a.png"
    status = source.stat()
    source.write_bytes(b"\0" * status.st_size)
    os.utime(source, ns=(status.st_atime_ns, status.st_mtime_ns))
    report = verifying.run(library, [], repair=True)
    [finding] = report.findings
    assert finding.fault is Fault.SOURCE_CHANGED and "disk damaged" in finding.message and not report.is_well
    os.utime(source, ns=(1, 1))
    assert "reads it again" in verifying.run(library, [], repair=False).findings[0].message
    source.unlink()
    assert faults(library) == [("source_missing", "a.png")]
    assert faults(library, tmp_path / "in" / "b.pdf") == []


def test_an_index_that_lost_a_page_is_rebuilt(library: Settings) -> None:
    conn = sqlite3.connect(library.database_path)
    conn.execute(
        "INSERT INTO pages_fts (pages_fts, rowid, text) SELECT 'delete', id, text FROM pages WHERE id = 1"
    )
    conn.execute("INSERT INTO page_grams (page_id, grams) VALUES (2, 'left over')")
    conn.commit()
    assert sorted(kind for kind, _ in faults(library)) == ["grams", "index"]
    assert verifying.run(library, [], repair=True).is_well
    assert faults(library) == []
    conn.execute("DELETE FROM pages WHERE id = 1")
    conn.commit()
    conn.close()
    assert "pages" in [kind for kind, _ in faults(library)]


def test_a_damaged_database_is_marked_for_the_next_start(
    library: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backup, "check", lambda path: ["row 1 missing from index x"])
    report = verifying.run(library, [], repair=True)
    assert report.findings[0].fault is Fault.DATABASE and not report.is_well
    assert backup.suspect_mark(library.database_path).exists()


def test_the_command_tells_and_its_status_says_whether_all_agrees(library: Settings, tmp_path: Path) -> None:
    def run(*words: str) -> tuple[int, str]:
        result = CliRunner().invoke(app, ["verify", "--home", str(library.home), *words])
        return result.exit_code, result.stdout

    assert run() == (0, "3 files verified: all agrees\n")
    (tmp_path / "in" / (ODD + ".md")).unlink()
    status, output = run()
    assert status == 1 and output.endswith("3 files verified: 1 difference, 0 repaired\n")
    assert output.count("\n") == 2 and "odd \\xff" in output
    status, output = run("--json", "--repair")
    [finding] = json.loads(output)["findings"]
    assert status == 0 and finding["fault"] == "sidecar_missing" and finding["repaired"] is True
    assert run("--quiet") == (0, "")


def test_paths_of_which_nothing_was_read_are_named(library: Settings, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    known, unknown = [folder, folder / "a.png"], [tmp_path / "i", folder / "a", folder / "nothing.pdf"]
    words = ["verify", "--home", str(library.home), *map(str, known + unknown)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 1 and result.stdout == "3 files verified: all agrees\n"
    assert [line.split(". See")[0] for line in result.stderr.splitlines()] == [
        f"nothing was read of {path}" for path in unknown
    ]
