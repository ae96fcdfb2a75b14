"""Names of pages that a model can cite, and what they lead to: `ocrd:document/12#page=3`.

The number is `documents.id`: it names a content, whatever its files are called.
"""

from __future__ import annotations

import re
import sqlite3

from storage.errors import UnknownReferenceError

MESSAGE_CHARS = 500
_REFERENCE = re.compile(r"ocrd:document/(\d{1,18})(?:#page=(\d{1,9}))?")
_PATH_PAGE = re.compile(r"(.+)#page=(\d{1,9})", re.DOTALL)


def reference(document_id: int, page: int | None = None) -> str:
    """`ocrd:document/12#page=3`: what a model cites and `read_page` takes."""
    return f"ocrd:document/{document_id}" + ("" if page is None else f"#page={page}")


def resolve(connection: sqlite3.Connection, ref: str) -> tuple[int, int]:
    """(document, page) that a reference names, page 1 where it names none; whether there is such a page is not asked.

    Raises: `UnknownReferenceError` for what is no reference, and for paths and names that mean no one document.
    """
    ref = ref.strip()
    if known := _REFERENCE.fullmatch(ref):
        return int(known[1]), int(known[2] or 1)
    if ref.startswith("ocrd:"):
        raise UnknownReferenceError(f"{shortened(ref)!r} is no reference such as {reference(12, 3)}")
    path, page = ref, 1
    if given := _PATH_PAGE.fullmatch(ref):
        path, page = given[1], int(given[2])
    return _document_of(connection, path), page


def _document_of(connection: sqlite3.Connection, path: str) -> int:
    from storage import library as files

    found = files.find_files(connection, path) if path and "\0" not in path else []
    ids = {row.document_id for row in found}
    if len(ids) != 1:
        some = f"{shortened(path)!r} names {len(found)} files of the library" if found else ""
        raise UnknownReferenceError(some or f"the library holds no {shortened(path)!r}")
    document_id = ids.pop()
    if document_id is None:
        raise UnknownReferenceError(
            f"not opened yet ({found[0].state})", file=shortened(path), remedy="ask `status`, and try later"
        )
    return document_id


def shortened(text: str) -> str:
    """At most `MESSAGE_CHARS` characters of it."""
    return text if len(text) <= MESSAGE_CHARS else text[: MESSAGE_CHARS - 1] + "…"
