"""A disk of a few megabytes, filled and emptied at will (tmpfs; needs root on Linux)."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.faults.scenario import Skipped


class SmallDisk:
    """A mounted tmpfs."""

    def __init__(self, place: Path, size_mb: int) -> None:
        self.place = place
        self.size_mb = size_mb

    @property
    def _filler(self) -> Path:
        return self.place / "filler"

    def fill(self, leave_bytes: int = 0) -> None:
        """Leave no more free than that."""
        free = shutil.disk_usage(self.place).free
        with self._filler.open("ab") as file:
            piece = b"\0" * (64 << 10)
            with contextlib.suppress(OSError):
                while free > leave_bytes:
                    file.write(piece[: min(len(piece), free - leave_bytes)])
                    file.flush()
                    free = shutil.disk_usage(self.place).free

    def empty(self) -> None:
        """Give the space back."""
        self._filler.unlink(missing_ok=True)

    def read_only(self, on: bool) -> None:
        """Refuse writing, or allow it again; files open for writing are waited for."""
        deadline = time.monotonic() + 20
        words = ["mount", "-o", f"remount,{'ro' if on else 'rw'}", str(self.place)]
        while subprocess.run(words, capture_output=True, check=False).returncode:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{' '.join(words)} fails")
            time.sleep(0.01)


def _mount(place: Path, size_mb: int) -> bool:
    words = ["mount", "-t", "tmpfs", "-o", f"size={size_mb}m,mode=0755", "tmpfs", str(place)]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


@contextlib.contextmanager
def small_disk(place: Path, size_mb: int) -> Iterator[SmallDisk]:
    """Mount it at `place`, which is made; unmounted at the end. Raises: `Skipped`."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        raise Skipped("a small disk needs Linux and root")
    place.mkdir(parents=True)
    if not _mount(place, size_mb):
        raise Skipped("mounting a tmpfs is refused here")
    try:
        yield SmallDisk(place, size_mb)
    finally:
        subprocess.run(["umount", "-l", str(place)], capture_output=True, check=False)
