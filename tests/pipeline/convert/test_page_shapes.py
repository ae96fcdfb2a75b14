"""Which numbers of patches a package takes, and that pictures are sized as the model's own processor sizes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.convert import page_shapes
from pipeline.convert.page_shapes import PixelBudget, Shapes
from pipeline.convert.tower_config import TowerConfig
from storage.errors import ModelError

DOTS = PixelBudget(28, 3_136, 11_289_600)
FULL = TowerConfig(1536, 1536, 4224, 42, 12, 3, 14, 2, 1e-5, False, True)


def test_a4_at_200_dpi_is_19824_patches_either_way() -> None:
    upright, lying = (
        page_shapes.patches(*page_shapes.paper_px("a4", lying=way), DOTS) for way in (False, True)
    )
    assert upright == lying == 19_824


def test_every_paper_has_a_length_of_its_own_and_the_largest_picture_fits() -> None:
    taken = page_shapes.lengths(Shapes.ENUMERATED, DOTS)
    assert list(taken) == sorted(set(taken))
    for paper in page_shapes.PAPERS:
        for lying in (False, True):
            assert page_shapes.patches(*page_shapes.paper_px(paper, lying=lying), DOTS) in taken
    assert taken[-1] == DOTS.max_patches == 57_600
    assert page_shapes.lengths(Shapes.FIXED, DOTS) == (19_824,)


@pytest.fixture(scope="module")
def processing() -> Any:
    return pytest.importorskip("transformers.models.qwen2_vl.image_processing_pil_qwen2_vl")


@given(st.integers(28, 6000), st.integers(28, 6000), st.integers(784, 20_000_000))
def test_pictures_are_sized_as_the_processor_sizes_them(
    processing: Any, width: int, height: int, most: int
) -> None:
    budget = PixelBudget(28, min(3_136, most), most)
    if max(width, height) / min(width, height) > 200:
        return  # refused by the processor
    rows, columns = processing.smart_resize(
        height, width, factor=28, min_pixels=budget.min_pixels, max_pixels=budget.max_pixels
    )
    assert page_shapes.resized(width, height, budget) == (columns, rows)


@given(st.integers(1, 60_000))
def test_a_page_is_padded_to_the_least_that_holds_it(count: int) -> None:
    taken = page_shapes.lengths(Shapes.ENUMERATED, DOTS)
    length = page_shapes.fit(count, taken)
    if length is None:
        assert count > taken[-1]
    else:
        assert length >= count
        assert not any(count <= other < length for other in taken)


def test_pages_of_common_papers_are_padded_by_half_at_most() -> None:
    taken = page_shapes.lengths(Shapes.ENUMERATED, DOTS)
    for count in range(taken[0], taken[-1] + 1, 97):
        length = page_shapes.fit(count, taken)
        assert length is not None and length <= 2 * count


@pytest.mark.parametrize(
    "body",
    ["{}", "[]", "nonsense", '{"min_pixels": 10, "max_pixels": 5, "patch_size": 14, "merge_size": 2}'],
)
def test_a_preprocessor_that_says_nothing_usable_is_refused(tmp_path: Path, body: str) -> None:
    (tmp_path / "preprocessor_config.json").write_text(body, "utf-8")
    with pytest.raises(ModelError, match=r"preprocessor_config\.json"):
        page_shapes.read_budget(tmp_path)


def test_the_budget_is_read_from_either_spelling(tmp_path: Path) -> None:
    path = tmp_path / "preprocessor_config.json"
    sizes = {"patch_size": 14, "merge_size": 2}
    path.write_text(json.dumps(sizes | {"min_pixels": 3136, "max_pixels": 11289600}), "utf-8")
    assert page_shapes.read_budget(tmp_path) == DOTS
    edges = {"shortest_edge": 3136, "longest_edge": 11289600}
    path.write_text(json.dumps(sizes | {"size": edges}), "utf-8")
    assert page_shapes.read_budget(tmp_path) == DOTS


def test_the_full_size_has_1_3_billion_parameters_and_a4_takes_75_trillion_multiply_adds() -> None:
    assert round(FULL.parameters() / 1e9, 2) == 1.26
    assert round(FULL.multiply_adds(19_824) / 1e12) == 75
