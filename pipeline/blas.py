"""Give MLX on a Linux CPU a fast BLAS, and say how to get one where there is none.

The mlx-cpu wheel links the reference BLAS; OpenBLAS loaded before it takes over its symbols (measured on 2 cores,
fp32 1024³: 2.8 against 80 GFLOP/s and more).
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys

HINT = (
    "MLX runs on a slow reference BLAS here; `apt install libopenblas0-pthread` (or your system's OpenBLAS) "
    "makes it 20 times faster"
)
NAMES = ("libopenblas.so.0", "libopenblasp.so.0", "libopenblas.so")


@functools.cache
def preload() -> str | None:
    """Load OpenBLAS for the symbols MLX looks up; must run before the first `import mlx.core`.

    Returns the library's name; None where none is found or none is needed (not Linux: Accelerate or Metal serve).
    """
    if not sys.platform.startswith("linux"):
        return None
    # Thin rows (decoding) run twice as fast with this kernel on AVX-512 machines as with the one OpenBLAS picks.
    os.environ.setdefault("OPENBLAS_CORETYPE", "HASWELL")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", os.environ.get("OMP_NUM_THREADS", "1"))
    for name in NAMES:
        try:
            ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
        except OSError:
            continue
        return name
    return None


def hint() -> str | None:
    """What to do to make MLX faster here, or None where nothing needs doing."""
    return HINT if sys.platform.startswith("linux") and preload() is None else None
