"""One image through a model: prompt ▸ vision features ▸ prefill ▸ decode ▸ text, streamed as it is accepted."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pipeline.adapter import inputs as page_inputs
from pipeline.adapter.loading import LoadedModel
from pipeline.adapter.session import MlxSession
from pipeline.beside import ALONE, Beside
from pipeline.decode import DecodeOptions, Outcome, Step, decode
from pipeline.engines.base import Piece, to_end
from pipeline.guard import Guard, GuardedSchedule, Verdict
from pipeline.presets import Output, Preset, Task
from pipeline.prompts import Prompt
from pipeline.proposers import registry
from pipeline.proposers.lookup import NGramTable
from pipeline.proposers.neural import NEURAL, NeuralProposer
from pipeline.reference.codec import CharacterCodec, Codec
from pipeline.reference.source import DraftSource
from pipeline.rules import NoRepeatNGram
from pipeline.schedule import AdaptiveSchedule, CostCurve, CostSchedule, FixedSchedule, Schedule
from pipeline.text_stream import TextStream, text_of
from pipeline.vision import VisionEncoder
from storage.errors import SettingsError
from storage.records import StopReason

if TYPE_CHECKING:
    from PIL import Image

    from pipeline.adapter.drafters import Drafter
    from pipeline.calibration import Calibration

log = logging.getLogger(__name__)

# Top-two logit margin under which a row of a block is decided again by a single row, where nothing was calibrated.
# float32 on a CPU: rows differ by up to 7e-5 (measured on the five tiny checkpoints). Half precision on a GPU: a guess.
TAU_FLOAT32 = 1e-3
TAU_HALF = 0.25
_LEAST_BUDGET = 512  # ids any picture may be answered with, however small


@dataclass(frozen=True, slots=True)
class DecodeSettings:
    """How to decode, whatever the page: `max_draft` 0 = adaptive; `verify` exact or fast."""

    mode: str = registry.AUTO
    max_draft: int = 0
    max_tokens: int | None = None  # None: the preset's
    verify: str = "exact"


@dataclass(slots=True)
class ImageReading:
    """What a model said about one image, and what it took. `text` ends where the guard says that it is good."""

    prompt: Prompt
    text: str = ""
    outcome: Outcome = field(default_factory=Outcome)
    hit: bool = False  # the vision features came from the store
    image_tokens: int = 0
    prompt_tokens: int = 0  # image tokens included
    input_px: tuple[int, int] | None = (
        None  # width, height the processor made of it: the space of dots.ocr's boxes
    )
    seconds: dict[str, float] = field(default_factory=dict)  # inputs, vision, prefill, decode
    guard: Verdict | None = None  # why the guard ended the text, if it did

    @property
    def ids(self) -> list[int]:
        """The ids of the good text; `outcome` has all that were written."""
        return self.outcome.ids if self.guard is None else self.outcome.ids[: self.guard.keep]

    @property
    def stop_reason(self) -> StopReason:
        """Why the text ended."""
        return self.outcome.stop_reason


class ModelReader:
    """A loaded model with its preset: reads images. Not thread-safe; one image at a time."""

    def __init__(
        self,
        loaded: LoadedModel,
        preset: Preset,
        encoder: VisionEncoder,
        settings: DecodeSettings,
        calibration: Calibration | None = None,
        drafter: Drafter | None = None,
    ) -> None:
        registry.resolve(settings.mode)
        self.loaded = loaded
        self.preset = preset
        self.encoder = encoder
        self.settings = settings
        self.calibration = calibration
        self.drafter = drafter
        self.drafts_off = ""  # why nothing is drafted although `settings` say so
        self._curve = CostCurve(calibration.costs) if calibration is not None else None
        self._rules = _rules(preset, loaded)

    def with_mode(self, mode: str, max_tokens: int | None) -> ModelReader:
        """The same model with other drafts and another budget, without a store of features."""
        encoder = self.encoder.without_store()
        settings = replace(self.settings, mode=mode, max_tokens=max_tokens)
        return ModelReader(self.loaded, self.preset, encoder, settings, self.calibration, self.drafter)

    def switch_off(self, reason: str) -> None:
        """Draft nothing from now on."""
        log.warning("drafts are off: %s", reason)
        self.drafts_off = reason
        self.settings = replace(self.settings, mode="none")

    def prompt(self, task: Task) -> Prompt:
        """The preset's prompt for a task. Raises: `SettingsError` where it has none."""
        try:
            return self.preset.prompts[task]
        except KeyError:
            known = ", ".join(self.preset.prompts)
            raise SettingsError(f"{self.preset.name} knows no task {task}; it knows {known}") from None

    def stream(
        self, image: Image.Image, task: Task | None = None, beside: Beside = ALONE
    ) -> Generator[Piece, None, ImageReading]:
        """Read `image` (RGB), yielding text as it is accepted; the generator's return value is the whole reading.

        Closing the generator cancels between two passes. Raises: `EngineError`, `OutOfMemoryError`.
        """
        prompt = self.prompt(task or self.preset.task)
        reading = ImageReading(prompt)
        options = dict(self.preset.processor_options)
        started = time.perf_counter()
        prepared = page_inputs.prepare(self.loaded, prompt.text, image, options)
        reading.seconds["inputs"] = time.perf_counter() - started
        reading.input_px = page_inputs.input_size(self.loaded, prepared)
        draft = None
        if beside.reference is not None and registry.resolve(self.settings.mode) == "reference":
            draft = self._draft(beside.reference(reading.input_px), task)
        encoded = self.encoder.encode(prepared, image, options)
        reading.hit, reading.image_tokens = encoded.hit, len(prepared.positions)
        reading.prompt_tokens = prepared.length
        reading.seconds["vision"] = encoded.seconds
        started = time.perf_counter()
        drafter = self._drafter_for_mode()
        session = MlxSession(
            self.loaded, prepared, page_inputs.embed(self.loaded, prepared, encoded.features),
            taps=drafter.taps if drafter is not None else (),
        )  # fmt: skip
        neural = NeuralProposer(drafter.kind, drafter.page(session)) if drafter is not None else None
        table = beside.table if beside.table is not None else NGramTable()
        written_before = len(table.history)
        proposer = registry.create(self.settings.mode, table, draft, neural)
        budget = _LEAST_BUDGET + self.preset.ids_per_image_id * reading.image_tokens
        guard = Guard(self.loaded.tokenizer, budget=budget, independent=beside.independent)
        loop = decode(session, proposer, self._options(guard), GuardedSchedule(self._schedule(), guard))
        stream = TextStream(self.loaded.tokenizer)
        while True:
            try:
                step = next(loop)
            except StopIteration as end:
                reading.outcome = end.value
                break
            if "prefill" not in reading.seconds:
                reading.seconds["prefill"] = time.perf_counter() - started
                started = time.perf_counter()
            text = stream.push(step.ids)
            reading.text += text
            yield _piece(text, step)
        reading.text += stream.flush()
        if reading.stop_reason is not StopReason.COMPLETE and guard.verdict is not None:
            reading.guard = guard.verdict
            reading.text = text_of(self.loaded.tokenizer, reading.ids)
            table.drop(len(table.history) - written_before - guard.verdict.keep)
        reading.text = self._without_stop_string(reading.text)
        reading.seconds["decode"] = time.perf_counter() - started
        return reading

    def read(self, image: Image.Image, task: Task | None = None, beside: Beside = ALONE) -> ImageReading:
        """`stream` to its end."""
        return to_end(self.stream(image, task, beside))

    def can_decode(self, mode: str) -> bool:
        """Whether a neural mode's drafter is loaded; any other mode needs none."""
        return mode not in NEURAL or (self.drafter is not None and self.drafter.kind == mode)

    def _drafter_for_mode(self) -> Drafter | None:
        """The neural drafter, where it was asked for, and with `auto`."""
        mode = self.settings.mode
        return self.drafter if mode == registry.AUTO or mode in NEURAL else None

    def _draft(self, source: DraftSource, task: Task | None) -> registry.PageDraft:
        stops, usual = self.loaded.stop_ids, getattr(self.loaded.tokenizer, "eos_token_id", None)
        json = self.preset.output is Output.DOTS_JSON and task in (None, self.preset.task)
        stop = usual if usual in stops else min(stops, default=None)
        kind = CharacterCodec if self.preset.writes_characters else Codec
        return registry.PageDraft(source, kind(self.loaded.tokenizer), json, stop)

    def _options(self, guard: Guard) -> DecodeOptions:
        return DecodeOptions(
            max_tokens=self.settings.max_tokens or self.preset.max_tokens,
            stop_ids=self.loaded.stop_ids,
            rules=self._rules,
            watch=_first_of(self._stop_string_watch(), guard),
            tau=self._tau(),
            equal_upto=self.calibration.equal_upto if self.calibration is not None else 1,
        )

    def _tau(self) -> float:
        if self.settings.verify == "fast":
            return 0.0
        if self.calibration is not None:
            return self.calibration.tau
        return TAU_FLOAT32 if self.loaded.dtype.startswith("float32") else TAU_HALF

    def _schedule(self) -> Schedule:
        if self.settings.mode == "none":
            return FixedSchedule(0)
        if self.settings.max_draft:
            return FixedSchedule(self.settings.max_draft)
        return CostSchedule(self._curve) if self._curve is not None else AdaptiveSchedule()

    def _stop_string_watch(self) -> Callable[[int], StopReason | None] | None:
        """Ends the text at the token that completes a stop string, whatever block it came in."""
        strings = self.preset.stop_strings
        if not strings:
            return None
        stream = TextStream(self.loaded.tokenizer)
        longest = max(len(s) for s in strings)
        tail = ""

        def watch(token: int) -> StopReason | None:
            nonlocal tail
            new = stream.push([token])
            tail = (tail + new)[-(longest + len(new)) :]
            return StopReason.COMPLETE if any(s in tail for s in strings) else None

        return watch

    def _without_stop_string(self, text: str) -> str:
        cuts = [at for s in self.preset.stop_strings if (at := text.find(s)) >= 0]
        return text[: min(cuts)] if cuts else text


def _first_of(
    first: Callable[[int], StopReason | None] | None, second: Callable[[int], StopReason | None]
) -> Callable[[int], StopReason | None]:
    """Both are told of every id; the first one's reason counts for more."""
    if first is None:
        return second

    def watch(token: int) -> StopReason | None:
        reason, other = first(token), second(token)
        return reason or other

    return watch


def _rules(preset: Preset, loaded: LoadedModel) -> tuple[NoRepeatNGram, ...]:
    ban = preset.ngram_ban
    if ban is None:
        return ()
    ids = {i for token in ban.exempt for i in loaded.tokenizer.encode(token, add_special_tokens=False)}
    return (NoRepeatNGram(ban.size, ban.window, frozenset(ids)),)


def _piece(text: str, step: Step) -> Piece:
    source = step.source if step.accepted * 2 >= len(step.ids) else "model"
    return Piece(text, source, len(step.ids), step.accepted)
