"""How size, search, status and lists grow with the library.

    python tests/bench/growth.py HOME [HOME …] [--repeat 3] [--clock elapsed] [--json FILE]

Homes are made by make_index.py, the smallest first, each ten times the one before, say. In-process, in milliseconds of
processor time (or elapsed): `storage.index.search` over every third of the queries of index.py, beside it the bare
`MATCH … ORDER BY rank LIMIT 20` and `MATCH … LIMIT 20` of the same expressions; filtered searches; `status.summary`,
and the first rows of a list. The exponent is that of the library's size over all homes (least squares in logarithms).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import sqlite3
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import index as in_process

from storage import listing, recent, status
from storage.database import open_database, open_readonly
from storage.index import search
from storage.query import parse

CLOCKS = {"processor": time.process_time, "elapsed": time.perf_counter}


def unranked(conn: sqlite3.Connection, query: str) -> None:
    """The first twenty that match, in the order of the index."""
    parsed = parse(query)
    table = "pages_fts" if parsed.words_match else "page_grams_fts"
    match = parsed.words_match or parsed.grams_match
    conn.execute(f"SELECT rowid FROM {table} WHERE {table} MATCH ? LIMIT 20", [match]).fetchall()


def measure(home: Path, repeat: int, clock: Callable[[], float]) -> dict[str, list[float]]:
    """What is measured → milliseconds of each run."""
    conn = open_readonly(home / "ocrd.db")
    queries = [text for kind in in_process.queries(conn, 2).values() for text in kind][::3]
    last = conn.execute("SELECT max(first_seen) FROM files").fetchone()[0]
    some = queries[:: max(1, len(queries) // 60)]

    def each(texts: list[str], work: Callable[[str], object]) -> list[float]:
        return [in_process.timed(repeat, lambda text=text: work(text), clock) for text in texts]

    def again(times: int, work: Callable[[], object]) -> list[float]:
        return [in_process.timed(1, work, clock) for _ in range(times)]

    marks = recent.newest(conn)
    figures = {
        "search": each(queries, lambda text: search(conn, text)),
        "bare, ranked": each(queries, lambda text: in_process.bare(conn, text)),
        "bare, unranked": each(queries, lambda text: unranked(conn, text)),
        "search in one folder": each(some, lambda text: search(conn, text, path="/library/07")),
        "search in one file": each(some, lambda text: search(conn, text, name="document 000077")),
        "search of the last hour": each(some, lambda text: search(conn, text, since=last - 3600)),
        "search of one engine": each(some, lambda text: search(conn, text, engine="vlm")),
        "status": again(40, lambda: status.summary(conn, now=last)),
        "list, newest first": again(40, lambda: listing.files(conn, listing.Filters())),
        "list, by name, one engine": again(
            20, lambda: listing.files(conn, listing.Filters(engine="vlm"), sort=listing.Sort.NAME)
        ),
        "what happened lately": again(40, lambda: recent.touched(conn, marks, 500)),
    }
    conn.close()
    return figures


def exponent(pages: list[int], values: list[float]) -> float | None:
    """The power of the number of pages that the values grow with; None of a single library."""
    if len(pages) < 2 or min(values) <= 0:
        return None
    xs, ys = [math.log(n) for n in pages], [math.log(value) for value in values]
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    steep = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True))
    return round(steep / sum((x - mean_x) ** 2 for x in xs), 2)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("homes", type=Path, nargs="+", metavar="HOME")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--clock", choices=sorted(CLOCKS), default="processor")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    pages, sizes, measured = [], [], []
    for home in given.homes:
        started = time.perf_counter()
        open_database(home / "ocrd.db").close()
        conn = open_readonly(home / "ocrd.db")
        pages.append(conn.execute("SELECT max(id) FROM pages").fetchone()[0])
        conn.close()
        sizes.append((home / "ocrd.db").stat().st_size / 1e6)
        measured.append(measure(home, given.repeat, CLOCKS[given.clock]))
        print(f"{home}: {pages[-1]:,} pages, {time.perf_counter() - started:.0f} s", file=sys.stderr)
    shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
    rows: dict[str, dict[str, list[float]]] = {
        name: {
            share: [round(in_process.percentile(one[name], at), 2) for one in measured]
            for share, at in shares.items()
        }
        for name in measured[0]
    }
    print("| | " + " | ".join(f"{n:,} pages: p50 / p95 / p99" for n in pages) + " | exponent of p95 |")
    print("|---" * (len(pages) + 2) + "|")
    print(
        "| database, MB | " + " | ".join(f"{size:,.0f}" for size in sizes) + f" | {exponent(pages, sizes)} |"
    )
    for name, row in rows.items():
        cells = [" / ".join(f"{row[share][i]:g}" for share in shares) for i in range(len(pages))]
        print(f"| {name} | " + " | ".join(cells) + f" | {exponent(pages, row['p95'])} |")
    figures = {
        "pages": pages,
        "megabytes": sizes,
        "clock": given.clock,
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
