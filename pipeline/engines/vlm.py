"""The engine `vlm`: a page read by a vision-language model, whole or region by region, as its preset says."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from pipeline import regions, structure, support
from pipeline.answers import dots_json, grounding, plain_text
from pipeline.answers.cells import Answer, AnswerSpace, Cell, to_block
from pipeline.beside import Beside
from pipeline.engines.base import EngineNeeds, EngineReading, PageImage, Piece, to_end
from pipeline.engines.late_lines import LateLines
from pipeline.engines.region_reading import RegionReading
from pipeline.engines.stops import stop_warning
from pipeline.ladder import SMALLER, Rung, climb
from pipeline.presets import Mode, Output, Preset, Task
from pipeline.proposers.lookup import NGramTable
from pipeline.reference.draft import DraftLine
from pipeline.reference.lines import from_blocks, from_page
from pipeline.reference.previous import lines_within, words_within
from pipeline.reference.source import DraftSource, ReadyDraft, in_background
from storage.errors import OcrdError
from storage.records import Block, Category, Line, PageText, PageWarning, StopReason

if TYPE_CHECKING:
    from PIL import Image

    from pipeline.engines.classic import ClassicEngine
    from pipeline.engines.tesseract import TesseractEngine
    from pipeline.model_reader import ImageReading, ModelReader
    from storage.settings import Settings

log = logging.getLogger(__name__)

Pieces = Generator[Piece, None, EngineReading]


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
        self._drafts = ThreadPoolExecutor(1, "draft")  # its thread is made with the first draft
        self._classic: ClassicEngine | None = None
        self.history: tuple[str, NGramTable] = ("", NGramTable())  # of the document read last
        self.climbs = True  # whether a page that is cut short is read again in other ways
        self._noticed = False
        self.keep: list[ImageReading] | None = None  # a bench puts a list here to see every reading

    def version(self) -> str:
        """Model, revision and mlx-vlm."""
        from importlib.metadata import version

        return f"{self.preset.name} {self.location.revision or ''} (mlx-vlm {version('mlx-vlm')})".replace(
            "  ", " "
        )

    def draft(self, page: PageImage) -> Sequence[Line]:
        """Tesseract's lines, still in the making: regions for region models, and the draft of what will be written.

        A draft saves time, and for region models finds the regions; where Tesseract fails there is none.
        """
        return LateLines.by(self._drafts, lambda: self._read_cheaply(page))

    def _read_cheaply(self, page: PageImage) -> Sequence[Line]:
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
        return to_end(self.stream(page, hint=hint))

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
        if reading.model is not None:  # a classic engine's
            return reading
        reading = _checked(reading, hint)
        return replace(reading, model=self.preset.name, revision=self.location.revision)

    @property
    def notice(self) -> str:
        """What people should know of how this engine reads here; empty where all is well."""
        off = self._reader.drafts_off if self._reader is not None else ""
        return f"drafts off: {off}" if off else ""

    def unload(self) -> None:
        """Let go of the model; the next page loads it again."""
        if self._reader is not None and self._reader.encoder.store is not None:
            self._reader.encoder.store.close()
        self._reader = None

    def close(self) -> None:
        """Let go of everything."""
        self._drafts.shutdown(cancel_futures=True)
        self.unload()
        for engine in (self._drafter, self._classic):
            if engine is not None:
                engine.close()
        self._drafter = self._classic = None

    # --- a whole page at once ------------------------------------------------------------------------

    def _page(self, page: PageImage, hint: Sequence[Line]) -> Pieces:
        """The whole page, and where that is cut short the other ways to read it."""
        return (yield from climb(self._rungs(page, hint), time_s=self.settings.page_timeout_s))

    def _rungs(self, page: PageImage, hint: Sequence[Line]) -> Iterator[Rung]:
        yield Rung("page", lambda: self._whole(page, hint, self.preset.task))
        if not self.climbs:
            return
        if (other := self.preset.retry_task) is not None:
            yield Rung("task", lambda: self._whole(page, hint, other))
        if hint:  # asked for no sooner than here: it may still be in the making
            yield Rung("regions", lambda: self._blocks(page, hint))
        yield Rung("dpi", lambda: self._whole(_smaller(page), hint, self.preset.task))
        yield Rung("classic", lambda: self._classically(page), cheap=True)

    def _whole(self, page: PageImage, hint: Sequence[Line], task: Task) -> Pieces:
        """The whole page; nothing here looks at `hint`, which may be late, in this thread."""
        picture, output = page.image.convert("RGB"), self._output(task)

        def reference(input_px: tuple[int, int] | None) -> DraftSource:
            to_model = _space(output, input_px, page).to_model
            if page.previous:
                return ReadyDraft(from_blocks(page.previous, to_model))
            return in_background(
                lambda: from_page(PageText(page.width_pt, page.height_pt, tuple(hint)), to_model)
            )

        beside = Beside(self._history(page), independent=lambda: _said(hint), reference=reference)
        reading = yield from self.reader().stream(picture, task, beside)
        self._kept(reading)
        answer = parse(output, reading.text, _space(output, reading.input_px, page), hint)
        return EngineReading(
            blocks=answer.blocks,
            stop_reason=StopReason.BLANK if answer.blank else reading.stop_reason,
            warnings=_warnings(reading, answer),
            prompt=reading.prompt.reference,
            decode=reading.outcome.stats,
            seconds=dict(reading.seconds),
        )

    def _output(self, task: Task) -> Output:
        """The form of the answer to `task`: prompts other than a preset's own ask for bare text."""
        return self.preset.output if task is self.preset.task else Output.TEXT

    def _classically(self, page: PageImage) -> Pieces:
        from pipeline.engines.classic import ClassicEngine

        yield from ()
        if self._classic is None:
            self._classic = ClassicEngine(self.settings)
        return replace(self._classic.read(page), model=self._classic.version())

    # --- region by region ----------------------------------------------------------------------------

    def _lines(self, page: PageImage, hint: Sequence[Line]) -> Pieces:
        """Each line in pieces the model can read; structure then comes of the lines as with any line engine."""
        height, width = self.preset.text_height_px, self.preset.max_region_px
        assert height is not None and width is not None  # as presets with a text height have them
        reading = self._regions(page)
        read: dict[int, list[tuple[regions.LinePiece, str]]] = {}
        for piece in regions.line_pieces(hint, text_height_px=height, width_px=width[0]):
            picture = regions.line_picture(page, piece, hint[piece.line], height)
            words = " ".join(word.text for word in piece.words)
            draft = DraftLine(words_within(page.previous, piece.box) or words)
            found = yield from reading.read(picture, None, words, [draft])
            read.setdefault(piece.line, []).append((piece, words if found is None else found.text))
        lines = tuple(regions.with_text(hint[index], pieces) for index, pieces in read.items())
        lines = tuple(line for line in lines if line.text)
        return self._together(reading, lines=PageText(page.width_pt, page.height_pt, lines))

    def _blocks(self, page: PageImage, hint: Sequence[Line]) -> Pieces:
        """Each block of the draft's structure as one picture, under the prompt for its kind."""
        reading = self._regions(page)
        blocks: list[Block] = []
        for block in structure.structure(PageText(page.width_pt, page.height_pt, tuple(hint))):
            if block.category is Category.PICTURE:
                blocks.append(block)
                continue
            picture, task = regions.crop(page, block.box).convert("RGB"), self._task(block.category)
            draft = lines_within(page.previous, block.box) or from_blocks([block])
            found = yield from reading.read(picture, task, block.text, draft)
            blocks += (block,) if found is None else _reread(block, self._plain(task, found))
        return self._together(reading, blocks=tuple(blocks))

    def _regions(self, page: PageImage) -> RegionReading:
        def reads(
            picture: Image.Image, task: Task | None, other: str, draft: Sequence[DraftLine]
        ) -> Generator[Piece, None, ImageReading]:
            beside = Beside(
                self._history(page), independent=lambda: other, reference=lambda _: ReadyDraft(draft)
            )
            found = yield from self.reader().stream(picture, task, beside)
            return self._kept(found)

        return RegionReading(reads, climbs=self.climbs)

    def _task(self, category: Category) -> Task:
        wanted = {Category.TABLE: Task.TABLE, Category.FORMULA: Task.FORMULA}.get(category, Task.TEXT)
        return next((task for task in (wanted, Task.TEXT) if task in self.preset.prompts), self.preset.task)

    def _plain(self, task: Task, reading: ImageReading) -> str:
        """A region's answer without the boxes of models that know no other form."""
        if (output := self._output(task)) is Output.TEXT:
            return reading.text
        answer = parse(output, reading.text, AnswerSpace(1.0, 1.0, 1.0, 1.0), ())
        return "\n\n".join(block.markdown for block in answer.blocks)

    def _together(
        self,
        reading: RegionReading,
        *,
        lines: PageText | None = None,
        blocks: tuple[Block, ...] | None = None,
    ) -> EngineReading:
        prompt = self.preset.prompts[self.preset.task].reference
        return EngineReading(
            lines=lines, blocks=blocks, stop_reason=reading.stop_reason, prompt=prompt, decode=reading.decode,
            seconds=reading.seconds, warnings=reading.warnings, attempts=reading.attempts,
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
        if self.history[0] != page.document or not page.document:
            self.history = (page.document, NGramTable())
        return self.history[1]


def parse(output: Output, text: str, space: AnswerSpace, hint: Sequence[Line]) -> Answer:
    """The blocks of an answer in the form that a preset's model gives."""
    match output:
        case Output.DOTS_JSON:
            return dots_json.parse(text, space)
        case Output.GROUNDING:
            return grounding.parse_ref(text, space)
        case Output.DET:
            return grounding.parse_det(text, space)
        case Output.TEXT:
            return plain_text.parse(text, space, hint)


def _space(output: Output, input_px: tuple[int, int] | None, page: PageImage) -> AnswerSpace:
    """The coordinate space a model answers in: pixels of its resized input, or 0…999."""
    if output is Output.DOTS_JSON and input_px is not None:
        return AnswerSpace(*input_px, page.width_pt, page.height_pt)
    return AnswerSpace(grounding.SPAN, grounding.SPAN, page.width_pt, page.height_pt)


def _reread(block: Block, text: str) -> tuple[Block, ...]:
    """`block` with the model's words in place of the draft's; nothing where the model saw nothing."""
    if not text.strip():
        return ()
    whole = AnswerSpace(1.0, 1.0, 1.0, 1.0)
    again = to_block(Cell(None, "", text), block.category, whole)
    level = block.level if block.level is not None else again.level
    return (replace(again, box=block.box, level=level, confidence=None),)


def _warnings(reading: ImageReading, answer: Answer) -> tuple[PageWarning, ...]:
    found = list(stop_warning(reading.stop_reason, reading.guard.note if reading.guard else ""))
    found += [
        PageWarning("answer_repaired", f"left out of the model's answer: {what}") for what in answer.dropped
    ]
    if not answer.whole and reading.stop_reason is StopReason.COMPLETE:
        found.append(
            PageWarning("answer_repaired", "the model's answer was not whole; what could be read is kept")
        )
    return tuple(found)


def _smaller(page: PageImage) -> PageImage:
    width, height = (max(1, round(side * SMALLER)) for side in page.image.size)
    return replace(page, image=page.image.resize((width, height)), dpi=page.dpi * SMALLER)


def _said(lines: Sequence[Line]) -> str:
    return "\n".join(line.text for line in lines)


def _checked(reading: EngineReading, hint: Sequence[Line]) -> EngineReading:
    """The reading, with a warning where it says what the other reading of the page knows nothing of."""
    if reading.lines is not None:
        text = _said(reading.lines.lines)
    else:
        left_out = (Category.FORMULA, Category.PICTURE)
        text = "\n".join(block.text for block in reading.blocks or () if block.category not in left_out)
    found = support.warning(text, hint)
    return reading if found is None else replace(reading, warnings=(*reading.warnings, found))
