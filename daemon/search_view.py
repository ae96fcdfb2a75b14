"""What `ocrd search` prints."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from daemon import console

if TYPE_CHECKING:
    from storage.index import Hit


# Snippets hold no control characters, so these can only be marks.
_BEGIN, _END = "\x02", "\x03"
_NOTES = {"missing": " [file is gone]", "superseded": " [file has changed, being read again]"}


def marks(as_json: bool) -> tuple[str, str]:
    """What goes around a match: brackets, unless it will be shown in bold."""
    return ("[", "]") if as_json or not console.has_colour(sys.stdout) else (_BEGIN, _END)


def show(hits: Sequence[Hit], *, as_json: bool = False, note: str = "") -> None:
    """Print the hits: path and page, then the snippet with its match marked; or a JSON list.

    `note` is what a person should know of the query; it goes to standard error.
    """
    if note:
        print(note, file=sys.stderr)
    if as_json:
        console.write_json([as_object(hit) for hit in hits])
        return
    for hit in hits:
        console.say(place(hit))
        if hit.snippet:
            console.say("    " + emphasised(hit.snippet))
    if not hits and not note:
        print("nothing found", file=sys.stderr)


def place(hit: Hit) -> str:
    """`PATH, page 2 (printed 42)`; copies and what state the file is in, where that is worth a word."""
    text = console.escape_name(hit.path)
    if hit.page is not None:
        text += f", page {hit.page}"
    if hit.label:
        text += f" (printed {console.escape_name(hit.label)})"
    if len(hit.paths) > 1:
        text += f" [and {console.plural(len(hit.paths) - 1, 'copy', 'copies')}]"
    return text + _NOTES.get(str(hit.state), "")


def emphasised(snippet: str) -> str:
    """The snippet, safe to show, its match in bold where it carries marks for that."""
    pieces = snippet.replace(_END, _BEGIN).split(_BEGIN)
    return "".join(
        f"{console.BOLD}{piece}{console.RESET}" if number % 2 else piece
        for number, piece in enumerate(map(console.escape_name, pieces))
    )


def as_object(hit: Hit) -> dict[str, Any]:
    """A hit as JSON: path, page, label, snippet, score, boxes, state."""
    return {
        "path": hit.path,
        "page": hit.page,
        "label": hit.label,
        "snippet": hit.snippet,
        "score": round(hit.score, 4),
        "boxes": [list(box) for box in hit.boxes],
        "state": str(hit.state),
        "paths": list(hit.paths),
    }
