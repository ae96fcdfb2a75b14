"""What is told of processes whose temporary files are found."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from storage import staging


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux's /proc")
def test_a_process_that_ended_and_is_not_buried_does_not_run(tmp_path: Path) -> None:
    """As the workers of a killed supervisor, until init looks after them."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert staging.is_running(child.pid)
        half = tmp_path / f".ocrd-{staging._HOST}-{child.pid}-{'0' * 12}.tmp"
        half.touch()
        assert staging.sweep(os.fsencode(tmp_path), time.time()) == 0
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert not staging.is_running(child.pid)
        assert staging.sweep(os.fsencode(tmp_path), time.time()) == 1
    assert not half.exists()
