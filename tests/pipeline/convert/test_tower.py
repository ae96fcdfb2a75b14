"""The tower in PyTorch: MLX's features, padding without effect, the work it says it does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed (extra `convert`)")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline import blas, startup_check
from pipeline.convert import plan, tower_config, tower_inputs, tower_weights
from pipeline.convert.mil_proof import speckled
from pipeline.convert.tower import RMSNorm, VisionTower
from pipeline.convert.tower_config import TowerConfig
from pipeline.presets import TINY_FOLDER
from tests.pipeline.convert.small import random_tower

SMALL = TowerConfig(64, 32, 96, 2, 4, 3, 14, 2, 1e-5, False, True)


@pytest.fixture(scope="module")
def small() -> VisionTower:
    return random_tower(SMALL, 3)


def features(tower: VisionTower, pixels: Any, rows: int, columns: int, length: int) -> Any:
    packed = tower_inputs.pack(pixels, rows, columns, length, tower.config)
    with torch.inference_mode():
        return tower(torch.from_numpy(packed)).numpy()[: rows * columns // 4]


def test_features_of_a_real_picture_are_those_of_mlx() -> None:
    blas.preload()
    pytest.importorskip("mlx.core", reason="mlx has no wheel for this machine")
    from pipeline.adapter import inputs, loading

    loaded = loading.load(TINY_FOLDER)
    page = inputs.prepare(loaded, "read", startup_check.picture(20, 504))
    rows, columns = (int(n) for n in page.grid.reshape(-1).tolist()[1:])
    tower = tower_weights.load_tower(plan.examine(TINY_FOLDER))
    ours = features(tower, inputs.as_float32(page.pixels), rows, columns, rows * columns)
    theirs = inputs.as_float32(inputs.encode(loaded, page))
    assert theirs.std() > 1
    np.testing.assert_allclose(ours, theirs, atol=2e-4)


@settings(max_examples=20)
@given(rows=st.integers(1, 5), columns=st.integers(1, 5), more=st.integers(0, 30))
def test_padding_changes_no_feature(small: VisionTower, rows: int, columns: int, more: int) -> None:
    rows, columns = 2 * rows, 2 * columns
    count = rows * columns
    pixels = speckled(count, SMALL.pixel_width, seed=count)
    alone = features(small, pixels, rows, columns, count)
    padded = features(small, pixels, rows, columns, count + 4 * more)
    np.testing.assert_allclose(padded, alone, atol=1e-5)


def test_unmasked_padding_would_change_features(small: VisionTower) -> None:
    pixels = speckled(16, SMALL.pixel_width, seed=1)
    packed = tower_inputs.pack(pixels, 4, 4, 32, SMALL)
    packed[:, -1] = 0
    with torch.inference_mode():
        unmasked = small(torch.from_numpy(packed)).numpy()[:4]
    assert np.abs(unmasked - features(small, pixels, 4, 4, 16)).max() > 1e-2


def test_turning_a_page_changes_features_though_not_the_shape(small: VisionTower) -> None:
    pixels = speckled(24, SMALL.pixel_width, seed=1)
    assert np.abs(features(small, pixels, 4, 6, 24) - features(small, pixels, 6, 4, 24)).max() > 1e-3


def test_multiply_adds_and_parameters_are_those_that_pytorch_counts(small: VisionTower) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    # On the meta device attention is counted whole; on the CPU its kernel has no formula.
    empty = tower_weights.empty_tower(SMALL)
    counter = FlopCounterMode(display=False)
    with counter:
        empty(torch.zeros(64, SMALL.input_width, device="meta"))
    assert counter.get_total_flops() == 2 * SMALL.multiply_adds(64)
    for config in (SMALL, TowerConfig(64, 32, 96, 3, 4, 3, 14, 2, 1e-5, True, False)):
        tower = tower_weights.empty_tower(config)
        assert config.parameters() == sum(parameter.numel() for parameter in tower.parameters())


def plain_norm(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5)


@given(st.floats(1e-3, 10_000), st.integers(0, 100))
def test_the_norm_is_the_plain_one_also_in_float16(scale: float, seed: int) -> None:
    x = torch.randn(4, 48, generator=torch.Generator().manual_seed(seed)) * scale
    norm = RMSNorm(48, 1e-5)
    with torch.inference_mode():
        torch.testing.assert_close(norm(x), plain_norm(x), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(norm.half()(x.half()).float(), plain_norm(x), rtol=1e-2, atol=5e-3)


def test_the_checkpoint_fills_every_weight_whatever_it_is_stored_as(tmp_path: Path) -> None:
    from tests.pipeline.convert import small as checkpoints

    folder = checkpoints.make(tmp_path / "src")
    examined = plan.examine(folder)
    for half in (False, True):
        tower = tower_weights.load_tower(examined, half=half)
        assert tower.config == tower_config.of(examined.sizes)
        kinds = {p.dtype for n, p in tower.named_parameters() if "ln_q" not in n}
        assert kinds == {torch.float16 if half else torch.float32}
        values = torch.from_numpy(examined.values("vision_tower.blocks.1.mlp.fc2.weight"))
        torch.testing.assert_close(tower.blocks[1].mlp.fc2.weight.float(), values, rtol=1e-3, atol=1e-6)
