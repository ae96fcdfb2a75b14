"""What each op of a MIL program computes, in torch: one small function an op, by its name in coremltools.

Only what the vision tower's programs have, on either target and with compressed weights; anything else is refused by
name. Types are the program's: a float16 op is computed in float16.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Given = dict[str, Any]  # an op's inputs by name, those left out absent
_OPS: dict[str, Callable[[Given], Any]] = {}
TYPES = {
    "fp16": torch.float16,
    "fp32": torch.float32,
    "int32": torch.int32,
    "int16": torch.int16,
    "uint16": torch.int32,
    "bool": torch.bool,
}


def compute(op: Any, value_of: Callable[[Any], Any]) -> Sequence[Any]:
    """The values of an op's outputs, in order. Raises: NotImplementedError naming an op we do not know."""
    if op.op_type.startswith("constexpr_"):
        return [torch.from_numpy(op.materialized_val_inference())]
    function = _OPS.get(op.op_type)
    if function is None:
        raise NotImplementedError(f"no definition of the MIL op {op.op_type} ({op.name})")
    given = {name: value_of(var) for name, var in op.inputs.items() if var is not None}
    result = function({name: value for name, value in given.items() if value is not None})
    return result if isinstance(result, list | tuple) else [result]


def _op(function: Callable[[Given], Any]) -> Callable[[Given], Any]:
    """Enter a definition under its name less the underscore."""
    _OPS[function.__name__.removeprefix("_")] = function
    return function


def _ints(value: Any) -> list[int]:
    return [int(i) for i in (value.tolist() if isinstance(value, Tensor) else value)]


def _both(given: Given) -> tuple[Any, Any]:
    """x and y, a plain number as the other's type: in MIL both have one type."""
    x, y = given["x"], given["y"]
    kind = next(value.dtype for value in (x, y) if isinstance(value, Tensor))
    return tuple(v if isinstance(v, Tensor) else torch.tensor(v, dtype=kind) for v in (x, y))


@_op
def _cast(given: Given) -> Tensor:
    return torch.as_tensor(given["x"]).to(TYPES[given["dtype"]])


@_op
def _add(given: Given) -> Tensor:
    x, y = _both(given)
    return x + y


@_op
def _mul(given: Given) -> Tensor:
    x, y = _both(given)
    return x * y


@_op
def _real_div(given: Given) -> Tensor:
    x, y = _both(given)
    return x / y


@_op
def _abs(given: Given) -> Tensor:
    return given["x"].abs()


@_op
def _cos(given: Given) -> Tensor:
    return given["x"].cos()


@_op
def _clip(given: Given) -> Tensor:
    return given["x"].clamp(given["alpha"], given["beta"])


@_op
def _inverse(given: Given) -> Tensor:
    return 1.0 / (given["x"] + given.get("epsilon", 1e-4))


@_op
def _rsqrt(given: Given) -> Tensor:
    return torch.rsqrt(given["x"] + given.get("epsilon", 1e-12))


@_op
def _reduce_mean(given: Given) -> Tensor:
    x = given["x"]
    # Summed in float32, as Core ML's devices accumulate; stored as the program says.
    return x.float().mean(_ints(given["axes"]), keepdim=bool(given["keep_dims"])).to(x.dtype)


@_op
def _reduce_max(given: Given) -> Tensor:
    return given["x"].amax(_ints(given["axes"]), keepdim=bool(given["keep_dims"]))


@_op
def _reshape(given: Given) -> Tensor:
    shape = _ints(given["shape"])
    x = given["x"]
    return x.reshape([x.shape[i] if size == 0 else size for i, size in enumerate(shape)])


@_op
def _transpose(given: Given) -> Tensor:
    return given["x"].permute(_ints(given["perm"]))


@_op
def _expand_dims(given: Given) -> Tensor:
    x = given["x"]
    for axis in sorted(_ints(given["axes"])):
        x = x.unsqueeze(axis)
    return x


@_op
def _squeeze(given: Given) -> Tensor:
    x = given["x"]
    axes = [axis % x.ndim for axis in _ints(given["axes"])]
    return x.reshape([size for axis, size in enumerate(x.shape) if axis not in axes])


@_op
def _concat(given: Given) -> Tensor:
    values = [torch.as_tensor(value) for value in given["values"]]
    if not values[0].ndim:
        return torch.stack(values)
    return torch.cat(values, int(given["axis"]))


@_op
def _split(given: Given) -> Any:
    x, axis = given["x"], int(given["axis"])
    if "split_sizes" in given:
        return torch.split(x, _ints(given["split_sizes"]), axis)
    return torch.chunk(x, int(given["num_splits"]), axis)


@_op
def _slice_by_index(given: Given) -> Tensor:
    x = given["x"]
    begin, end = _ints(given["begin"]), _ints(given["end"])
    nothing = [False] * x.ndim
    from_start, to_end, single = (
        list(given.get(name, nothing)) for name in ("begin_mask", "end_mask", "squeeze_mask")
    )
    steps = _ints(given["stride"]) if "stride" in given else [1] * x.ndim
    cut = tuple(
        begin[axis]
        if single[axis]
        else slice(
            None if from_start[axis] else begin[axis], None if to_end[axis] else end[axis], steps[axis]
        )
        for axis in range(x.ndim)
    )
    return x[cut]


@_op
def _linear(given: Given) -> Tensor:
    return F.linear(given["x"], given["weight"], given.get("bias"))


@_op
def _matmul(given: Given) -> Tensor:
    x, y = given["x"], given["y"]
    if given.get("transpose_x"):
        x = x.transpose(-1, -2)
    if given.get("transpose_y"):
        y = y.transpose(-1, -2)
    return x @ y


@_op
def _conv(given: Given) -> Tensor:
    if given["pad_type"] != "valid" or set(_ints(given["dilations"])) != {1}:
        raise NotImplementedError("a convolution with padding or dilation")
    return F.conv2d(
        given["x"], given["weight"], given.get("bias"), stride=_ints(given["strides"]), groups=given["groups"]
    )


@_op
def _softmax(given: Given) -> Tensor:
    return torch.softmax(given["x"], int(given["axis"]))


@_op
def _scaled_dot_product_attention(given: Given) -> Tensor:
    return F.scaled_dot_product_attention(
        given["query"], given["key"], given["value"], attn_mask=given.get("attn_mask")
    )


@_op
def _silu(given: Given) -> Tensor:
    return F.silu(given["x"])


@_op
def _gelu(given: Given) -> Tensor:
    return F.gelu(given["x"], approximate="none" if given.get("mode", "EXACT") == "EXACT" else "tanh")


@_op
def _layer_norm(given: Given) -> Tensor:
    x = given["x"]
    sizes = [x.shape[axis] for axis in _ints(given["axes"])]
    return F.layer_norm(x, sizes, given.get("gamma"), given.get("beta"), float(given["epsilon"]))
