"""The three kinds of work a worker is handed: take in a file, read a page, write a file's sidecars."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class IntakeJob:
    """A file to be hashed and opened."""

    file_id: int
    path: bytes
    size: int  # as registered; -1 = unknown
    mtime_ns: int
    attempts: int = 0
    alone: bool = False  # it was in flight when a worker died: nothing else is handed out with it
    options: Mapping[str, object] = field(default_factory=dict)  # what `retry` asked for: password…


@dataclass(frozen=True, slots=True)
class PageJob:
    """A page to be read."""

    document_id: int
    page: int  # from 1
    path: bytes  # one of the files that carry the document
    sha256: str
    media_type: str
    pages: int  # of the document
    attempts: int = 0
    alone: bool = False  # it was in flight when a worker died: nothing else is handed out with it
    options: Mapping[str, object] = field(
        default_factory=dict
    )  # what `retry` asked for: engine, dpi, text_layer, password
    size: int = -1  # of the file when its content was hashed: if it differs now, this is other content
    mtime_ns: int = -1


@dataclass(frozen=True, slots=True)
class PublishJob:
    """A file whose sidecars are due."""

    file_id: int
    document_id: int
    path: bytes
    out_dir: bytes | None = None  # where they go; None = beside the file
    base: bytes | None = None  # out_dir mirrors the tree below this folder
    attempts: int = 0
