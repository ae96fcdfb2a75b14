"""Searches a second and how long each takes, of a running server, while a writer adds pages.

    python tests/bench/searching.py HOME [--pages 1000000] [--clients 1,10,50] [--seconds 20] [--every 1.0]
                                    [--write 5] [--filtered] [--json FILE]

HOME is a library made by make_index.py (made first with --pages). For each number of clients two runs: `typing`, where
each client asks every --every seconds, as somebody who types does, whatever the answers take; and `at once`, where each
asks again as soon as it has its answer. Queries are those of index.py, thirteen kinds in turn; --filtered: each with
one of seven filters, and first one client with each filter by itself. The writer saves --write pages a second through
the queue, as a worker does. Server, clients and writer share the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import multiprocessing
import os
import platform
import random
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import index as in_process
import make_index

from storage import jobs, library, results
from storage.database import open_database, open_readonly
from storage.records import Block, Category, DocumentInfo, PageReading, StopReason

SERVER = """
import sys
from pathlib import Path
import uvicorn
from daemon.server.app import create_app
from storage.settings import Settings
settings = Settings(home=Path(sys.argv[1]))
uvicorn.run(create_app(settings), host="127.0.0.1", port=int(sys.argv[2]), log_level="warning", access_log=False)
"""
TICK = os.sysconf("SC_CLK_TCK")
DAY_S = 86_400.0


@contextlib.contextmanager
def server(home: Path) -> Iterator[tuple[int, int]]:
    """(port, process id) of a server of that home."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen([sys.executable, "-c", SERVER, str(home), str(port)])
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.1)
        yield port, process.pid
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def writer(home: Path, pages_a_second: float) -> Iterator[list[float]]:
    """Pages saved meanwhile by a process of its own; how long each took, in ms, once it has ended."""
    took: list[float] = []
    spawning = multiprocessing.get_context("spawn")
    stop, results_of = spawning.Event(), spawning.Queue()
    process = spawning.Process(target=_write, args=(home, pages_a_second, stop, results_of))
    process.start()
    results_of.get()  # it is ready
    try:
        yield took
    finally:
        stop.set()
        took += results_of.get()
        process.join()


def _write(home: Path, pages_a_second: float, stop: Any, results_of: Any) -> None:
    conn = open_database(home / "ocrd.db")
    rng = random.Random(time.time())
    newest = conn.execute("SELECT max(id) FROM pages").fetchone()[0]
    ids = [rng.randrange(1, newest + 1) for _ in range(300)]
    texts = [row[0] for i in ids for row in conn.execute("SELECT text FROM pages WHERE id = ?", [i])]
    took: list[float] = []
    results_of.put(None)
    number = 0
    due = time.monotonic()
    while not stop.is_set() and pages_a_second > 0:
        if number % 10 == 0:
            _take_in(conn, 10)
        job = next(iter(jobs.claim_pages(conn, "bench:1:1", time.time(), 60.0, 1)), None)
        if job is not None:
            started = time.perf_counter()
            results.save(conn, "bench:1:1", job, _reading(job.page, rng.choice(texts)), time.time())
            took.append((time.perf_counter() - started) * 1000)
        number += 1
        due = max(due + 1 / pages_a_second, time.monotonic() - 1)
        stop.wait(max(0.0, due - time.monotonic()))
    jobs.release(conn, "bench:1:1")
    conn.close()
    results_of.put(took)


def _take_in(conn: sqlite3.Connection, pages: int) -> None:
    now = time.time()
    path = f"/written/{time.time_ns()}.pdf".encode()
    library.register(conn, [library.SeenFile(path, 1, 1)], now)
    for job in jobs.claim_intake(conn, "bench:1:1", now, 60.0):
        sha256 = hashlib.sha256(job.path).hexdigest()
        library.link(conn, job, sha256, 1, DocumentInfo("application/pdf", pages), None, now)


def _reading(page: int, text: str) -> PageReading:
    parts = text.split("\n\n")
    blocks = tuple(
        Block(Category.TEXT, (72.0, 72.0 + 140 * i, 523.0, 200.0 + 140 * i), part, part)
        for i, part in enumerate(parts)
    )
    return PageReading(page, 595.0, 842.0, blocks, text, text, StopReason.COMPLETE, "engine", "classic")


# --- clients -----------------------------------------------------------------------------------------------


def filters(conn: sqlite3.Connection) -> dict[str, str]:
    """What a search can be filtered by → the end of its address, for libraries of make_index.py."""
    # Not those that a writer added in an earlier run.
    made = "SELECT min(first_seen), max(first_seen) FROM files WHERE path GLOB '/library/*'"
    first, last = conn.execute(made).fetchone()
    middle = (first + last) / 2
    return {
        "one folder of 97": "&folder=/library/07",
        "one file, by its name": "&name=document%20000077",
        "the last hour": f"&since={last - 3600}",
        "a day, halfway": f"&since={middle}&until={middle + DAY_S}",
        "the older half": f"&until={middle}",
        "one engine, a seventh": "&engine=vlm",
        "a folder, an engine, the newer half": f"&folder=/library/07&engine=classic&since={middle}",
    }


async def client(
    port: int, queries: list[str], until: float, every: float, rng: random.Random, took: list[float]
) -> None:
    """Ask on one connection until the time is over. `queries`: as in addresses. `every` 0: at once."""
    reader, out = await asyncio.open_connection("127.0.0.1", port)
    due = time.perf_counter() + rng.random() * every
    while True:
        if every:
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
        started = due if every else time.perf_counter()  # late because the last answer was: that counts too
        if started >= until:
            break
        address = f"/api/search?q={rng.choice(queries)}"
        out.write(f"GET {address} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        fields = head.decode().lower().split("\r\n")
        length = next(int(field.split(":")[1]) for field in fields if field.startswith("content-length"))
        await reader.readexactly(length)
        if not fields[0].split()[1].startswith("200"):
            raise RuntimeError(f"{address}: {fields[0]}")
        took.append((time.perf_counter() - started) * 1000)
        due += every
    out.close()


async def ask(port: int, queries: list[str], clients: int, seconds: float, every: float) -> list[float]:
    """How long each search took, in ms."""
    took: list[float] = []
    until = time.perf_counter() + seconds
    await asyncio.gather(
        *(client(port, queries, until, every, random.Random(i), took) for i in range(clients))
    )
    return took


def processor_s(pid: int) -> float:
    """Processor seconds of a process so far (Linux; elsewhere 0)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICK


def resident_mb(pid: int) -> float:
    """Its own memory, without the mapped database."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon"):
                return int(line.split()[1]) / 1000
    return 0.0


def shares(took: list[float], seconds: float) -> dict[str, float]:
    """How many searches a second, and how long they took."""
    return {
        "searches_per_s": round(len(took) / seconds, 1),
        "p50_ms": round(in_process.percentile(took, 0.5), 1),
        "p95_ms": round(in_process.percentile(took, 0.95), 1),
        "p99_ms": round(in_process.percentile(took, 0.99), 1),
    }


def run(home: Path, given: argparse.Namespace) -> list[dict[str, float | str]]:
    """A row per way of asking and number of clients."""
    conn = open_readonly(home / "ocrd.db")
    kinds = in_process.queries(conn, 2)
    ends = filters(conn) if given.filtered else {"": ""}
    conn.close()
    texts = [quote(text) for kind in kinds.values() for text in kind]
    queries = [text + end for text in texts for end in ends.values()]
    rows: list[dict[str, float | str]] = []
    with server(home) as (port, pid):
        asyncio.run(ask(port, queries, 2, given.seconds / 2, 0.0))  # pages of the database come into memory
        for name, end in ends.items() if given.filtered else ():
            took = asyncio.run(ask(port, [text + end for text in texts], 1, given.seconds, 0.0))
            rows.append({"way": name, "clients": 1, **shares(took, given.seconds)})
            print(json.dumps(rows[-1]), flush=True)
        for way, every in (("typing", given.every), ("at once", 0.0)):
            for clients in given.clients:
                with writer(home, given.write) as saved:
                    used = processor_s(pid)
                    took = asyncio.run(ask(port, queries, clients, given.seconds, every))
                    used = processor_s(pid) - used
                rows.append(
                    {
                        "way": way,
                        "clients": clients,
                        **shares(took, given.seconds),
                        "processor_ms": round(used * 1000 / max(1, len(took)), 1),
                        "server_mb": round(resident_mb(pid), 1),
                        "pages_written": len(saved),
                        "write_p95_ms": round(in_process.percentile(saved, 0.95), 1) if saved else 0.0,
                    }
                )
                print(json.dumps(rows[-1]), flush=True)
    return rows


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("home", type=Path)
    parser.add_argument("--pages", type=int, help="first make a library of that size, if HOME has none")
    parser.add_argument("--clients", type=lambda text: [int(n) for n in text.split(",")], default=[1, 10, 50])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--every", type=float, default=1.0, help="seconds between a client's searches")
    parser.add_argument("--write", type=float, default=5.0, help="pages written a second meanwhile")
    parser.add_argument("--filtered", action="store_true")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    if given.pages and not (given.home / "ocrd.db").exists():
        make_index.make(given.home, given.pages)
    open_database(given.home / "ocrd.db").close()  # brought up to date, where it is older
    conn = open_readonly(given.home / "ocrd.db")
    pages = conn.execute("SELECT max(id) FROM pages").fetchone()[0]
    conn.close()
    rows = run(given.home, given)
    figures = {
        "pages": pages,
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "load": round(os.getloadavg()[0], 1),
        "rows": rows,
    }
    if given.json:
        given.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
