"""The five tiny checkpoints, made and loaded once a session."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pipeline import blas
from tests.pipeline.adapter import checkpoints

blas.preload()
mx = pytest.importorskip("mlx.core", reason="mlx has no wheel for this machine")

from pipeline.adapter import inputs, loading  # noqa: E402
from pipeline.adapter.loading import LoadedModel  # noqa: E402

PROMPT = "Read the page."


def page_image(seed: int = 0, width: int = 320, height: int = 224) -> Image.Image:
    """A page-like picture: dark bars on white, different for each seed."""
    rng = np.random.default_rng(seed)
    pixels = np.full((height, width, 3), 255, np.uint8)
    for top in range(12, height - 12, 18):
        pixels[top : top + 9, 12 : 12 + int(rng.integers(width // 3, width - 30))] = rng.integers(0, 90)
    return Image.fromarray(pixels)


@dataclass(frozen=True)
class Page:
    """A prepared page of a loaded model."""

    loaded: LoadedModel
    image: Image.Image
    inputs: inputs.PageInputs
    features: Any

    def embeddings(self) -> Any:
        """The prompt's embeddings, fresh each time."""
        return inputs.embed(self.loaded, self.inputs, self.features)


@pytest.fixture(scope="session")
def small_towers() -> Iterator[None]:
    with checkpoints.shrink_towers():
        yield


@pytest.fixture(scope="session", params=checkpoints.ARCHITECTURES)
def loaded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, small_towers: None
) -> LoadedModel:
    root: Path = tmp_path_factory.mktemp("checkpoints")
    return loading.load(checkpoints.make(request.param, root))


def make_page(loaded: LoadedModel, seed: int) -> Page:
    image = page_image(seed)
    prepared = inputs.prepare(loaded, PROMPT, image, processor_options(loaded))
    return Page(loaded, image, prepared, inputs.encode(loaded, prepared))


def processor_options(loaded: LoadedModel) -> dict[str, Any]:
    """One global view and no crops, to keep the tests short."""
    return {"cropping": False} if loaded.architecture in ("unlimited_ocr", "deepseekocr_2") else {}


@pytest.fixture(scope="session")
def page(loaded: LoadedModel) -> Page:
    return make_page(loaded, 0)


@pytest.fixture(scope="session")
def other_page(loaded: LoadedModel) -> Page:
    return make_page(loaded, 1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Drafters over every architecture belong to the slow suite; the plain one has a plain and an M-RoPE model."""
    for item in items:
        architecture = getattr(item, "callspec", None) and item.callspec.params.get("loaded")  # type: ignore[attr-defined]
        if item.path.name == "test_drafters.py" and architecture not in (None, "dots_ocr", "glm_ocr"):
            item.add_marker(pytest.mark.slow)
