"""dots.ocr's vision tower as a Core ML package: traced with PyTorch, converted, compressed, saved whole.

Source of the method: a public three-part account of dots.ocr on Core ML and MLX (simplify, trace, convert with
coremltools, compare); the packing of inputs and the norm for float16 are ours. Needs torch and coremltools (extra
`convert`), which are imported where they are used.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np

from pipeline import checkpoint
from pipeline.convert import coreml_package, extra, page_shapes
from pipeline.convert.coreml_package import (
    CONFIG_KEY,
    FORMAT,
    FORMAT_KEY,
    INPUT,
    OUTPUT,
    SUFFIX,
    UNITS_KEY,
    WEIGHTS_KEY,
    ComputeUnits,
)
from pipeline.convert.page_shapes import PixelBudget, Shapes
from pipeline.convert.plan import Plan
from pipeline.convert.tower_config import TowerConfig
from storage.errors import ExistsError, ModelError, SettingsError, first_line, from_os_error

_TRACED = 64  # patches in the example input: no size of it stays in the program


_KMEANS_LEAST = 10_000


class Precision(StrEnum):
    """What the program computes in."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"


class Compression(StrEnum):
    """How weights are stored."""

    INT8 = "int8"  # a scale per output channel
    INT4 = "int4-palettized"  # 16 values per group of channels


class Target(StrEnum):
    """The least system the package runs on."""

    IOS17 = "ios17"  # macOS 14; attention as matmul, softmax, matmul
    IOS18 = "ios18"  # macOS 15; attention as one operator


@dataclass(frozen=True, slots=True)
class Options:
    """How to convert. `paper`: the page size of a package with fixed shapes."""

    precision: Precision = Precision.FLOAT16
    compute_units: ComputeUnits = ComputeUnits.ALL
    shapes: Shapes = Shapes.ENUMERATED
    compression: Compression | None = None
    target: Target = Target.IOS18
    paper: str = "a4"

    @property
    def is_exact(self) -> bool:
        """Whether nothing is rounded on purpose: the proof's bounds are for this."""
        return self.precision is Precision.FLOAT32 and self.compression is None


@dataclass(frozen=True, slots=True)
class PageSize:
    """A page in a package: `patches` of its own, padded to `length`; `multiply_adds` of the padded one."""

    paper: str
    width_px: int
    height_px: int
    patches: int
    length: int | None
    multiply_adds: int


@dataclass(frozen=True, slots=True)
class Report:
    """What became of a conversion."""

    package: Path
    size_bytes: int
    parameters: int
    seconds: float
    lengths: tuple[int, ...]
    pages: tuple[PageSize, ...]


def convert(examined: Plan, out: Path, options: Options) -> Report:
    """Convert the checkpoint that was examined to the package `out`; no part of `out` stays where that fails.

    Raises: `SettingsError` where `out` is no `.mlpackage` or options do not go together; `ExistsError`;
    `EngineUnavailableError` without the extra; `ModelError` of the checkpoint; `StorageError` of the disk.
    """
    check_destination(out)
    if options.compression is Compression.INT4 and options.precision is not Precision.FLOAT16:
        raise SettingsError(f"{Compression.INT4} goes with float16 only", remedy="add: --precision float16")
    extra.require("torch", "coremltools")
    budget = page_shapes.read_budget(examined.checkpoint.folder)
    lengths = page_shapes.lengths(options.shapes, budget, options.paper)
    from pipeline.convert import tower_weights

    started = time.perf_counter()
    # Traced in float16 the tower needs half the memory; coremltools 9 cannot take its attention apart then.
    half = options.precision is Precision.FLOAT16 and options.target is Target.IOS18
    tower = tower_weights.load_tower(examined, half=half)
    model = build(tower, lengths, options, checkpoint.weights_hash(examined.checkpoint))
    save(model, out)
    config: TowerConfig = tower.config
    return Report(
        package=out,
        size_bytes=coreml_package.read(out).size_bytes,
        parameters=config.parameters(),
        seconds=time.perf_counter() - started,
        lengths=lengths,
        pages=page_sizes(config, budget, lengths),
    )


def check_destination(out: Path) -> None:
    """Raises: `SettingsError` for another suffix, `ExistsError`, `StorageError` where its folder is missing."""
    if out.suffix != SUFFIX:
        raise SettingsError(f"{out.name} does not end in {SUFFIX}", remedy=f"name it {out.stem}{SUFFIX}")
    if out.exists():
        raise ExistsError("it is there already", file=out)
    if not out.parent.is_dir():
        raise from_os_error(FileNotFoundError(2, "no such folder"), file=out.parent)


def build(tower: Any, lengths: tuple[int, ...], options: Options, weights_sha256: str) -> Any:
    """The tower as coremltools' MLModel, not loaded: traced, converted, compressed, labelled. Raises: `ModelError`."""
    import torch

    ct = extra.coremltools()
    config: TowerConfig = tower.config
    with torch.inference_mode(), extra.quiet():
        traced = torch.jit.trace(tower, torch.zeros(_TRACED, config.input_width), check_trace=False)
    shapes = [(length, config.input_width) for length in lengths]
    shape = shapes[0] if len(shapes) == 1 else ct.EnumeratedShapes(shapes, default=shapes[-1])
    targets = {Target.IOS17: ct.target.iOS17, Target.IOS18: ct.target.iOS18}
    precisions = {Precision.FLOAT32: ct.precision.FLOAT32, Precision.FLOAT16: ct.precision.FLOAT16}
    try:
        with extra.quiet():
            model = ct.convert(
                traced,
                inputs=[ct.TensorType(INPUT, shape=shape, dtype=np.float32)],
                outputs=[ct.TensorType(OUTPUT, dtype=np.float32)],
                convert_to="mlprogram",
                compute_precision=precisions[options.precision],
                minimum_deployment_target=targets[options.target],
                skip_model_load=True,
            )
            if options.compression is not None:
                model = _compressed(model, options, config)
    except OSError:
        raise
    except Exception as error:  # coremltools raises anything
        raise ModelError(f"coremltools cannot convert the tower ({first_line(error)})") from error
    model.short_description = "dots.ocr's vision tower: patches of a page to image tokens"
    model.user_defined_metadata.update(
        {
            FORMAT_KEY: FORMAT,
            CONFIG_KEY: json.dumps(asdict(config), sort_keys=True),
            UNITS_KEY: str(options.compute_units),
            WEIGHTS_KEY: weights_sha256,
        }
    )
    return model


def _compressed(model: Any, options: Options, config: TowerConfig) -> Any:
    from coremltools.optimize import coreml as cto

    if options.compression is Compression.INT8:
        each = cto.OpLinearQuantizerConfig(mode="linear_symmetric", dtype="int8")
        return cto.linear_quantize_weights(model, cto.OptimizationConfig(global_config=each))
    channels = channels_per_table(config) if options.target is Target.IOS18 else None
    grouped = {"granularity": "per_grouped_channel", "group_size": channels} if channels else {}
    palette = cto.OpPalettizerConfig(mode="kmeans", nbits=4, **grouped)
    return cto.palettize_weights(model, cto.OptimizationConfig(global_config=palette))


def channels_per_table(config: TowerConfig) -> int | None:
    """Output channels that share a table of 16 values: as few as give coremltools 10,000 weights to cluster.

    Of fewer, coremltools 9 wants scikit-learn's k-means; of as many, in float16, its own, which is exact and fast.
    None (a table a tensor) where they do not divide every tensor's channels: coremltools leaves those as they are.
    """
    narrowest = min(config.embed_dim, config.pixel_width)
    channels = 16
    while channels * narrowest < _KMEANS_LEAST:
        channels *= 2
    outputs = (config.embed_dim, config.intermediate_size, config.hidden_size)
    return channels if not any(width % channels for width in outputs) else None


def save(model: Any, out: Path) -> None:
    """Write the package whole or not at all: beside its place, synced, then renamed. Raises: `StorageError`."""
    try:
        folder = Path(tempfile.mkdtemp(prefix=".ocrd-", dir=out.parent))
    except OSError as error:
        raise from_os_error(error, file=out.parent) from error
    try:
        model.save(str(folder / out.name))
        for path in (folder / out.name).rglob("*"):
            if path.is_file():
                with path.open("rb") as file:
                    os.fsync(file.fileno())
        (folder / out.name).rename(out)
    except OSError as error:
        raise from_os_error(error, file=out) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def page_sizes(config: TowerConfig, budget: PixelBudget, lengths: tuple[int, ...]) -> tuple[PageSize, ...]:
    """Every paper either way, as the checkpoint's processor sizes it and the package pads it."""
    found = []
    for paper in page_shapes.PAPERS:
        for lying in (False, True):
            width, height = page_shapes.resized(*page_shapes.paper_px(paper, lying=lying), budget)
            count = width * height // budget.factor**2 * config.merged
            length = page_shapes.fit(count, lengths)
            name = f"{paper} lying" if lying else paper
            found.append(PageSize(name, width, height, count, length, config.multiply_adds(length or count)))
    return tuple(found)
