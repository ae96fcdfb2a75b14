"""What an engine is: something that reads one page image into lines with boxes."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

from pipeline.engines.frame import Frame
from storage.records import Block, Box, DecodeStats, Line, PageText, PageWarning, ReadingAttempt, StopReason

if TYPE_CHECKING:
    from PIL import Image

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class PageImage:
    """A page as pixels, and how to get back to points.

    `image` is RGB or L, upright as displayed. `scale_x`, `scale_y` are pixels per point: a pixel box divided by them
    is a box in page points (top-left origin).
    """

    page: int  # from 1
    image: Image.Image
    width_pt: float
    height_pt: float
    dpi: float
    warnings: tuple[PageWarning, ...] = ()
    document: str = ""  # equal for pages of one document: what an engine may remember from page to page
    previous: tuple[Block, ...] = ()  # what was read of it another time: a draft for engines that want one

    @property
    def scale_x(self) -> float:
        """Pixels per point, horizontally."""
        return self.image.width / self.width_pt

    @property
    def scale_y(self) -> float:
        """Pixels per point, vertically."""
        return self.image.height / self.height_pt

    def to_points(self, box: tuple[float, float, float, float]) -> Box:
        """A box in pixels as a box in page points."""
        left, top, right, bottom = box
        return left / self.scale_x, top / self.scale_y, right / self.scale_x, bottom / self.scale_y

    def cut(self, box: Box, margin_pt: tuple[float, float] = (0.0, 0.0)) -> Image.Image:
        """The pixels under a box in points and a margin around it, as far as the page goes; at least one pixel."""
        left = max(0, int((box[0] - margin_pt[0]) * self.scale_x))
        top = max(0, int((box[1] - margin_pt[1]) * self.scale_y))
        right = min(self.image.width, max(left + 1, int((box[2] + margin_pt[0]) * self.scale_x + 1)))
        bottom = min(self.image.height, max(top + 1, int((box[3] + margin_pt[1]) * self.scale_y + 1)))
        return self.image.crop((min(left, right - 1), min(top, bottom - 1), right, bottom))


@dataclass(frozen=True, slots=True)
class EngineReading:
    """What an engine returns: lines, for `pipeline.structure` to make blocks of, or blocks it made itself."""

    lines: PageText | None = None  # classic engines
    frame: Frame | None = None  # the page was turned to be read: boxes and sizes are those of the turned page
    blocks: tuple[Block, ...] | None = None  # engines that give structure themselves (vlm)
    confidence: float | None = None  # 0…1, mean over characters
    stop_reason: StopReason = StopReason.COMPLETE
    warnings: tuple[PageWarning, ...] = ()
    model: str | None = None
    revision: str | None = None
    prompt: str | None = None
    decode: DecodeStats | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    attempts: tuple[ReadingAttempt, ...] = ()  # where the first reading was cut short


@dataclass(frozen=True, slots=True)
class EngineNeeds:
    """What an engine wants prepared for it."""

    dpi: int | None = None  # None: as the settings say
    max_pixels: int | None = None
    every_page: bool = False  # also pages with a good text layer, which then is the draft
    draft: bool = False  # `Drafting.draft` is to be asked about pages without a good layer


@runtime_checkable
class Drafting(Protocol):
    """An engine that wants a cheap reading of the page beside its own."""

    needs: EngineNeeds

    def draft(self, page: PageImage) -> Sequence[Line]:
        """Lines of a cheaper engine, which may still be in the making. Called from another thread than `read`."""
        ...


@dataclass(frozen=True, slots=True)
class Piece:
    """Text accepted in one pass of a model, and which proposer drafted most of it ("model" = its own)."""

    text: str
    source: str
    tokens: int
    accepted: int


def to_end(pieces: Generator[object, None, _Result]) -> _Result:
    """Run a reading that is streamed to its end, for what it returns."""
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            result: _Result = end.value
            return result


@runtime_checkable
class Streaming(Protocol):
    """An engine that can be watched while it writes."""

    def stream(self, page: PageImage, *, hint: Sequence[Line] = ()) -> Generator[Piece, None, EngineReading]:
        """As `Engine.read`, piece by piece; closing the generator cancels between two passes."""
        ...


def needs_of(engine: Engine | None) -> EngineNeeds:
    """What `engine` wants prepared; classic engines want nothing special and say nothing."""
    needs = getattr(engine, "needs", None)
    return needs if isinstance(needs, EngineNeeds) else EngineNeeds()


@runtime_checkable
class Engine(Protocol):
    """Reads page images. One instance per worker process, used from one thread at a time; costly set-up is lazy."""

    name: str

    def version(self) -> str:
        """Name and version of what reads (library, language data or model), for the provenance."""
        ...

    def read(self, page: PageImage, *, hint: Sequence[Line] = ()) -> EngineReading:
        """The page's lines or blocks. `hint`: lines of a text layer too bad to use, or of a cheaper engine, as draft.

        Raises: `EngineUnavailableError` when something is not installed, `EngineError` when reading failed.
        """
        ...

    def close(self) -> None:
        """Free what `read` holds on to; the engine is not used again."""
        ...
