"""Pages to standard output: Markdown with page marks, plain text, or JSON as in a sidecar."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from daemon import console

if TYPE_CHECKING:
    from storage.records import PageReading
    from storage.results import FailedPage

PAGE_END = "\f"  # between pages of plain text, as pdftotext and most OCR programs have it


def write(pages: Iterable[PageReading | FailedPage], output: str) -> None:
    """Print the pages as "md", "text" or "json"; text appears page by page, as it is read."""
    if output == "json":
        from storage.sidecar_pages import page_object

        console.write_json({"schema": "ocrd/1", "pages": [page_object(page) for page in pages]})
        return
    first = True
    for page in pages:
        if output == "md":
            from storage.sidecar_pages import page_markdown

            console.write_text(("" if first else "\n") + page_markdown(page))
        else:
            console.write_text(("" if first else PAGE_END) + getattr(page, "text", ""))
        first = False
