"""The comparison with a plain reading: passes what is right, and names the stage where something is not."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw

from pipeline import blas
from pipeline.convert import check, extra, plan, to_mlx
from pipeline.convert.check import LIMITS, Checked
from pipeline.convert.to_mlx import Options
from storage.errors import EngineError, EngineUnavailableError, ModelError
from tests.pipeline.convert import small

blas.preload()
pytest.importorskip("mlx.core", reason="mlx has no wheel for this machine")
has_torch = importlib.util.find_spec("torch") is not None
needs_torch = pytest.mark.skipif(not has_torch, reason="torch is missing: the extra `convert`")
TINY = plan.examine(small.TINY)


@pytest.fixture(scope="module")
def image() -> Image.Image:
    picture = Image.new("RGB", (224, 84), "white")
    ImageDraw.Draw(picture).text((10, 20), "Read this line", fill="black", font_size=20)
    return picture


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("check") / "model"
    to_mlx.convert(TINY, folder, Options(), now=0.0)
    return folder


@pytest.fixture
def copy(converted: Path, tmp_path: Path) -> Path:
    """The converted folder, to be spoiled."""
    folder = tmp_path / "copy"
    folder.mkdir()
    for path in converted.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    return folder


def first_bad(result: Checked) -> str | None:
    return next((stage.name for stage in result.stages if not stage.is_good), None)


@needs_torch
def test_a_conversion_as_stored_agrees_at_every_stage(converted: Path, image: Image.Image) -> None:
    result = check.check(TINY, converted, image)
    assert [stage.name for stage in result.stages] == [
        "patch embedding", *(f"block {n}" for n in range(4)), "final norm", "merger",
        *(f"layer {n}" for n in range(4)), "logits",
    ]  # fmt: skip
    assert result.is_good and result.made_of_source and result.same_choices == result.logit_rows == 16
    tokens = (224 // 28) * (84 // 28)
    assert result.output_shape == (1, tokens, 128) and result.placeholders == tokens and result.hidden == 128
    assert result.stages[0].shape == (4 * tokens, 192)
    tower = [stage for stage in result.stages if not stage.name.startswith(("layer", "logits"))]
    assert all(0 < stage.relative < 1e-5 and stage.limit == LIMITS["as stored"] for stage in tower)
    assert all(stage.mean_abs <= stage.max_abs for stage in result.stages)
    assert json.loads(json.dumps(result.as_json()))["good"] is True


@needs_torch
@pytest.mark.parametrize(
    ("options", "vision", "language"),
    [
        (Options(dtype="bfloat16"), "16 bit", "16 bit"),
        (Options(quantize=8), "as stored", "8 bit"),
        (Options(quantize=4, vision=True), "4 bit", "4 bit"),
    ],
)
def test_coarser_weights_are_off_by_what_they_explain(
    options: Options, vision: str, language: str, tmp_path: Path, image: Image.Image
) -> None:
    to_mlx.convert(TINY, tmp_path / "model", options, now=0.0)
    result = check.check(TINY, tmp_path / "model", image)
    assert result.is_good
    assert (result.weights["vision tower"], result.weights["language model"]) == (vision, language)
    assert result.stages[-1].limit == LIMITS[language] > result.stages[-1].relative > 1e-4


@needs_torch
@pytest.mark.parametrize(
    ("tensor", "stage"),
    [
        ("vision_tower.patch_embed.patchifier.norm.weight", "patch embedding"),
        ("vision_tower.blocks.2.norm2.weight", "block 2"),
        ("vision_tower.post_trunk_norm.weight", "final norm"),
        ("vision_tower.merger.mlp.2.weight", "merger"),
        ("language_model.model.layers.1.input_layernorm.weight", "layer 1"),
        ("language_model.model.norm.weight", "logits"),
    ],
)
def test_a_changed_weight_shows_at_its_stage(tensor: str, stage: str, copy: Path, image: Image.Image) -> None:
    small.poke(copy, tensor, np.full(32, 9, np.float32).tobytes())
    result = check.check(TINY, copy, image)
    assert first_bad(result) == stage and not result.is_good
    assert result.differing_files == ["model.safetensors"] and result.made_of_source


@needs_torch
def test_features_and_placeholders_that_do_not_match_are_both_named(copy: Path, image: Image.Image) -> None:
    path = copy / "preprocessor_config.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | {"merge_size": 1}), "utf-8")
    with pytest.raises(EngineError, match="24 vision features for 96 image placeholders in the prompt"):
        check.check(TINY, copy, image)


@needs_torch
def test_the_plain_reading_refuses_to_splice_what_does_not_fit() -> None:
    import torch

    from pipeline.adapter.stages import PageArrays
    from pipeline.convert.torch_reading import _Reading

    page = PageArrays(np.zeros((4, 588), np.float32), (2, 2), np.zeros(5, np.int64), (1, 2, 3))
    with pytest.raises(EngineError, match="2 vision features for 3 image placeholders in the prompt"):
        _Reading(TINY).spliced(page, torch.zeros(2, 128))


@needs_torch
def test_a_manifest_of_other_weights_is_no_proof(copy: Path, image: Image.Image) -> None:
    path = copy / "ocrd-conversion.json"
    body = json.loads(path.read_text("utf-8"))
    body["source"]["files"]["model.safetensors"]["sha256"] = "0" * 64
    path.write_text(json.dumps(body), "utf-8")
    result = check.check(TINY, copy, image)
    assert first_bad(result) is None and result.made_of_source is False and not result.is_good


@needs_torch
@pytest.mark.parametrize("is_changed", [False, True])
def test_the_command_exits_with_1_where_something_differs(
    is_changed: bool, copy: Path, image: Image.Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from typer.testing import CliRunner

    from daemon.cli import app

    monkeypatch.setenv("OCRD_HOME", str(tmp_path / "home"))
    if is_changed:
        small.poke(copy, "vision_tower.blocks.2.norm2.weight", np.full(32, 9, np.float32).tobytes())
    image.save(tmp_path / "page.png")
    words = ["convert", "check", "tiny", str(copy), "--image", str(tmp_path / "page.png")]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == int(is_changed)
    assert ("DIFFERS from block 2 on" in result.output) is is_changed
    assert ("nothing changed but what was meant to" in result.output) is not is_changed


@needs_torch
def test_a_folder_without_manifest_is_compared_all_the_same(image: Image.Image) -> None:
    result = check.check(TINY, small.TINY, image)
    assert result.made_of_source is None and result.is_good


@needs_torch
def test_a_converted_folder_that_is_not_whole_is_told(copy: Path, image: Image.Image) -> None:
    small.edit(copy, lambda header: header.pop("vision_tower.blocks.0.norm1.weight") and None)
    with pytest.raises(ModelError, match=r"vision_tower\.blocks\.0\.norm1\.weight is missing"):
        check.check(TINY, copy, image)


def test_without_torch_the_extra_is_named(image: Image.Image, monkeypatch: pytest.MonkeyPatch) -> None:
    if has_torch:
        monkeypatch.setattr(extra, "missing", lambda *modules: list(modules))
    with pytest.raises(EngineUnavailableError, match="this needs torch, which is not installed") as caught:
        check.check(TINY, small.TINY, image)
    assert "[convert]" in caught.value.remedy


@pytest.mark.parametrize(
    ("off", "good"), [(0.0, True), (0.9e-4, True), (1.1e-4, False), (float("nan"), False)]
)
def test_a_stage_is_good_within_its_limit(off: float, good: bool) -> None:
    values = np.full((2, 3), 5.0, np.float32)
    output = (values.astype(np.float64) * (1 + off)).astype(np.float32)
    assert check.difference("stage", values, output, 1e-4).is_good is good


def test_outputs_that_are_all_zero_are_compared_by_the_difference_itself() -> None:
    zero = np.zeros((2, 2), np.float32)
    assert check.difference("stage", zero, zero, 1e-4).relative == 0
    assert check.difference("stage", zero, zero + np.float32(0.5), 1e-4).relative == 0.5
