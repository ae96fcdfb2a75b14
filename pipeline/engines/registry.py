"""Engine names: what each one is, which one `auto` means here, and how to make it."""

from __future__ import annotations

import difflib
from importlib.util import find_spec
from typing import TYPE_CHECKING

from storage.errors import ModelError, SettingsError

if TYPE_CHECKING:
    from pipeline.engines.base import Engine
    from storage.settings import Settings

AUTO = "auto"
# Name → what it is, as shown to people.
ENGINES: dict[str, str] = {
    "classic": "Tesseract, and RapidOCR for the lines it is unsure of",
    "tesseract": "Tesseract alone: fast; Latin script out of the box",
    "rapidocr": "RapidOCR alone: slower; Latin, Chinese and Japanese",
    "vision": "Apple Vision (macOS, extra `vision`)",
    "vlm": "the vision-language model named by `model`, on MLX",
    "fake": "made-up text, for tests",
}


def resolve(name: str, settings: Settings) -> tuple[str, str]:
    """The engine that `name` stands for with these settings, and why.

    `auto` is `vlm` where the settings name a model that is on disk and may be used, else `classic`.
    Raises: `SettingsError` for a name that is no engine's, or a model's.
    """
    if name == AUTO:
        return _choose(settings)
    if name not in ENGINES:
        near = difflib.get_close_matches(name, [AUTO, *ENGINES], n=1)
        hint = f"did you mean `{near[0]}`?" if near else f"choose one of: {', '.join([AUTO, *ENGINES])}"
        raise SettingsError(f"there is no engine called {name!r}", remedy=hint)
    return name, "as asked for"


def _choose(settings: Settings) -> tuple[str, str]:
    from pipeline import model_files

    if settings.model is None:
        return "classic", "no model set"
    try:
        location = model_files.locate(settings.model, settings)
    except ModelError as error:
        return "classic", f"{error.message}: {error.remedy}"
    if not installed("vlm"):
        return "classic", "MLX is not installed here"
    return "vlm", f"model {location.preset.name} is on disk"


def create(name: str, settings: Settings) -> Engine:
    """A new engine; its costly set-up happens at the first page.

    Raises: `SettingsError` for an unknown name.
    """
    # Each import is heavy, and most processes need one of them at most.
    match resolve(name, settings)[0]:
        case "tesseract":
            from pipeline.engines.tesseract import TesseractEngine

            return TesseractEngine(settings)
        case "rapidocr":
            from pipeline.engines.rapid import RapidEngine

            return RapidEngine(settings)
        case "vision":
            from pipeline.engines.apple_vision import VisionEngine

            return VisionEngine(settings)
        case "vlm":
            from pipeline.engines.vlm import VlmEngine

            return VlmEngine(settings)
        case "fake":
            from pipeline.engines.fake import FakeEngine

            return FakeEngine.from_environment()
        case _:
            from pipeline.engines.classic import ClassicEngine

            return ClassicEngine(settings)


def installed(name: str) -> bool:
    """Whether the library an engine needs can be imported here (it is not imported)."""
    needs = {
        "tesseract": ["tesserocr"],
        "rapidocr": ["rapidocr"],
        "vision": ["Vision"],
        "vlm": ["mlx", "mlx_vlm"],
    }
    needs["classic"] = needs["tesseract"]
    return all(find_spec(module) is not None for module in needs.get(name, []))
