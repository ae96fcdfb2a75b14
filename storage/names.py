"""Names of files as text: what a person is shown, and what a name is found by."""

from __future__ import annotations

import unicodedata


def display_path(path: bytes) -> str:
    """The path as text for people and for SQLite: bytes that are no UTF-8 as `\\xNN`."""
    return path.decode("utf-8", "backslashreplace")


def name_key(name: bytes) -> str:
    """What a file's name is found by: the last part, composed (NFC and NFD are one), widths and case folded."""
    return unicodedata.normalize(
        "NFKC", unicodedata.normalize("NFKC", display_path(name.rpartition(b"/")[2])).casefold()
    )
