"""Pictures with known text: drawn, then spoiled as scanners and resampling do. Equal seeds give equal bytes."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import numpy as np
from PIL import Image, ImageFilter

from tools.tiny import phrases
from tools.tiny.corpus import Corpus
from tools.tiny.drawing import Canvas, Centre, Ink, draw
from tools.tiny.fonts import FontSet
from tools.tiny.recipe import Kind, Looks


@dataclass(frozen=True, slots=True)
class Sources:
    """What pictures are made from."""

    corpus: Corpus
    fonts: FontSet
    looks: Looks


@dataclass(frozen=True, slots=True)
class Request:
    """What picture to make. `held`: text and fonts that training never sees, each by itself."""

    kind: Kind
    width: int
    height: int
    random_strings: float = 0.0
    spoiled: bool = True
    held_text: bool = False
    held_fonts: bool = False


@dataclass(frozen=True, slots=True)
class Picture:
    """`pixels` (height, width) uint8; `centres`: one (x, y) in pixels per character of `text`."""

    pixels: np.ndarray
    text: str
    centres: tuple[Centre, ...]


def make(rng: Random, request: Request, sources: Sources) -> Picture:
    """Draw until something stands on the picture, then spoil it."""
    looks = sources.looks
    while True:
        scale = rng.uniform(*looks.resample) if request.spoiled and rng.random() < looks.resampled else 1.0
        ink = _ink(rng, looks, request.spoiled)
        canvas = Canvas(request.width, request.height, scale, ink)
        words = phrases.text(
            rng,
            _length(request, looks),
            sources.corpus,
            random_strings=request.random_strings,
            held=request.held_text,
        ).split()
        draw(rng, canvas, request.kind, words, sources.fonts, looks, request.held_fonts)
        if canvas.pieces:
            break
    pixels = _spoil(rng, canvas, request, looks) if request.spoiled else np.asarray(canvas.image)
    return Picture(pixels, canvas.text, tuple(canvas.centres))


def _length(request: Request, looks: Looks) -> int:
    """Characters that fill the picture even in the smallest and narrowest print."""
    per_line = request.width / looks.text_px[0] * 2.6
    lines = 1 if request.kind is Kind.LINE else request.height / looks.least_pitch_px
    return int(per_line * lines) + 40


def _ink(rng: Random, looks: Looks, spoiled: bool) -> Ink:
    if not spoiled:
        return Ink(10, 250)
    ink = Ink(rng.randrange(0, 90), rng.randrange(200, 256))
    if rng.random() < 0.6:
        ink = Ink(rng.randrange(0, 40), 255)
    return Ink(ink.light, ink.dark) if rng.random() < looks.inverted else ink


def _spoil(rng: Random, canvas: Canvas, request: Request, looks: Looks) -> np.ndarray:
    """Resample to size, blur, turn a little, add noise: (height, width) uint8."""
    image, size = canvas.image, (request.width, request.height)
    if image.size != size:
        filters = (Image.Resampling.BICUBIC, Image.Resampling.BILINEAR, Image.Resampling.LANCZOS)
        image = image.resize(size, rng.choice(filters))
    if rng.random() < looks.blurred:
        image = image.filter(ImageFilter.GaussianBlur(rng.uniform(0.3, 0.8)))
    if rng.random() < looks.turned:
        most = 0.6 if request.kind is Kind.LINE else 0.25  # degrees: the centres stay within a slot or so
        image = image.rotate(rng.uniform(-most, most), Image.Resampling.BILINEAR, fillcolor=canvas.ink.light)
    pixels = np.asarray(image)
    if rng.random() < looks.noisy:
        noise = np.random.default_rng(rng.randrange(1 << 30)).standard_normal(pixels.shape, dtype=np.float32)
        pixels = np.clip(np.rint(pixels + noise * rng.uniform(2, 14)), 0, 255).astype(np.uint8)
    return pixels
