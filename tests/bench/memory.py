"""Memory of a worker over a long document against a short one.

    python tests/bench/memory.py [--pages 1200] [--engine fake] [--text-layer ignore] [--json FILE]

Goal: the peak of 1,200 pages within 300 MB of that of 20 pages.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from house import Daemon, page_lines, pdf_of, report

from storage.settings import Settings


def peak_mb(place: Path, pages: int, engine: str, text_layer: str) -> tuple[float, float]:
    """Peak memory of the worker that reads so many pages, in MiB, and the seconds that took."""
    # Pages without text layer, so that each is rasterised and goes through an engine.
    settings = Settings(
        home=place / f"home{pages}",
        out=place / "out",
        engine=engine,
        workers=1,
        text_layer=text_layer,  # type: ignore[arg-type]
    )
    daemon = Daemon(settings, place / f"in{pages}")
    try:
        (place / f"in{pages}" / "book.pdf").write_bytes(pdf_of([page_lines(n + 1) for n in range(pages)]))
        done = "SELECT count(*) FROM file_status WHERE state = 'done'"
        seconds = daemon.until(lambda: daemon.value(done), 7200)
        daemon.until(
            lambda: daemon.value("SELECT count(*) FROM workers WHERE stage IS NULL AND role = 'worker'"), 30
        )
        return daemon.value("SELECT max(peak_rss_mb) FROM workers WHERE role = 'worker'"), seconds
    finally:
        daemon.stop()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pages", type=int, default=1200)
    parser.add_argument("--engine", default="fake")
    parser.add_argument("--text-layer", default="ignore", choices=["auto", "ignore"])
    parser.add_argument("--json", help="write the figures there")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ocrd-memory-") as name:
        short_mb, _ = peak_mb(Path(name), 20, given.engine, given.text_layer)
        long_mb, seconds = peak_mb(Path(name), given.pages, given.engine, given.text_layer)
    figures: dict[str, object] = {
        "engine": given.engine,
        "text_layer": given.text_layer,
        "peak_mb_20_pages": round(short_mb),
        f"peak_mb_{given.pages}_pages": round(long_mb),
        "difference_mb": round(long_mb - short_mb),
        "pages_per_s": round(given.pages / seconds, 1),
    }
    report(figures, given.json)


if __name__ == "__main__":
    main()
