"""What is known of each model: where it comes from, how to ask it, what it answers, how its text ends.

Facts and their sources: the models' own repositories (see docs/models.md); nothing here imports MLX.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from pipeline import prompts
from pipeline.prompts import Prompt
from storage.errors import SettingsError

TINY_FOLDER = Path(__file__).parent / "models" / "tiny"


class Mode(StrEnum):
    """What is shown to the model at once."""

    PAGE = "page"
    REGION = "region"  # blocks found by text layer or classic OCR, one by one: what the model was trained on


class Output(StrEnum):
    """What form the answer has; `pipeline.answers` has a parser for each."""

    DOTS_JSON = "dots-json"  # array of {bbox, category, text}, boxes in model pixels
    GROUNDING = "grounding"  # <|ref|>label<|/ref|><|det|>[[…]]<|/det|> and text; boxes in 0…999
    DET = "det"  # <|det|>label [x1, y1, x2, y2]<|/det|>text (Unlimited-OCR); boxes in 0…999
    TEXT = "text"  # plain text or Markdown without boxes


class Task(StrEnum):
    """What is asked of the model."""

    LAYOUT = "layout"
    LAYOUT_ONLY = "layout-only"
    TEXT = "text"
    TABLE = "table"
    FORMULA = "formula"
    REGION = "region"


@dataclass(frozen=True, slots=True)
class NGramBan:
    """A no-repeat rule as the model's authors decode with; `exempt` are token strings."""

    size: int
    window: int
    exempt: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Preset:
    """Everything ocrd needs to know to read with a model."""

    name: str
    repository: str | None  # on the model hub; None = ships with ocrd or is a local folder
    revision: str | None
    prompts: Mapping[Task, Prompt]
    task: Task  # asked for by default
    mode: Mode
    output: Output
    dpi: int
    max_pixels: int
    max_tokens: int
    licence: str
    min_pixels: int = 0
    retry_task: Task | None = None  # asked when the default one goes into a loop
    stop_strings: tuple[str, ...] = ()
    ngram_ban: NGramBan | None = None
    processor_options: Mapping[str, Any] = field(default_factory=dict)
    proposer: str = "auto"
    text_height_px: int | None = None  # region mode: scale lines to this height of capitals and ascenders
    max_region_px: tuple[int, int] | None = None  # width, height a region may have
    note: str = ""


PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(
            "tiny", None, None, {Task.TEXT: prompts.TINY_TEXT}, Task.TEXT, Mode.REGION, Output.TEXT,
            dpi=200, max_pixels=16_000_000, max_tokens=600, licence="MIT (trained by this project)",
            text_height_px=20, max_region_px=(504, 560),
            note="3 M parameters, ships with ocrd: printed ASCII lines; to try the model path without a download",
        ),
    )
}  # fmt: skip


def find(name: str) -> Preset:
    """The preset called `name`. Raises: `SettingsError` naming the nearest."""
    if name not in PRESETS:
        near = difflib.get_close_matches(name, PRESETS, n=1)
        hint = f"did you mean `{near[0]}`?" if near else f"choose one of: {', '.join(PRESETS)}, or a folder"
        raise SettingsError(f"there is no model called {name!r}", remedy=hint)
    return PRESETS[name]
