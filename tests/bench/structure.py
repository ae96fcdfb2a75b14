"""Measure what structure makes of pages with known text: error against the order the lines came in, and time.

    python tests/bench/structure.py [--corpus DIR] [--images] [--only NAME] [--show]

Born-digital pages by their text layer; with --images also pictures, read by Tesseract alone. `joined` is the
character error rate of the running text, `markdown` that of the Markdown, `as read` that of the lines as the reader
gave them; `ms` is processor time per page of `structure` and both renderings.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from pipeline.cer import character_error_rate
from pipeline.engines.tesseract import TesseractEngine
from pipeline.rasterise import rasterise
from pipeline.source import SourcePage, open_source
from pipeline.structure import render_markdown, render_text, structure
from pipeline.textlayer import read_text_layer
from storage.records import PageText
from storage.settings import Settings

NEAR = Path(__file__).resolve().parents[3] / "shared" / "corpus"
# File, page, ground truth.
BORN_DIGITAL = (
    ("minimal-document.pdf", 1, "minimal-document.p1.txt"),
    ("multicolumn.pdf", 1, "multicolumn.p1.txt"),
    ("code_and_formula.pdf", 1, "code_and_formula.p1.md"),
    ("code_and_formula.pdf", 2, "code_and_formula.p2.md"),
    ("right_to_left_01.pdf", 1, "right_to_left_01.p1.txt"),
    ("issue11656.pdf", 1, "hebrew.p1.txt"),
)
IMAGES = (
    ("linn.png", 1, "linn.p1.txt"),
    ("phototest.tif", 1, "phototest.p1.txt"),
    ("eurotext.tif", 1, "eurotext.p1.txt"),
    ("sample_with_rotation_mismatch.pdf", 1, "slerexe.p1.txt"),
    ("table-multi-row-column-cells.pdf", 1, "table-multi-row.p1.md"),
)
# Pages without a transcription: time only.
DENSE = (("edgar.pdf", 1), ("form_dd0293.pdf", 1), ("pdf2image-memory-error-test-400p.pdf", 5))


def text_layer(page: SourcePage) -> PageText:
    """The lines of the page's text layer, whatever they are worth."""
    return read_text_layer(page).text or PageText(page.width_pt, page.height_pt, ())


def from_engine(engine: TesseractEngine, page: SourcePage) -> PageText:
    """The lines the engine reads on the page at 200 dpi."""
    read = engine.read(rasterise(page, dpi=200, max_pixels=16_000_000)).lines
    return read or PageText(page.width_pt, page.height_pt, ())


def measure(name: str, text: PageText, truth: str | None, *, show: bool) -> None:
    """Print one row of the table."""
    repeats = 20
    structure(text)  # warm
    started = time.process_time()
    for _ in range(repeats):
        blocks = structure(text)
        joined, markdown = render_text(blocks), render_markdown(blocks)
    spent = (time.process_time() - started) / repeats * 1000
    as_read = "\n".join(line.text for line in text.lines)
    rates = ["—"] * 3
    if truth is not None:
        rates = [f"{character_error_rate(truth, reading):.4f}" for reading in (joined, markdown, as_read)]
    print(f"| {name} | {len(text.lines)} | {' | '.join(rates)} | {spent:.1f} |")
    if show:
        print(markdown, end="\n\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--corpus", type=Path, default=Path(os.environ.get("OCRD_CORPUS", NEAR)))
    parser.add_argument("--images", action="store_true", help="also pictures, by Tesseract")
    parser.add_argument("--only", default="", help="only files whose name contains this")
    parser.add_argument("--show", action="store_true", help="print the Markdown")
    given = parser.parse_args()
    files, truths = given.corpus / "files", given.corpus / "GROUNDTRUTH"
    if not files.is_dir():
        parser.error(f"no corpus at {given.corpus}: name it with --corpus or OCRD_CORPUS")
    print(f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores\n")
    print("| page | lines | joined | markdown | as read | ms |\n|---|---|---|---|---|---|")
    engine = TesseractEngine(Settings(home=Path.home()))
    rows = [*((*row, False) for row in BORN_DIGITAL), *((*row, None, False) for row in DENSE)]
    rows += [(*row, True) for row in IMAGES] if given.images else []
    for file, number, truth, by_engine in rows:
        if given.only not in file:
            continue
        with open_source(files / file) as source:
            page = source.page(number)
            text = from_engine(engine, page) if by_engine else text_layer(page)
        known = (truths / truth).read_text(encoding="utf-8") if truth else None
        measure(f"{file} p{number}", text, known, show=given.show)
    engine.close()


if __name__ == "__main__":
    main()
