"""Presets: complete and consistent; prompts to the byte."""

from __future__ import annotations

import hashlib
import inspect
import re
from pathlib import Path

import pytest

from pipeline import checkpoint, presets, prompts
from pipeline.answers import dots_json, grounding, plain_text
from pipeline.presets import PRESETS, Mode, Output, Preset, Task
from pipeline.prompts import Prompt
from pipeline.proposers import registry as proposers
from storage.errors import SettingsError

PROMPTS = {prompt.id: prompt for prompt in vars(prompts).values() if isinstance(prompt, Prompt)}
# SHA-256 of the texts as the models' authors publish them (sources in pipeline/prompts.py). A model trained on one
# text reads worse with another; a change here is a change of model input.
HASHES = {
    "dots/layout": "16ff71ac5d21",
    "dots/layout-only": "d10f3720942d",
    "dots/text": "8ee4c4b75c20",
    "dots/region": "b18d62ea1e66",
    "glm/text": "77e8207573e1",
    "glm/table": "9e485ad53e47",
    "glm/formula": "47d7a6da6a14",
    "deepseek/layout": "2300787a910e",
    "deepseek/text": "984f546c666f",
    "unlimited/layout": "ae22ae5ff343",
    "paddle/text": "d715a33c90db",
    "paddle/table": "9e485ad53e47",
    "paddle/formula": "47d7a6da6a14",
    "tiny/text": "e3b0c44298fc",
}
ALL = pytest.mark.parametrize("preset", PRESETS.values(), ids=PRESETS)
FETCHED = [preset for preset in PRESETS.values() if preset.repository]


@pytest.mark.parametrize("name", PROMPTS)
def test_prompt_is_the_published_one_to_the_byte(name: str) -> None:
    digest = hashlib.sha256(PROMPTS[name].text.encode()).hexdigest()
    assert digest.startswith(HASHES[name])
    assert PROMPTS[name].reference == f"{name}@{digest[:12]}"


def test_every_prompt_is_some_presets() -> None:
    used = {prompt.id for preset in PRESETS.values() for prompt in preset.prompts.values()}
    assert used == set(PROMPTS) == set(HASHES)


@ALL
def test_preset_is_consistent(preset: Preset) -> None:
    assert preset.task in preset.prompts
    assert preset.retry_task is None or preset.retry_task in preset.prompts
    assert preset.retry_task != preset.task
    assert preset.architecture in checkpoint.ARCHITECTURES.values()
    assert 0 <= preset.min_pixels < preset.max_pixels
    assert 72 <= preset.dpi <= 300 and preset.max_tokens > 0 and preset.size_gb > 0
    assert preset.licence and preset.about and len(preset.about) < 90
    assert preset.proposer in (proposers.AUTO, *proposers.PROPOSERS)
    # A page's layout prompt is answered with boxes, a region's text without.
    assert (preset.mode is Mode.PAGE) == (preset.task is Task.LAYOUT)
    assert (preset.output is Output.TEXT) == (preset.mode is Mode.REGION)
    assert (preset.text_height_px is None) == (preset.max_region_px is None)


def test_every_form_of_answer_has_a_parser() -> None:
    parsers = {
        Output.DOTS_JSON: dots_json.parse, Output.GROUNDING: grounding.parse_ref, Output.DET: grounding.parse_det,
        Output.TEXT: plain_text.parse,
    }  # fmt: skip
    assert set(parsers) == set(Output) == {preset.output for preset in PRESETS.values()}


@pytest.mark.parametrize("preset", FETCHED, ids=lambda preset: preset.name)
def test_what_is_fetched_names_owner_model_and_revision(preset: Preset) -> None:
    assert re.fullmatch(r"[\w.-]+/[\w.-]+", preset.repository or "")
    assert preset.revision == presets.UNPINNED or re.fullmatch(r"[0-9a-f]{40}", preset.revision or "")


@pytest.mark.parametrize(
    ("preset", "module"),
    [
        ("deepseek-ocr-2", "mlx_vlm.models.deepseekocr_2.processing_deepseekocr:DeepseekOCR2Processor"),
        ("unlimited-ocr", "mlx_vlm.models.unlimited_ocr.processing_unlimitedocr:UnlimitedOCRProcessor"),
    ],
)
def test_processor_options_are_arguments_of_the_processor(preset: str, module: str) -> None:
    pytest.importorskip("mlx.core", reason="mlx has no wheel for this machine")
    import importlib

    name, _, kind = module.partition(":")
    processor = getattr(importlib.import_module(name), kind)
    assert set(PRESETS[preset].processor_options) <= set(inspect.signature(processor.__call__).parameters)


def test_deepseeks_two_conversions_differ_in_nothing_but_where_from() -> None:
    eight, sixteen = PRESETS["deepseek-ocr-2"], PRESETS["deepseek-ocr-2-bf16"]
    names = [name for name in Preset.__slots__ if getattr(eight, name) != getattr(sixteen, name)]  # type: ignore[attr-defined]
    assert set(names) == {"name", "about", "repository", "size_gb"}


def test_the_rules_of_decoding_are_those_of_the_authors() -> None:
    assert PRESETS["deepseek-ocr-2"].ngram_ban == presets.NGramBan(20, 50, ("<td>", "</td>"))
    assert PRESETS["unlimited-ocr"].ngram_ban == presets.NGramBan(35, 128)
    assert [preset.name for preset in PRESETS.values() if preset.ngram_ban] == [
        "deepseek-ocr-2", "deepseek-ocr-2-bf16", "unlimited-ocr",
    ]  # fmt: skip


def test_an_unknown_name_lists_or_names_the_nearest() -> None:
    with pytest.raises(SettingsError, match="Did you mean `dots-ocr`"):
        presets.find("dots.ocr")
    with pytest.raises(SettingsError, match=r"tiny.*paddleocr-vl"):
        presets.find("xyzzy")


def test_tiny_ships_with_a_label_and_a_card() -> None:
    assert presets.read_label(presets.TINY_FOLDER) == {"preset": "tiny"}
    assert presets.for_folder(presets.TINY_FOLDER).text_height_px == PRESETS["tiny"].text_height_px
    assert (presets.TINY_FOLDER / "README.md").is_file()


def test_a_label_that_is_no_label_is_as_none(tmp_path: Path) -> None:
    for text in ("", "[1]", "{", '"tiny"'):
        (tmp_path / presets.LABEL).write_text(text)
        assert presets.read_label(tmp_path) == {}
