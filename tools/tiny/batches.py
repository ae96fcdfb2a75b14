"""Batches: pictures of one size as patches, with the labels of all three losses; each from its own seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from tools.tiny import phrases, pictures
from tools.tiny.charset import CLASS_OF, END
from tools.tiny.drawing import HEADING, Centre
from tools.tiny.pictures import Picture, Request, Sources
from tools.tiny.recipe import PATCH_PX, TILE_PX, Kind, Phase, Recipe
from tools.tiny.tokenizer import PROMPTS, PromptEncoder

IGNORED = -1  # label of what is no target


@dataclass(frozen=True, slots=True)
class Labels:
    """Targets of one picture with R x C image tokens and T characters.

    `slots` (R*C, S): class of the character whose centre lies in that slot of the token, 0 (space) for none;
    `classes` (T+1,): the text and its end; `tokens` (T+1,): the image token the next character stands in.
    """

    slots: np.ndarray
    classes: np.ndarray
    tokens: np.ndarray


@dataclass(frozen=True, slots=True)
class Batch:
    """B pictures of one kind, size and prompt.

    `patches` (B, rows*columns, 196) float32 in -1…1; `slots` (B, N, S) int64; `classes` and `tokens` (B, L) int64,
    padded with `IGNORED`; `prompt`: token ids; `rows`, `columns`: of patches.
    """

    kind: Kind
    rows: int
    columns: int
    patches: np.ndarray
    slots: np.ndarray
    classes: np.ndarray
    tokens: np.ndarray
    prompt: tuple[int, ...]
    texts: tuple[str, ...]


def patchify(pixels: np.ndarray) -> np.ndarray:
    """(H, W) grey → (H/14 * W/14, 196) float32 as the processor makes them: x/127.5 - 1, in blocks of 2 x 2 patches.

    The order is Qwen2-VL's, which dots.ocr shares: the four patches that become one image token stand together.
    """
    height, width = pixels.shape
    rows, columns = height // PATCH_PX, width // PATCH_PX
    scaled = pixels.astype(np.float32) / 127.5 - 1
    blocks = scaled.reshape(rows // 2, 2, PATCH_PX, columns // 2, 2, PATCH_PX).transpose(0, 3, 1, 4, 2, 5)
    return np.ascontiguousarray(blocks.reshape(rows * columns, PATCH_PX * PATCH_PX))


def label(picture: Picture, slots: tuple[int, int]) -> Labels:
    """The targets of a picture; `slots`: rows and columns an image token is divided into."""
    height, width = picture.pixels.shape
    rows, columns = height // TILE_PX, width // TILE_PX
    grid = np.zeros((rows * columns, slots[0] * slots[1]), np.int64)
    classes = np.array([*(CLASS_OF[character] for character in picture.text), END], np.int64)
    unseen = _unseen(picture.text, picture.centres)
    tokens = []
    for index, (x, y) in enumerate(picture.centres):
        x, y = min(max(x, 0.0), width - 0.01), min(max(y, 0.0), height - 0.01)
        token = int(y // TILE_PX) * columns + int(x // TILE_PX)
        tokens.append(token)
        if index not in unseen:
            row, column = (int(v % TILE_PX / TILE_PX * n) for v, n in zip((y, x), slots, strict=True))
            grid[token, row * slots[1] + column] = classes[index]
    return Labels(grid, classes, np.array([*tokens, tokens[-1]], np.int64))


def _unseen(text: str, centres: Sequence[Centre]) -> set[int]:
    """Characters that leave no ink: spaces, line ends, and the mark before a heading."""
    found = {index for index, character in enumerate(text) if character in " \n"}
    for index in range(len(text) - 2):
        if text.startswith(HEADING, index) and centres[index] == centres[index + 1] == centres[index + 2]:
            found.add(index)
    return found


def pick(rng: Random, phase: Phase, recipe: Recipe) -> tuple[Request, int]:
    """What the next batch of a phase shows, and how many pictures of it."""
    kind = rng.choices(list(phase.shares), list(phase.shares.values()))[0]
    if kind is Kind.LINE:
        heights, widths = phase.line_tiles
        rows, columns = rng.choice(heights), rng.randint(*widths)
    else:
        heights, widths = phase.page_tiles if kind is Kind.PAGE else phase.block_tiles
        rows, columns = rng.randint(*heights), rng.randint(*widths)
    count = max(1, min(recipe.most_pictures, recipe.patches // (4 * rows * columns)))
    return Request(kind, columns * TILE_PX, rows * TILE_PX, phase.random_strings), count


def prompt(rng: Random, encoder: PromptEncoder, sources: Sources) -> tuple[int, ...]:
    """Nothing (45 %), one of the fixed prompts (45 %), or a scrap of text, so that no prompt can confuse it."""
    kind = rng.random()
    if kind < 0.45:
        return ()
    if kind < 0.9:
        return tuple(encoder.ids(rng.choice(PROMPTS)))
    return tuple(
        encoder.ids(phrases.text(rng, rng.randrange(5, 80), sources.corpus, random_strings=0.0)[:90])
    )


def collate(
    pages: Sequence[Picture], kind: Kind, slots: tuple[int, int], prompt: tuple[int, ...] = ()
) -> Batch:
    """A batch of pictures that all have one size."""
    labels = [label(picture, slots) for picture in pages]
    height, width = pages[0].pixels.shape
    return Batch(
        kind=kind,
        rows=height // PATCH_PX,
        columns=width // PATCH_PX,
        patches=np.stack([patchify(picture.pixels) for picture in pages]),
        slots=np.stack([each.slots for each in labels]),
        classes=_padded([each.classes for each in labels]),
        tokens=_padded([each.tokens for each in labels]),
        prompt=prompt,
        texts=tuple(picture.text for picture in pages),
    )


def _padded(rows: Sequence[np.ndarray]) -> np.ndarray:
    padded = np.full((len(rows), max(map(len, rows))), IGNORED, np.int64)
    for line, row in zip(padded, rows, strict=True):
        line[: len(row)] = row
    return padded


@dataclass(frozen=True, slots=True)
class Renderer:
    """Makes the batches of a run, in any order and any process."""

    recipe: Recipe
    steps: int
    seed: int
    sources: Sources
    tokenizer: str  # body of tokenizer.json

    def batch(self, step: int, part: int) -> Batch:
        """Batch `part` (from 0) of `step` (from 0)."""
        return self.batch_of(self.recipe.phase(step, self.steps), f"{self.seed}/{step}/{part}")

    def batch_of(self, phase: Phase, seed: str) -> Batch:
        """A batch of a phase from any seed."""
        rng = Random(seed)
        request, count = pick(rng, phase, self.recipe)
        pages = [pictures.make(rng, request, self.sources) for _ in range(count)]
        return collate(
            pages, request.kind, self.recipe.shape.slots, prompt(rng, _encoder(self.tokenizer), self.sources)
        )


_encoders: dict[str, PromptEncoder] = {}


def _encoder(body: str) -> PromptEncoder:
    """One per process: it is not picklable, and slow to make."""
    if body not in _encoders:
        _encoders[body] = PromptEncoder(body)
    return _encoders[body]
