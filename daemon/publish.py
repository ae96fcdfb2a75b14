"""Write a file's sidecars from what the database holds, and note where they are."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from storage import jobs, results
from storage.failpoints import reach
from storage.work import PublishJob

if TYPE_CHECKING:
    from storage.settings import Settings

DISTRIBUTION = "ocrd-mlx"


def provenance(settings: Settings) -> dict[str, object]:
    """What read the pages, as far as it is the same for all; the engine of each page stands beside it."""
    try:
        own = version(DISTRIBUTION)
    except PackageNotFoundError:  # run from a bare checkout
        own = "unknown"
    return {
        "ocrd": own,
        "engine": settings.engine,
        "languages": list(settings.languages),
        "dpi": settings.dpi,
        "text_layer": settings.text_layer,
    }


def publish(
    conn: sqlite3.Connection,
    owner: str,
    job: PublishJob,
    settings: Settings,
    provenance: Mapping[str, object],
) -> None:
    """Write the sidecars. Raises: storage errors; nothing is half-written then."""
    from storage import sidecars

    result = results.load_document(conn, job.document_id)
    written = sidecars.write(
        job.path, result, job.out_dir, job.base, provenance, settings.library_out, words=settings.words
    )
    reach("publish.written")
    jobs.finish_publish(conn, owner, job, str(written.markdown_path), str(written.json_path), written.note)
