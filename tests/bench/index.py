"""Measure search and status on a library made by make_index.py.

    python tests/bench/index.py HOME [--pages 100000] [--repeat 3] [--cli] [--cpu] [--json FILE]

In-process: `storage.index.search` per kind of query, 50th and 95th percentile in ms, and beside it the bare
`MATCH … ORDER BY rank LIMIT 20` of the same expression. With --cli also `ocrd search` minus an `ocrd --version` of the
same minute, and the whole of `ocrd status`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import resource
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import make_index

from storage.database import open_readonly
from storage.index import search
from storage.query import parse

CLOCK = CHILD_CLOCK = time.perf_counter


def children() -> float:
    """Seconds of processor time of the processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def percentile(values: list[float], share: float) -> float:
    """The value that `share` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def queries(conn: sqlite3.Connection, seed: int) -> dict[str, list[str]]:
    """Queries by kind, drawn from the library's own pages."""
    rng = random.Random(seed)
    count = conn.execute("SELECT max(id) FROM pages").fetchone()[0]
    ids = [rng.randrange(1, count + 1) for _ in range(400)]
    texts = [row[0] for i in ids for row in conn.execute("SELECT text FROM pages WHERE id = ?", [i])]
    latin = [text.replace(".", "").lower().split() for text in texts if text.isascii() or " " in text]
    han = [text.replace("。", "").replace("\n", "") for text in texts if " " not in text]
    frequent: dict[str, int] = {}
    for words in latin:
        for word in set(words):
            frequent[word] = frequent.get(word, 0) + 1
    common = sorted(frequent, key=lambda word: -frequent[word])[:30]
    kinds = {
        "word as written": [rng.choice(words) for words in latin[:60]],
        "rare word": [min(words, key=lambda word: frequent[word]) for words in latin[:40]],
        "one of the 30 commonest words": common,
        "two words": [" ".join(rng.sample(words, 2)) for words in latin[:60]],
        "four words": [" ".join(rng.sample(words, 4)) for words in latin[:40]],
        "two common words": [" ".join(rng.sample(common, 2)) for _ in range(20)],
        "phrase of three": [
            f'"{" ".join(words[i : i + 3])}"' for words in latin[:40] for i in [rng.randrange(200)]
        ],
        "phrase of two common": [f'"{" ".join(rng.sample(common, 2))}"' for _ in range(20)],
        "prefix of 3 letters": [rng.choice(words)[:3] + "*" for words in latin[:30]],
        "no match": [f"{rng.choice(words)} qqxqq{i}" for i, words in enumerate(latin[:20])],
    }
    for length in (1, 2, 4):
        kinds[f"CJK, {length}"] = [text[i : i + length] for text in han[:20] for i in [rng.randrange(300)]]
    return kinds


def timed(repeat: int, work: Callable[[], object], clock: Callable[[], float] | None = None) -> float:
    """Median of `repeat` runs, in ms."""
    runs = []
    clock = clock or CLOCK
    for _ in range(repeat):
        started = clock()
        work()
        runs.append((clock() - started) * 1000)
    return percentile(runs, 0.5)


def bare(conn: sqlite3.Connection, query: str) -> None:
    """What the same expression costs with nothing around it."""
    parsed = parse(query)
    table = "pages_fts" if parsed.words_match else "page_grams_fts"
    match = parsed.words_match or parsed.grams_match
    conn.execute(
        f"SELECT rowid FROM {table} WHERE {table} MATCH ? ORDER BY rank LIMIT 20", [match]
    ).fetchall()


def in_process(home: Path, repeat: int, seed: int) -> dict[str, dict[str, float]]:
    """Percentiles by kind, and over all queries."""
    conn = open_readonly(home / "ocrd.db")
    measured: dict[str, dict[str, float]] = {}
    every: dict[str, list[float]] = {"ours": [], "bare": []}
    for kind, texts in queries(conn, seed).items():
        ours = [timed(repeat, lambda text=text: search(conn, text)) for text in texts]
        plain = [timed(repeat, lambda text=text: bare(conn, text)) for text in texts]
        every["ours"] += ours
        every["bare"] += plain
        measured[kind] = summary(ours, plain)
    measured["all"] = summary(every["ours"], every["bare"])
    return measured


def summary(ours: list[float], plain: list[float]) -> dict[str, float]:
    """Percentiles of both in ms."""
    return {
        "queries": len(ours),
        "p50_ms": round(percentile(ours, 0.5), 2),
        "p95_ms": round(percentile(ours, 0.95), 2),
        "max_ms": round(max(ours), 2),
        "bare_p50_ms": round(percentile(plain, 0.5), 2),
        "bare_p95_ms": round(percentile(plain, 0.95), 2),
    }


def command_line(home: Path, seed: int) -> dict[str, float]:
    """`ocrd search` beyond process start, and `ocrd status` in all, in ms."""
    ocrd = Path(sys.executable).parent / "ocrd"
    environment = {**os.environ, "OCRD_HOME": str(home)}

    def run(*arguments: str) -> None:
        subprocess.run([ocrd, *arguments], env=environment, capture_output=True, check=False)

    conn = open_readonly(home / "ocrd.db")
    texts = [text for kind in queries(conn, seed).values() for text in kind[:3]]
    conn.close()
    start = percentile([timed(1, lambda: run("--version"), CHILD_CLOCK) for _ in range(20)], 0.5)
    searches = [timed(3, lambda text=text: run("search", "--", text), CHILD_CLOCK) - start for text in texts]
    return {
        "start_ms": round(start, 1),
        "search_p50_ms": round(percentile(searches, 0.5), 1),
        "search_p95_ms": round(percentile(searches, 0.95), 1),
        "status_ms": round(timed(7, lambda: run("status"), CHILD_CLOCK), 1),
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("home", type=Path)
    parser.add_argument("--pages", type=int, help="first make a library of that size, if HOME has none")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--cli", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--cpu", action="store_true", help="count processor time: for a machine that is busy")
    args = parser.parse_args()
    if args.cpu:
        global CLOCK, CHILD_CLOCK
        CLOCK, CHILD_CLOCK = time.process_time, children
    if args.pages and not (args.home / "ocrd.db").exists():
        make_index.make(args.home, args.pages)
    conn = open_readonly(args.home / "ocrd.db")
    result: dict[str, object] = {
        "pages": conn.execute("SELECT count(*) FROM pages").fetchone()[0],
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }
    conn.close()
    kinds = in_process(args.home, args.repeat, args.seed)
    result["search"] = kinds
    columns = list(kinds["all"])
    print("| query | " + " | ".join(columns) + " |\n|---|" + "---|" * len(columns))
    for kind, row in kinds.items():
        print(f"| {kind} | " + " | ".join(f"{row[column]:g}" for column in columns) + " |")
    if args.cli:
        result["command"] = command_line(args.home, args.seed)
    print(json.dumps({key: value for key, value in result.items() if key != "search"}))
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
