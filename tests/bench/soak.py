"""A watched folder for as long as one likes: do memory, open files, threads and database end where they began?

    python -m tests.bench.soak [--minutes 30] [--every 5] [--population 60] [--workers 1] [--seed 1] [--json FILE]

A real `ocrd watch` reads what `arrivals` does in its folder, `ocrd search` and `ocrd forget` run beside it, and every
30 s the daemon's processes are weighed. The median of the last five samples is compared with that of the five from
minute 5 on (from a sixth of the time on, in shorter runs), when the folder has its population and every path of the
code was taken:

- open files and threads: 4 more. A worker holds up to three files while it reads, and a sample is a moment.
- memory of the supervisor: 8 MB more. It does the same every second; SQLite's page cache (2 MB a connection)
  and the allocator's arenas fill up within minutes.
- memory of the workers: 10 % more. A worker keeps what its largest page so far needed; above `worker_memory_mb` a
  fresh one takes its place.
- database with its write-ahead log: 20 % or 2 MB more. As many files are forgotten as arrive, but of other lengths: the
  file is as large as what it had to hold at most, the log as long as its longest time without checkpoint.
- the database without its free pages: 20 %, for the same number of files has now more pages, now fewer.
- full-text indexes: twice as much and 0.2 MB more, for they keep what is forgotten until a third of what they list
  is gone (`storage.merging`), and only then are as large as when they were made.

At the end everything must be read or have failed for a reason, originals be as they were written, no temporary file
be left, and the database be sound.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from storage.merging import INDEXES
from tests.bench.arrivals import Arrivals
from tests.bench.house import report

OCRD = str(Path(sys.executable).parent / "ocrd")
SAMPLE_S = 30.0
WINDOW = 5
MB = 1024 * 1024


@dataclass(frozen=True)
class Sample:
    """The daemon at a moment."""

    minute: float
    supervisor_mb: float
    workers_mb: float
    processes: int
    open_files: int
    threads: int
    database_mb: float
    wal_mb: float
    free_mb: float  # of the database: pages that are used again before it grows
    index_mb: float  # of the database: its full-text indexes
    files: int
    pages: int
    waiting: int


# What is compared: the tolerated growth, absolute and as a share of the beginning.
TOLERANCES: dict[str, tuple[float, float]] = {
    "supervisor_mb": (8, 0),
    "workers_mb": (0, 0.10),
    "open_files": (4, 0),
    "threads": (4, 0),
    "stored_mb": (2, 0.20),
    "used_mb": (0, 0.20),
    "index_mb": (0.2, 1.0),
}


def weigh(process: subprocess.Popen[bytes], database: Path, minute: float) -> Sample:
    """The daemon's processes and files now. Raises: `psutil.Error` when a process ends meanwhile."""
    head = psutil.Process(process.pid)
    workers = head.children(recursive=True)
    everyone = [head, *workers]
    status = json.loads(ocrd("status", "--json", "--home", str(database.parent)).stdout)
    wal = database.with_name(database.name + "-wal")
    free, index = _within(database)
    return Sample(
        minute=round(minute, 2),
        supervisor_mb=round(head.memory_info().rss / MB, 1),
        workers_mb=round(sum(one.memory_info().rss for one in workers) / MB, 1),
        processes=len(everyone),
        open_files=sum(one.num_fds() for one in everyone),
        threads=sum(one.num_threads() for one in everyone),
        database_mb=round(database.stat().st_size / MB, 2),
        wal_mb=round(wal.stat().st_size / MB if wal.exists() else 0.0, 2),
        free_mb=round(free / MB, 2),
        index_mb=round(index / MB, 2),
        files=status["counts"]["total"],
        pages=status["counts"]["pages_total"],
        waiting=status["counts"]["waiting"],
    )


def _within(database: Path) -> tuple[int, int]:
    """Bytes of the database that are free, and that its full-text indexes take."""
    with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        pages, size = (
            connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("freelist_count", "page_size")
        )
        indexes = (
            connection.execute(f"SELECT total(length(block)) FROM {index}_data").fetchone()[0]
            for index in INDEXES
        )
        return pages * size, int(sum(indexes))


def ocrd(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a person would."""
    return subprocess.run([OCRD, *words], capture_output=True, text=True, timeout=120)


def run(place: Path, given: argparse.Namespace) -> tuple[list[Sample], Arrivals, list[str]]:
    """The samples, what happened, and what is wrong at the end."""
    folder, home, out = place / "in", place / "home", place / "out"
    folder.mkdir()
    arrivals = Arrivals(folder, given.seed, given.population)
    command = [OCRD, "watch", str(folder), "--home", str(home), "--out", str(out)]
    with (place / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--workers", str(given.workers)], stdout=log, stderr=subprocess.STDOUT
        )
        try:
            for _ in range(given.population):
                arrivals.happen()
            samples = _while_it_runs(process, home, arrivals, given)
            wrong = _at_rest(process, home, given)
        finally:
            process.terminate()
            process.wait(60)
    return samples, arrivals, wrong + _left_behind(home / "ocrd.db", out, arrivals)


def _while_it_runs(
    process: subprocess.Popen[bytes], home: Path, arrivals: Arrivals, given: argparse.Namespace
) -> list[Sample]:
    samples: list[Sample] = []
    started = time.monotonic()
    due_sample, due_arrival = SAMPLE_S, given.every
    while (now := time.monotonic() - started) < given.minutes * 60:
        if process.poll() is not None:
            raise RuntimeError(f"the daemon ended with {process.returncode}")
        if now >= due_arrival:
            arrivals.happen()
            due_arrival += arrivals.random.expovariate(1 / given.every)
        if now >= due_sample:
            with contextlib.suppress(psutil.Error):  # a worker was recycled just now: the next sample
                samples.append(weigh(process, home / "ocrd.db", now / 60))
                print(json.dumps(asdict(samples[-1])), flush=True)
            _use(home, arrivals)
            due_sample += SAMPLE_S
        time.sleep(max(0.05, min(due_sample, due_arrival) - (time.monotonic() - started)))
    return samples


def _use(home: Path, arrivals: Arrivals) -> None:
    """What people do meanwhile: they search, and have deleted files forgotten."""
    ocrd("search", "quick", "brown", "--home", str(home))
    if arrivals.gone:
        ocrd("forget", *map(str, arrivals.gone), "--home", str(home))
        arrivals.gone.clear()


def _at_rest(process: subprocess.Popen[bytes], home: Path, given: argparse.Namespace) -> list[str]:
    """Wait until nothing waits any more; the daemon must still run."""
    for _ in range(120):
        time.sleep(2)
        counts = json.loads(ocrd("status", "--json", "--home", str(home)).stdout)["counts"]
        if not counts["waiting"]:
            break
    wrong = [] if not counts["waiting"] else [f"{counts['waiting']} files still wait"]
    return wrong + ([] if process.poll() is None else ["the daemon has ended"])


def _left_behind(database: Path, out: Path, arrivals: Arrivals) -> list[str]:
    wrong = [f"changed: {path}" for path in arrivals.changed()]
    wrong += [f"temporary file: {path}" for path in out.rglob("*") if ".tmp" in path.name]
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    if (said := connection.execute("PRAGMA integrity_check").fetchone()[0]) != "ok":
        wrong.append(f"the database: {said}")
    stored = dict(connection.execute("SELECT path, state || coalesce(error_code, '') FROM file_status"))
    connection.close()
    wrong += [f"unknown to the library: {path}" for path in arrivals.known if str(path) not in stored]
    wrong += [
        f"failed without a reason: {path}" for path in arrivals.known if stored.get(str(path)) == "failed"
    ]
    return wrong


def compare(samples: Sequence[Sample], minutes: float) -> dict[str, dict[str, Any]]:
    """Each quantity after minute 5 and at the end, the growth allowed, and whether it was kept."""
    begin = min(5.0, minutes / 6)
    early = [sample for sample in samples if sample.minute >= begin][:WINDOW]
    late = samples[-WINDOW:]
    verdict = {}
    for name, (absolute, share) in TOLERANCES.items():
        first, last = (statistics.median(_value(one, name) for one in some) for some in (early, late))
        allowed = max(absolute, share * first)
        verdict[name] = {
            "after_minute_5": round(first, 2),
            "end": round(last, 2),
            "highest": round(max(_value(one, name) for one in samples), 2),
            "allowed_more": round(allowed, 2),
            "kept": last <= first + allowed,
        }
    return verdict


def _value(sample: Sample, name: str) -> float:
    if name == "stored_mb":
        return sample.database_mb + sample.wal_mb
    if name == "used_mb":
        return sample.database_mb - sample.free_mb
    return float(getattr(sample, name))


def main() -> None:
    """Run, and exit with 1 where something grew or went wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--every", type=float, default=5.0, help="seconds between happenings, on average")
    parser.add_argument("--population", type=int, default=60, help="files in the folder")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", help="write the figures there")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ocrd-soak-") as name:
        samples, arrivals, wrong = run(Path(name), given)
    verdict = compare(samples, given.minutes)
    kept = all(one["kept"] for one in verdict.values()) and not wrong
    report(
        {
            "minutes": given.minutes,
            "happened": dict(arrivals.counts),
            "verdict": verdict,
            "wrong": wrong,
            "kept": kept,
            "samples": [asdict(sample) for sample in samples],
        },
        given.json,
    )
    sys.exit(0 if kept else 1)


if __name__ == "__main__":
    main()
