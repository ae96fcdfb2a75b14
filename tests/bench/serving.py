"""What `POST /v1/chat/completions` adds to a page: the same page read by the engine directly and through the server.

    .venv/bin/python tests/bench/serving.py [--engine fake|tesseract|classic|tiny] [--rounds 40] FILE…

Both sides read with one worker's settings and one thread, in turns, so that whatever else the machine does hits both
alike. The direct side opens the file, prepares and reads its first page in this process; the served side sends the
file as a data URL over a kept connection and waits for the whole answer. Prints medians, the median of the differences
of neighbouring rounds (less moved by drift than the difference of medians), and the processor time of all processes
that take part: what is left to go by on a busy machine.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

for variable in ("OMP_THREAD_LIMIT", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[variable] = "1"  # as workers have it

import httpx  # noqa: E402  # after what decides on threads
import psutil  # noqa: E402

from pipeline.document import DocumentReader  # noqa: E402
from pipeline.engines import registry  # noqa: E402
from storage.settings import load  # noqa: E402


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--engine", default="fake")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("files", nargs="+", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        flags: dict[str, object] = {"home": home, "engine": options.engine, "workers": 1, "calibrate": False}
        if options.engine == "tiny":
            flags |= {"engine": "vlm", "model": "tiny", "features_gb": 0}
        settings = load(flags, {})
        (Path(home) / "ocrd.toml").write_text(
            "".join(f"{name} = {json.dumps(value)}\n" for name, value in flags.items() if name != "home")
        )
        server = subprocess.Popen(
            [sys.executable, "-m", "daemon", "serve", "--home", home, "--port", "0"],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert server.stdout is not None
            url = next(line for line in server.stdout if "serving http" in line).split()[-1]
            engine = registry.create(settings.engine, settings)
            with httpx.Client(base_url=url, timeout=600) as client:
                for file in options.files:

                    def direct(file: Path = file) -> None:
                        with DocumentReader(file, settings, engine) as reader:
                            reader.read_page(1)

                    def served(file: Path = file) -> None:
                        ask(client, file)

                    figures = compare(psutil.Process(server.pid), direct, served, options.rounds)
                    print(told(file, figures), flush=True)
        finally:
            server.send_signal(signal.SIGINT)
            server.wait()


def ask(client: httpx.Client, file: Path) -> None:
    """One request with the file, to its end; building it is the client's own time and counts, too."""
    kind = "application/pdf" if file.suffix == ".pdf" else "image/*"
    url = f"data:{kind};base64,{base64.b64encode(file.read_bytes()).decode()}"
    part = {"type": "image_url", "image_url": {"url": url}}
    body = {"model": "auto", "messages": [{"role": "user", "content": [part]}]}
    client.post("/v1/chat/completions", json=body).raise_for_status()


def processor_s(server: psutil.Process) -> float:
    """Processor seconds this process, the server and its workers have used."""
    found = [server, *server.children(recursive=True)]
    return time.process_time() + sum(sum(one.cpu_times()[:2]) for one in found)


def compare(
    server: psutil.Process, direct: Callable[[], None], served: Callable[[], None], rounds: int
) -> list[float]:
    """Median seconds of either and of the differences, then mean processor seconds of either.

    The order changes from round to round.
    """
    for warm in (direct, served):
        warm()
    pairs = []
    used = {direct: 0.0, served: 0.0}
    for number in range(rounds):
        took = {}
        for run in (direct, served) if number % 2 else (served, direct):
            started, before = time.perf_counter(), processor_s(server)
            run()
            took[run] = time.perf_counter() - started
            used[run] += processor_s(server) - before
        pairs.append((took[direct], took[served]))
    differences = [later - first for first, later in pairs]
    return [
        statistics.median(first for first, _ in pairs),
        statistics.median(later for _, later in pairs),
        statistics.median(differences),
        used[direct] / rounds,
        used[served] / rounds,
    ]


def told(file: Path, figures: list[float]) -> str:
    """A line for people."""
    direct, served, more, direct_cpu, served_cpu = (1000 * figure for figure in figures)
    allowed = 0.05 * direct + 5.0
    return (
        f"{file.name:24} {file.stat().st_size / 1024:8.0f} KiB  direct {direct:8.1f} ms  served {served:8.1f} ms  "
        f"more {more:6.1f} ms (goal {allowed:.1f})  processor {direct_cpu:8.1f} and {served_cpu:8.1f} ms"
    )


if __name__ == "__main__":
    main()
