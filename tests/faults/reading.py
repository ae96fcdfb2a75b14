"""Damaged and malicious files through the readers, in a child with limits: each is read, or refused in plain words."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import select
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from tests.faults import bombs, inputs
from tests.faults.house import require
from tests.faults.scenario import Ground

ROOT = Path(__file__).parent.parent.parent
MEMORY_MB = 1500.0
SMALL_FILE_S = 60.0  # on a busy machine; a small file takes milliseconds
_OBJECT = re.compile(rb"\d+ 0 obj\b.*?\bendobj", re.DOTALL)
_NUMBER = re.compile(rb"\d{1,8}")


class Reader:
    """The child, started again where it died."""

    def __init__(self, dpi: float, pages: int) -> None:
        self.arguments = [str(dpi), str(pages)]
        self.process: subprocess.Popen[bytes] | None = None

    def read(self, path: Path, within_s: float) -> dict[str, object]:
        """What became of a file; `hang` and `crash` are outcomes of the child's."""
        if self.process is None:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.faults.reader_child", *self.arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=ROOT,
                env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
            )
        assert self.process.stdin is not None and self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(os.fsencode(path) + b"\n")
            self.process.stdin.flush()
        ready, _, _ = select.select([self.process.stdout], [], [], within_s)
        line = self.process.stdout.readline() if ready else b""
        if line:
            return dict(json.loads(line))
        outcome = "crash" if ready else "hang"
        return {
            "outcome": outcome,
            "detail": f"exit {self.close()}",
            "peak_mb": 0.0,
            "pages": 0,
            "seconds": within_s,
        }

    def close(self) -> int:
        """End the child; returns its exit status, or the signal that ended it before, negative."""
        if self.process is None:
            return 0
        process, self.process = self.process, None
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1.0)
        if process.poll() is None:
            process.kill()
        status = process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        return status


def seeds_for_mutation() -> list[tuple[str, bytes]]:
    """Small files of every kind: name and content."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        inputs.make(Path(folder))
        found = [(path.name, path.read_bytes()) for path in sorted(Path(folder).rglob("*")) if path.is_file()]
    found += [(path.name, path.read_bytes()) for path in sorted((ROOT / "samples").iterdir())]
    found += bombs.odd_pdfs()
    return [(name, data) for name, data in found if data and len(data) < 400_000]


def mutate(data: bytes, rng: random.Random) -> bytes:
    """One to three seeded damages."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        data = rng.choice(_MUTATIONS)(data, rng) or data
    return data


def _flip(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 2, 8, 40))):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _flip_head(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 3))):
        changed[rng.randrange(min(len(changed), 400))] = rng.randrange(256)
    return bytes(changed)


def _truncate(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(1, len(data) + 1)]


def _swap_pieces(data: bytes, rng: random.Random) -> bytes:
    if len(data) < 64:
        return data
    a, b, c = sorted(rng.sample(range(len(data)), 3))
    return data[:a] + data[b:c] + data[a:b] + data[c:]


def _repeat_piece(data: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(data))
    piece = data[start : start + rng.randrange(1, 2000)]
    return data[:start] + piece * rng.choice((2, 3, 20)) + data[start:]


def _wipe(data: bytes, rng: random.Random) -> bytes:
    start, length = rng.randrange(len(data)), rng.randrange(1, 600)
    fill = rng.choice((b"\0", b"\xff", b" ")) * length if rng.random() < 0.6 else rng.randbytes(length)
    return data[:start] + fill + data[start + length :]


def _swap_objects(data: bytes, rng: random.Random) -> bytes:
    found = list(_OBJECT.finditer(data))
    if len(found) < 2:
        return _swap_pieces(data, rng)
    first, second = sorted(rng.sample(found, 2), key=lambda match: match.start())
    return b"".join(
        (data[: first.start()], second[0], data[first.end() : second.start()], first[0], data[second.end() :])
    )


def _change_number(data: bytes, rng: random.Random) -> bytes:
    found = list(_NUMBER.finditer(data))
    if not found:
        return _flip(data, rng)
    match = rng.choice(found)
    number = rng.choice((b"0", b"-1", b"1", b"65536", b"2147483647", b"4294967296", b"99999999999999999999"))
    return data[: match.start()] + number + data[match.end() :]


_MUTATIONS = (
    _flip,
    _flip,
    _flip_head,
    _truncate,
    _swap_pieces,
    _repeat_piece,
    _wipe,
    _swap_objects,
    _change_number,
)


def mutations(ground: Ground) -> None:
    """10,000 seeded mutations of small files: no hang, no bug, no memory beyond the limit."""
    seeds, reader = seeds_for_mutation(), Reader(dpi=72, pages=3)
    outcomes: Counter[str] = Counter()
    slowest, most = 0.0, 0.0
    crashes: list[str] = []
    path = ground.folder / "mutated"
    ground.folder.mkdir(parents=True, exist_ok=True)
    try:
        for number in ground.times(10_000, 200):
            rng = random.Random(f"{ground.seed} {number}")
            name, data = rng.choice(seeds)
            path.write_bytes(mutate(data, rng))
            found = reader.read(path, SMALL_FILE_S)
            outcomes[str(found["outcome"])] += 1
            slowest, most = (
                max(slowest, float(str(found["seconds"]))),
                max(most, float(str(found["peak_mb"]))),
            )
            if found["outcome"] in ("hang", "bug", "crash") or most > MEMORY_MB:
                kept = ground.folder / f"{found['outcome']}-{number}-{name}"
                kept.write_bytes(path.read_bytes())
                crashes.append(f"{kept.name}: {str(found['detail'])[-700:]}")
            require(most <= MEMORY_MB, f"mutation {number} of {name} took {most:.0f} MiB")
    finally:
        reader.close()
    ground.note(
        f"{sum(outcomes.values())} mutations: {dict(outcomes)}; slowest {slowest:.1f} s, most {most:.0f} MiB"
    )
    require(not crashes, "\n".join(crashes[:10]))


def decompression_bombs(ground: Ground) -> None:
    """Small files that unpack to gigabytes or take for ever: within 1.5 GB, each read or refused."""
    ground.folder.mkdir(parents=True, exist_ok=True)
    broken = []
    makers = bombs.SMALL if ground.small else bombs.ALL
    reader = Reader(dpi=200, pages=2)
    for name, make in makers.items():
        path = ground.folder / name
        path.write_bytes(make())
        began = time.monotonic()
        try:
            found = reader.read(path, 240)
        finally:
            if not ground.small:  # what one takes is not hidden by what another took
                reader.close()
        peak, outcome = float(str(found["peak_mb"])), str(found["outcome"])
        ground.note(
            f"{name}: {path.stat().st_size:,} bytes, {outcome} {str(found['detail'])[-60:]!r}, {peak:.0f} MiB,"
            f" {time.monotonic() - began:.1f} s"
        )
        if outcome not in ("read", "refused") or peak > MEMORY_MB:
            broken.append(f"{name}: {outcome} {found['detail']}, {peak:.0f} MiB")
        path.unlink()
    reader.close()
    require(not broken, "\n".join(broken))
