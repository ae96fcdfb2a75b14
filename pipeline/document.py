"""The order of the stages: open ▸ text layer ▸ rasterise ▸ blank? ▸ engine ▸ structure. Names them all, alone."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from pipeline import blank, rasterise, sampling, source, structure, textlayer
from pipeline.engines.base import (
    Drafting,
    Engine,
    EngineReading,
    PageImage,
    Piece,
    Streaming,
    needs_of,
    to_end,
)
from pipeline.engines.late_lines import LateLines
from storage.errors import EngineUnavailableError, NoTextLayerError
from storage.records import (
    Block,
    DocumentInfo,
    LayerVerdict,
    Line,
    PageReading,
    PageText,
    PageWarning,
    StopReason,
)

if TYPE_CHECKING:
    from PIL import Image

    from storage.settings import Settings

log = logging.getLogger(__name__)

LOW_CONFIDENCE = 0.5  # mean over the characters of a page, below which a person is told


@dataclass(frozen=True, slots=True)
class Prepared:
    """A page after its PDFium work: its text layer, and its pixels where they are needed."""

    page: int  # from 1
    label: str | None
    width_pt: float
    height_pt: float
    layer: textlayer.TextLayer
    image: PageImage | None  # None where the text layer is the page's text
    is_blank: bool = False
    draft: Sequence[Line] = ()  # a cheaper reading, where the engine wants one; may still be in the making
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def hint(self) -> Sequence[Line]:
        """Another reading of the page: the engine's draft, else what its text layer says."""
        lines = self.layer.text.lines if self.layer.text is not None else ()
        return self.draft.or_else(lines) if isinstance(self.draft, LateLines) else self.draft or lines


class DocumentReader:
    """One open file and the engine that reads its pages.

    `prepare` does all PDFium work and must always be called from one and the same thread (the one that opened the
    reader); `read` does the rest and may run in another, so that the next page is rasterised while this one is read.
    """

    def __init__(
        self,
        path: Path,
        settings: Settings,
        engine: Engine | None,
        passwords: Sequence[str] = (),
        sample_reader: Callable[[Image.Image], str] | None = None,
    ) -> None:
        self.path = path
        self.settings = settings
        self.engine = engine
        self.passwords = tuple(passwords)
        self.sample_reader = sample_reader or sampling.read_line
        self._opened: AbstractContextManager[source.Source] | None = None
        self._source: source.Source | None = None

    def __enter__(self) -> Self:
        self._opened = open_file(self.path, self.settings, self.passwords)
        self._source = self._opened.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._opened is not None:
            self._opened.__exit__(kind, error, trace)
        self._opened = self._source = None

    @property
    def info(self) -> DocumentInfo:
        """What opening the file told."""
        return self._open_source().info

    def _open_source(self) -> source.Source:
        if self._source is None:
            raise RuntimeError("DocumentReader is used outside its with block")
        return self._source

    def prepare(self, number: int, previous: Sequence[Block] = ()) -> Prepared:
        """Text layer and, where it is not good enough, pixels of page `number` (from 1).

        `previous`: what was read of the page another time, as a draft; never its text without being read again.
        Raises: the input errors of `storage.errors`, with file and page.
        """
        clock = _Clock()
        with self._open_source().page(number) as page:
            layer = self._layer(page)
            clock.mark("text_layer")
            prepared = Prepared(number, page.label, page.width_pt, page.height_pt, layer, None)
            if layer.verdict is not LayerVerdict.GOOD or self._reads_every_page:
                prepared = self._with_pixels(prepared, page, clock, tuple(previous))
        return replace(prepared, seconds=clock.seconds)

    @property
    def _reads_every_page(self) -> bool:
        return needs_of(self.engine).every_page and self.settings.text_layer != "require"

    def _layer(self, page: source.SourcePage) -> textlayer.TextLayer:
        if self.settings.text_layer == "ignore":
            return textlayer.TextLayer(None, LayerVerdict.IGNORED, "left aside by --text-layer ignore")
        return textlayer.read_text_layer(page, sample_reader=self.sample_reader)

    def _with_pixels(
        self, prepared: Prepared, page: source.SourcePage, clock: _Clock, previous: tuple[Block, ...]
    ) -> Prepared:
        needs = needs_of(self.engine)
        image = rasterise.rasterise(
            page,
            dpi=needs.dpi or self.settings.dpi,
            max_pixels=min(needs.max_pixels or self.settings.max_pixels, self.settings.max_pixels),
        )
        image = replace(image, document=str(self.path), previous=previous)
        clock.mark("rasterise")
        good = prepared.layer.verdict is LayerVerdict.GOOD
        empty = not good and blank.is_blank(image)
        clock.mark("blank")
        draft: Sequence[Line] = ()
        if isinstance(self.engine, Drafting) and needs.draft and not good and not empty:
            draft = self.engine.draft(image)
            clock.mark("draft")  # of one in the making: nothing yet, see `_from_engine`
        return replace(prepared, image=image, is_blank=empty, draft=draft)

    def read(self, prepared: Prepared) -> PageReading:
        """The page's text, Markdown and blocks.

        Raises: `EngineError`, `EngineUnavailableError`; `NoTextLayerError` under `--text-layer require`.
        """
        return to_end(self.stream(prepared))

    def stream(self, prepared: Prepared) -> Generator[Piece, None, PageReading]:
        """As `read`, yielding the text of a `Streaming` engine as it is accepted. Closing it cancels."""
        clock = _Clock(dict(prepared.seconds))
        if prepared.image is None:
            return self._from_layer(prepared, clock)
        if prepared.is_blank:
            return self._blank(prepared, prepared.image.warnings, clock)
        if self.settings.text_layer == "require" and prepared.layer.verdict is not LayerVerdict.GOOD:
            raise NoTextLayerError(
                f"no usable text layer ({prepared.layer.reason})", file=self.path, page=prepared.page
            )
        return (yield from self._from_engine(prepared, prepared.image, clock))

    def read_page(self, number: int) -> PageReading:
        """`read(prepare(number))`, for callers with nothing to overlap."""
        return self.read(self.prepare(number))

    def _from_layer(self, prepared: Prepared, clock: _Clock) -> PageReading:
        text = prepared.layer.text
        blocks = structure.structure(text) if text is not None else ()
        clock.mark("structure")
        return self._reading(prepared, blocks, clock, source="text-layer")

    def _from_engine(
        self, prepared: Prepared, image: PageImage, clock: _Clock
    ) -> Generator[Piece, None, PageReading]:
        if self.engine is None:
            raise EngineUnavailableError(
                "this page needs OCR and no engine is set up", file=self.path, page=prepared.page
            )
        hint = prepared.hint
        if isinstance(self.engine, Streaming):
            result = yield from self.engine.stream(image, hint=hint)
        else:
            result = self.engine.read(image, hint=hint)
        clock.mark("read")
        if isinstance(hint, LateLines) and hint.seconds is not None:
            clock.seconds["draft"] = hint.seconds
        warnings = (*image.warnings, *result.warnings)
        blocks = result.blocks
        if blocks is None:
            lines = result.lines or PageText(prepared.width_pt, prepared.height_pt, ())
            if not lines.lines or blank.is_noise(lines, image):
                return self._blank(prepared, warnings, clock, engine=self.engine.name)
            blocks = structure.structure(lines)
        if result.frame is not None:
            blocks = tuple(result.frame.block_to_page(block) for block in blocks)
        clock.mark("structure")
        if result.confidence is not None and result.confidence < LOW_CONFIDENCE:
            message = f"the engine is unsure of this page (confidence {result.confidence:.2f})"
            warnings = (*warnings, PageWarning("low_confidence", message))
        return self._reading(
            prepared, blocks, clock, source="engine", image=image, result=result, warnings=warnings
        )

    def _blank(
        self, prepared: Prepared, warnings: tuple[PageWarning, ...], clock: _Clock, engine: str | None = None
    ) -> PageReading:
        return PageReading(
            page=prepared.page,
            label=prepared.label,
            width_pt=prepared.width_pt,
            height_pt=prepared.height_pt,
            blocks=(),
            text="",
            markdown="",
            stop_reason=StopReason.BLANK,
            source="blank",
            engine=engine,
            layer=prepared.layer.verdict,
            layer_reason=prepared.layer.reason,
            warnings=warnings,
            seconds=clock.seconds,
        )

    def _reading(
        self,
        prepared: Prepared,
        blocks: tuple[Block, ...],
        clock: _Clock,
        *,
        source: str,
        image: PageImage | None = None,
        result: EngineReading | None = None,
        warnings: tuple[PageWarning, ...] = (),
    ) -> PageReading:
        result = result or EngineReading()
        text, markdown = structure.render_text(blocks), structure.render_markdown(blocks)
        clock.mark("structure")
        return PageReading(
            page=prepared.page,
            label=prepared.label,
            width_pt=prepared.width_pt,
            height_pt=prepared.height_pt,
            blocks=blocks,
            text=text,
            markdown=markdown,
            stop_reason=result.stop_reason,
            source=source,
            engine=self.engine.name if source == "engine" and self.engine is not None else None,
            layer=prepared.layer.verdict,
            layer_reason=prepared.layer.reason,
            model=result.model,
            revision=result.revision,
            prompt=result.prompt,
            dpi=image.dpi if image else None,
            width_px=image.image.width if image else None,
            height_px=image.image.height if image else None,
            confidence=result.confidence,
            decode=result.decode,
            warnings=warnings,
            seconds={**clock.seconds, **result.seconds},
            attempts=result.attempts,
        )


def open_file(
    path: Path, settings: Settings, passwords: Sequence[str] = ()
) -> AbstractContextManager[source.Source]:
    """The opened file, under the settings' passwords and pixel limit.

    Raises: the input and storage errors of `storage.errors`.
    """
    return source.open_source(
        path, passwords=(*passwords, *settings.passwords), max_image_pixels=settings.max_image_pixels
    )


def open_info(path: Path, settings: Settings, passwords: Sequence[str] = ()) -> DocumentInfo:
    """What opening the file tells: kind, pages, labels, warnings. Raises as `open_file`."""
    with open_file(path, settings, passwords) as opened:
        return opened.info


class _Clock:
    """Seconds per stage; stages marked twice add up."""

    def __init__(self, seconds: dict[str, float] | None = None) -> None:
        self.seconds = seconds if seconds is not None else {}
        self._last = time.perf_counter()

    def mark(self, stage: str) -> None:
        """The time since the last mark belongs to `stage`."""
        now = time.perf_counter()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._last
        self._last = now
