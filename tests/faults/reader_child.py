"""A child that opens, counts, rasterises and reads text layers of the files named on its input, under limits.

A line per file: `PATH`; a line back: JSON {outcome, detail, pages, peak_mb, seconds}. Outcomes: `read`, `refused` (one
of our errors about the input), `bug` (anything else).
"""

from __future__ import annotations

import json
import re
import resource
import sys
import time
import traceback
from pathlib import Path

from daemon import processes
from storage.errors import InputError

PAGES = 3  # of each file
MAX_PIXELS = 16_000_000  # the settings' own
ADDRESS_SPACE = 6 << 30


def examine(path: Path, dpi: float, pages: int) -> tuple[str, str, int]:
    """What became of a file: outcome, detail, pages read."""
    from pipeline import rasterise, textlayer
    from pipeline.source import open_source

    done, refusals = 0, []
    try:
        with open_source(path) as source:
            for number in range(1, min(pages, source.info.pages) + 1):
                try:
                    with source.page(number) as page:
                        textlayer.read_text_layer(page, sample_reader=lambda image: "")
                        rasterise.rasterise(page, dpi=dpi, max_pixels=MAX_PIXELS)
                    done += 1
                except InputError as error:
                    _require_clear(error)
                    refusals.append(error.code)
    except InputError as error:
        _require_clear(error)
        refusals.append(error.code)
    except BaseException:
        return "bug", traceback.format_exc()[-1500:], done
    return ("read" if done else "refused"), ",".join(sorted(set(refusals))), done


def _require_clear(error: InputError) -> None:
    if not (error.message and error.remedy and error.file):
        raise AssertionError(f"an error that tells nothing: {error!r}")


def peak_mb() -> float:
    """The most memory this process held. On Linux not getrusage's, which begins with what the parent held."""
    try:
        found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text("ascii"))
    except OSError:
        found = None
    return int(found[1]) / 1024 if found else processes.peak_rss_mb()


def main() -> None:
    """Until the input ends. Arguments: dots per inch, pages of each file at most."""
    dpi, pages = float(sys.argv[1]), int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in sys.stdin:
        began = time.perf_counter()
        outcome, detail, done = examine(Path(line.rstrip("\n")), dpi, pages)
        answer = {"outcome": outcome, "detail": detail, "pages": done, "peak_mb": peak_mb()}
        print(json.dumps(answer | {"seconds": time.perf_counter() - began}), flush=True)


if __name__ == "__main__":
    main()
