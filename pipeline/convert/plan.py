"""A checkpoint of dots.ocr before anything is converted: every tensor known, none missing, shapes as they must be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline import checkpoint
from pipeline.checkpoint import Checkpoint
from pipeline.convert import names, weights
from pipeline.convert.names import Dimensions, Expected, Part
from pipeline.convert.weights import Tensor
from storage.errors import ModelError

REMEDY = "it is no whole checkpoint of dots.ocr; fetch it again"
_PARTS = ("weight", "scales", "biases")  # of a quantised layer


@dataclass(frozen=True, slots=True)
class Entry:
    """A tensor that was expected, and where it lies. `scales`, `biases`: of a quantised one, packed in `bits` bits."""

    expected: Expected
    tensor: Tensor
    scales: Tensor | None = None
    biases: Tensor | None = None
    bits: int | None = None

    @property
    def size_bytes(self) -> int:
        """Bytes in the checkpoint."""
        return sum(part.size for part in (self.tensor, self.scales, self.biases) if part is not None)

    @property
    def dtype(self) -> str:
        """How it is stored: float32, float16, bfloat16, or `4 bit`."""
        return weights.NAMES[self.tensor.dtype] if self.bits is None else f"{self.bits} bit"

    def read(self) -> NDArray[np.float32]:
        """The values in the expected shape, dequantised where they must be; exact otherwise."""
        if self.bits is not None:
            assert self.scales is not None and self.biases is not None
            packed = self.tensor.read()
            scales, biases = weights.to_float32(self.scales), weights.to_float32(self.biases)
            return weights.dequantise(packed, scales, biases, self.bits)
        values = weights.to_float32(self.tensor)
        if values.shape != self.expected.shape:  # the patch embedding as MLX lays it out: channels last
            values = np.ascontiguousarray(values.transpose(0, 3, 1, 2))
        return values


@dataclass(frozen=True, slots=True)
class Plan:
    """All tensors of a checkpoint by their own names, in the table's order; `left_out`: buffers nobody needs."""

    checkpoint: Checkpoint
    sizes: Dimensions
    entries: Mapping[str, Entry]
    left_out: tuple[str, ...]

    def of(self, *parts: Part) -> list[Entry]:
        """The entries of these parts."""
        return [entry for entry in self.entries.values() if entry.expected.part in parts]

    def values(self, source: str) -> NDArray[np.float32]:
        """A tensor's values by its name in the checkpoint, float32, in PyTorch's layout."""
        return self.entries[source].read()


def examine(folder: Path, *, trusted: Iterable[Path] = ()) -> Plan:
    """Read configuration and headers of the checkpoint in `folder`; no tensor is loaded.

    Raises: as `checkpoint.inspect`, and `ModelError` for another architecture, a missing or unknown tensor, a wrong
    shape, a number format that is none of ours.
    """
    found = checkpoint.inspect(folder, trusted=trusted)
    if found.architecture != "dots_ocr":
        raise ModelError(
            f"this is {found.architecture}, and only dots.ocr is converted here", file=folder,
            remedy="fetch a conversion of it with `ocrd models pull`",
        )  # fmt: skip
    sizes = names.dimensions(found.config, folder)
    stored = _by_own_name(weights.headers(found.weights), folder)
    left_out = tuple(sorted(name for name in stored if names.BALLAST.search(name)))
    wanted = {item.source: item for item in names.expected(sizes)}
    # stored all the same, as some releases do: the loader reads it
    if sizes.tied and "lm_head.weight" in stored:
        wanted |= {"lm_head.weight": Expected("lm_head.weight", None, wanted[_TABLE].shape, Part.LANGUAGE)}
    _check_names(wanted, stored.keys() - set(left_out), folder)
    entries = {source: _entry(item, stored, found) for source, item in wanted.items()}
    return Plan(found, sizes, entries, left_out)


_TABLE = "model.embed_tokens.weight"


def _by_own_name(stored: Mapping[str, Tensor], folder: Path) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for name, tensor in stored.items():
        own = names.canonical(name)
        if own in found:
            raise ModelError(f"{name} and {found[own].name} are the same tensor", file=folder, remedy=REMEDY)
        found[own] = tensor
    return found


def _check_names(wanted: Mapping[str, Expected], stored: Iterable[str], folder: Path) -> None:
    have = set(stored)
    if missing := [source for source in wanted if source not in have]:
        raise ModelError(f"{_some(missing)} missing", file=folder, remedy=REMEDY)
    of_quantised = {source.rpartition(".")[0] + f".{part}" for source in wanted for part in _PARTS}
    if unknown := sorted(have - wanted.keys() - of_quantised):
        raise ModelError(f"{_some(unknown)} unknown", file=folder, remedy=REMEDY)


def _some(found: list[str]) -> str:
    return f"the tensor {found[0]} is" if len(found) == 1 else f"{len(found)} tensors, as {found[0]}, are"


def _entry(item: Expected, stored: Mapping[str, Tensor], found: Checkpoint) -> Entry:
    tensor = stored[item.source]
    module, _, leaf = item.source.rpartition(".")
    scales = stored.get(f"{module}.scales") if leaf == "weight" else None
    if scales is not None:
        return _quantised(item, tensor, scales, stored.get(f"{module}.biases"), found)
    if tensor.dtype not in weights.DTYPES or tensor.dtype == weights.PACKED:
        raise ModelError(
            f"{item.source} is stored as {tensor.dtype}; read are {', '.join(weights.DTYPES)}",
            file=found.folder, remedy="take the release in bfloat16",
        )  # fmt: skip
    channels_last = item.source == names.PATCH_WEIGHT and tensor.shape == _channels_last(item.shape)
    if tensor.shape != item.shape and not channels_last:
        raise _wrong_shape(item, tensor.shape, found)
    return Entry(item, tensor)


def _channels_last(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (shape[0], *shape[2:], shape[1])


def _quantised(
    item: Expected, packed: Tensor, scales: Tensor, biases: Tensor | None, found: Checkpoint
) -> Entry:
    settings = quantisation(found.config, packed.name.rpartition(".")[0], item.source.rpartition(".")[0])
    bits, group = settings.get("bits"), settings.get("group_size")
    if biases is None or settings.get("mode", "affine") != "affine" or bits not in weights.BITS:
        raise ModelError(f"{item.source} is quantised in a way that is not read here", file=found.folder)
    rows, columns = packed.shape[0], packed.shape[-1] * 32 // bits
    if packed.dtype != weights.PACKED or (rows, columns) != item.shape or len(packed.shape) != 2:
        raise _wrong_shape(item, (rows, columns), found)
    if not isinstance(group, int) or {scales.shape, biases.shape} != {(rows, columns // group)}:
        raise _wrong_shape(item, scales.shape, found)
    return Entry(item, packed, scales, biases, bits)


def quantisation(config: Mapping[str, Any], *paths: str) -> Mapping[str, Any]:
    """Bits, group size and mode of a module, called by any of `paths`: its own settings, else the folder's."""
    settings: Mapping[str, Any] = config.get("quantization") or config.get("quantization_config") or {}
    own = next((settings[path] for path in paths if isinstance(settings.get(path), dict)), None)
    return settings if own is None else {**settings, **own}


def _wrong_shape(item: Expected, shape: tuple[int, ...], found: Checkpoint) -> ModelError:
    return ModelError(
        f"{item.source} has shape {list(shape)}; by config.json it is {list(item.shape)}",
        file=found.folder, remedy=REMEDY,
    )  # fmt: skip
