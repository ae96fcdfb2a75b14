"""What lies outside the checkout and only some machines have: a corpus of real files, stored pages, a browser."""

from __future__ import annotations

import csv
import functools
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
_NEAR = ROOT.parent / "shared"
CORPUS = Path(os.environ.get("OCRD_CORPUS") or _NEAR / "corpus")
NO_CORPUS = f"no corpus in {CORPUS} (OCRD_CORPUS names it)"
SPEC_PAGES = Path(os.environ.get("OCRD_SPEC_PAGES") or _NEAR / "spec-pages" / "pages.json")
CHROMIUM = os.environ.get("OCRD_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")


def corpus(name: str) -> Path:
    """A file of the corpus; skips the test where it is not there."""
    path = CORPUS / "files" / name
    if not path.exists():
        pytest.skip(NO_CORPUS if not CORPUS.is_dir() else f"the corpus in {CORPUS} has no {name}")
    return path


@functools.cache
def manifest() -> tuple[dict[str, Any], ...]:
    """The corpus's files and what must come out of each (`expect`); empty without the corpus."""
    path = CORPUS / "MANIFEST.tsv"
    if not path.is_file():
        return ()
    with path.open(encoding="utf-8", newline="") as lines:
        rows = csv.DictReader(lines, delimiter="\t")
        return tuple(row | {"expect": json.loads(row["expect_json"])} for row in rows)
