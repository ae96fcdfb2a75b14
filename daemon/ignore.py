"""Which names and folders are no documents: a pure judgement on names, without looking at the disk."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

# Registered whatever they hold: a page.html renamed to page.pdf deserves an error that says so.
EXTENSIONS = frozenset(b".pdf .png .jpg .jpeg .jpe .jfif .tif .tiff .webp .heic .heif .bmp .gif".split())
# Names programs give to what is not finished yet; the finished file is renamed, and then seen.
TEMPORARY = tuple(
    b".part .partial .crdownload .download .opdownload .tmp .temp .filepart .pd~ .swp ~ #".split()
)
SYSTEM_NAMES = frozenset((b"thumbs.db", b"ehthumbs.db", b"desktop.ini", b"icon\r"))
SYSTEM_FOLDERS = frozenset(
    (
        b"@eadir",  # Synology: thumbnails beside each file
        b"#recycle",
        b"#snapshot",
        b"$recycle.bin",
        b"system volume information",
        b"lost+found",
        b"__macosx",
    )
)
# Folders that macOS shows as one file; what lies inside belongs to the program.
BUNDLES = tuple(b".photoslibrary .app .bundle .framework .fcpbundle .lrdata .musiclibrary .tvlibrary".split())
CLOUD = b".icloud"


class Kind(StrEnum):
    """What a file's name says about it."""

    DOCUMENT = "document"  # a known extension
    UNKNOWN = "unknown"  # no extension: its first bytes decide
    IGNORED = "ignored"
    CLOUD = "cloud"  # stands for a file that lies in iCloud and not here


@dataclass(frozen=True, slots=False)
class IgnoreRules:
    """Built-in rules, plus the patterns of the settings and folders of our own.

    `patterns` are globs, compared without case: one with a slash against the path below the root, any other against
    the name of the file or of a folder above it. `folders` are absolute paths never entered (our output, our home).
    """

    patterns: Sequence[str] = ()
    folders: frozenset[bytes] = field(default_factory=frozenset)

    @cached_property
    def _name_pattern(self) -> re.Pattern[str] | None:
        return _any_of([pattern for pattern in self.patterns if "/" not in pattern.rstrip("/")])

    @cached_property
    def _path_pattern(self) -> re.Pattern[str] | None:
        return _any_of([pattern for pattern in self.patterns if "/" in pattern.rstrip("/")])

    def kind(self, name: bytes, below: bytes = b"") -> Kind:
        """What the file `name` is; `below` is its folder relative to the root (for patterns with a slash)."""
        low = name.lower()
        if low.startswith(b".") and low.endswith(CLOUD) and len(low) > len(CLOUD) + 1:
            inner = self.kind(name[1 : -len(CLOUD)], below)
            return Kind.CLOUD if inner in (Kind.DOCUMENT, Kind.UNKNOWN) else Kind.IGNORED
        if low.startswith((b".", b"~$")) or low.endswith(TEMPORARY) or low in SYSTEM_NAMES:
            return Kind.IGNORED
        if self._matches(name, below):
            return Kind.IGNORED
        extension = os.path.splitext(low)[1]
        if extension in EXTENSIONS:
            return Kind.DOCUMENT
        return Kind.IGNORED if extension else Kind.UNKNOWN

    def skips_folder(self, path: bytes, below: bytes = b"") -> bool:
        """Whether the folder `path` is never entered; `below` is its parent relative to the root."""
        name = os.path.basename(path)
        low = name.lower()
        return (
            low.startswith(b".")
            or low in SYSTEM_FOLDERS
            or low.endswith(BUNDLES)
            or low.endswith(TEMPORARY)  # Safari downloads into a folder x.pdf.download
            or path in self.folders
            or self._matches(name, below)
        )

    def _matches(self, name: bytes, below: bytes) -> bool:
        if self._name_pattern and self._name_pattern.match(os.fsdecode(name).casefold()):
            return True
        if self._path_pattern is None:
            return False
        return self._path_pattern.match(os.fsdecode(os.path.join(below, name)).casefold()) is not None


def _any_of(patterns: list[str]) -> re.Pattern[str] | None:
    if not patterns:
        return None
    return re.compile("|".join(fnmatch.translate(pattern.strip("/").casefold()) for pattern in patterns))
