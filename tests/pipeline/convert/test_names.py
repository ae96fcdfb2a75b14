"""The table of names: complete, both ways, with the shapes of the released model."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.convert import names, plan
from pipeline.convert.names import Part
from storage.errors import ModelError
from tests.pipeline.convert import small
from tools import full_size

FOLDER = Path("/model")
FULL = names.dimensions(full_size.CONFIG, FOLDER)
EXPECTED = {item.source: item for item in names.expected(FULL)}


def test_the_full_size_has_the_tensors_of_the_release() -> None:
    parts = [item.part for item in EXPECTED.values()]
    assert {part: parts.count(part) for part in Part} == {
        Part.VISION: 3 + 42 * 7 + 1, Part.PROJECTOR: 6, Part.LANGUAGE: 3 + 28 * 12
    }  # fmt: skip
    values = sum(_product(item.shape) for item in EXPECTED.values())
    assert 2 * values == 6_078_358_528  # bytes in bfloat16; the release's index gives its total_size


def _product(shape: tuple[int, ...]) -> int:
    total = 1
    for side in shape:
        total *= side
    return total


def test_every_tensor_of_a_full_size_checkpoint_is_mapped(tmp_path: Path) -> None:
    folder = full_size.make(tmp_path / "model", full_size.config(), sparse=True)
    found = plan.examine(folder)
    assert len(found.entries) == 643 and not found.left_out
    stable = {e.expected.stable for e in found.of(Part.VISION, Part.PROJECTOR)}
    assert len(stable) == 304 and None not in stable


def test_the_stable_names_are_those_that_are_promised() -> None:
    promised = {"vision.patch_embed.proj.weight", "projector.weight", "projector.bias"} | {
        f"vision.blocks.{n}.{name}.weight"
        for n in range(42)
        for name in ("attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2", "mlp.fc3", "norm1", "norm2")
    }
    assert promised <= {item.stable for item in EXPECTED.values()}
    [projector] = [item for item in EXPECTED.values() if item.stable == "projector.weight"]
    assert projector.shape == (1536, 6144)


def test_what_is_exported_has_a_stable_name_of_its_own_and_nothing_else_has_one() -> None:
    stable = [item.stable for item in EXPECTED.values() if item.part is not Part.LANGUAGE]
    assert None not in stable and len(set(stable)) == len(stable)
    assert {item.stable for item in EXPECTED.values() if item.part is Part.LANGUAGE} == {None}


@pytest.mark.parametrize(
    ("spelt", "own"),
    [
        ("language_model.model.layers.3.mlp.up_proj.weight", "model.layers.3.mlp.up_proj.weight"),
        ("language_model.model.lm_head.scales", "lm_head.scales"),
        ("language_model.lm_head.weight", "lm_head.weight"),
        ("model.vision_tower.merger.ln_q.bias", "vision_tower.merger.ln_q.bias"),
        ("vision_tower.merger.ln_q.bias", "vision_tower.merger.ln_q.bias"),
    ],
)
def test_other_spellings_are_the_same_tensor(spelt: str, own: str) -> None:
    assert names.canonical(spelt) == own
    assert names.canonical(own) == own


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"hidden_size": None}, "lacks hidden_size"),
        ({"num_hidden_layers": "28"}, "has '28' for num_hidden_layers"),
        ({"num_hidden_layers": True}, "has True for num_hidden_layers"),
        ({"vision": {"embed_dim": 0}}, "has 0 for vision_config.embed_dim"),
        ({"vision": {"embed_dim": 60}}, "do not divide"),
        ({"num_key_value_heads": 3}, "do not divide"),
        ({"rope_scaling": {"type": "linear", "factor": 2}}, "rope_scaling"),
        ({"vision": {"hidden_size": 128}}, "the projector gives 128 columns, the language model takes 64"),
    ],
)
def test_a_config_that_does_not_fit_says_what(changes: dict[str, object], said: str) -> None:
    with pytest.raises(ModelError, match=said.replace(".", r"\.")) as caught:
        names.dimensions(small.config(**changes), FOLDER)
    assert caught.value.file == FOLDER


def test_flags_decide_which_tensors_there_are() -> None:
    changes = {
        "vision": {"use_bias": True, "post_norm": False},
        "attention_bias": False,
        "tie_word_embeddings": True,
    }
    found = {item.source for item in names.expected(names.dimensions(small.config(**changes), FOLDER))}
    assert "vision_tower.blocks.1.mlp.fc3.bias" in found
    assert (
        not {"vision_tower.post_trunk_norm.weight", "model.layers.0.self_attn.q_proj.bias", "lm_head.weight"}
        & found
    )
