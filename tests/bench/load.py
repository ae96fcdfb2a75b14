"""Very many files, and very long documents: what each step costs, and how it grows.

    python tests/bench/load.py files [--files 10000,20000,50000] [--folders 2000] [--more 10000]
    python tests/bench/load.py pages [--pages 5000,10000,20000]

`files`: so many one-page PDFs lie in nested folders when the daemon starts. Until all are queued: seconds, the watching
process's memory, what `ocrd status` takes. Then so many more are moved in at once while it reads. It is not waited
until all are read: `flood.py --read` does that. `pages`: one PDF of so many pages, each of five lines, through
intake, reading and publishing. Exponents are slopes of log cost over log size: 1 is proportional.
"""

from __future__ import annotations

import argparse
import math
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from house import Daemon, page_lines, pdf_of, report

from daemon import processes
from storage import status
from storage.database import open_database, open_readonly
from storage.settings import Settings

OCRD = Path(sys.executable).parent / "ocrd"
FILES, PAGES = "SELECT count(*) FROM files", "SELECT count(*) FROM page_jobs"


class Watch:
    """The watching process's memory, and what `ocrd status` takes, while something is waited for.

    Milliseconds are of the processor: the clock would say how busy the daemon is.
    """

    def __init__(self, daemon: Daemon, settings: Settings) -> None:
        self.daemon = daemon
        self.home = settings.home
        self.conn = open_readonly(settings.database_path)
        self.peak_mb = self.worker_peak_mb = 0.0
        self.status_ms: list[float] = []

    def look(self) -> None:
        """Weigh, and take the status as the command does."""
        self.peak_mb = max(self.peak_mb, processes.rss_mb(self.daemon.process.pid))
        worker = self.daemon.value("SELECT max(peak_rss_mb) FROM workers WHERE role = 'worker'")
        self.worker_peak_mb = max(self.worker_peak_mb, worker)
        started = time.process_time()
        status.summary(self.conn, now=time.time())
        status.notable(self.conn, failures=10)
        self.status_ms.append((time.process_time() - started) * 1000)
        time.sleep(0.2)  # or measuring would be what the daemon is busy with

    def figures(self, more: int = 0) -> dict[str, float]:
        """What was seen so far, and in so many more looks; it is forgotten, but for the peaks."""
        for _ in range(more):
            self.look()
        taken, self.status_ms = sorted(self.status_ms), []
        return {
            "watcher_peak_mb": round(self.peak_mb, 1),
            "status_ms_p50": round(statistics.median(taken), 1),
            "status_ms_p95": round(taken[int(0.95 * (len(taken) - 1))], 1),
        }

    def command_ms(self, *words: str) -> float:
        """Processor time of a whole command, the best of three."""
        took = []
        for _ in range(3):
            before = _children_s()
            subprocess.run([OCRD, *words, "--home", self.home], capture_output=True, check=True)
            took.append((_children_s() - before) * 1000)
        return round(min(took))


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def many_files(place: Path, files: int, folders: int, more: int, workers: int) -> dict[str, Any]:
    """Figures of one size."""
    settings = Settings(home=place / "home", out=place / "out", engine="fake", workers=workers)
    watched = place / "in"
    places = [watched / f"{n % 20:02}" / f"{n % 400:03}" / f"{n:04}" for n in range(folders)]
    for folder in places:
        folder.mkdir(parents=True)
    for number in range(files):
        (places[number % folders] / f"{number:05}.pdf").write_bytes(pdf_of([page_lines(number, 5)]))
    open_database(settings.database_path).close()  # so that no migration is measured
    started = time.monotonic()
    daemon = Daemon(settings, watched)
    watch = Watch(daemon, settings)
    try:
        daemon.until(lambda: daemon.value(FILES) >= files, 1800, watch.look)
        queued_s = time.monotonic() - started
        figures: dict[str, Any] = {"files": files, "folders": folders, "queued_s": round(queued_s, 1)}
        watch.status_ms.clear()  # with all of them waiting it takes longest
        figures |= {"files_per_s": round(files / queued_s), **watch.figures(more=15)}
        figures["status_command_cpu_ms"] = watch.command_ms("status")
        if more:
            figures["more"] = _dropped(daemon, watch, watched, files, more)
        figures["read_meanwhile"] = int(daemon.value("SELECT count(*) FROM pages"))
        figures["database_mb"] = round(settings.database_path.stat().st_size / 2**20, 1)
        figures["failed"] = int(daemon.value("SELECT count(*) FROM file_status WHERE state = 'failed'"))
    finally:
        daemon.stop()
    return figures


def _dropped(daemon: Daemon, watch: Watch, watched: Path, before: int, more: int) -> dict[str, Any]:
    made = watched.with_name("made")
    made.mkdir()
    for number in range(before, before + more):
        (made / f"{number:05}.pdf").write_bytes(pdf_of([page_lines(number, 5)]))
    read_before = daemon.value("SELECT count(*) FROM pages")
    started = time.monotonic()
    for file in made.iterdir():
        file.rename(watched / file.name)
    moved_s = time.monotonic() - started
    daemon.until(lambda: daemon.value(FILES) >= before + more, 1800, watch.look)
    return {
        "files": more,
        "moved_s": round(moved_s, 1),
        "queued_s": round(time.monotonic() - started, 1),
        "read_meanwhile": int(daemon.value("SELECT count(*) FROM pages") - read_before),
        **watch.figures(),
    }


def many_pages(place: Path, pages: int, workers: int) -> dict[str, Any]:
    """Figures of one document."""
    settings = Settings(home=place / "home", out=place / "out", engine="fake", workers=workers)
    open_database(settings.database_path).close()
    made = place / "long.pdf"
    made.write_bytes(pdf_of([page_lines(number, 5) for number in range(pages)]))
    figures: dict[str, Any] = {"pages": pages, "pdf_mb": round(made.stat().st_size / 2**20, 1)}
    daemon = Daemon(settings, place / "in")
    watch = Watch(daemon, settings)

    def until(query: str, least: int) -> float:
        return round(daemon.until(lambda: daemon.value(query) >= least, 5400, watch.look), 1)

    try:
        made.rename(place / "in" / "long.pdf")
        until(FILES, 1)
        figures["opened_s"] = until(PAGES, pages)
        figures["read_s"] = until("SELECT sum(pages_done + pages_failed) FROM documents", pages)
        figures["pages_per_s"] = round(pages / figures["read_s"], 1)
        figures |= watch.figures() | {"worker_reading_peak_mb": round(watch.worker_peak_mb, 1)}
        figures["published_s"] = until(
            "SELECT count(*) FROM file_status WHERE state IN ('done', 'failed')", 1
        )
        until("SELECT count(*) FROM workers WHERE stage IS NULL AND role = 'worker'", 1)
        watch.look()
        figures["worker_peak_mb"] = round(watch.worker_peak_mb, 1)
        figures["failed_pages"] = int(daemon.value("SELECT sum(pages_failed) FROM documents"))
        figures["show_last_page_cpu_ms"] = watch.command_ms("show", "long.pdf", "--page", str(pages))
        figures["search_cpu_ms"] = watch.command_ms("search", f'"Page {pages - 1} begins"')
        figures["json_mb"] = round((place / "out" / "long.pdf.json").stat().st_size / 2**20, 1)
        figures["database_mb"] = round(settings.database_path.stat().st_size / 2**20, 1)
    finally:
        daemon.stop()
    return figures


def exponents(runs: list[dict[str, Any]], size: str, costs: tuple[str, ...]) -> dict[str, float]:
    """Least-squares slopes of log cost over log size."""
    if len(runs) < 2:
        return {}
    x = [math.log(run[size]) for run in runs]
    slopes = {}
    for cost in costs:
        y = [math.log(max(run[cost], 1e-3)) for run in runs]
        slopes[cost] = round(statistics.linear_regression(x, y).slope, 2)
    return slopes


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("files", "pages"))
    parser.add_argument("--files", default="10000,20000,50000")
    parser.add_argument("--folders", type=int, default=2000)
    parser.add_argument("--more", type=int, default=10_000, help="files moved in after the last size's start")
    parser.add_argument("--pages", default="5000,10000,20000")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument(
        "--place", type=Path, help="folder to work in, deleted afterwards; else a temporary one"
    )
    parser.add_argument("--json", help="write the figures there")
    given = parser.parse_args()
    sizes = [int(size) for size in (given.files if given.what == "files" else given.pages).split(",")]

    def files(place: Path, size: int) -> dict[str, Any]:
        more = given.more if size == sizes[-1] else 0
        return many_files(place, size, given.folders, more, given.workers)

    def pages(place: Path, size: int) -> dict[str, Any]:
        return many_pages(place, size, given.workers)

    measure: Callable[[Path, int], dict[str, Any]] = files if given.what == "files" else pages
    runs = []
    for size in sizes:
        place = Path(tempfile.mkdtemp(prefix="ocrd-load-", dir=given.place))
        try:
            runs.append(measure(place, size))
            print(runs[-1], flush=True)
        finally:
            shutil.rmtree(place)
    costs = ("queued_s", "watcher_peak_mb", "status_ms_p50", "status_command_cpu_ms")
    if given.what == "pages":
        costs = (
            "opened_s",
            "read_s",
            "published_s",
            "worker_reading_peak_mb",
            "worker_peak_mb",
            "status_ms_p50",
        )
    report({"runs": runs, "exponents": exponents(runs, given.what, costs)}, given.json)


if __name__ == "__main__":
    main()
