"""The vision tower and the projector alone, as an .npz under stable names; written tensor by tensor."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pipeline.convert.names import Part
from pipeline.convert.plan import Entry, Plan
from storage.errors import ModelError, from_os_error
from storage.staging import Staging, require_space

Dtype = Literal["float32", "float16"]


@dataclass(frozen=True, slots=True)
class Written:
    """What went into the file. `left_out`: names of the checkpoint's other tensors."""

    path: Path
    tensors: int
    size_bytes: int
    dtype: Dtype
    projector_out: int  # columns the projector gives
    hidden: int  # columns the language model takes
    left_out: tuple[str, ...]


def write(
    plan: Plan, out: Path, dtype: Dtype = "float32", *, on_tensor: Callable[[int, int], None] | None = None
) -> Written:
    """Write `out` whole or not at all; what was there is replaced.

    float32 holds whatever was stored exactly; numpy has no bfloat16. Arrays are in PyTorch's layout. At most one tensor
    is in memory. `on_tensor` is told how many of how many are written.

    Raises: `ModelError` where float16 cannot hold a value, `DiskFullError` before or while writing.
    """
    entries = plan.of(Part.VISION, Part.PROJECTOR)
    needed = sum(int(np.prod(e.expected.shape)) for e in entries) * np.dtype(dtype).itemsize
    with _storage_errors(out), Staging(os.fsencode(out.parent), 0o666) as stage:
        require_space(out.parent, needed, remedy="free some space, or write to another disk")
        file = stage.open()
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for number, entry in enumerate(entries, 1):
                _add(archive, entry, dtype)
                if on_tensor is not None:
                    on_tensor(number, len(entries))
        stage.publish(os.fsencode(out))
    left_out = tuple(e.expected.source for e in plan.of(Part.LANGUAGE)) + plan.left_out
    projector = plan.entries["vision_tower.merger.mlp.2.weight"].expected.shape[0]
    return Written(
        out, len(entries), out.stat().st_size, dtype, projector, plan.sizes.hidden, left_out
    )  # fmt: skip


def _add(archive: zipfile.ZipFile, entry: Entry, dtype: Dtype) -> None:
    name = entry.expected.stable
    assert name is not None  # the table names all of the vision tower
    values = narrowed(entry.read(), dtype, entry.expected.source)
    info = zipfile.ZipInfo(f"{name}.npy")  # a fixed date: the same weights give the same file
    with archive.open(info, "w", force_zip64=True) as member:
        np.lib.format.write_array(member, values, allow_pickle=False)  # type: ignore[no-untyped-call]  # numpy's


def narrowed(values: NDArray[np.float32], dtype: Dtype, name: str) -> NDArray[np.floating]:
    """The values in `dtype`. Raises: `ModelError` where a finite one would become infinite."""
    if dtype == "float32":
        return values
    largest = float(np.abs(values).max(initial=0.0))
    if largest > float(np.finfo(np.float16).max):
        raise ModelError(
            f"{name} has a value of {largest:.3g}, which float16 cannot hold",
            remedy="take float32 or bfloat16",
        )
    return values.astype(np.float16)


@contextmanager
def _storage_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        failure = from_os_error(error, file=path)
        failure.remedy = "nothing was written; " + {
            "disk_full": "free some space and run it again", "vanished": "make its folder first",
            "permission": "choose a folder you may write to",
        }.get(failure.code, "run it again")  # fmt: skip
        raise failure from error
