"""Run the program of a saved .mlpackage op by op, without Core ML: the proof, on any machine, of what was saved.

The package is read back from disk by coremltools' own loader (spec, weights, compressed weights), and each op of
`main` computed as its definition says (coremltools, `converters/mil/mil/ops/defs`), with torch. It shows that the
program is right; how Core ML's devices round, only a Mac can show. Needs torch and coremltools (extra `convert`).
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pipeline.convert import extra, mil_ops
from storage.errors import ModelError, first_line


class MilProgram:
    """A package's program, in memory."""

    def __init__(self, package: Path) -> None:
        """Raises: `ModelError` where the folder is no package that can be read."""
        coremltools = extra.coremltools()
        from coremltools.converters.mil.frontend.milproto.load import load

        try:
            model = coremltools.models.MLModel(str(package), skip_model_load=True)
            spec = model.get_spec()
            program = load(
                spec, specification_version=spec.specificationVersion, file_weights_dir=model.weights_dir
            )
        except Exception as error:  # coremltools raises anything, bare Exception included
            raise ModelError(
                f"the package's program cannot be read ({first_line(error)})", file=package
            ) from error
        self._main = program.functions["main"]

    def ops(self) -> Counter[str]:
        """How often each kind of op is there, constants aside."""
        return Counter(op.op_type for op in self._main.operations if op.op_type != "const")

    def input_types(self) -> dict[str, str]:
        """The types that the program's inputs have, as MIL names them."""
        from coremltools.converters.mil.mil.types import builtin_to_string

        return {name: builtin_to_string(var.dtype) for name, var in self._main.inputs.items()}

    def run(self, feeds: dict[str, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
        """The program's output as float32. Raises: NotImplementedError for an op we do not know."""
        known: dict[str, Any] = {}
        for name, kind in self.input_types().items():
            known[name] = torch.from_numpy(np.ascontiguousarray(feeds[name])).to(mil_ops.TYPES[kind])
        uses = Counter(_names(self._main.operations))
        with torch.inference_mode():
            for op in self._main.operations:
                if op.op_type == "const":
                    continue  # looked up where it is used: weights need not be in memory all at once
                results = mil_ops.compute(op, lambda var: _value(var, known))
                for var, result in zip(op.outputs, results, strict=True):
                    known[var.name] = result
                _forget(op, uses, known)
            output = known[self._main.outputs[0].name]
        return np.asarray(output.float().numpy())


def _value(var: Any, known: dict[str, Any]) -> Any:
    """What a variable stands for: a tensor computed or constant, or a plain value."""
    if isinstance(var, list | tuple):
        return [_value(one, known) for one in var]
    if var.name in known:
        return known[var.name]
    value = var.val
    if isinstance(value, np.ndarray) and value.ndim:
        return torch.from_numpy(value) if value.flags.writeable else torch.from_numpy(value.copy())
    return value.item() if isinstance(value, np.generic | np.ndarray) else value


def _variables(op: Any) -> list[Any]:
    found = []
    for var in op.inputs.values():
        found += list(var) if isinstance(var, list | tuple) else [var]
    return [var for var in found if var is not None]


def _names(operations: Any) -> list[str]:
    return [var.name for op in operations for var in _variables(op)]


def _forget(op: Any, uses: Counter[str], known: dict[str, Any]) -> None:
    """Let go of what no later op reads: a page's activations are large."""
    for var in _variables(op):
        uses[var.name] -= 1
        if not uses[var.name]:
            known.pop(var.name, None)
