"""What a pass of k rows costs on this machine, and how far its logits are from those of single rows.

Measured once per machine, model, quantisation and MLX, and kept as JSON. From it come the schedule's cost curve, the
widest block that is equal to single rows bit for bit, and the near-tie margin τ of `verify = "exact"`.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from storage import staging

if TYPE_CHECKING:
    from pipeline.adapter.loading import LoadedModel
    from pipeline.adapter.measuring import RowDifference
    from pipeline.target import Session

log = logging.getLogger(__name__)

FORMAT = 1
CONTEXT = 1024  # tokens before the blocks: a page's image, or the better part of it
# Up to 8 every other kernel switches; beyond, tiles are 16 or 32 rows wide.
SIZES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64)
COMPARED = (2, 3, 4, 5, 6, 8, 12, 16, 32, 64)  # each costs as many single passes
BUDGET_S = 8.0  # for costs; comparing takes about 150 single passes on top
_ROUNDS = 9
_WARM_UP = 300  # single passes at most, until a ring cache takes the widest block
# A choice can flip where its margin is under twice the largest change of a logit; twice that, for what was not seen.
_TAU_FACTOR = 4.0
_TEXT = """The minutes of the meeting of 14 March were read and approved. Mr. Harlow reported receipts of $1,284.50 and
payments of $977.15, which leaves a balance of $307.35. | Item | Price | Quantity | was laid on the table. # Results
Figure 3 shows that the error falls with the number of samples (see Table 2, page 118); for n > 50 it is below 0.1%.
"""


@dataclass(frozen=True, slots=True)
class RowCost:
    """A pass of `rows` rows: its time against a pass of one, and how its logits differ from single rows'.

    `equal`, `logit` and `margin` are None for sizes that were timed only.
    """

    rows: int
    cost: float
    equal: bool | None = None
    logit: float | None = None
    margin: float | None = None
    same_ids: bool | None = None


@dataclass(frozen=True, slots=True)
class Calibration:
    """What was measured of one model on one machine.

    `costs`: rows → cost, one row = 1. `equal_upto`: blocks up to this many rows give single rows' logits bit for bit.
    `tau`: margin under which a row of a wider block is decided again; 0 where no block differs.
    """

    costs: Mapping[int, float]
    equal_upto: int
    tau: float
    rows: tuple[RowCost, ...] = ()
    single_ms: float = 0.0
    context: int = 0
    measured_at: float = 0.0  # epoch seconds
    seconds: float = 0.0

    @property
    def widest(self) -> int:
        """The widest block measured."""
        return max(self.costs)


def conclude(
    times: Mapping[int, float],
    differences: Mapping[int, RowDifference],
    *,
    context: int = 0,
    now: float = 0.0,
    seconds: float = 0.0,
) -> Calibration:
    """The calibration that follows from seconds per pass and from differences, both by number of rows.

    Raises: `ValueError` without a time for one row.
    """
    if not times.get(1, 0) > 0:
        raise ValueError("a calibration needs the time of a pass of one row")
    costs: dict[int, float] = {}
    least = float("inf")
    for rows in sorted(times, reverse=True):
        # A small block can be padded to a larger one: that it should cost more than that is noise.
        least = min(least, times[rows])
        costs[rows] = least
    costs = {rows: costs[rows] / least for rows in sorted(costs)}
    equal_upto = 1
    for rows in sorted(differences):
        if not differences[rows].equal:
            break
        equal_upto = rows
    unequal = [d for rows, d in differences.items() if rows > equal_upto]
    tau = _TAU_FACTOR * max((d.logit for d in unequal), default=0.0)
    return Calibration(
        costs, equal_upto, tau,
        tuple(_row(rows, cost, differences.get(rows)) for rows, cost in costs.items()),
        least * 1e3, context, now, seconds,
    )  # fmt: skip


def _row(rows: int, cost: float, difference: RowDifference | None) -> RowCost:
    if difference is None:
        return RowCost(rows, cost, *((True, 0.0, 0.0, True) if rows == 1 else ()))
    return RowCost(rows, cost, difference.equal, difference.logit, difference.margin, difference.ids)


# --- measuring ---------------------------------------------------------------------------------------------


def measure(loaded: LoadedModel, *, now: float, budget_s: float = BUDGET_S) -> Calibration:
    """Run the model on a page's worth of text. About 10 s for a large model, less for a small one.

    Raises: `EngineError`, `OutOfMemoryError`.
    """
    from pipeline.adapter.measuring import compare, text_session

    started = time.perf_counter()
    tokens = _tokens(loaded.tokenizer)
    prompt = [tokens[i % len(tokens)] for i in range(CONTEXT)]

    def feed(count: int, offset: int = 0) -> list[int]:
        return [tokens[(CONTEXT + offset + i) % len(tokens)] for i in range(count)]

    single, block = text_session(loaded, prompt), text_session(loaded, prompt)
    single.start(), block.start()
    sizes = [size for size in SIZES if make_room(block, size, feed(1))]
    while single.length < block.length:
        _advance(single, feed(1))
    times = time_passes(block, sizes, feed, budget_s=budget_s)
    while single.length < block.length:  # timing kept some single tokens
        _advance(single, feed(1))
    differences = {}
    for size in COMPARED:
        if size in sizes and block.room() >= size:
            differences[size] = compare(block, single, feed(size, size))
    return conclude(
        times, differences, context=block.length, now=now, seconds=time.perf_counter() - started
    )  # fmt: skip


def _tokens(tokenizer: Any) -> list[int]:
    return [int(i) for i in tokenizer.encode(_TEXT, add_special_tokens=False)]


def make_room(session: Session, size: int, token: Sequence[int]) -> bool:
    """Write single tokens until a block of `size` fits; False where it never does."""
    for _ in range(_WARM_UP):
        if session.room() >= size:
            return True
        _advance(session, token)
    return False


def _advance(session: Session, token: Sequence[int]) -> None:
    session.forward(token)
    session.trim(0)


def time_passes(
    session: Session,
    sizes: Sequence[int],
    feed: Callable[[int], Sequence[int]],
    *,
    budget_s: float,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[int, float]:
    """Seconds of a pass by number of rows: the least of several rounds, since whatever else runs only adds.

    Sizes take turns, so that a slow moment of the machine does not fall on one of them. One round at least.
    """
    best: dict[int, float] = {}
    began = clock()
    for size in sizes:  # compile and warm up
        _timed(session, feed(size), clock)
    for _ in range(_ROUNDS):
        for size in sizes:
            taken = _timed(session, feed(size), clock)
            best[size] = min(taken, best.get(size, taken))
        if clock() - began > budget_s:
            break
    return best


def _timed(session: Session, tokens: Sequence[int], clock: Callable[[], float]) -> float:
    started = clock()
    session.forward(tokens, margins=True)
    taken = clock() - started
    session.trim(len(tokens) if len(tokens) > 1 else 0)  # a ring cache cannot take a single token back
    return taken


# --- keeping -----------------------------------------------------------------------------------------------


def machine() -> dict[str, object]:
    """What tells this machine's speed and arithmetic from another's."""
    from pipeline import blas

    return {
        "system": sys.platform, "architecture": platform.machine(), "chip": _chip(), "cores": os.cpu_count(),
        "release": platform.release(), "blas": blas.preload(),
        "threads": os.environ.get("OPENBLAS_NUM_THREADS"), "kernel": os.environ.get("OPENBLAS_CORETYPE"),
    }  # fmt: skip


def _chip() -> str:
    try:
        if sys.platform == "darwin":
            command = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
            return subprocess.run(
                command, capture_output=True, text=True, timeout=5, check=True
            ).stdout.strip()
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except (OSError, subprocess.SubprocessError):
        pass
    return platform.processor()


def key(loaded: LoadedModel, fingerprint: str, more: str = "") -> str:
    """The name a calibration is kept under: machine, model (`fingerprint`), precision, MLX, mlx-vlm and `more`."""
    from importlib.metadata import version

    parts = {
        "format": FORMAT, "more": more, "machine": machine(), "model": fingerprint,
        "device": loaded.device, "dtype": loaded.dtype,
        "quantisation": loaded.checkpoint.config.get("quantization"),
        "mlx": version("mlx"), "mlx-vlm": version("mlx-vlm"),
    }  # fmt: skip
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:32]


def load_or_measure(
    folder: Path, name: str, take: Callable[[], Calibration], *, again: bool = False
) -> Calibration:
    """The calibration kept in `folder` under `name` (see `key`), else what `take` measures, then kept.

    One process measures at a time: others would spoil its figures, and need them anyway. `again`: measure anew.
    """
    path = folder / f"{name}.json"
    with locked(folder):
        kept = None if again else read(path)
        if kept is not None:
            return kept
        calibration = take()
        _write(path, calibration)
    return calibration


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """The right to measure, of one process at a time; `folder` is made."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def read(path: Path) -> Calibration | None:
    """The calibration at `path`; None where there is none that can be read: it is measured again then."""
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
        body["costs"] = {int(rows): float(cost) for rows, cost in body["costs"].items()}
        body["rows"] = tuple(RowCost(**row) for row in body["rows"])
        found = Calibration(**body)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        log.warning("the calibration kept cannot be read, it is taken again: %s", type(error).__name__)
        return None
    return found if found.costs.get(1) == 1.0 and found.tau >= 0 else None


def _write(path: Path, calibration: Calibration) -> None:
    staging.write_file(path, json.dumps(asdict(calibration), indent=1).encode())
