"""Why the tower is written as it is: each form it avoids fails to convert, or comes out otherwise.

Every test has the avoided form and, beside it, the one that `pipeline.convert.tower` has in its place.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed (extra `convert`)")
pytest.importorskip("coremltools", reason="coremltools is not installed (extra `convert`)")

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipeline.convert import extra
from pipeline.convert.mil_program import MilProgram
from pipeline.convert.tower import RMSNorm
from pipeline.convert.tower_inputs import MASKED

ROWS, WIDTH = 32, 16
Run = Callable[..., MilProgram]


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def convert(tmp_path: Path) -> Run:
    """Trace, convert and save a module whose inputs are as its example's; the saved program."""

    def run(module: nn.Module, *example: Tensor, half: bool = False) -> MilProgram:
        ct = extra.coremltools()
        kinds = {torch.bool: bool, torch.int64: np.int32}
        inputs = [
            ct.TensorType(f"x{i}", shape=tuple(x.shape), dtype=kinds.get(x.dtype, np.float32))
            for i, x in enumerate(example)
        ]
        with extra.quiet():
            traced = torch.jit.trace(module.eval(), example, check_trace=False)
            model = ct.convert(
                traced,
                inputs=inputs,
                outputs=[ct.TensorType("y", dtype=np.float32)],
                convert_to="mlprogram",
                compute_precision=ct.precision.FLOAT16 if half else ct.precision.FLOAT32,
                minimum_deployment_target=ct.target.iOS18,
                skip_model_load=True,
            )
            model.save(str(tmp_path / "form.mlpackage"))
        return MilProgram(tmp_path / "form.mlpackage")

    return run


def off(program: MilProgram, module: nn.Module, *example: Tensor) -> float:
    """Largest difference between the saved program and the module in float32."""
    found = program.run({f"x{i}": x.numpy() for i, x in enumerate(example)})
    with torch.inference_mode():
        return float(np.abs(found - module(*example).numpy()).max())


def attend(x: Tensor, mask: Tensor | None = None) -> Tensor:
    return F.scaled_dot_product_attention(x[None], x[None], x[None], attn_mask=mask)[0]


# --- one image ---------------------------------------------------------------------------------------


class Ends(nn.Module):
    """Where each image of a batch ends, as the model's own code has it."""

    def forward(self, grid: Tensor) -> Tensor:
        return torch.repeat_interleave(grid[:, 1] * grid[:, 2], grid[:, 0]).cumsum(0)


class Images(nn.Module):
    """Attention image by image."""

    def forward(self, x: Tensor, grid: Tensor) -> Tensor:
        ends = [0, *Ends()(grid).tolist()]
        return torch.cat([attend(x[a:b]) for a, b in itertools.pairwise(ends)])


def test_repeat_interleave_over_the_grid_does_not_convert(convert: Run) -> None:
    with pytest.raises(ValueError, match="const"):
        convert(Ends(), torch.tensor([[1, 4, 8]]))


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore:.*torch.jit:DeprecationWarning")
def test_a_loop_over_images_is_traced_for_one_grid_alone() -> None:
    x, one, two = random(ROWS, WIDTH), torch.tensor([[1, 4, 8]]), torch.tensor([[1, 4, 4], [1, 4, 4]])
    traced = torch.jit.trace(Images(), (x, one), check_trace=False)
    torch.testing.assert_close(traced(x, one), attend(x))
    assert (traced(x, two) - Images()(x, two)).abs().max() > 0.1


# --- attention ---------------------------------------------------------------------------------------


class EagerMask(nn.Module):
    """Attention spelt out, with a mask filled block by block."""

    def forward(self, x: Tensor, ends: Tensor) -> Tensor:
        mask = torch.full((1, x.shape[0], x.shape[0]), torch.finfo(x.dtype).min)
        for i in range(1, len(ends)):
            mask[..., ends[i - 1] : ends[i], ends[i - 1] : ends[i]] = 0
        return (torch.softmax(x @ x.T / WIDTH**0.5 + mask[0], -1) @ x).reshape(-1, WIDTH)


class Attend(nn.Module):
    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return attend(x, mask.reshape(1, 1, -1))


def test_a_mask_filled_by_index_does_not_convert_and_one_operator_does(convert: Run) -> None:
    x, ends = random(ROWS, WIDTH), torch.tensor([0, ROWS])
    with pytest.raises(ValueError, match="dynamic index"):
        convert(EagerMask(), x, ends)
    none = torch.zeros(ROWS)
    torch.testing.assert_close(EagerMask()(x, ends), Attend()(x, none), atol=1e-5, rtol=1e-5)
    program = convert(Attend(), x, none)
    assert program.ops()["scaled_dot_product_attention"] == 1
    assert off(program, Attend(), x, none) < 1e-5


class Window(nn.Module):
    """Attention within a window, as other towers of the family have it."""

    def forward(self, x: Tensor) -> Tensor:
        place = torch.arange(x.shape[0])
        return attend(x, ((place[:, None] - place[None]).abs() < 8)[None])


def test_a_window_is_another_attention() -> None:
    x = random(ROWS, WIDTH)
    assert (Window()(x) - attend(x)).abs().max() > 0.1
    assert attend(x).shape == Window()(x).shape  # nothing but the numbers tells


def test_a_boolean_mask_arrives_as_another_type_and_minus_infinity_as_no_number(convert: Run) -> None:
    x = random(ROWS, WIDTH)
    program = convert(Attend(), x, torch.ones(ROWS) > 0)
    assert program.ops()["cast"] == 1  # Core ML has no boolean inputs
    assert program.input_types()["x1"] != "bool"
    as_float = convert(Attend(), x, torch.zeros(ROWS))
    assert as_float.ops()["cast"] == 0
    # A row that is masked as a whole, in float16: as the model's -inf, and as ours.
    scores = torch.zeros(4).half()
    assert torch.softmax(scores + float("-inf"), -1).isnan().all()
    assert torch.softmax(scores + torch.tensor(MASKED).half(), -1).isfinite().all()


# --- rotary tables -----------------------------------------------------------------------------------

FREQUENCIES = 10_000.0 ** -(torch.arange(0, 8, 2).float() / 8)


def wide(table: Tensor) -> Tensor:
    return torch.cat([table] * 4, -1)


class IntegerAngles(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * wide(torch.outer(torch.arange(x.shape[0]), FREQUENCIES).cos())


class FloatAngles(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * wide(torch.outer(torch.arange(x.shape[0]).float(), FREQUENCIES).cos())


def test_an_integer_arange_does_not_convert_and_a_float_one_does(convert: Run) -> None:
    x = random(ROWS, WIDTH)
    torch.testing.assert_close(IntegerAngles()(x), FloatAngles()(x))
    with pytest.raises(ValueError, match="int32"):
        convert(IntegerAngles(), x)
    assert off(convert(FloatAngles(), x), FloatAngles(), x) < 1e-6


class Inside(nn.Module):
    """Cosines made by the program from the patches' rows."""

    def forward(self, x: Tensor, rows: Tensor) -> Tensor:
        return x * wide((rows[:, None] * FREQUENCIES).cos())


class Given(nn.Module):
    def forward(self, x: Tensor, cosines: Tensor) -> Tensor:
        return x * cosines


def test_tables_made_inside_lose_float16_ten_times_what_given_ones_do(convert: Run) -> None:
    ones, rows = torch.ones(ROWS, WIDTH), torch.arange(ROWS).float() * 7  # an A3 page has 236 rows
    cosines = wide((rows[:, None] * FREQUENCIES).cos())
    inside = off(convert(Inside(), ones, rows, half=True), Inside(), ones, rows)
    given = off(convert(Given(), ones, cosines, half=True), Given(), ones, cosines)
    assert given < 5e-4 < 10 * given < inside


# --- float16, and what coremltools adds --------------------------------------------------------------


class PlainNorm(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5)


def test_a_plain_norm_of_large_activations_is_nothing_in_float16(convert: Run) -> None:
    large = random(ROWS, WIDTH) * 1000
    plain = off(convert(PlainNorm(), large, half=True), PlainNorm(), large)
    ours = off(convert(RMSNorm(WIDTH, 1e-5), large, half=True), PlainNorm(), large)
    assert plain > 1  # rows of zeros
    assert ours < 0.01


class NumberOverArray(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 1e-5 / x


class ArrayOverArray(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.new_full((1, 1), 1e-5) / x


def test_a_number_over_an_array_comes_out_with_something_added(convert: Run) -> None:
    x = torch.full((ROWS, WIDTH), 1e-3)
    assert off(convert(NumberOverArray(), x), NumberOverArray(), x) > 5e-4  # of 0.01
    assert off(convert(ArrayOverArray(), x), ArrayOverArray(), x) < 1e-8


# --- the evaluator itself ----------------------------------------------------------------------------


def test_an_op_without_a_definition_is_refused_by_name(convert: Run) -> None:
    class Erf(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.erf(x)

    with pytest.raises(NotImplementedError, match="erf"):
        convert(Erf(), random(ROWS, WIDTH)).run({"x0": np.zeros((ROWS, WIDTH), np.float32)})
