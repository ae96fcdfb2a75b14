"""mlx-vlm's own conversion of a checkpoint (names, layout, dtype, quantisation), taken piece by piece.

As `mlx_vlm.convert` does it, but for three things: nothing is computed before it is asked for, so that memory holds one
module at a time and not a file of 5 GB; tokenizer and processor are left as the files they are, not loaded and written
anew; no code of the folder can run.
"""

from __future__ import annotations

import contextlib
import io
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten, tree_map

from pipeline import checkpoint
from pipeline.adapter.loading import is_allocation
from storage.errors import ModelError, OcrdError, OutOfMemoryError, UntrustedModelError, first_line

log = logging.getLogger(__name__)

GROUP_SIZE = 64  # columns that share scale and bias; mlx-vlm's default
_SAFETENSORS = {
    mx.float32: "F32", mx.float16: "F16", mx.bfloat16: "BF16", mx.uint32: "U32",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Piece:
    """A tensor to come: its name in the converted checkpoint, safetensors' name of its number format, shape, bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    size_bytes: int


class LazyConversion:
    """A checkpoint that is being converted. `config`: of the converted one. `modules`: its pieces, module by module."""

    def __init__(self, config: dict[str, Any], arrays: Mapping[str, Any]) -> None:
        self.config = config
        self._arrays = dict(arrays)
        self.modules: dict[str, list[Piece]] = {}
        for name, array in self._arrays.items():
            piece = Piece(name, _SAFETENSORS[array.dtype], tuple(array.shape), int(array.nbytes))
            self.modules.setdefault(name.rpartition(".")[0], []).append(piece)

    @property
    def quantised(self) -> int:
        """Modules that hold quantised weights."""
        return sum(any(p.name.endswith(".scales") for p in pieces) for pieces in self.modules.values())

    def take(self, module: str) -> Iterator[memoryview]:
        """The bytes of a module's pieces, in order; each can be taken once. What is taken is let go afterwards.

        Raises: `ModelError` for values that are not finite, or not any more in the wanted format, or cannot be read;
        `OutOfMemoryError`.
        """
        pieces = self.modules[module]
        arrays = [mx.contiguous(self._arrays.pop(piece.name)) for piece in pieces]
        try:
            mx.eval(arrays)  # together: quantising makes weights, scales and biases in one go
            for piece, array in zip(pieces, arrays, strict=True):
                _check_finite(piece, array)
        except RuntimeError as error:
            raise _failure(error, module) from error
        while arrays:
            array = arrays.pop(0)
            yield memoryview(array.view(mx.uint16) if array.dtype == mx.bfloat16 else array).cast("B")
            del array
        mx.clear_cache()


def begin(
    folder: Path, *, dtype: str | None = None, bits: int | None = None, quantise_vision: bool = False
) -> LazyConversion:
    """Set up the conversion of the checkpoint in `folder`; no weight is read. The folder was examined before.

    `dtype`: float16, bfloat16, or None for what is stored. `bits`: quantise linear layers and tables, in groups of
    `GROUP_SIZE`; the vision tower only with `quantise_vision`. Raises: `ModelError`.
    """
    from mlx_vlm.quant_utils import quantize_model
    from mlx_vlm.utils import load_config, load_model, skip_multimodal_module

    # load_model would run it, trusted or not
    if checkpoint.inspect(folder, trusted=[folder]).config.get("model_file"):
        raise UntrustedModelError(
            "config.json names a Python file as `model_file`", file=folder, remedy="remove that entry"
        )
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            model, config = load_model(folder, lazy=True), load_config(folder)
            if dtype is not None:
                model.update(tree_map(lambda array: _cast(array, getattr(mx, dtype)), model.parameters()))
                config["torch_dtype"] = dtype
            if bits is not None:
                _, config = quantize_model(
                    model, config, GROUP_SIZE, bits,
                    quant_predicate=lambda path, _: quantise_vision or not skip_multimodal_module(path),
                )  # fmt: skip
    except (RuntimeError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"mlx-vlm cannot convert it ({error})", file=folder) from error
    log.debug("mlx-vlm says: %s", said.getvalue())
    return LazyConversion(config, dict(tree_flatten(model.parameters())))


def _failure(error: RuntimeError, module: str) -> OcrdError:
    """MLX reads weights as it computes with them, so a file that became shorter shows here."""
    text = first_line(error).rstrip(".")
    if is_allocation(text):
        return OutOfMemoryError(f"converting {module} ran out of memory ({text})")
    return ModelError(f"{module} cannot be read ({text})")


def _cast(array: Any, dtype: Any) -> Any:
    return array.astype(dtype) if mx.issubdtype(array.dtype, mx.floating) else array


def _check_finite(piece: Piece, array: Any) -> None:
    if piece.dtype == "U32" or bool(mx.all(mx.isfinite(array)).item()):
        return
    raise ModelError(
        f"{piece.name} has values that {'float16 cannot hold' if piece.dtype == 'F16' else 'are not finite'}",
        remedy="take bfloat16; if that fails as well, the checkpoint is damaged",
    )
