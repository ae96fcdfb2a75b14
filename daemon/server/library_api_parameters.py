"""What requests of the library API are told in their address, with the bounds of each."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path, Query

from daemon.server import shapes
from daemon.server.library_api_shaping import BIGGEST_ID

DocumentId = Annotated[int, Path(ge=1, le=BIGGEST_ID, description="`id` of a document.")]
PageId = Annotated[int, Path(ge=1, le=BIGGEST_ID, description="`page_id` of a page that was read.")]
PageNumber = Annotated[int, Path(ge=1, le=10**9, description="From 1.")]

Words = Annotated[str, Query(max_length=2000, description='Words, a "phrase", a prefix*; any text is safe.')]
Folder = Annotated[
    str | None,
    Query(max_length=4096, description="Only in this folder or below it; or with this in the path."),
]
Name = Annotated[
    str | None, Query(max_length=500, description="Only with this in the file name; * and ? match anything.")
]
Engine = Annotated[
    str | None, Query(max_length=100, description="Only read by it; `text-layer` and `blank` are two more.")
]
Since = Annotated[float | None, Query(ge=-1e12, le=1e12, description="Only added then or later.")]
Until = Annotated[float | None, Query(ge=-1e12, le=1e12, description="Only added before.")]
States = Annotated[
    list[shapes.DocumentState] | None, Query(max_length=6, description="Only in these states.")
]

Responses = dict[int | str, dict[str, Any]]  # status → what the OpenAPI document says of it

# What any request may be answered with, besides what its own line says.
PROBLEMS: Responses = {
    status: {"model": shapes.Problem, "description": text}
    for status, text in (
        (400, "The request makes no sense."),
        (401, "A token is needed."),
        (403, "Not from there."),
        (422, "A parameter is out of bounds."),
        (503, "The database cannot be used now."),
    )
}


def problem(text: str) -> dict[str, Any]:
    """One more answer of a request."""
    return {"model": shapes.Problem, "description": text}
