"""A page as one array: tables as MLX makes them, padding masked, disagreement refused."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline import blas
from pipeline.convert import tower_inputs
from pipeline.convert.tower_config import TowerConfig

SMALL = TowerConfig(64, 32, 96, 2, 4, 3, 14, 2, 1e-5, False, True)


def test_rotary_tables_are_those_of_mlx_vlm() -> None:
    blas.preload()
    mx = pytest.importorskip("mlx.core", reason="mlx has no wheel for this machine")
    from mlx_vlm.models.dots_ocr.config import VisionConfig
    from mlx_vlm.models.dots_ocr.vision import VisionModel

    vision = VisionConfig(embed_dim=64, hidden_size=32, num_hidden_layers=1, num_attention_heads=4)
    angles = np.array(VisionModel(vision).rot_pos_emb(mx.array([[1, 12, 6]])))
    cosines, sines = tower_inputs.rotary_tables(12, 6, SMALL)
    np.testing.assert_allclose(cosines, np.cos(angles), atol=2e-6)
    np.testing.assert_allclose(sines, np.sin(angles), atol=2e-6)


def test_what_is_added_to_a_page_is_masked_and_the_page_is_not() -> None:
    pixels = np.random.default_rng(1).standard_normal((24, SMALL.pixel_width)).astype(np.float32)
    packed = tower_inputs.pack(pixels, 4, 6, 40, SMALL)
    assert packed.shape == (40, SMALL.input_width)
    assert packed.dtype == np.float32
    np.testing.assert_array_equal(packed[:24, : SMALL.pixel_width], pixels)
    np.testing.assert_array_equal(packed[:, -1], [0.0] * 24 + [tower_inputs.MASKED] * 16)


def test_the_mask_is_held_by_float16_twice_over_and_leaves_nothing_of_a_weight() -> None:
    assert np.isfinite(np.float16(tower_inputs.MASKED) * np.float16(2))
    assert np.exp(np.float32(tower_inputs.MASKED)) == 0


@pytest.mark.parametrize(
    ("count", "rows", "columns", "length"), [(24, 4, 5, 40), (24, 4, 6, 20), (24, 4, 6, 42), (15, 3, 5, 40)]
)
def test_what_does_not_agree_is_refused(count: int, rows: int, columns: int, length: int) -> None:
    with pytest.raises(ValueError, match=r"patches|do not go"):
        tower_inputs.pack(np.zeros((count, SMALL.pixel_width), np.float32), rows, columns, length, SMALL)
