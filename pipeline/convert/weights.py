"""The tensors of a checkpoint's safetensors files, one at a time, as numpy arrays; neither MLX nor PyTorch."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from storage.errors import ModelError

# safetensors' names of number formats → numpy's. bfloat16, which numpy lacks, is read as its bits.
DTYPES: Mapping[str, str] = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "U32": "<u4"}
NAMES: Mapping[str, str] = {"F32": "float32", "F16": "float16", "BF16": "bfloat16", "U32": "uint32"}
PACKED = "U32"  # what MLX keeps quantised weights in
BITS = (2, 4, 8)  # of those, what `dequantise` reads


@dataclass(frozen=True, slots=True)
class Tensor:
    """Where a tensor lies: `start` and `size` in bytes from the file's begin; `dtype` as safetensors names it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: Path
    start: int
    size: int

    def read(self) -> NDArray[Any]:
        """The values as they are stored (bfloat16: uint16 bits). Raises: `ModelError` where the file was cut since."""
        kind = np.dtype(DTYPES[self.dtype])
        count = self.size // kind.itemsize
        values = np.fromfile(self.file, kind, count, offset=self.start)
        if values.size != count:
            raise ModelError(f"{self.file.name} is cut short at {self.name}", file=self.file.parent)
        return values.reshape(self.shape)


def headers(files: Iterable[Path]) -> dict[str, Tensor]:
    """All tensors of the files by name, read from the files' headers alone.

    The files are those of `checkpoint.inspect`, which found them whole. Raises: `ModelError` for a tensor that two
    files hold, or whose bytes are no array of its shape.
    """
    found: dict[str, Tensor] = {}
    for path in files:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(length))
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            if name in found:
                raise ModelError(f"{name} is in {found[name].file.name} and in {path.name}", file=path.parent)
            found[name] = _tensor(name, entry, path, 8 + length)
    return found


def _tensor(name: str, entry: Mapping[str, Any], path: Path, base: int) -> Tensor:
    try:
        dtype, (begin, end) = str(entry["dtype"]), entry["data_offsets"]
        shape = tuple(int(n) for n in entry["shape"])
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{path.name} says nothing usable of {name}", file=path.parent) from error
    tensor = Tensor(name, dtype, shape, path, base + begin, end - begin)
    if dtype in DTYPES and tensor.size != int(np.prod(shape)) * np.dtype(DTYPES[dtype]).itemsize:
        raise ModelError(
            f"{name} has {tensor.size} bytes, which is no {NAMES[dtype]} array of shape {list(shape)}",
            file=path.parent,
        )
    return tensor


def to_float32(tensor: Tensor) -> NDArray[np.float32]:
    """The values of an unquantised tensor as float32, exactly."""
    values = tensor.read()
    if tensor.dtype == "BF16":
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float32, copy=False)


def dequantise(
    packed: NDArray[np.uint32], scales: NDArray[np.float32], biases: NDArray[np.float32], bits: int
) -> NDArray[np.float32]:
    """What MLX's affine quantisation stands for: scale · code + bias per group; (rows, columns) float32.

    Codes of `bits` bits (2, 4 or 8) lie side by side from a byte's lowest bits on (`mlx.core.quantize`).
    """
    rows = packed.shape[0]
    octets = np.ascontiguousarray(packed).view(np.uint8).reshape(rows, -1, 1)
    codes = (octets >> np.arange(0, 8, bits, dtype=np.uint8)) & np.uint8((1 << bits) - 1)
    values: NDArray[np.float32] = codes.reshape(rows, scales.shape[1], -1).astype(np.float32)
    values *= scales[..., None]
    values += biases[..., None]
    return values.reshape(rows, -1)
