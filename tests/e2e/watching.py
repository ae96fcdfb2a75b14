"""`ocrd watch --serve` as a process of its own, with a folder and a home below one directory."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
START_S = 90.0  # on a machine that has other things to do


@dataclass(frozen=True)
class Watching:
    """Where a running daemon is reached, and what it watches."""

    url: str
    folder: Path
    home: Path


@contextlib.contextmanager
def watch(base: Path, engine: str = "tesseract") -> Iterator[Watching]:
    """Watch `base`/Papers until the block ends. Raises: `RuntimeError` when the daemon does not begin to serve."""
    folder, home = base / "Papers", base / "home"
    folder.mkdir(parents=True, exist_ok=True)
    command = [
        sys.executable,
        "-m",
        "daemon",
        "watch",
        str(folder),
        "--serve",
        "--port",
        "0",
        "--home",
        str(home),
    ]
    command += ["--engine", engine, "--workers", "1", "--out", str(base / "out")]
    environment = os.environ | {"OCRD_SETTLE_S": "0.3", "OCRD_CALIBRATE": "false"}
    with (base / "daemon.log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=log, start_new_session=True
        )
    try:
        yield Watching(_address(process, base / "daemon.log"), folder, home)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        assert process.stdout is not None
        process.stdout.close()


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    """What the daemon says it serves."""
    assert process.stdout is not None
    said = b""
    deadline = time.monotonic() + START_S
    while (left := deadline - time.monotonic()) > 0:
        if not select.select([process.stdout], [], [], left)[0]:
            break
        part = os.read(process.stdout.fileno(), 4096)
        if not part:
            break
        said += part
        if found := re.search(rb"serving (http://\S+)/\s", said + log.read_bytes()):
            return found[1].decode()
    raise RuntimeError(
        f"the daemon serves nothing: {(said + log.read_bytes()).decode(errors='replace')[-2000:]}"
    )
