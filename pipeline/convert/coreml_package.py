"""What a Core ML package of the vision tower says of itself: its sizes, its labels, its content's hash.

Needs coremltools (extra `convert`), which reads packages on any system, but not torch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from pipeline import checkpoint
from pipeline.convert import extra
from pipeline.convert.tower_config import TowerConfig
from storage.errors import ModelError, first_line

SUFFIX = ".mlpackage"
INPUT = "patches"
OUTPUT = "features"
# Keys of the package's user-defined metadata: what reading it back needs to know.
FORMAT_KEY, FORMAT = "ocrd.format", "1"
CONFIG_KEY = "ocrd.tower"
UNITS_KEY = "ocrd.compute_units"
WEIGHTS_KEY = "ocrd.weights"
_REMEDY = "make it anew with `ocrd convert coreml`"
_RANDOM = "Manifest.json"  # names the parts by ids that are new at each saving


class ComputeUnits(StrEnum):
    """What Core ML may run the package on."""

    ALL = "all"
    CPU_AND_GPU = "cpu-and-gpu"
    CPU_AND_NE = "cpu-and-ne"
    CPU_ONLY = "cpu-only"


@dataclass(frozen=True, slots=True)
class Package:
    """A package on disk. `lengths`: numbers of patches it takes; `weights`: hash of what it was made from."""

    path: Path
    config: TowerConfig
    lengths: tuple[int, ...]
    compute_units: ComputeUnits
    weights: str

    @property
    def size_bytes(self) -> int:
        """Bytes of all its files."""
        return sum(path.stat().st_size for path in self.path.rglob("*") if path.is_file())

    def content_hash(self, memo: Path | None = None) -> str:
        """SHA-256 over program and weights. `memo`: as of `checkpoint.files_hash`."""
        files = [path for path in self.path.rglob("*") if path.is_file() and path.name != _RANDOM]
        return checkpoint.files_hash(sorted(files), memo)


def read(path: Path) -> Package:
    """The package at `path`, not loaded. Raises: `ModelError` where it is none of ours or cannot be read."""
    coremltools = extra.coremltools()
    try:
        spec = coremltools.models.utils.load_spec(str(path))
    except Exception as error:  # coremltools raises anything, bare Exception included
        raise ModelError(
            f"no Core ML package that can be read ({first_line(error)})", file=path, remedy=_REMEDY
        ) from error
    return describe(path, spec)


def describe(path: Path, spec: Any) -> Package:
    """What a package's specification says. Raises: `ModelError` where it is none of ours."""
    labels: Mapping[str, str] = spec.description.metadata.userDefined
    names = [description.name for description in (*spec.description.input, *spec.description.output)]
    if labels.get(FORMAT_KEY) != FORMAT or names != [INPUT, OUTPUT]:
        raise ModelError("no vision tower of ours in this Core ML package", file=path, remedy=_REMEDY)
    try:
        config = TowerConfig(**json.loads(labels[CONFIG_KEY]))
        units = ComputeUnits(labels[UNITS_KEY])
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(f"the package's labels are damaged ({error})", file=path, remedy=_REMEDY) from error
    return Package(path, config, _lengths(spec), units, labels.get(WEIGHTS_KEY, ""))


def _lengths(spec: Any) -> tuple[int, ...]:
    """First dimensions that the input may have, as the package says to Core ML."""
    kind = spec.description.input[0].type.multiArrayType
    shapes = [shape.shape for shape in kind.enumeratedShapes.shapes] or [kind.shape]
    return tuple(sorted({int(shape[0]) for shape in shapes}))
