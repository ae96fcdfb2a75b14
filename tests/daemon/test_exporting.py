"""`ocrd export`: which files are meant, where it goes, what the exit status says."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from daemon import batch
from daemon.cli import app
from storage.errors import ExitCode
from storage.settings import Settings

MakeFile = Callable[..., Path]
ODD = os.fsdecode(b"odd \xff.png")


@pytest.fixture
def scans(settings: Settings, tmp_path: Path, make_png: MakeFile, make_pdf: MakeFile) -> Path:
    folder = tmp_path / "scans"
    files = [make_pdf(folder / "deep" / "b.pdf", 2), make_png(folder / ODD, 1), folder / "bad.pdf"]
    files[-1].write_bytes(b"no PDF")
    batch.run(settings, files)
    return folder


@pytest.fixture
def run(settings: Settings) -> Callable[..., tuple[int, str, str]]:
    def call(*words: object) -> tuple[int, str, str]:
        result = CliRunner().invoke(app, ["export", "--home", str(settings.home), *map(str, words)])
        return result.exit_code, result.stdout, result.stderr

    return call


Run = Callable[..., tuple[int, str, str]]


def test_exporting(scans: Path, run: Run, tmp_path: Path) -> None:
    """One library for all of it: making one takes a second."""
    # one file, by path and by name: its text to standard output
    status, output, _ = run(scans / "deep" / "b.pdf")
    assert status == 0 and output.count("\f") == 1 and "page 2 of 2" in output
    assert run("b.pdf")[1] == output
    # a folder: a line per page of all
    status, output, _ = run(scans, "--format", "jsonl")
    rows = [json.loads(row) for row in output.splitlines()]
    assert [(Path(row["path"]).name, row["page"]) for row in rows] == [
        ("b.pdf", 1),
        ("b.pdf", 2),
        ("odd \\xff.png", 1),
    ]
    # into files, as the folder has them
    status, output, _ = run(scans, "--format", "hocr", "--out", tmp_path / "out")
    assert (status, output) == (0, f"3 files written below {tmp_path / 'out'}\n")
    found = sorted(
        os.fsencode(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*.hocr")
    )
    assert found == [b"deep/b.pdf.0001.hocr", b"deep/b.pdf.0002.hocr", b"odd \xff.png.hocr"]
    assert list((tmp_path / "out").rglob(".*")) == []
    # what cannot be done is said
    status, _, error = run(scans / "bad.pdf", "b.pdf")
    assert status == ExitCode.NO_MATCH and "nothing was read of" in error and "bad.pdf" in error
    assert run(scans, "--format", "hocr")[0] == ExitCode.USAGE
    assert run(scans, "--format", "word")[0] == ExitCode.USAGE
    (tmp_path / "file").touch()
    assert run(scans, "--out", tmp_path / "file")[0] == ExitCode.STORAGE
