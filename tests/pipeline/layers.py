"""What tests of the text layer share: reading pages of a PDF made in the test, and what the corpus says of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pipeline.source import open_source
from pipeline.textlayer import TextLayer, read_text_layer
from tests.elsewhere import manifest


def read(data: bytes | Path, folder: Path, number: int = 1, reader: Callable | None = None) -> TextLayer:
    """The text layer of page `number` of a file or of the bytes of one."""
    path = folder / "made.pdf" if isinstance(data, bytes) else data
    if isinstance(data, bytes):
        path.write_bytes(data)
    with open_source(path, passwords=_passwords(path.name)) as source, source.page(number) as page:
        return read_text_layer(page, sample_reader=reader)


def texts(layer: TextLayer) -> list[str]:
    return [line.text for line in layer.text.lines] if layer.text else []


def corpus_rows() -> dict[str, dict]:
    """What must come out, by file name; empty without the corpus."""
    return {row["file"]: row["expect"] for row in manifest()}


def _passwords(name: str) -> tuple[str, ...]:
    word = corpus_rows().get(name, {}).get("password")
    return (word,) if word else ()
