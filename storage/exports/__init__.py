"""A document that was read, in the formats of other programs. Plain data in, text out; a module per format."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module

from storage.results import DocumentResult

# (suffix, text) of each file that a document becomes; the suffix follows the name of the source.
Pieces = Iterator[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Format:
    """A format: the module that writes it, and whether documents may follow each other in one stream."""

    module: str
    about: str
    streams: bool

    def write(self, result: DocumentResult, name: str, path: str) -> Pieces:
        """The files of a document; `name` is its file name, `path` all of it, as text.

        Raises: `EngineUnavailableError` where the format needs an extra that is not installed.
        """
        write: Callable[[DocumentResult, str, str], Pieces] = import_module(
            f"storage.exports.{self.module}"
        ).write
        return write(result, name, path)


FORMATS = {
    "text": Format("text", "running text, pages parted by form feeds", streams=True),
    "jsonl": Format("jsonl", "a JSON object per page and line, as in the sidecar", streams=True),
    "hocr": Format("hocr", "words with their boxes, a file per page, as OCRmyPDF takes it", streams=False),
    "docling": Format("docling", "a DoclingDocument (extra `docling`)", streams=False),
}
