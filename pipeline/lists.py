"""List markers at the start of a line: bullets, numbers, letters, roman numerals."""

from __future__ import annotations

import re
from dataclasses import dataclass

_BULLETS = "•◦▪▫‣·●○■□▸►➢➤✓✔❖\uf0b7\uf0a7\u2043\u2219"
_DASHES = "-–*—"
_BULLET = re.compile(rf"([{_BULLETS}])\s*(?=\S)")
_DASH = re.compile(rf"([{re.escape(_DASHES)}])\s+(?=\S)")
_ORDINAL = re.compile(
    r"(\(?(?:\d{1,3}|[a-zA-Z]|[ivxIVX]{2,5})\)|(?:\d{1,3}|[a-z]|[ivx]{2,5}|[IVX]{1,5})\.)\s+(?=\S)"
)


@dataclass(frozen=True, slots=True)
class Marker:
    """A list marker, and where the text behind it begins."""

    text: str
    kind: str  # markers of one list share it
    end: int
    certain: bool  # a bullet is nothing else; a number or dash may open any line


def marker_of(text: str) -> Marker | None:
    """The list marker `text` begins with."""
    head = text[:1]
    if not head:
        return None
    if head in _BULLETS:
        match = _BULLET.match(text)
        return Marker(head, head, match.end(), True) if match else None
    if head in _DASHES:
        match = _DASH.match(text)
        return Marker(head, head, match.end(), False) if match else None
    match = _ORDINAL.match(text)
    if match is None:
        return None
    return Marker(match.group(1), _kind(match.group(1)), match.end(), False)


def _kind(marker: str) -> str:
    core = marker.strip("().")
    shape = "1" if core.isdigit() else "A" if core.isupper() else "a"
    return marker.replace(core, shape)


def starts_list(marker: Marker) -> bool:
    """Whether a doubtful marker is one that lists begin with: `1.`, `a)`, `(i)`, a dash."""
    core = marker.text.strip("().")
    return marker.certain or not core.isalnum() or core.lower() in {"1", "a", "i", "0"}
