"""What one reading wants other than the engine's settings say, without loading the model again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pipeline.presets import Output, Preset, Task
from storage.errors import SettingsError

if TYPE_CHECKING:
    from pipeline.engines.base import Engine
    from pipeline.model_reader import DecodeSettings, ImageReading, ModelReader


@dataclass(frozen=True, slots=True)
class Wishes:
    """None: as the settings say. `climbs`: whether a page that is cut short is read again in other ways."""

    mode: str | None = None
    task: str | None = None
    max_tokens: int | None = None
    climbs: bool = True

    @property
    def are_for_models(self) -> bool:
        """Whether anything is wished that only a model can grant."""
        return self.mode is not None or self.task is not None


@contextlib.contextmanager
def granted(engine: Engine, wishes: Wishes) -> Iterator[list[ImageReading]]:
    """Within the block `engine` reads as wished; the list fills with what its model said to each picture.

    For the thread that reads, and one reading at a time. The model is loaded here if it was not.
    Raises: `SettingsError` for what this engine cannot do; `ModelError`, `OutOfMemoryError`.
    """
    from pipeline.engines.vlm import VlmEngine

    if not isinstance(engine, VlmEngine):
        if wishes.are_for_models:
            raise SettingsError(
                f"{engine.name} is no model: it has neither modes nor tasks", remedy="leave them out"
            )
        yield []
        return
    reader = engine.reader()
    readings: list[ImageReading] = []
    before = engine.preset, engine.climbs, engine.keep, engine.history, reader.settings
    engine.preset, engine.climbs, engine.keep = with_task(engine.preset, wishes.task), wishes.climbs, readings
    reader.settings = _decoding(reader, wishes)
    try:
        yield readings
    finally:
        engine.preset, engine.climbs, engine.keep, engine.history, reader.settings = before


def with_task(preset: Preset, name: str | None) -> Preset:
    """The preset asking `name` of its model; answers to others than its own task are text.

    Raises: `SettingsError` for a task it does not know.
    """
    if name is None or name == preset.task:
        return preset
    if name not in preset.prompts:
        known = ", ".join(preset.prompts)
        raise SettingsError(f"{preset.name} knows no task {name!r}", remedy=f"choose one of: {known}")
    return replace(preset, task=Task(name), output=Output.TEXT, retry_task=None)


def _decoding(reader: ModelReader, wishes: Wishes) -> DecodeSettings:
    settings = reader.settings
    if wishes.max_tokens is not None:
        # Never more than the settings or the preset allow: a reading holds the model for as long as it lasts.
        most = settings.max_tokens or reader.preset.max_tokens
        settings = replace(settings, max_tokens=min(wishes.max_tokens, most))
    if wishes.mode is None or reader.drafts_off:
        return settings
    if not reader.can_decode(wishes.mode):
        raise SettingsError(
            f"no drafter for the mode {wishes.mode!r} is loaded",
            remedy="choose auto, none, lookup or reference",
        )
    return replace(settings, mode=wishes.mode)
