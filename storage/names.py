"""Names of files as text: what a person is shown, and what a name is found by."""

from __future__ import annotations

import unicodedata


def display_path(path: bytes) -> str:
    """The path as text for people and for SQLite: bytes that are no UTF-8 as `\\xNN`."""
    return path.decode("utf-8", "backslashreplace")


def name_key(path: bytes) -> str:
    """What a file is found by (`files.name_key`): the last part of its path, folded."""
    return fold_name(display_path(path.rpartition(b"/")[2]))


def fold_name(name: str) -> str:
    """A name composed (NFC and NFD are one), widths and case folded, accents kept."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
