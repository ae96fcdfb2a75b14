"""`ocrd bench vision`: one page through the vision encoders of this machine, per page size and compute unit.

What it shows is time alone: pages are blank, since no vision tower is faster on one. That features agree is shown by
`ocrd convert coreml` (on any system) and checked when a package is opened.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.convert import coreml_package, extra, page_shapes, tower_config
from pipeline.convert.coreml_package import ComputeUnits, Package
from storage.errors import OcrdError, SettingsError

if TYPE_CHECKING:
    from pipeline.adapter.inputs import PageInputs
    from pipeline.adapter.loading import LoadedModel
    from storage.settings import Settings

MLX, COREML = "mlx", "coreml"
NEEDS_MAC = "needs a Mac"


@dataclass(frozen=True, slots=True)
class Figures:
    """One encoder on one page. `seconds`: median of a page's runs; None where `note` says why there is none."""

    encoder: str
    unit: str
    paper: str
    patches: int
    length: int  # patches with padding: what the encoder really works on
    multiply_adds: int
    seconds: float | None = None
    note: str = ""


def run(
    settings: Settings,
    papers: Sequence[str],
    units: Sequence[ComputeUnits],
    *,
    package: Path | None = None,
    repeat: int = 3,
) -> dict[str, Any]:
    """The figures as the JSON of `ocrd bench vision`. Raises: the errors of `storage.errors`."""
    from pipeline import model_files, opening
    from pipeline.adapter import inputs
    from pipeline.convert import names

    location = model_files.locate(settings.model or "tiny", settings)
    loaded, _ = opening.load(settings, location)
    if loaded.architecture != "dots_ocr":
        raise SettingsError(
            f"{location.preset.name} is {loaded.architecture}", remedy="measure a dots.ocr model"
        )
    config = tower_config.of(names.dimensions(loaded.checkpoint.config, location.folder))
    found = coreml_package.read(package) if package is not None and not extra.missing("coremltools") else None
    rows = []
    for paper in papers:
        page = _page(loaded, paper)
        count = math.prod(inputs.grid_of(page))
        blank = Figures(MLX, "gpu", paper, count, count, config.multiply_adds(count))
        rows += _mlx(loaded, page, blank, repeat)
        length = page_shapes.fit(count, found.lengths) if found is not None else count
        padded = replace(
            blank, encoder=COREML, length=length or count, multiply_adds=config.multiply_adds(length or count)
        )
        for unit in units:
            row = replace(padded, unit=str(unit))
            rows.append(_coreml(settings, loaded, page, row, found, package, unit, length, repeat))
    return {"model": location.preset.name, "system": sys.platform, "rows": [asdict(row) for row in rows]}


def _page(loaded: LoadedModel, paper: str) -> PageInputs:
    from PIL import Image

    from pipeline.adapter import inputs

    return inputs.prepare(loaded, "read", Image.new("RGB", page_shapes.paper_px(paper), "white"))


def _mlx(loaded: LoadedModel, page: PageInputs, row: Figures, repeat: int) -> list[Figures]:
    """MLX on what it runs on here; on a CPU, the GPU's row says what it takes."""
    from pipeline.adapter import inputs

    seconds = _median(lambda: inputs.encode(loaded, page), repeat)
    measured = replace(row, unit=loaded.device, seconds=seconds)
    return [measured] if loaded.device == "gpu" else [measured, replace(row, note=NEEDS_MAC)]


def _coreml(
    settings: Settings,
    loaded: LoadedModel,
    page: PageInputs,
    row: Figures,
    package: Package | None,
    named: Path | None,
    unit: ComputeUnits,
    length: int | None,
    repeat: int,
) -> Figures:
    if length is None:
        return replace(row, note="larger than the package takes")
    if sys.platform != "darwin":
        return replace(row, note=NEEDS_MAC)
    if package is None:
        return replace(row, note="needs coremltools" if named is not None else "needs --package")
    from pipeline import vision_coreml

    try:
        content = package.content_hash(settings.features_path / "weights.json")
        predict = vision_coreml.load(package, settings.compiled_path, content, unit)
        encoder = vision_coreml.CoreMLEncoder(package, predict, content)
        return replace(row, seconds=_median(lambda: encoder.encode(page), repeat))
    except OcrdError as error:  # one unit that fails leaves the others their rows
        return replace(row, note=error.message)


def _median(work: Callable[[], object], repeat: int) -> float:
    """Seconds of one call, the first of all not counted: it pays for set-up."""
    work()
    taken = []
    for _ in range(repeat):
        started = time.perf_counter()
        work()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)
