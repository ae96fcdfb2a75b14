"""What a drafter learns from: a model's hidden states along a text, and the ids it chooses there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
from PIL import Image

from pipeline.adapter import inputs
from pipeline.adapter.loading import LoadedModel
from pipeline.adapter.session import MlxSession
from tools.tiny import pictures
from tools.tiny.pictures import Request, Sources
from tools.tiny.recipe import Kind

# Lines as the preset `tiny` shows them, and blocks; (kind, widths, heights, share).
MIXTURE = (
    (Kind.LINE, (196, 280, 364, 504), (28, 56), 0.65),
    (Kind.BLOCK, (280, 336, 392, 504), (84, 112, 168), 0.35),
)


@dataclass(frozen=True, slots=True)
class Example:
    """`ids` (N + T) of prompt and text, `hidden` (N + T, taps · D) float16, `chosen` (T) after each id of the text."""

    ids: np.ndarray
    hidden: np.ndarray
    chosen: np.ndarray
    prompt: int  # N


def examples(
    loaded: LoadedModel, taps: Sequence[int], sources: Sources, *, seed: int, held: bool, prompt: str = ""
) -> Iterator[Example]:
    """Endless examples, equal for equal seeds. The text drawn is forced on the model; what it would choose is kept."""
    rng, encode = Random(seed), _characters(loaded)
    while True:
        picture = pictures.make(rng, _request(rng, held), sources)
        image = Image.fromarray(picture.pixels).convert("RGB")
        prepared = inputs.prepare(loaded, prompt, image)
        embedded = inputs.embed(loaded, prepared, inputs.encode(loaded, prepared))
        session = MlxSession(loaded, prepared, embedded, taps=taps)
        first = session.start()
        text = encode(picture.text)
        decision = session.forward(text)
        hidden = np.concatenate([np.array(first.hidden[0]), np.array(decision.hidden[0])])
        ids = np.array([*prepared.ids[0].tolist(), *text], np.int32)
        yield Example(ids, hidden.astype(np.float16), np.array(decision.ids, np.int32), prepared.length)


def _request(rng: Random, held: bool) -> Request:
    kind, widths, heights, _ = rng.choices(MIXTURE, [entry[3] for entry in MIXTURE])[0]
    return Request(kind, rng.choice(widths), rng.choice(heights), 0.1, True, held_text=held, held_fonts=held)


def _characters(loaded: LoadedModel) -> Callable[[str], list[int]]:
    """Text to ids as the tiny model writes it: one id a character."""
    known: dict[str, int] = {}

    def encode(text: str) -> list[int]:
        for char in text:
            if char not in known:
                (known[char],) = loaded.tokenizer.encode(char, add_special_tokens=False)
        return [known[char] for char in text]

    return encode
