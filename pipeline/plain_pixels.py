"""Pillow images of any mode as plain pictures: RGB or L, 8 bits, on white paper, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image

_BAND_PX = 512  # rows converted at a time: one whole copy of a large picture is all that memory should hold
_TIFF_PHOTOMETRIC, _MIN_IS_WHITE = 262, 0
# The ranges deep pictures are made in; the smallest that holds the values is taken for theirs.
_INTEGER_TOPS = (255.0, 4095.0, 65535.0)
_FLOAT_TOPS = (1.0, *_INTEGER_TOPS)

Levels = tuple[float, float]  # the values that are black and white


def plain(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    """`image` (decoded) in `size` pixels, as RGB or L; transparent parts show white paper."""
    from PIL import Image

    flat = _shrunk(image, size)
    if flat.size == size:
        return flat
    shrinks = size[0] < flat.width or size[1] < flat.height
    return flat.resize(size, Image.Resampling.LANCZOS if shrinks else Image.Resampling.BICUBIC)


def _shrunk(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    """`image` as RGB or L, shrunk by the largest whole factor that leaves it no smaller than `size`."""
    from PIL import Image

    factor = max(1, min(image.width // size[0], image.height // size[1]))
    levels = _levels(image)
    if factor == 1:
        return _convert(image, levels)
    result: Image.Image | None = None
    for top, band in _bands(image, factor * max(1, _BAND_PX // factor)):
        part = _convert(band, levels).reduce(factor)
        if result is None:
            result = Image.new(part.mode, (part.width, -(-image.height // factor)))
        result.paste(part, (0, top // factor))
    assert result is not None  # an image has at least one row
    return result


def _bands(image: Image.Image, rows: int = _BAND_PX) -> Iterator[tuple[int, Image.Image]]:
    """The picture in horizontal bands of `rows` pixels, each with its top row."""
    for top in range(0, image.height, rows):
        yield top, image.crop((0, top, image.width, min(top + rows, image.height)))


def _convert(image: Image.Image, levels: Levels | None) -> Image.Image:
    """`image` in mode RGB or L. `levels` are those of the whole picture; None for 8-bit modes."""
    if levels is not None:
        return _scaled(image, levels)
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        return _on_white(image.convert("RGBA"))
    if image.mode in ("RGB", "L"):
        return image.copy()
    if image.mode == "1":
        return image.convert("L")
    if image.mode == "LAB":  # no direct way to RGB; lightness is what is printed
        return image.getchannel(0)
    return image.convert("RGB")


def _on_white(image: Image.Image) -> Image.Image:
    from PIL import Image

    paper = Image.new("RGB", image.size, "white")
    paper.paste(image, mask=image.getchannel("A"))
    return paper


def _levels(image: Image.Image) -> Levels | None:
    """For pictures of more than 8 bits: the values that are black and white; None for all others."""
    if not (image.mode.startswith("I") or image.mode == "F"):
        return None
    low, high = _extrema(image)
    if low >= 0:
        tops = _FLOAT_TOPS if image.mode == "F" else _INTEGER_TOPS
        low, high = 0.0, next((top for top in tops if high <= top), high)
    tags: Any = getattr(image, "tag_v2", {})
    return (high, low) if tags.get(_TIFF_PHOTOMETRIC) == _MIN_IS_WHITE else (low, high)


def _extrema(image: Image.Image) -> Levels:
    """Smallest and largest finite value."""
    import numpy as np

    low, high = np.inf, -np.inf
    for _, band in _bands(image):
        values = _values(band)
        finite = values[np.isfinite(values)]
        if finite.size:
            low, high = min(low, float(finite.min())), max(high, float(finite.max()))
    return (low, high) if low <= high else (0.0, 1.0)


def _scaled(image: Image.Image, levels: Levels) -> Image.Image:
    """A deep picture as L. Values that are no number are paper."""
    import numpy as np
    from PIL import Image

    black, white = levels
    grey = (_values(image) - np.float32(black)) * np.float32(255.0 / ((white - black) or 1.0))
    grey = np.nan_to_num(grey, nan=255.0, posinf=255.0, neginf=0.0)
    return Image.fromarray(np.clip(grey + 0.5, 0, 255).astype(np.uint8))


def _values(image: Image.Image) -> np.ndarray[Any, np.dtype[np.float32]]:
    import numpy as np

    return np.asarray(image).astype(np.float32)
