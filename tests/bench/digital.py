"""Measure pages whose text layer is good: text layer, structure and Markdown, one process, no engine.

    ocrd bench digital [FILE…] [--json]

Without files: the born-digital PDFs of the corpus (OCRD_CORPUS or ../shared/corpus), else samples/paper.pdf.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMES = (
    "GeoTopo-komprimiert.pdf",
    "pdf2image-memory-error-test-400p.pdf",
    "pdflatex-4-pages.pdf",
    "multicolumn.pdf",
)


def default_files() -> list[Path]:
    corpus = Path(os.environ.get("OCRD_CORPUS", ROOT.parent / "shared" / "corpus")) / "files"
    found = [corpus / name for name in NAMES if (corpus / name).is_file()]
    return found or [ROOT / "samples" / "paper.pdf"]


def measure(path: Path) -> dict[str, object]:
    """Pages per second of processor time (one core) and by the clock, pages that need OCR left out."""
    from pipeline.document import DocumentReader
    from storage.errors import OcrdError
    from storage.settings import load

    settings = load({"home": "/nonexistent"}, env={})
    pages = characters = 0
    with DocumentReader(path, settings, None) as reader:
        reader.read_page(1)  # imports
        cpu, clock = time.process_time(), time.perf_counter()
        for number in range(1, reader.info.pages + 1):
            try:
                reading = reader.read_page(number)
            except OcrdError:
                continue
            if reading.source == "text-layer":
                pages += 1
                characters += len(reading.text)
    cpu, clock = time.process_time() - cpu, time.perf_counter() - clock
    return {
        "file": path.name, "pages": pages, "characters_per_page": round(characters / max(1, pages)),
        "pages_per_cpu_s": round(pages / cpu, 1), "pages_per_s": round(pages / clock, 1),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    rows = [measure(path) for path in given.files or default_files()]
    if given.json:
        print(json.dumps(rows, indent=1))
        return
    print(
        "| file | pages | characters a page | pages a processor second | pages a second |\n|---|---|---|---|---|"
    )
    for row in rows:
        print("| " + " | ".join(str(value) for value in row.values()) + " |")


if __name__ == "__main__":
    main()
