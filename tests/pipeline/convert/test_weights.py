"""Tensors read without MLX are what MLX reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pipeline import blas
from pipeline.convert import plan, weights

blas.preload()
mx = pytest.importorskip("mlx.core", reason="mlx has no wheel for this machine")

RNG_SEED = 7


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_every_number_format_is_read_as_mlx_reads_it(dtype: str, tmp_path: Path) -> None:
    values = mx.array(np.random.default_rng(RNG_SEED).standard_normal((5, 7), np.float32)).astype(
        getattr(mx, dtype)
    )
    path = tmp_path / "model.safetensors"
    mx.save_safetensors(str(path), {"a": mx.zeros((3,)), "b": values})
    read = weights.headers([path])["b"]
    assert weights.NAMES[read.dtype] == dtype
    np.testing.assert_array_equal(weights.to_float32(read), np.array(values.astype(mx.float32)))


@pytest.mark.parametrize("bits", weights.BITS)
def test_unpacked_weights_are_those_of_mlx(bits: int) -> None:
    original = mx.array(np.random.default_rng(RNG_SEED).standard_normal((6, 128), np.float32))
    packed, scales, biases = mx.quantize(original, group_size=64, bits=bits)
    ours = weights.dequantise(np.array(packed), np.array(scales), np.array(biases), bits)
    theirs = np.array(mx.dequantize(packed, scales, biases, group_size=64, bits=bits))
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6)


def test_a_file_cut_after_it_was_examined_is_told(tmp_path: Path) -> None:
    from tests.pipeline.convert import small

    folder = small.make(tmp_path / "model")
    found = plan.examine(folder)
    path = small.weights(folder)
    path.write_bytes(path.read_bytes()[:-4])
    last = max(found.entries.values(), key=lambda entry: entry.tensor.start)
    with pytest.raises(plan.ModelError, match=r"is cut short at "):
        last.read()
