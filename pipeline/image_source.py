"""Open an image file as pages: frames, orientation, size in points, and decoding within a pixel budget.

Every size is checked from the header, before anything is decoded. Pixels come out upright, as RGB or L.
"""

from __future__ import annotations

import struct
import warnings
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from pipeline.plain_pixels import plain
from pipeline.source import ClosedAtExit
from storage.errors import CorruptError, OcrdError, TooLargeError, UnsupportedError, from_os_error
from storage.records import DocumentInfo, PageWarning

if TYPE_CHECKING:
    from PIL import Image, ImageFile

ASSUMED_DPI = 200.0
# Resolutions outside are leftovers of some program (1 dpi, 0 dpi, 28,000 dpi), not what the scanner did.
SANE_DPI = (50.0, 1200.0)
# What software writes that knows no resolution (cameras, screenshots): as good as nothing.
MEANINGLESS_DPI = (72.0, 96.0)

_FORMATS = {
    "image/png": "PNG",
    "image/jpeg": "JPEG",
    "image/tiff": "TIFF",
    "image/webp": "WEBP",
    "image/gif": "GIF",
    "image/bmp": "BMP",
    "image/avif": "AVIF",
}
# Decoders that hold the picture several times at once: their share of the limit is smaller, so that the peak is
# the same. Measured bytes per pixel at the peak: webp 20, avif 10, heif 8, others 4 to 6.
_SHARES = {"image/webp": 4, "image/heic": 2, "image/avif": 2}
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
_TIFF_SUBFILE_TYPE, _EXIF_ORIENTATION = 254, 274
_KEPT_PX = 32_000_000  # a frame of more is not held until the next is asked for
_REDUCED_OR_MASK = 0b101  # bits of the TIFF subfile type: a thumbnail, a transparency mask
_SWAPS_SIDES = frozenset({5, 6, 7, 8})


class ImagePage(ClosedAtExit):
    """A frame of an image file; see `pipeline.source.SourcePage`."""

    pdf: Any | None = None
    label: str | None = None

    def __init__(self, source: ImageSource, number: int, frame: int) -> None:
        self._source = source
        self._frame = frame
        self.path = source.path
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


class ImageSource(ClosedAtExit):
    """An open image file; see `pipeline.source.Source`. Pages are its frames, decoded one at a time."""

    def __init__(self, path: Path, media_type: str, *, max_pixels: int) -> None:
        self.media_type = media_type
        self.path = path
        self._max_pixels = max_pixels // _SHARES.get(media_type, 1)
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
                f"there is no such page among {len(self._frames)}", file=self.path, page=number
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
            raise CorruptError("the image has no pixels", file=self.path, page=number)
        limit = self._max_pixels
        if self._image.mode == "CMYK" and self._image.info.get("progressive"):
            limit = limit * 3 // 4  # libjpeg holds all four colours' coefficients at 16 bits
        if width * height > limit:
            raise TooLargeError(
                f"the image has {width} x {height} pixels; the limit is {limit:,}",
                file=self.path,
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

        image = self.frame(number, frame)
        turn = 1 if self.media_type == "image/tiff" else self.turn(image)
        target = (size[1], size[0]) if turn in _SWAPS_SIDES else size
        try:
            if self.media_type == "image/jpeg":
                image.draft(
                    None, target
                )  # the decoder itself skips detail: 1/2, 1/4, 1/8, never below the target
            image.load()
            upright = plain(image, target)
        except MemoryError as error:
            raise TooLargeError(
                "not enough memory to decode the image", file=self.path, page=number
            ) from error
        except _DAMAGE as error:
            raise self._error(error, number) from error
        finally:
            if len(self._frames) == 1 or image.width * image.height > _KEPT_PX:
                self.close()  # frees the decoded pixels; the next access reads the header again
        method = _transposes().get(turn)
        return upright if method is None else upright.transpose(method)

    def _open(self) -> None:
        """Open the file, if it is not; reads its header only."""
        if self._image is not None:
            return
        from PIL import Image

        # Pillow's own limit is a constant of the process; ours is a setting, and checked on every frame.
        Image.MAX_IMAGE_PIXELS = None
        # What Pillow finds odd in a file is no news to a person; what it cannot read, it raises.
        warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\.")
        try:
            self._file = self.path.open("rb")
            if self.media_type == "image/heic":
                import pillow_heif

                reader: Any = pillow_heif.HeifImageFile  # untyped
                self._image = reader(self._file)
            else:
                # Only the decoder the content asks for: no other format's parser sees the bytes.
                self._image = Image.open(self._file, formats=[_FORMATS[self.media_type]])
        except _DAMAGE as error:
            raise self._error(error, None) from error

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
            return from_os_error(error, file=self.path, page=page)
        if isinstance(error, NotImplementedError):
            return UnsupportedError("the image uses a compression we cannot read", file=self.path, page=page)
        cut = isinstance(error, EOFError) or "truncated" in str(error)
        return CorruptError(f"the image is {'cut off' if cut else 'damaged'}", file=self.path, page=page)


def _dpi(image: Image.Image) -> tuple[float, float]:
    """Stored resolution (horizontal, vertical) where it is believable, else `ASSUMED_DPI` for both."""
    try:
        x_dpi, y_dpi = (float(value) for value in image.info["dpi"])
    except (KeyError, TypeError, ValueError, ArithmeticError):
        return ASSUMED_DPI, ASSUMED_DPI
    low, high = SANE_DPI
    if not (low - 1 <= x_dpi <= high + 1 and low - 1 <= y_dpi <= high + 1):
        return ASSUMED_DPI, ASSUMED_DPI
    if any(abs(x_dpi - dpi) < 0.5 and abs(y_dpi - dpi) < 0.5 for dpi in MEANINGLESS_DPI):
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
