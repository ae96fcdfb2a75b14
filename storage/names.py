"""Names of files: as text for people, as what a name is found by, and as a range below a folder."""

from __future__ import annotations

import unicodedata

from storage.folding import fold


def display_path(path: bytes) -> str:
    """The path as text for people and for SQLite: bytes that are no UTF-8 as `\\xNN`."""
    return path.decode("utf-8", "backslashreplace")


def name_key(path: bytes) -> str:
    """What a file is found by (`files.name_key`): the last part of its path, folded."""
    return fold_name(display_path(path.rpartition(b"/")[2]))


def bounds_below(folder: bytes) -> tuple[bytes, bytes]:
    """Bounds, themselves outside, of the paths below a folder."""
    plain = folder.rstrip(b"/")
    return plain + b"/", plain + b"0"  # "0" follows "/"


def fold_name(name: str) -> str:
    """A name as search folds text: composed (NFC and NFD are one), widths, case and accents gone."""
    return fold(unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold()))


def name_filter(name: str) -> tuple[str, list[object]]:
    """SQL over files `f` for a part of a file name, or a glob over it, and its parameters."""
    key = fold_name(name)
    glob = key.replace("[", "[[]") if "*" in key or "?" in key else ""
    return "(instr(f.name_key, ?) > 0 OR f.name_key GLOB ?)", [key, glob]
