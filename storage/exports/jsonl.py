"""A JSON object per page, one a line: where the page is from, then the page as in a sidecar."""

from __future__ import annotations

from storage.exports import Pieces
from storage.results import DocumentResult
from storage.sidecar_pages import dumps, page_object


def write(result: DocumentResult, name: str, path: str) -> Pieces:
    """One file; a page that failed has `error` and no text."""
    about = {"path": path, "sha256": result.sha256, "pages": result.page_count}
    lines = [dumps(about | page_object(page)) + "\n" for page in result.pages]
    yield ".jsonl", "".join(lines)
