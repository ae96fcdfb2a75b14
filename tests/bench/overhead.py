"""The daemon's pages per minute against a bare loop over the same engine calls, one worker each.

    python tests/bench/overhead.py [--pages 60] [--engine tesseract] [--text-layer ignore] [--json FILE]

Both read the same PDF of generated pages. The daemon's time counts from the first page read to the last one saved, and,
as `with_start`, from the file's arrival to its sidecars. Goal: at least 0.9 of the bare loop.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_THREAD_LIMIT", "1")

from house import Daemon, page_lines, pdf_of, report

from storage.settings import Settings


def bare_s(file: Path, pages: int, settings: Settings) -> float:
    """Seconds per page of a loop that opens the file and reads page after page, without the engine's first call."""
    from pipeline.document import DocumentReader
    from pipeline.engines import registry

    engine = registry.create(settings.engine, settings)
    with DocumentReader(file, settings, engine) as reader:
        reader.read_page(1)
        started = time.perf_counter()
        for page in range(2, pages + 1):
            reader.read_page(page)
        return (time.perf_counter() - started) / (pages - 1)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pages", type=int, default=60)
    parser.add_argument("--engine", default="tesseract")
    parser.add_argument("--text-layer", default="ignore", choices=["auto", "ignore"])
    parser.add_argument("--json", help="write the figures there")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ocrd-overhead-") as name:
        place = Path(name)
        file = place / "book.pdf"
        file.write_bytes(pdf_of([page_lines(n + 1) for n in range(given.pages)]))
        settings = Settings(
            home=place / "home",
            out=place / "out",
            engine=given.engine,
            workers=1,
            text_layer=given.text_layer,
            settle_s=0.5,
        )
        bare = bare_s(file, given.pages, settings)
        daemon = Daemon(settings, place / "in")
        try:
            started = time.perf_counter()
            file.rename(place / "in" / "book.pdf")
            daemon.until(lambda: daemon.value("SELECT count(*) FROM file_status WHERE state = 'done'"), 7200)
            whole = time.perf_counter() - started
            between = daemon.value("SELECT max(read_at) - min(read_at) FROM pages")
        finally:
            daemon.stop()
    per_page = between / (given.pages - 1)
    figures: dict[str, object] = {
        "engine": given.engine,
        "text_layer": given.text_layer,
        "pages": given.pages,
        "bare_pages_per_min": round(60 / bare, 1),
        "daemon_pages_per_min": round(60 / per_page, 1),
        "ratio": round(bare / per_page, 3),
        "with_start_pages_per_min": round(given.pages * 60 / whole, 1),
    }
    report(figures, given.json)


if __name__ == "__main__":
    main()
