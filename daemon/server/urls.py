"""What a request may name instead of sending it: files below allowed folders, pictures elsewhere on the net."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Reach:
    """Nothing, unless told: `roots` are folders whose files may be named, `remote` allows http(s) addresses."""

    roots: tuple[Path, ...] = ()
    watched: bool = False  # the watched folders too
    remote: bool = False
