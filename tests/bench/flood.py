"""Drop many one-page files into a watched folder at once: are all queued in time, is none lost, what does it take?

    python tests/bench/flood.py [--files 10000] [--workers 2] [--read] [--json FILE]

Goals: 10,000 files queued within 60 s, the watching process under 300 MB. With --read also wait until all are read.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from house import Daemon, page_lines, pdf_of, report

from daemon import processes
from storage.settings import Settings


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--read", action="store_true", help="wait until every file is read")
    parser.add_argument("--json", help="write the figures there")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ocrd-flood-") as name:
        place = Path(name)
        made = place / "made"
        made.mkdir()
        for number in range(given.files):
            (made / f"{number:05}.pdf").write_bytes(pdf_of([page_lines(number, 5)]))
        settings = Settings(home=place / "home", out=place / "out", engine="fake", workers=given.workers)
        daemon = Daemon(settings, place / "in")
        peak_mb = 0.0

        def weigh() -> None:
            nonlocal peak_mb
            peak_mb = max(peak_mb, processes.rss_mb(daemon.process.pid))

        try:
            for file in made.iterdir():
                file.rename(place / "in" / file.name)
            count = "SELECT count(*) FROM files"
            queued_s = daemon.until(lambda: daemon.value(count) >= given.files, 600, weigh)
            figures: dict[str, object] = {"files": given.files, "queued_s": round(queued_s, 1)}
            if given.read:
                done = "SELECT count(*) FROM file_status WHERE state = 'done'"
                read_s = daemon.until(lambda: daemon.value(done) >= given.files, 7200, weigh)
                figures["read_s"] = round(queued_s + read_s, 1)
                figures["files_per_s"] = round(given.files / (queued_s + read_s), 1)
                figures["sidecars"] = sum(1 for _ in (place / "out").glob("*.md"))
            figures["failed"] = int(daemon.value("SELECT count(*) FROM file_status WHERE state = 'failed'"))
            figures["watcher_peak_mb"] = round(peak_mb, 1)
        finally:
            daemon.stop()
        report(figures, given.json)


if __name__ == "__main__":
    main()
