"""Measure engines on pages with known text: `ocrd bench pages --corpus DIR`; prints a table."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from pipeline import bench
from storage.settings import load

NEAR = Path(__file__).parents[3] / "shared" / "corpus"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, default=Path(os.environ.get("OCRD_CORPUS", NEAR)))
    parser.add_argument("--engine", action="append", help="one of them (again for more); default: all")
    parser.add_argument("--only", default="", help="only pages whose name contains this")
    parser.add_argument("--json", type=Path, help="write everything measured to this file")
    given = parser.parse_args()
    pages = [page for page in bench.true_pages(given.corpus) if given.only in page.name]
    if not pages:
        parser.error(f"no page's name contains {given.only!r}")
    tell = lambda line: print(line, file=sys.stderr, flush=True)  # noqa: E731
    results = bench.measure(pages, given.engine or bench.ENGINES, load(), tell=tell)
    if given.json:
        given.json.write_text(json.dumps(bench.as_json(results), ensure_ascii=False, indent=1) + "\n")
    for result in results:
        print(f"- {result.engine}: {result.version}")
    print(bench.as_table(results))


if __name__ == "__main__":
    main()
