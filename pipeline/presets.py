"""What is known of each model: where it comes from, how to ask it, what it answers, how its text ends.

Facts and their sources: the models' own repositories (see docs/models.md); nothing here imports MLX.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from pipeline import checkpoint, prompts
from pipeline.prompts import Prompt
from storage.errors import SettingsError

TINY_FOLDER = Path(__file__).parent / "models" / "tiny"
TINY_DRAFTER = Path(__file__).parent / "models" / "tiny-eagle3"
# In a model's folder: which preset reads with it, and where it was pulled from.
LABEL = "ocrd.json"
UNPINNED = "main"  # a branch, not a commit: what it names may change; `ocrd models pull` records what it got


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
    architecture: str  # as `pipeline.checkpoint.ARCHITECTURES` calls it
    about: str  # for people, in one line
    repository: str | None  # on the model hub; None = ships with ocrd or is a local folder
    revision: str | None
    prompts: Mapping[Task, Prompt]
    task: Task  # asked for by default
    mode: Mode
    output: Output
    dpi: int
    max_pixels: int  # of a page or region shown to the model; what is more is thrown away by its own resizing
    max_tokens: int
    licence: str  # of the weights
    size_gb: float  # of the files to fetch, roughly
    min_pixels: int = 0
    retry_task: Task | None = None  # asked when the default one goes into a loop
    # Most ids of an answer per id of its picture; of 784 pixels each, a dense page takes 0.7.
    ids_per_image_id: int = 3
    stop_strings: tuple[str, ...] = ()
    ngram_ban: NGramBan | None = None
    processor_options: Mapping[str, Any] = field(default_factory=dict)
    proposer: str = "auto"
    drafters: Mapping[str, Path] = field(
        default_factory=dict
    )  # mode → folder of a drafter trained for the model
    writes_characters: bool = False  # one id a character, though the tokenizer knows longer ones
    text_height_px: int | None = None  # region mode: scale lines to this height of capitals and ascenders
    max_region_px: tuple[int, int] | None = None  # width, height a region may have
    note: str = ""


# What the two DeepSeek-OCR-2 conversions have in common. As the authors' scripts decode: 144 dpi, a view of 1024² and
# two to six crops of 768² (config.py), no 20-gram twice within 50 tokens, table cells exempt (run_dpsk_ocr2_pdf.py).
_DEEPSEEK_OCR_2 = Preset(
    "deepseek-ocr-2-bf16", "deepseekocr_2", "3 B parameters, 0.5 B active: pages to Markdown, with boxes",
    "mlx-community/DeepSeek-OCR-2-bf16", UNPINNED,
    {Task.LAYOUT: prompts.DEEPSEEK_LAYOUT, Task.TEXT: prompts.DEEPSEEK_TEXT},
    Task.LAYOUT, Mode.PAGE, Output.GROUNDING,
    # 8192 positions, of which an image takes up to 1121.
    dpi=144, max_pixels=6 * 768**2, max_tokens=7000, licence="Apache-2.0", size_gb=6.8,
    retry_task=Task.TEXT, ids_per_image_id=16, stop_strings=("<｜end▁of▁sentence｜>",),
    ngram_ban=NGramBan(20, 50, ("<td>", "</td>")),
    processor_options={"cropping": True, "min_patches": 2, "max_patches": 6},
)  # fmt: skip

PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(
            "tiny", "dots_ocr", "3 M parameters, ships with ocrd: printed ASCII lines, to try the model path",
            None, None, {Task.TEXT: prompts.TINY_TEXT}, Task.TEXT, Mode.REGION, Output.TEXT,
            dpi=200, max_pixels=16_000_000, max_tokens=600, licence="MIT (trained by this project)", size_gb=0.02,
            writes_characters=True,
            text_height_px=20, max_region_px=(504, 560), drafters={"eagle3": TINY_DRAFTER},
            note="reads no dense page and nothing but ASCII: see its model card",
        ),
        Preset(
            "dots-ocr", "dots_ocr", "3 B parameters: pages to layout with boxes, tables, formulas; many scripts",
            "mlx-community/dots.ocr-bf16", UNPINNED,
            {
                Task.LAYOUT: prompts.DOTS_LAYOUT, Task.LAYOUT_ONLY: prompts.DOTS_LAYOUT_ONLY,
                Task.TEXT: prompts.DOTS_TEXT, Task.REGION: prompts.DOTS_REGION,
            },
            Task.LAYOUT, Mode.PAGE, Output.DOTS_JSON,
            # Bounds of dots_ocr/utils/consts.py; tokens of its parser.
            dpi=200, min_pixels=3_136, max_pixels=11_289_600, max_tokens=16_384,
            licence="dots.ocr LICENSE AGREEMENT (the authors' own; read it before use; the code is MIT)",
            size_gb=6.1, retry_task=Task.TEXT,
        ),
        Preset(
            "glm-ocr", "glm_ocr", "0.9 B parameters: regions to Markdown, HTML tables, LaTeX formulas",
            "mlx-community/GLM-OCR-bf16", UNPINNED,
            {
                Task.TEXT: prompts.GLM_TEXT, Task.TABLE: prompts.GLM_TABLE, Task.FORMULA: prompts.GLM_FORMULA,
            },
            Task.TEXT, Mode.REGION, Output.TEXT,
            # dpi, least pixels and tokens of glmocr/config.yaml; most pixels of the checkpoint's processor. Its
            # repetition penalty of 1.1 is left out: decoding is plain greedy here.
            dpi=200, min_pixels=12_544, max_pixels=9_633_792, max_tokens=4_096, licence="MIT", size_gb=2.2,
            # Both are stop ids; as strings for conversions that lost generation_config.json (loops without them).
            stop_strings=("<|user|>", "<|endoftext|>"),
        ),
        replace(
            _DEEPSEEK_OCR_2, name="deepseek-ocr-2", about=_DEEPSEEK_OCR_2.about + "; 8-bit",
            repository="mlx-community/DeepSeek-OCR-2-8bit", size_gb=4.0,
        ),
        _DEEPSEEK_OCR_2,
        Preset(
            "unlimited-ocr", "unlimited_ocr", "3 B parameters, 0.5 B active: long pages to Markdown, with boxes",
            "mlx-community/Unlimited-OCR-bf16", UNPINNED,
            {Task.LAYOUT: prompts.UNLIMITED_LAYOUT}, Task.LAYOUT, Mode.PAGE, Output.DET,
            # "gundam" of the README: a view of 1024² and crops of 640² (mlx-vlm: up to 32). The crops follow from the
            # pixels: A4 at 200 dpi makes 6, at the 300 dpi the authors render PDFs at (for a view without crops) 24.
            dpi=200, max_pixels=32 * 640**2, max_tokens=16_384, licence="MIT", size_gb=6.7,
            ids_per_image_id=16, stop_strings=("<｜end▁of▁sentence｜>",), ngram_ban=NGramBan(35, 128),
            processor_options={"cropping": True, "base_size": 1024, "image_size": 640},
        ),
        Preset(
            "paddleocr-vl", "paddleocr_vl", "0.9 B parameters (1.5): regions to text, tables, formulas; many scripts",
            "mlx-community/PaddleOCR-VL-1.5-bf16", UNPINNED,
            {
                Task.TEXT: prompts.PADDLE_TEXT, Task.TABLE: prompts.PADDLE_TABLE,
                Task.FORMULA: prompts.PADDLE_FORMULA,
            },
            Task.TEXT, Mode.REGION, Output.TEXT,
            dpi=200, min_pixels=147_384, max_pixels=2_822_400, max_tokens=4_096, licence="Apache-2.0", size_gb=2.0,
            note="4- and 8-bit conversions had a broken tokenizer (Blaizzy/mlx-vlm#817): use this one",
        ),
    )
}  # fmt: skip
_OF_ARCHITECTURE = {preset.architecture: preset.name for preset in PRESETS.values() if preset.name != "tiny"}


def find(name: str) -> Preset:
    """The preset called `name`. Raises: `SettingsError` naming the nearest."""
    if name not in PRESETS:
        near = difflib.get_close_matches(name, PRESETS, n=1)
        hint = f"did you mean `{near[0]}`?" if near else f"choose one of: {', '.join(PRESETS)}, or a folder"
        raise SettingsError(f"there is no model called {name!r}", remedy=hint)
    return PRESETS[name]


def for_folder(folder: Path, *, trusted: Iterable[Path] = ()) -> Preset:
    """The preset to read with a model in a folder of one's own: its label's, else its architecture's.

    Raises: as `pipeline.checkpoint.inspect`.
    """
    found = checkpoint.inspect(folder, trusted=trusted)
    labelled = PRESETS.get(str(read_label(folder).get("preset", "")))
    if labelled is None or labelled.architecture != found.architecture:
        labelled = PRESETS[_OF_ARCHITECTURE[found.architecture]]
    return replace(
        labelled, name=folder.name, repository=None, revision=None, licence="see the folder",
        about=f"{found.architecture}, read as {labelled.name}", size_gb=found.size_bytes / 1e9,
    )  # fmt: skip


def read_label(folder: Path) -> dict[str, Any]:
    """The folder's label; empty where there is none or it cannot be read."""
    try:
        label = json.loads((folder / LABEL).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return label if isinstance(label, dict) else {}
