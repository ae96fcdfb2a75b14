"""Drawn pages read by the tiny model under several proposers: `ocrd bench rendered`; ids must be equal, seconds differ.

Text and fonts are those that neither model nor drafter was trained on. What is drafted from, in turns:

    clean    Tesseract's reading of a clean picture
    noisy    the picture is blurred, noisy, turned a little or grey, for Tesseract and the model alike
    skewed   each line of that reading in two halves, halves of neighbours in turns: reading order as on a skewed scan
    wrong    Tesseract's reading of another page

Page by page every proposer reads in turns, several rounds long; a page's time is its fastest round. Decoding alone is
timed, the Python of proposers in it; vision features are stored, and the draft is there before. On a busy machine take
`--clock processor` and OPENBLAS_NUM_THREADS=1: seconds of the processor, which others' work hardly changes.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from random import Random

os.environ.setdefault("OMP_THREAD_LIMIT", "1")
sys.path.insert(0, str(Path(__file__).parents[2]))  # for `tools`, which draws

from PIL import Image

from pipeline import model_files, opening
from pipeline.adapter import drafters
from pipeline.beside import Beside
from pipeline.engines.base import PageImage, Piece, to_end
from pipeline.engines.tesseract import TesseractEngine
from pipeline.model_reader import DecodeSettings, ImageReading, ModelReader
from pipeline.proposers.registry import AUTO
from pipeline.reference.draft import DraftLine
from pipeline.reference.lines import from_page
from pipeline.reference.source import ReadyDraft
from pipeline.vision import VisionEncoder
from storage.features import FeatureStore
from storage.settings import Settings
from tools.tiny import corpus, fonts, pictures
from tools.tiny.pictures import Request, Sources
from tools.tiny.recipe import RECIPES, Kind

KINDS = ("clean", "noisy", "skewed", "wrong")
SIZES = ((504, 196), (504, 252), (504, 392))  # pixels: about seven, nine and fourteen lines
MODES = "none,lookup,reference,eagle3,auto"
CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "processor": time.process_time}
ENLARGED = 2  # for Tesseract, which wants letters of 20 px and more


@dataclass(frozen=True)
class Page:
    """A picture, and what to draft from."""

    kind: str
    image: Image.Image
    draft: list[DraftLine]


@dataclass
class Sum:
    """Over pages, the fastest round of each."""

    tokens: int = 0
    passes: int = 0
    seconds: float = 0.0
    pages: int = 0
    identical: bool = True

    def add(self, tokens: int, passes: int, seconds: float, identical: bool) -> None:
        self.tokens += tokens
        self.passes += passes
        self.seconds += seconds
        self.pages += 1
        self.identical &= identical


def draw(count: int, seed: int, settings: Settings) -> list[Page]:
    """`count` pages, kinds and sizes by turns; equal for equal seeds, fonts and texts."""
    sources = Sources(corpus.gather(), fonts.find(), RECIPES["shipped"].looks)
    rng, reader = Random(seed), TesseractEngine(settings)
    drawn: list[tuple[str, Image.Image, list[DraftLine]]] = []
    for at in range(count):
        kind, (width, height) = KINDS[at % len(KINDS)], SIZES[at // len(KINDS) % len(SIZES)]
        request = Request(Kind.BLOCK, width, height, spoiled=kind == "noisy", held_text=True, held_fonts=True)
        image = Image.fromarray(pictures.make(rng, request, sources).pixels).convert("RGB")
        drawn.append((kind, image, _lines(reader, image)))
    reader.close()
    return [
        Page(kind, image, _spoiled(kind, lines, drawn[at - 1][2]))
        for at, (kind, image, lines) in enumerate(drawn)
    ]


def _lines(reader: TesseractEngine, image: Image.Image) -> list[DraftLine]:
    large = image.resize((image.width * ENLARGED, image.height * ENLARGED), Image.Resampling.LANCZOS)
    dpi = 280.0  # 28 px from line to line are then 14.4 points: a page of print
    page = PageImage(1, large, large.width * 72 / dpi, large.height * 72 / dpi, dpi)
    read = reader.read(page).lines
    return from_page(read) if read is not None else []


def _spoiled(kind: str, lines: list[DraftLine], other: list[DraftLine]) -> list[DraftLine]:
    if kind == "wrong":
        return other
    if kind != "skewed":
        return lines
    halves = [_halves(line.text) for line in lines]
    mixed = []
    for first, second in zip_longest(halves[::2], halves[1::2], fillvalue=("", "")):
        mixed += [first[0], second[0], first[1], second[1]]
    return [DraftLine(text) for text in mixed if text]


def _halves(text: str) -> tuple[str, str]:
    words = text.split()
    return " ".join(words[: len(words) // 2]), " ".join(words[len(words) // 2 :])


def readers(settings: Settings, modes: Sequence[str]) -> dict[str, ModelReader]:
    """A reader of the tiny model for each proposer: same weights, same measured costs, one store of features."""
    location = model_files.locate("tiny", settings)
    loaded, fingerprint = opening.load(settings, location)
    measured = opening.calibrate(settings, loaded, fingerprint)
    store = FeatureStore(settings.features_path, settings.features_bytes)
    encoder = VisionEncoder(loaded, fingerprint, store, "tiny")
    made = {}
    for mode in modes:
        own = location.preset.drafters
        kind = next(iter(own)) if mode == AUTO else mode
        drafter = drafters.load(loaded, kind, own[kind]) if kind in own else None
        decoding = DecodeSettings(mode)
        made[mode] = ModelReader(loaded, location.preset, encoder, decoding, measured, drafter)
    return made


def measure(
    pages: Sequence[Page], by_mode: dict[str, ModelReader], rounds: int, clock: Callable[[], float]
) -> dict[str, dict[str, Sum]]:
    """Kind of page → proposer → sums; "all" are all pages."""
    sums: dict[str, dict[str, Sum]] = defaultdict(lambda: defaultdict(Sum))
    for number, page in enumerate(pages):
        found = _page(page, by_mode, rounds, clock)
        for mode, (ids, passes, seconds) in found.items():
            same = ids == found["none"][0]
            for kind in ("all", page.kind, *(["seven lines, clean"] if _is_short(page) else [])):
                sums[kind][mode].add(len(ids), passes, seconds, same)
        print(f"{number + 1}/{len(pages)} {page.kind}", file=sys.stderr)
    return sums


def _is_short(page: Page) -> bool:
    return page.kind == "clean" and page.image.height == SIZES[0][1]


def _page(
    page: Page, by_mode: dict[str, ModelReader], rounds: int, clock: Callable[[], float]
) -> dict[str, tuple[list[int], int, float]]:
    found: dict[str, tuple[list[int], int, float]] = {}
    for mode in _turns(list(by_mode), rounds):
        pieces = by_mode[mode].stream(page.image, beside=Beside(reference=lambda _: ReadyDraft(page.draft)))
        reading, seconds = _timed(pieces, clock)
        known = found.get(mode)
        found[mode] = (
            reading.outcome.ids, reading.outcome.passes, min(seconds, known[2]) if known else seconds,
        )  # fmt: skip
    return found


def _timed(
    pieces: Generator[Piece, None, ImageReading], clock: Callable[[], float]
) -> tuple[ImageReading, float]:
    """The reading, and the seconds from its first piece (the prefill's) to its end."""
    next(pieces)
    started = clock()
    return to_end(pieces), clock() - started


def _turns(modes: list[str], rounds: int) -> Iterator[str]:
    for turn in range(rounds):
        yield from modes[turn % len(modes) :] + modes[: turn % len(modes)]


def as_table(sums: dict[str, dict[str, Sum]]) -> str:
    """Rows of Markdown: tokens a second of decoding, how much faster than the model alone, tokens a pass."""
    modes = list(sums["all"])
    head = ["pages", "", "tokens", *modes, "same tokens"]
    rows = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for kind, by_mode in sums.items():
        alone = by_mode["none"]
        cells = [kind, str(alone.pages), str(alone.tokens)]
        for mode, found in by_mode.items():
            rate = found.tokens / found.seconds
            cells.append(
                f"{rate:.0f}" if mode == "none" else
                f"{rate:.0f} ({alone.seconds / found.seconds:.1f} times, {found.tokens / found.passes:.2f} a pass)"
            )  # fmt: skip
        cells.append("yes" if all(found.identical for found in by_mode.values()) else "NO")
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows)


def main() -> int:
    """Exit code 1 if any proposer changed a token."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pages", type=int, default=30)
    parser.add_argument("--modes", default=MODES)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    given = parser.parse_args()
    modes = ["none", *(mode for mode in given.modes.split(",") if mode and mode != "none")]
    with tempfile.TemporaryDirectory() as home:
        settings = replace(Settings(Path(home)), model="tiny", mode="auto")
        by_mode = readers(settings, modes)
        sums = measure(draw(given.pages, given.seed, settings), by_mode, given.rounds, CLOCKS[given.clock])
    if given.json:
        plain = {kind: {mode: vars(found) for mode, found in by.items()} for kind, by in sums.items()}
        given.json.write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")
    print(as_table(sums))
    return 0 if all(found.identical for found in sums["all"].values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
