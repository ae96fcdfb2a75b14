"""Open an image file as pages: frames, orientation, size in points, and decoding within a pixel budget.

Every size is checked from the header, before anything is decoded. Pixels come out upright, as RGB or L.
"""

from __future__ import annotations

import math
import struct
import zlib
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Self

from storage.errors import CorruptError, OcrdError, TooLargeError, UnsupportedError, from_os_error
from storage.records import DocumentInfo, PageWarning

if TYPE_CHECKING:
    from PIL import Image, ImageFile

ASSUMED_DPI = 200.0
# Resolutions outside are leftovers of some program (1 dpi, 0 dpi, 28,000 dpi), not what the scanner did.
SANE_DPI = (50.0, 1200.0)
# 72 and 96 are also what software writes that knows no resolution (cameras, screenshots): believed only where the
# page then is no poster.
VAGUE_DPI, LARGEST_VAGUE_PAGE_IN = 150.0, 20.0

_FORMATS = {
    "image/png": "PNG",
    "image/jpeg": "JPEG",
    "image/tiff": "TIFF",
    "image/webp": "WEBP",
    "image/gif": "GIF",
    "image/bmp": "BMP",
    "image/avif": "AVIF",
}
# Decoders that hold several copies of the picture at once (measured peak bytes per pixel: webp 16, heif 12; others
# 3-4): their share of the limit is smaller, so that the peak stays the same.
_COPIES = {"image/webp": 4, "image/heic": 3, "image/avif": 3}
# What Pillow's decoders raise on damaged data, by reading their sources and by fuzzing; a missing file is an OSError
# with errno, theirs have none.
_DAMAGE = (
    OSError,
    SyntaxError,
    ValueError,
    EOFError,
    LookupError,
    TypeError,
    ArithmeticError,
    AttributeError,
    RuntimeError,
    struct.error,
    zlib.error,
)
_TIFF_SUBFILE_TYPE, _TIFF_PHOTOMETRIC, _EXIF_ORIENTATION = 254, 262, 274
_REDUCED_OR_MASK = 0b101  # bits of the TIFF subfile type: a thumbnail, a transparency mask
_SWAPS_SIDES = frozenset({5, 6, 7, 8})


class ImagePage:
    """A frame of an image file; see `pipeline.source.SourcePage`."""

    pdf: Any | None = None
    label: str | None = None

    def __init__(self, source: ImageSource, number: int, frame: int) -> None:
        self._source = source
        self._frame = frame
        self.number = number
        image = source.frame(number, frame)
        turned = source.turn(image) in _SWAPS_SIDES
        width, height = image.size
        x_dpi, y_dpi = _dpi(image)
        if turned and source.media_type == "image/tiff":  # Pillow has swapped the sides already
            x_dpi, y_dpi = y_dpi, x_dpi
        elif turned:
            width, height, x_dpi, y_dpi = height, width, y_dpi, x_dpi
        self.native_px: tuple[int, int] | None = (width, height)
        self.width_pt, self.height_pt = width * 72 / x_dpi, height * 72 / y_dpi

    def decode(self, size: tuple[int, int]) -> Image.Image:
        """The picture in `size` (width, height in pixels), upright, RGB or L.

        Raises: `CorruptError` where the data is damaged or cut off.
        """
        return self._source.decode(self.number, self._frame, size)

    def close(self) -> None:
        """Nothing: the source holds the file."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class ImageSource:
    """An open image file; see `pipeline.source.Source`. Pages are its frames, decoded one at a time."""

    def __init__(self, path: Path, media_type: str, *, max_pixels: int) -> None:
        self.media_type = media_type
        self._path = path
        self._max_pixels = max_pixels // _COPIES.get(media_type, 1)
        self._file: BinaryIO | None = None
        self._image: ImageFile.ImageFile | None = None
        try:
            self._open()
            self._frames, warnings = self._list_frames()
            self.info = DocumentInfo(media_type=media_type, pages=len(self._frames), warnings=warnings)
            if len(self._frames) == 1:
                self.frame(1, self._frames[0])  # its size is known to be acceptable from here on
        except BaseException:
            self.close()
            raise

    def page(self, number: int) -> ImagePage:
        """The frame of page `number`, from 1. Raises: `TooLargeError`, `CorruptError`."""
        if not 1 <= number <= len(self._frames):
            raise CorruptError(
                f"there is no such page among {len(self._frames)}", file=self._path, page=number
            )
        return ImagePage(self, number, self._frames[number - 1])

    def close(self) -> None:
        """Close the file and free what was decoded."""
        if self._image is not None:
            self._image.close()
            self._image = None
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def frame(self, number: int, frame: int) -> ImageFile.ImageFile:
        """Pillow's image, at `frame`, not decoded yet.

        Raises: `TooLargeError` when it has more pixels than allowed, `CorruptError` when its header is damaged.
        """
        self._open()
        assert self._image is not None
        try:
            if self._image.tell() != frame:
                self._image.seek(frame)
        except _DAMAGE as error:
            raise self._error(error, number) from error
        width, height = self._image.size
        if width < 1 or height < 1:
            raise CorruptError("the image has no pixels", file=self._path, page=number)
        if width * height > self._max_pixels:
            raise TooLargeError(
                f"the image has {width} x {height} pixels; the limit is {self._max_pixels:,}",
                file=self._path,
                page=number if len(self._frames) > 1 else None,
            )
        return self._image

    def turn(self, image: ImageFile.ImageFile) -> int:
        """The EXIF orientation (1…8) to apply for an upright picture."""
        if self.media_type in ("image/heic", "image/avif"):
            return 1  # libheif has applied the container's own rotation; EXIF repeats it
        try:
            value = image.getexif().get(_EXIF_ORIENTATION, 1)
        except _DAMAGE:
            return 1
        return value if value in range(1, 9) else 1

    def decode(self, number: int, frame: int, size: tuple[int, int]) -> Image.Image:
        """Decode `frame` to exactly `size` pixels, upright, RGB or L."""
        from PIL import Image

        image = self.frame(number, frame)
        turn = 1 if self.media_type == "image/tiff" else self.turn(image)
        target = (size[1], size[0]) if turn in _SWAPS_SIDES else size
        try:
            if self.media_type == "image/jpeg":
                image.draft(
                    None, target
                )  # the decoder itself skips detail: 1/2, 1/4, 1/8, never below the target
            image.load()
            flat = _flatten(image, target)
        except MemoryError as error:
            raise TooLargeError(
                "not enough memory to decode the image", file=self._path, page=number
            ) from error
        except _DAMAGE as error:
            raise self._error(error, number) from error
        finally:
            self._forget()
        if flat.size != target:
            shrinks = target[0] < flat.width
            flat = flat.resize(target, Image.Resampling.LANCZOS if shrinks else Image.Resampling.BICUBIC)
        method = _transposes().get(turn)
        return flat if method is None else flat.transpose(method)

    def _open(self) -> None:
        """Open the file, if it is not; reads its header only."""
        if self._image is not None:
            return
        from PIL import Image

        # Pillow's own limit is a constant of the process; ours is a setting, and checked on every frame.
        Image.MAX_IMAGE_PIXELS = None
        try:
            self._file = self._path.open("rb")
            if self.media_type == "image/heic":
                import pillow_heif

                reader: Any = pillow_heif.HeifImageFile  # untyped
                self._image = reader(self._file)
            else:
                # Only the decoder the content asks for: no other format's parser sees the bytes.
                self._image = Image.open(self._file, formats=[_FORMATS[self.media_type]])
        except _DAMAGE as error:
            raise self._error(error, None) from error

    def _forget(self) -> None:
        """Drop the decoded pixels; the next access reads the header again."""
        self.close()

    def _list_frames(self) -> tuple[tuple[int, ...], tuple[PageWarning, ...]]:
        """Frames that are pages. An animation is one page: its first picture."""
        assert self._image is not None
        if self.media_type not in ("image/tiff", "image/heic"):
            return (self._image.tell(),), ()
        if self.media_type == "image/heic":
            first = self._image.tell()  # the primary image
            return (first,), ()
        frames: list[int] = []
        index = 0
        while True:
            try:
                self._image.seek(index)
            except EOFError:
                break
            except _DAMAGE as error:
                if not frames:
                    raise self._error(error, None) from error
                return tuple(frames), (PageWarning("page_count", f"damaged after frame {index}"),)
            if index == 0 or not self._is_extra():
                frames.append(index)
            index += 1
        return tuple(frames), ()

    def _is_extra(self) -> bool:
        """Whether the current TIFF frame is a thumbnail or mask of another."""
        tags = getattr(self._image, "tag_v2", {})
        kind = tags.get(_TIFF_SUBFILE_TYPE, 0)
        return isinstance(kind, int) and bool(kind & _REDUCED_OR_MASK)

    def _error(self, error: BaseException, page: int | None) -> OcrdError:
        """Our error for what Pillow raised."""
        if isinstance(error, OSError) and error.errno is not None:
            return from_os_error(error, file=self._path, page=page)
        if isinstance(error, NotImplementedError):
            return UnsupportedError("the image uses a compression we cannot read", file=self._path, page=page)
        cut = isinstance(error, EOFError) or "truncated" in str(error)
        return CorruptError(f"the image is {'cut off' if cut else 'damaged'}", file=self._path, page=page)


def _dpi(image: Image.Image) -> tuple[float, float]:
    """Stored resolution (horizontal, vertical) where it is believable, else `ASSUMED_DPI` for both."""
    try:
        x_dpi, y_dpi = (float(value) for value in image.info["dpi"])
    except (KeyError, TypeError, ValueError, ArithmeticError):
        return ASSUMED_DPI, ASSUMED_DPI
    low, high = SANE_DPI
    if not (low - 1 <= x_dpi <= high + 1 and low - 1 <= y_dpi <= high + 1):
        return ASSUMED_DPI, ASSUMED_DPI
    longest_in = max(image.width / x_dpi, image.height / y_dpi)
    if min(x_dpi, y_dpi) < VAGUE_DPI and longest_in > LARGEST_VAGUE_PAGE_IN:
        return ASSUMED_DPI, ASSUMED_DPI
    return x_dpi, y_dpi


def _transposes() -> dict[int, Image.Transpose]:
    """How to turn a picture upright, by EXIF orientation."""
    from PIL import Image

    return {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_270,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_90,
    }


def _flatten(image: Image.Image, target: tuple[int, int]) -> Image.Image:
    """`image` as RGB or L on white, shrunk by the largest whole factor that keeps it at least `target`.

    Large pictures are converted in bands, so that only one copy of them is in memory at full size.
    """
    from PIL import Image

    factor = max(1, min(image.width // max(1, target[0]), image.height // max(1, target[1])))
    levels = _levels(image)
    if factor == 1:
        return _to_plain(image, levels)
    width, height = -(-image.width // factor), -(-image.height // factor)
    band_px = max(factor, 512 // factor * factor)
    result: Image.Image | None = None
    for top in range(0, image.height, band_px):
        band = image.crop((0, top, image.width, min(top + band_px, image.height)))
        plain = _to_plain(band, levels).reduce(factor)
        if result is None:
            result = Image.new(plain.mode, (width, height))
        result.paste(plain, (0, top // factor))
    assert result is not None
    return result


def _to_plain(image: Image.Image, levels: tuple[float, float] | None) -> Image.Image:
    """`image` in mode RGB or L; transparency shows white paper. `levels`: the values that become black and white."""
    from PIL import Image

    if image.mode in ("RGB", "L"):
        return image.copy() if "transparency" not in image.info else _on_white(image.convert("RGBA"))
    if levels is not None:
        return _scaled(image, levels)
    if image.mode == "1":
        return image.convert("L")
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        return _on_white(image.convert("RGBA"))
    if image.mode in ("LAB", "HSV"):
        # Lightness or value is what is printed; Pillow has no direct conversion for LAB.
        return image.getchannel(0 if image.mode == "LAB" else 2)
    return Image.Image.convert(image, "RGB")


def _on_white(image: Image.Image) -> Image.Image:
    from PIL import Image

    paper = Image.new("RGB", image.size, "white")
    paper.paste(image, mask=image.getchannel("A"))
    return paper


def _levels(image: Image.Image) -> tuple[float, float] | None:
    """For pictures of more than 8 bits: the values that are black and white; None for all others."""
    import numpy as np

    if not (image.mode.startswith("I") or image.mode == "F"):
        return None
    values = np.asarray(image)
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    if not (math.isfinite(low) and math.isfinite(high)):
        finite = values[np.isfinite(values)]
        low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    if low >= 0:
        # The range the data was made in: 0…1, 8, 12 or 16 bits, the smallest it fits.
        tops = (1.0, 255.0, 4095.0, 65535.0) if image.mode == "F" else (255.0, 4095.0, 65535.0)
        low, high = 0.0, next((top for top in tops if high <= top), high)
    tags = getattr(image, "tag_v2", {})
    return (high, low) if tags.get(_TIFF_PHOTOMETRIC) == 0 else (low, high)


def _scaled(image: Image.Image, levels: tuple[float, float]) -> Image.Image:
    import numpy as np
    from PIL import Image

    black, white = levels
    values = np.asarray(image).astype(np.float32)
    values = np.nan_to_num(
        (values - black) * (255.0 / ((white - black) or 1.0)), nan=255.0, posinf=255.0, neginf=0.0
    )
    return Image.fromarray(np.clip(values, 0, 255).astype(np.uint8), "L")
