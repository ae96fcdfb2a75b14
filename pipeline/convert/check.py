"""Whether a converted checkpoint computes what its source does: every stage against a plain reading in PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pipeline.convert import extra, manifest, plan
from pipeline.convert.names import Part
from pipeline.convert.plan import Plan
from storage.errors import from_os_error

if TYPE_CHECKING:
    from PIL import Image

PROMPT = "Extract the text content from this image."
# Of the picture by default: at full size a block over a whole page takes a CPU minutes.
MAX_PIXELS = 448 * 448
# How far a stage may be off, as root mean square of the difference over that of the values; by how its weights are
# kept. Measured with the tiny model (docs/dots-ocr.md); weights of another model are off by 1.
# A quantised weight is unpacked in the precision of its scales, so even one kept as it was is off a little.
LIMITS = {"as stored": 1e-4, "as stored, quantised": 0.01, "16 bit": 0.05, "8 bit": 0.1, "4 bit": 0.6}


@dataclass(frozen=True, slots=True)
class StageDifference:
    """One stage: its output's shape, and how far the converted model's is from the source's."""

    name: str
    shape: tuple[int, int]
    max_abs: float
    mean_abs: float
    largest: float  # absolute value in the source's output
    relative: float  # root mean square of the difference over that of the source's output
    limit: float

    @property
    def is_good(self) -> bool:
        """Whether it is within its limit; what is not a number is not."""
        return self.relative <= self.limit


@dataclass(frozen=True, slots=True)
class Checked:
    """The result. `output_shape`: of the features, (1, tokens, hidden). `same_choices`: rows of the logits whose best
    token is the same, of `logit_rows`. `made_of_source`: whether the manifest names these weights; None without one.
    """

    stages: list[StageDifference]
    output_shape: tuple[int, int, int]
    placeholders: int
    hidden: int
    weights: dict[str, str]  # part → how its weights are kept, against the source's
    device: str
    same_choices: int
    logit_rows: int
    made_of_source: bool | None
    differing_files: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        """Whether nothing changed but what was meant to."""
        return (
            all(stage.is_good for stage in self.stages)
            and self.made_of_source is not False
            and not self.differing_files
        )

    def as_json(self) -> dict[str, Any]:
        """All figures, for `--json`."""
        stages = [asdict(stage) | {"good": stage.is_good} for stage in self.stages]
        return asdict(self) | {"stages": stages, "good": self.is_good}


def check(source: Plan, folder: Path, image: Image.Image, *, trusted: tuple[Path, ...] = ()) -> Checked:
    """Read `image` with the source's weights in PyTorch and with the checkpoint in `folder` in MLX, and compare.

    Raises: `EngineUnavailableError` without torch; `ModelError` where `folder` is no whole checkpoint of dots.ocr;
    `EngineError` naming both numbers where features and image placeholders do not match.
    """
    extra.require("torch")
    from pipeline.adapter import inputs, loading, stages
    from pipeline.convert import torch_reading

    converted = plan.examine(folder, trusted=trusted)
    kept = {str(part): _kept(source, converted, part) for part in Part}
    loaded = loading.load(folder, trusted=trusted)
    prepared = inputs.prepare(loaded, PROMPT, image)
    page = stages.arrays(prepared)
    comparison = _Comparison(torch_reading.read(source, page, stages.LOGIT_ROWS), kept)
    stages.run(loaded, prepared, comparison.observe)
    made, differing = _provenance(source, folder)
    tokens, width = comparison.named("merger").shape
    rows = comparison.named("logits").shape[0]
    return Checked(
        comparison.found, (1, tokens, width), len(page.positions), source.sizes.hidden, kept, loaded.device,
        comparison.same_choices, rows, made, differing,
    )  # fmt: skip


class _Comparison:
    """Takes the converted model's stages as they come and asks the reference for the same one."""

    def __init__(self, reference: Iterator[tuple[str, NDArray[np.float32]]], kept: dict[str, str]) -> None:
        self._reference = reference
        vision = max(LIMITS[kept[Part.VISION]], LIMITS[kept[Part.PROJECTOR]])
        # A stage can be no better than those before it.
        self._limits = (vision, max(vision, LIMITS[kept[Part.LANGUAGE]]))
        self.found: list[StageDifference] = []
        self.same_choices = 0

    def observe(self, name: str, output: NDArray[np.float32]) -> None:
        expected_name, expected = next(self._reference)
        if expected_name != name or expected.shape != output.shape:
            raise RuntimeError(f"{name} {output.shape} is compared with {expected_name} {expected.shape}")
        limit = self._limits[name.startswith(("layer", "logits"))]
        self.found.append(difference(name, expected, output, limit))
        if name == "logits":
            self.same_choices = int((expected.argmax(-1) == output.argmax(-1)).sum())

    def named(self, name: str) -> StageDifference:
        return next(stage for stage in self.found if stage.name == name)


def difference(
    name: str, expected: NDArray[np.float32], output: NDArray[np.float32], limit: float
) -> StageDifference:
    """How far `output` is from `expected`, both (rows, D)."""
    gap = np.abs(output - expected)
    scale = float(np.sqrt(np.mean(np.square(expected, dtype=np.float64))))
    off = float(np.sqrt(np.mean(np.square(gap, dtype=np.float64))))
    return StageDifference(
        name,
        shape=(expected.shape[0], expected.shape[1]),
        max_abs=float(gap.max()),
        mean_abs=float(gap.mean()),
        largest=float(np.abs(expected).max()),
        relative=off / scale if scale else off,
        limit=limit,
    )


def _kept(source: Plan, converted: Plan, part: Part) -> str:
    """How coarsely a part's weights are kept, where that differs from the source: a key of `LIMITS`."""
    changed = {
        entry.dtype
        for entry in converted.of(part)
        if entry.dtype != source.entries[entry.expected.source].dtype
    }  # fmt: skip
    for kind in ("4 bit", "8 bit"):
        if kind in changed:
            return kind
    if changed - {"float32"}:
        return "16 bit"
    return "as stored, quantised" if any(entry.bits for entry in converted.of(part)) else "as stored"


def _provenance(source: Plan, folder: Path) -> tuple[bool | None, list[str]]:
    """Whether the manifest of `folder` names the source's weights, and files of `folder` that are not as written."""
    body = manifest.read(folder)
    if body is None:
        return None, []
    named = body["source"]["files"]
    try:
        made = all(
            named.get(path.name) == asdict(manifest.hash_file(path)) for path in source.checkpoint.weights
        )
        differing = [
            name for name, entry in body["files"].items() if asdict(manifest.hash_file(folder / name)) != entry
        ]  # fmt: skip
    except OSError as error:
        raise from_os_error(error, file=folder) from error
    return made, differing
