"""Documents on their way from a request to a worker: private files in the home, gone once nobody reads them."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from daemon.asks.places import asks_folder
from storage.staging import Staging, sweep


class Staged:
    """The files of one request; `close` removes them."""

    def __init__(self, home: Path) -> None:
        self._stage = Staging(os.fsencode(asks_folder(home)), 0o600)

    @contextlib.contextmanager
    def file(self) -> Iterator[BinaryIO]:
        """A new file to write to; on disk, as far as readers see, at the end of the block."""
        file = self._stage.open()
        yield file
        file.flush()

    @property
    def paths(self) -> list[str]:
        """Where they lie."""
        return [os.fsdecode(path) for path in self._stage.paths]

    def close(self) -> None:
        """Remove them, whoever reads them still."""
        self._stage.discard()


def sweep_left(home: Path) -> None:
    """Remove what a server that died left."""
    with contextlib.suppress(OSError):
        sweep(os.fsencode(asks_folder(home)), time.time())
