"""Running text; a form feed between pages, so that page N is what lies between feed N-1 and feed N."""

from __future__ import annotations

from storage.exports import Pieces
from storage.records import PageReading
from storage.results import DocumentResult


def write(result: DocumentResult, name: str, path: str) -> Pieces:
    """One file; pages that failed or are not read yet are empty."""
    texts = [""] * result.page_count
    for page in result.pages:
        if isinstance(page, PageReading):
            texts[page.page - 1] = page.text.replace("\f", " ")
    yield ".txt", "\f".join(texts) + "\n"
