"""Character error rates on held-out text: by kind of picture, fonts trained or not, clean or spoiled."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from rapidfuzz.distance import Levenshtein

from tools.tiny import pictures
from tools.tiny.batches import Batch, collate
from tools.tiny.model import TinyModel
from tools.tiny.pictures import Request, Sources
from tools.tiny.reading import read
from tools.tiny.recipe import Kind

SEED = 31_337
_SPARE = 60  # characters a reading may be longer than the truth before it is cut off

# Width, height and number of pictures.
Sizes = Mapping[Kind, Sequence[tuple[int, int, int]]]
FULL: Sizes = {
    Kind.LINE: ((364, 28, 24), (308, 56, 24)),
    Kind.BLOCK: ((336, 112, 12), (392, 168, 12), (280, 224, 8)),
    Kind.PAGE: ((448, 560, 3), (392, 476, 3)),
}
SMALL: Sizes = {Kind.LINE: ((364, 28, 12),), Kind.BLOCK: ((336, 140, 6),), Kind.PAGE: ((448, 560, 1),)}
SMOKE: Sizes = {Kind.LINE: ((196, 28, 2),), Kind.BLOCK: ((224, 56, 1),), Kind.PAGE: ((336, 336, 1),)}


@dataclass(frozen=True, slots=True)
class Rate:
    """How well one kind of picture was read. Every character counts, case, spaces and line ends as well."""

    errors: int
    characters: int
    exact: int
    pictures: int
    median: float  # of the pictures' own rates

    @property
    def cer(self) -> float:
        """Errors per character."""
        return self.errors / max(1, self.characters)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "cer": round(self.cer, 4), "median": round(self.median, 4), "errors": self.errors,
            "characters": self.characters, "exact": self.exact, "pictures": self.pictures,
        }  # fmt: skip


def table(model: TinyModel, sources: Sources, prompt: Sequence[int], sizes: Sizes = FULL) -> dict[str, Rate]:
    """`line/trained/clean` … `page/held/spoiled` → its rate. The pictures depend on corpus, fonts and looks alone."""
    return {
        name: _rate(model, batches, prompt)
        for name, batches in _pictures(sources, sizes, (("clean", False), ("spoiled", True)))
    }


def curve_point(
    model: TinyModel, sources: Sources, prompt: Sequence[int], sizes: Sizes = SMALL
) -> dict[str, float]:
    """Error rates on a few clean pictures, for the learning curve."""
    return {
        name.removesuffix("/clean"): round(_rate(model, batches, prompt).cer, 4)
        for name, batches in _pictures(sources, sizes, (("clean", False),))
    }


def _pictures(
    sources: Sources, sizes: Sizes, states: Sequence[tuple[str, bool]]
) -> Iterator[tuple[str, list[Batch]]]:
    for fonts, held in (("trained", False), ("held", True)):
        for state, spoiled in states:
            for kind, wanted in sizes.items():
                name = f"{kind}/{fonts}/{state}"
                rng = Random(f"{SEED}/{name}")
                yield name, [_batch(rng, kind, size, sources, spoiled, held) for size in wanted]


def _batch(
    rng: Random, kind: Kind, size: tuple[int, int, int], sources: Sources, spoiled: bool, held: bool
) -> Batch:
    width, height, count = size
    request = Request(kind, width, height, spoiled=spoiled, held_text=True, held_fonts=held)
    return collate([pictures.make(rng, request, sources) for _ in range(count)], kind, (1, 7))


def _rate(model: TinyModel, batches: Sequence[Batch], prompt: Sequence[int]) -> Rate:
    wrong, lengths = [], []
    for batch in batches:
        most = max(map(len, batch.texts)) + _SPARE
        readings = read(model, batch.patches, batch.rows, batch.columns, prompt, most)
        for truth, reading in zip(batch.texts, readings, strict=True):
            wrong.append(Levenshtein.distance(truth, reading))
            lengths.append(len(truth))
    rates = [errors / length for errors, length in zip(wrong, lengths, strict=True)]
    return Rate(sum(wrong), sum(lengths), wrong.count(0), len(wrong), statistics.median(rates))
