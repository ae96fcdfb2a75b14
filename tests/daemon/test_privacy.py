"""What a page says stays in database and sidecars; what lies in the home is the owner's alone."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from daemon import backups, batch, verifying
from storage.settings import Settings
from tests.daemon.conftest import pdf_of

MakeFile = Callable[..., Path]
SECRET = "Zephyrine Quackenbush owes 40417 guilders"
WORDS = SECRET.split()[:2]


def holding(folder: Path) -> list[str]:
    """The files that hold the secret, or a word of it."""
    found = []
    for path in folder.rglob("*"):
        if path.is_file() and any(word.encode() in path.read_bytes() for word in WORDS):
            found.append(path.name)
    return sorted(found)


@pytest.fixture
def home(settings: Settings, tmp_path: Path, make_png: MakeFile, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A home where pages were read, failed, were copied and verified, with all logged."""
    chosen = replace(settings, log_level="DEBUG", max_attempts=1, home=tmp_path / "fresh" / "home")
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "layer.pdf").write_bytes(
        pdf_of([f"{SECRET}\n{SECRET} again\nand reads page {n}" for n in (1, 2)])
    )
    monkeypatch.setenv("OCRD_FAKE_SCRIPT", f"text:{SECRET}")
    before = os.umask(0o022)
    try:
        batch.run(chosen, [folder / "layer.pdf", make_png(folder / "a.png", 1)])
        monkeypatch.setenv("OCRD_FAKE_SCRIPT", "error:1")
        batch.run(replace(chosen, log_format="json", text_layer="ignore"), [make_png(folder / "b.png", 2)])
        backups.Keeper(chosen).copy(1_700_000_000.0)
        verifying.run(chosen, [], repair=True)
    finally:
        os.umask(before)
    return chosen


def test_page_text_reaches_no_log_and_the_home_is_closed(home: Settings, tmp_path: Path) -> None:
    log = (home.home / "ocrd.log").read_text("utf-8")
    assert " DEBUG " in log and '"level"' in log and "layer.pdf" in log  # it was written, in both forms
    assert holding(home.home) in (
        ["ocrd-20231114T221320Z.db", "ocrd.db"],
        ["ocrd-20231114T221320Z.db", "ocrd.db", "ocrd.db-wal"],
    )
    assert holding(tmp_path / "out") == ["a.png.json", "a.png.md", "layer.pdf.json", "layer.pdf.md"]
    others = [
        f"{path.relative_to(home.home)} {stat.S_IMODE(path.stat().st_mode):04o}"
        for path in [home.home, *home.home.rglob("*")]
        if stat.S_IMODE(path.stat().st_mode) & 0o077
    ]
    assert others == []
    assert stat.S_IMODE(home.home.stat().st_mode) == 0o700
