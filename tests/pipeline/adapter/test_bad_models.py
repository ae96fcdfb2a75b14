"""Models that cannot be used, and pictures they refuse: each a clear error of ours, before anything of theirs runs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from PIL import Image

from pipeline.adapter import inputs, loading
from pipeline.adapter.loading import LoadedModel
from pipeline.presets import TINY_FOLDER
from storage.errors import ImageRefusedError, ModelError, OutOfMemoryError, UntrustedModelError
from tests.pipeline.adapter.conftest import processor_options

# `auto_map` as the authors' checkpoints have it, and with them the conversions for MLX (config.json and
# preprocessor_config.json of the repositories on the hub). Their Python files are never fetched.
AUTO_MAPS: dict[str, dict[str, dict[str, Any]]] = {
    "dots_ocr": {
        "config.json": {
            "AutoConfig": "configuration_dots.DotsOCRConfig",
            "AutoModelForCausalLM": "modeling_dots_ocr.DotsOCRForCausalLM",
        },
    },
    "glm_ocr": {},  # transformers knows it itself
    "paddleocr_vl": {
        "config.json": {"AutoConfig": "configuration_paddleocr_vl.PaddleOCRVLConfig"},
        "preprocessor_config.json": {
            "AutoImageProcessor": "image_processing_paddleocr_vl.PaddleOCRVLImageProcessor",
            "AutoProcessor": "processing_paddleocr_vl.PaddleOCRVLProcessor",
        },
    },
    "unlimited_ocr": {
        "config.json": {
            "AutoConfig": "modeling_unlimitedocr.UnlimitedOCRConfig",
            "AutoModel": "modeling_unlimitedocr.UnlimitedOCRForCausalLM",
        },
    },
    "deepseekocr_2": {
        "config.json": {
            "AutoConfig": "modeling_deepseekocr2.DeepseekOCR2Config",
            "AutoModel": "modeling_deepseekocr2.DeepseekOCR2ForCausalLM",
        },
    },
}


def variant(folder: Path, target: Path) -> Path:
    """A checkpoint to spoil: its small files copied, its weights linked."""
    target.mkdir()
    for path in folder.iterdir():
        if path.suffix == ".safetensors":
            (target / path.name).symlink_to(path)
        elif path.is_file():
            shutil.copy(path, target)
    return target


def edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | changes), encoding="utf-8")


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return variant(TINY_FOLDER, tmp_path / "model")


# --- code that a folder brings ---------------------------------------------------------------------------


def test_released_auto_maps_need_no_code_and_nothing_is_printed(
    loaded: LoadedModel, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = variant(loaded.checkpoint.folder, tmp_path / "model")
    for name, auto_map in AUTO_MAPS[loaded.architecture].items():
        edit(folder / name, auto_map=auto_map)
    assert loading.load(folder).stop_ids == loaded.stop_ids
    assert capfd.readouterr() == ("", "")


def test_code_in_the_folder_never_runs(loaded: LoadedModel, tmp_path: Path) -> None:
    folder, ran = variant(loaded.checkpoint.folder, tmp_path / "model"), tmp_path / "ran"
    for name, auto_map in AUTO_MAPS[loaded.architecture].items():
        edit(folder / name, auto_map=auto_map)
        for target in auto_map.values():
            module = target.partition(".")[0]
            (folder / f"{module}.py").write_text(f"open({str(ran)!r}, 'w').close()")
    if AUTO_MAPS[loaded.architecture]:
        with pytest.raises(UntrustedModelError, match=r"auto_map in config\.json: \w+.*trusted_models"):
            loading.load(folder)
    loading.load(folder, trusted=[folder])  # trust lets the folder load; its auto_map still does not run
    assert not ran.exists()


def test_a_model_file_runs_only_where_the_folder_is_trusted(tiny: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    (tiny / "model.py").write_text(f"open({str(ran)!r}, 'w').close()")
    edit(tiny / "config.json", model_file="model.py")
    with pytest.raises(UntrustedModelError, match="model_file"):
        loading.load(tiny, trusted=[tiny.parent, tmp_path / "other"])
    assert not ran.exists()
    with pytest.raises(ModelError):  # there is no model in that file
        loading.load(tiny, trusted=[tiny])
    assert ran.exists()


# --- weights and vocabulary -------------------------------------------------------------------------------


def rewrite(folder: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    path = folder / "model.safetensors"
    weights = change(dict(mx.load(str(path))))
    mx.eval(weights)
    path.unlink()
    mx.save_safetensors(str(path), weights, metadata={"format": "pt"})


def test_missing_weights_are_named(tiny: Path) -> None:
    rewrite(tiny, lambda w: {k: v for k, v in w.items() if "layers.2.mlp" not in k})
    with pytest.raises(ModelError, match=r"cannot load it: .*layers\.2\.mlp|Missing"):
        loading.load(tiny)


def test_weights_of_another_shape_are_told(tiny: Path) -> None:
    rewrite(
        tiny,
        lambda w: {k: v[:-1] if k.endswith("layers.0.mlp.gate_proj.weight") else v for k, v in w.items()},
    )
    with pytest.raises(ModelError, match="shape"):
        loading.load(tiny)


def test_a_tokenizer_beyond_the_embedding_is_refused(tiny: Path) -> None:
    tokenizer = json.loads((tiny / "tokenizer.json").read_text(encoding="utf-8"))
    tokenizer["model"]["vocab"]["beyond"] = 151_700
    (tiny / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    with pytest.raises(
        ModelError, match=r"tokenizer and weights disagree: .* 151700, the embedding 151666 rows"
    ):
        loading.load(tiny)


def test_a_model_that_cannot_end_a_text_is_refused(tiny: Path) -> None:
    edit(tiny / "generation_config.json", eos_token_id=200_000)
    with pytest.raises(ModelError, match=r"stop ids \[200000\]"):
        loading.load(tiny)


def test_an_image_token_the_tokenizer_lacks_is_refused(tiny: Path) -> None:
    edit(tiny / "config.json", image_token_id=151_650)
    with pytest.raises(ModelError, match="image token 151650"):
        loading.load(tiny)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tokenizer.json", "{"),
        ("tokenizer.json", '{"version": "1.0", "model": {"type": "None"}}'),
        ("tokenizer_config.json", "no JSON"),
        ("preprocessor_config.json", "[]"),
        ("preprocessor_config.json", '{"image_processor_type": "NoSuchProcessor"}'),
    ],
)
def test_a_damaged_side_file_is_a_model_error(name: str, text: str, tiny: Path) -> None:
    (tiny / name).write_text(text)
    with pytest.raises(ModelError):
        loading.load(tiny)


@pytest.mark.parametrize("name", ["vision_config", "hidden_size", "num_attention_heads"])
def test_a_configuration_without_its_parts_is_a_model_error(name: str, tiny: Path) -> None:
    config = json.loads((tiny / "config.json").read_text(encoding="utf-8"))
    config.pop(name)
    if isinstance(config.get("text_config"), dict):
        config["text_config"].pop(name, None)
    (tiny / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(ModelError):
        loading.load(tiny)


def test_a_failed_allocation_is_out_of_memory_and_other_failures_are_not(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(text: str) -> Callable[..., None]:
        def evaluate(*_: object) -> None:
            raise RuntimeError(text)

        return evaluate

    monkeypatch.setattr(mx, "eval", fail("[malloc] Unable to allocate 12884901888 bytes."))
    with pytest.raises(OutOfMemoryError, match="Unable to allocate"):
        loading.load(tiny)
    monkeypatch.setattr(mx, "eval", fail("[load] Unexpected end of file"))
    with pytest.raises(ModelError, match="end of file"):
        loading.load(tiny)


# --- pictures ---------------------------------------------------------------------------------------------


SHAPES = ((1, 1), (2, 3), (1, 4000), (4000, 1), (28 * 201, 28), (28, 28 * 201), (3000, 16))


@pytest.mark.parametrize("size", SHAPES, ids=lambda size: f"{size[0]}x{size[1]}")
def test_a_picture_of_any_shape_is_prepared_or_refused_in_words(
    size: tuple[int, int], loaded: LoadedModel
) -> None:
    image = Image.new("RGB", size, "white")
    try:
        prepared = inputs.prepare(loaded, "Read.", image, processor_options(loaded))
    except ImageRefusedError as error:
        assert max(size) > 100 * min(size)
        assert f"{size[0]}x{size[1]} pixels" in error.message and "aspect ratio" in error.message
    else:
        assert prepared.positions


def test_dots_refuses_what_is_more_than_200_times_as_long_as_wide(tiny: Path) -> None:
    model = loading.load(tiny)
    with pytest.raises(ImageRefusedError, match="aspect ratio"):
        inputs.prepare(model, "", Image.new("RGB", (28 * 201, 28), "white"))
    assert inputs.prepare(model, "", Image.new("RGB", (28 * 199, 28), "white")).positions
