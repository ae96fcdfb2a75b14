"""What tests of the text layer share: reading pages of a PDF made in the test, and the corpus where there is one."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.source import open_source
from pipeline.textlayer import TextLayer, read_text_layer

CORPUS = Path(os.environ.get("OCRD_CORPUS") or Path(__file__).parents[3] / "shared" / "corpus")


def read(data: bytes | Path, folder: Path, number: int = 1, reader: Callable | None = None) -> TextLayer:
    """The text layer of page `number` of a file or of the bytes of one."""
    path = folder / "made.pdf" if isinstance(data, bytes) else data
    if isinstance(data, bytes):
        path.write_bytes(data)
    with open_source(path, passwords=_passwords(path.name)) as source, source.page(number) as page:
        return read_text_layer(page, sample_reader=reader)


def texts(layer: TextLayer) -> list[str]:
    return [line.text for line in layer.text.lines] if layer.text else []


def corpus(name: str) -> Path:
    """A file of the corpus; skips the test where there is none."""
    path = CORPUS / "files" / name
    if not path.exists():
        pytest.skip(f"no corpus in {CORPUS} (OCRD_CORPUS names it)")
    return path


def corpus_rows() -> dict[str, dict]:
    """What must come out, by file name; empty without the corpus."""
    manifest = CORPUS / "MANIFEST.tsv"
    if not manifest.exists():
        return {}
    with manifest.open(encoding="utf-8") as file:
        return {row["file"]: json.loads(row["expect_json"]) for row in csv.DictReader(file, delimiter="\t")}


def _passwords(name: str) -> tuple[str, ...]:
    word = corpus_rows().get(name, {}).get("password")
    return (word,) if word else ()
