"""Replay stored page outputs through the proposers: `ocrd bench draft FILE --tokenizer qwen2`; prints a table."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from pipeline import bench_draft, bench_tokenizers
from pipeline.schedule import CURVES
from storage.errors import OcrdError

DEFAULT = "m4pro-4bit,m3ultra-bf16,a0.02,a0.05,a0.1"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "file", type=Path, help="stored pages: a list of records or one a line (docs/benchmarks/draft.md)"
    )
    parser.add_argument(
        "--tokenizer",
        default="qwen2",
        help=f"{', '.join(bench_tokenizers.TOKENIZERS)} or a tokenizer.json of your own",
    )
    parser.add_argument("--curves", default=DEFAULT, help=f"of {', '.join(CURVES)}")
    parser.add_argument("--proposers", default="none,lookup,reference")
    parser.add_argument("--kind", default="", help="only kinds that begin with this")
    parser.add_argument("--without", default="", help="leave out pages whose source contains this")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only every Nth page")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    given = parser.parse_args()
    curves = [name for name in given.curves.split(",") if name]
    if unknown := [name for name in curves if name not in CURVES]:
        parser.error(f"no curve {unknown[0]!r}; there are {', '.join(CURVES)}")
    try:
        pages = [
            page
            for page in bench_draft.read_pages(given.file)
            if page.kind.startswith(given.kind) and not (given.without and given.without in page.source)
        ][:: given.every]
        codec, stop = bench_tokenizers.load(given.tokenizer)
    except OcrdError as error:
        parser.error(f"{error.message} {error.remedy or ''}")
    if not pages:
        parser.error("no page is left")
    found = bench_draft.measure(pages, codec, stop, given.proposers.split(","), curves)
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(bench_draft.as_table(found))


if __name__ == "__main__":
    main()
