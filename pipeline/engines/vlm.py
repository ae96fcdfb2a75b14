"""The engine `vlm`: a page read by a vision-language model, whole or region by region, as its preset says."""

from __future__ import annotations

import logging
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pipeline import regions, structure
from pipeline.answers import dots_json, grounding, plain_text
from pipeline.answers.cells import Answer, Cell, Frame, to_block
from pipeline.engines.base import EngineNeeds, EngineReading, PageImage, Piece
from pipeline.presets import Mode, Output, Preset, Task
from pipeline.proposers.lookup import NGramTable
from storage.errors import OcrdError
from storage.records import Block, Category, DecodeStats, Line, PageText, PageWarning, StopReason

if TYPE_CHECKING:
    from pipeline.engines.tesseract import TesseractEngine
    from pipeline.model_reader import ImageReading, ModelReader
    from storage.settings import Settings

log = logging.getLogger(__name__)

Pieces = Generator[Piece, None, EngineReading]


@dataclass(slots=True)
class _Tally:
    """What the regions of a page took together."""

    decode: DecodeStats = field(default_factory=DecodeStats)
    stop_reason: StopReason = StopReason.COMPLETE
    seconds: dict[str, float] = field(default_factory=dict)
    hits: int = 0
    regions: int = 0

    def add(self, reading: ImageReading) -> None:
        stats = reading.outcome.stats
        self.decode = DecodeStats(
            self.decode.tokens + stats.tokens,
            self.decode.target_passes + stats.target_passes,
            self.decode.drafted + stats.drafted,
            self.decode.accepted + stats.accepted,
        )
        if reading.stop_reason is not StopReason.COMPLETE:
            self.stop_reason = reading.stop_reason
        for stage, seconds in reading.seconds.items():
            self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds
        self.hits += reading.hit
        self.regions += 1


class VlmEngine:
    """Reads with one model. The model is loaded at the first page; `draft` may run in another thread than `read`."""

    name = "vlm"

    def __init__(self, settings: Settings) -> None:
        from pipeline import model_files

        self.settings = settings
        self.location = model_files.locate(settings.model or "tiny", settings)
        self.preset: Preset = self.location.preset
        self.needs = EngineNeeds(self.preset.dpi, self.preset.max_pixels, every_page=True, draft=True)
        self._reader: ModelReader | None = None
        self._drafter: TesseractEngine | None = None
        self._table: tuple[str, NGramTable] = ("", NGramTable())
        self._noticed = False
        self.keep: list[ImageReading] | None = None  # a bench puts a list here to see every reading

    def version(self) -> str:
        """Model, revision and mlx-vlm."""
        from importlib.metadata import version

        return f"{self.preset.name} {self.location.revision or ''} (mlx-vlm {version('mlx-vlm')})".replace(
            "  ", " "
        )

    def draft(self, page: PageImage) -> Sequence[Line]:
        """Tesseract's lines: regions for region models, and the draft of what will be written.

        A draft saves time, and for region models finds the regions; where Tesseract fails there is none.
        """
        from pipeline.engines.tesseract import TesseractEngine

        try:
            if self._drafter is None:
                self._drafter = TesseractEngine(self.settings)
            reading = self._drafter.read(page)
        except OcrdError as error:
            log.warning("no draft: %s", error.message, extra={"page": page.page})
            return ()
        lines = reading.lines.lines if reading.lines is not None else ()
        if reading.frame is not None:
            lines = tuple(reading.frame.line_to_page(line) for line in lines)
        return lines

    def read(self, page: PageImage, *, hint: Sequence[Line] = ()) -> EngineReading:
        """`stream` to its end; see `pipeline.engines.base.Engine.read`."""
        pieces = self.stream(page, hint=hint)
        while True:
            try:
                next(pieces)
            except StopIteration as end:
                reading: EngineReading = end.value
                return reading

    def stream(self, page: PageImage, *, hint: Sequence[Line] = ()) -> Pieces:
        """Read the page, yielding text as it is accepted.

        Raises: `ModelError` when the model cannot be loaded, `EngineError`, `OutOfMemoryError`.
        """
        if self.preset.mode is Mode.PAGE:
            reading = yield from self._page(page, hint)
        elif self.preset.text_height_px is not None:
            reading = yield from self._lines(page, hint)
        else:
            reading = yield from self._blocks(page, hint)
        if self.notice and not self._noticed:
            self._noticed = True  # once is enough: `ocrd status` goes on saying it
            reading = replace(reading, warnings=(*reading.warnings, PageWarning("drafts_off", self.notice)))
        return replace(reading, model=self.preset.name, revision=self.location.revision)

    @property
    def notice(self) -> str:
        """What people should know of how this engine reads here; empty where all is well."""
        off = self._reader.drafts_off if self._reader is not None else ""
        return f"drafts off: {off}" if off else ""

    def close(self) -> None:
        """Let go of the model."""
        if self._reader is not None and self._reader.encoder.store is not None:
            self._reader.encoder.store.close()
        if self._drafter is not None:
            self._drafter.close()
        self._reader = self._drafter = None

    # --- a whole page at once ------------------------------------------------------------------------

    def _page(self, page: PageImage, hint: Sequence[Line]) -> Pieces:
        reader = self.reader()
        reading = yield from reader.stream(page.image.convert("RGB"), table=self._history(page))
        self._kept(reading)
        answer = parse(self.preset.output, reading.text, _frame(self.preset.output, reading, page), hint)
        warnings = _warnings(reading, answer)
        stop = StopReason.BLANK if answer.blank else reading.stop_reason
        return EngineReading(
            blocks=answer.blocks,
            stop_reason=stop,
            warnings=warnings,
            prompt=reading.prompt.reference,
            decode=reading.outcome.stats,
            seconds=dict(reading.seconds),
        )

    # --- region by region ----------------------------------------------------------------------------

    def _lines(self, page: PageImage, hint: Sequence[Line]) -> Pieces:
        """Each line in pieces the model can read; structure then comes of the lines as with any line engine."""
        height, width = self.preset.text_height_px, self.preset.max_region_px
        assert height is not None and width is not None  # as presets with a text height have them
        reader, table, tally = self.reader(), self._history(page), _Tally()
        read: dict[int, list[tuple[regions.LinePiece, str]]] = {}
        for piece in regions.line_pieces(hint, text_height_px=height, width_px=width[0]):
            picture = regions.line_picture(page, piece, hint[piece.line], height)
            reading = yield from reader.stream(picture, table=table)
            tally.add(self._kept(reading))
            read.setdefault(piece.line, []).append((piece, reading.text))
        lines = tuple(regions.with_text(hint[index], pieces) for index, pieces in read.items())
        lines = tuple(line for line in lines if line.text)
        text = PageText(page.width_pt, page.height_pt, lines)
        return self._tallied(tally, lines=text)

    def _blocks(self, page: PageImage, hint: Sequence[Line]) -> Pieces:
        """Each block of the draft's structure as one picture, under the prompt for its kind."""
        reader, table, tally = self.reader(), self._history(page), _Tally()
        blocks: list[Block] = []
        for block in structure.structure(PageText(page.width_pt, page.height_pt, tuple(hint))):
            if block.category is Category.PICTURE:
                blocks.append(block)
                continue
            picture = regions.crop(page, block.box).convert("RGB")
            reading = yield from reader.stream(picture, self._task(block.category), table=table)
            tally.add(self._kept(reading))
            blocks += _reread(block, reading.text)
        return self._tallied(tally, blocks=tuple(blocks))

    def _task(self, category: Category) -> Task:
        wanted = {Category.TABLE: Task.TABLE, Category.FORMULA: Task.FORMULA}.get(category, Task.TEXT)
        return wanted if wanted in self.preset.prompts else self.preset.task

    def _tallied(
        self, tally: _Tally, *, lines: PageText | None = None, blocks: tuple[Block, ...] | None = None
    ) -> EngineReading:
        prompt = self.preset.prompts[self.preset.task].reference
        return EngineReading(
            lines=lines, blocks=blocks, stop_reason=tally.stop_reason, prompt=prompt, decode=tally.decode,
            seconds=tally.seconds, warnings=_stop_warning(tally.stop_reason),
        )  # fmt: skip

    # --- what lasts ----------------------------------------------------------------------------------

    def reader(self) -> ModelReader:
        """The model, loaded at the first call. Raises: `ModelError`, `OutOfMemoryError`."""
        if self._reader is None:
            self._reader = self._load()
        return self._reader

    def _load(self) -> ModelReader:
        from pipeline import opening

        return opening.open_reader(self.settings, self.location)

    def _kept(self, reading: ImageReading) -> ImageReading:
        if self.keep is not None:
            self.keep.append(reading)
        return reading

    def _history(self, page: PageImage) -> NGramTable:
        """The tokens written for the document so far; a new document starts a new table."""
        if self._table[0] != page.document or not page.document:
            self._table = (page.document, NGramTable())
        return self._table[1]


def parse(output: Output, text: str, frame: Frame, hint: Sequence[Line]) -> Answer:
    """The blocks of an answer in the form that a preset's model gives."""
    match output:
        case Output.DOTS_JSON:
            return dots_json.parse(text, frame)
        case Output.GROUNDING:
            return grounding.parse_ref(text, frame)
        case Output.DET:
            return grounding.parse_det(text, frame)
        case Output.TEXT:
            return plain_text.parse(text, frame, hint)


def _frame(output: Output, reading: ImageReading, page: PageImage) -> Frame:
    """The coordinate space a model answers in: pixels of its resized input, or 0…999."""
    if output is Output.DOTS_JSON and reading.input_px is not None:
        return Frame(*reading.input_px, page.width_pt, page.height_pt)
    return Frame(grounding.SPAN, grounding.SPAN, page.width_pt, page.height_pt)


def _reread(block: Block, text: str) -> tuple[Block, ...]:
    """`block` with the model's words in place of the draft's; nothing where the model saw nothing."""
    if not text.strip():
        return ()
    whole = Frame(1.0, 1.0, 1.0, 1.0)
    again = to_block(Cell(None, "", text), block.category, whole)
    level = block.level if block.level is not None else again.level
    return (replace(again, box=block.box, level=level, confidence=None),)


def _warnings(reading: ImageReading, answer: Answer) -> tuple[PageWarning, ...]:
    found = list(_stop_warning(reading.stop_reason))
    found += [
        PageWarning("answer_repaired", f"left out of the model's answer: {what}") for what in answer.dropped
    ]
    if not answer.whole and reading.stop_reason is StopReason.COMPLETE:
        found.append(
            PageWarning("answer_repaired", "the model's answer was not whole; what could be read is kept")
        )
    return tuple(found)


def _stop_warning(reason: StopReason) -> tuple[PageWarning, ...]:
    if reason is StopReason.LENGTH:
        return (PageWarning("truncated", "the model reached its token limit: text is missing at the end"),)
    return ()
