"""Pages per minute of `ocrd batch` under several proposers, and where the time goes: `ocrd bench stages FILE …`.

Every proposer gets a home of its own, one worker, and no calibration; all costs are in: start, draft, sidecars. The
stages are what each page's row says. "other" is the rest of the command's time: start, loading, regions, saving.
Where a draft is made while another page is read it costs more processor than time; then the bars are too long by it.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from storage.database import open_database

MODES = "none,lookup,reference"
# Stage → what it is made of, and the colour of its part of the bar.
STAGES = {
    "rasterise": (("text_layer", "rasterise", "blank"), "#8da0cb"),
    "draft": (("draft",), "#fc8d62"),
    "vision": (("inputs", "vision"), "#66c2a5"),
    "prefill": (("prefill",), "#e78ac3"),
    "decode": (("decode",), "#a6d854"),
    "structure": (("structure",), "#ffd92f"),
    "other": ((), "#d9d9d9"),
}
_WIDTH, _ROW, _LEFT = 640, 34, 90  # of the picture, in pixels


def run(mode: str, files: list[Path], model: str) -> dict[str, object]:
    """One `ocrd batch` in a fresh home: seconds of the clock and of processors, pages, seconds by stage."""
    with tempfile.TemporaryDirectory() as home:
        environment = {
            **os.environ, "OCRD_HOME": home, "OCRD_ENGINE": "vlm", "OCRD_MODEL": model, "OCRD_MODE": mode,
            "OCRD_CALIBRATE": "false", "OCRD_WORKERS": "1", "OCRD_OUT": str(Path(home, "out")),
        }  # fmt: skip
        before, started = _processor_s(), time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "daemon", "batch", *map(str, files)], env=environment, check=True
        )
        clock_s = time.perf_counter() - started
        conn = open_database(Path(home, "ocrd.db"))
        rows = [dict(row) for row in conn.execute("SELECT seconds, tokens, target_passes, text FROM pages")]
        conn.close()
    spent: dict[str, float] = {}
    for row in rows:
        for stage, seconds in json.loads(row["seconds"]).items():
            spent[stage] = spent.get(stage, 0.0) + seconds
    stages = {name: sum(spent.get(part, 0.0) for part in parts) for name, (parts, _) in STAGES.items()}
    stages["other"] = max(0.0, clock_s - sum(stages.values()))
    return {
        "mode": mode, "pages": len(rows), "clock_s": clock_s, "processor_s": _processor_s() - before,
        "pages_per_min": 60 * len(rows) / clock_s, "tokens": sum(row["tokens"] or 0 for row in rows),
        "passes": sum(row["target_passes"] or 0 for row in rows), "stages": stages,
        "text": sorted(row["text"] for row in rows),
    }  # fmt: skip


def _processor_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def as_table(runs: list[dict[str, object]]) -> str:
    """Rows of Markdown."""
    rows = [
        "| mode | pages a minute | clock | processor | tokens a pass | " + " | ".join(STAGES) + " |",
        "|---" * (5 + len(STAGES)) + "|",
    ]
    for found in runs:
        stages: dict[str, float] = found["stages"]  # type: ignore[assignment]  # as `run` makes it
        rows.append(
            f"| `{found['mode']}` | {found['pages_per_min']:.1f} | {found['clock_s']:.0f} s "
            f"| {found['processor_s']:.0f} s | {int(found['tokens']) / int(found['passes']):.2f} | "  # type: ignore[call-overload]
            + " | ".join(f"{seconds:.1f}" for seconds in stages.values())
            + " |"
        )
    return "\n".join(rows)


def as_picture(runs: list[dict[str, object]]) -> str:
    """A bar for each proposer, its stages one after another, as SVG."""
    longest = max(sum(found["stages"].values()) for found in runs)  # type: ignore[attr-defined]
    height = _ROW * (len(runs) + 1) + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'font-family="sans-serif" font-size="12" role="img">',
        "<title>Seconds of ocrd batch by stage and proposer</title>",
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
    ]
    for row, found in enumerate(runs):
        left, top = float(_LEFT), 6 + _ROW * row
        parts.append(f'<text x="4" y="{top + 17}">{found["mode"]}</text>')
        for name, seconds in found["stages"].items():  # type: ignore[attr-defined]
            width = (_WIDTH - _LEFT - 50) * seconds / longest
            label = f"<title>{name}: {seconds:.1f} s</title>"
            parts.append(
                f'<rect x="{left:.1f}" y="{top}" width="{width:.1f}" height="24" fill="{STAGES[name][1]}">'
                f"{label}</rect>"
            )
            left += width
        parts.append(f'<text x="{left + 4:.1f}" y="{top + 17}">{found["clock_s"]:.0f} s</text>')
    left = float(_LEFT)
    for name, (_, colour) in STAGES.items():
        top = 8 + _ROW * len(runs)
        parts.append(f'<rect x="{left:.0f}" y="{top}" width="11" height="11" fill="{colour}"/>')
        parts.append(f'<text x="{left + 15:.0f}" y="{top + 10}">{name}</text>')
        left += 24 + 7 * len(name)
    return "\n".join([*parts, "</svg>"]) + "\n"


def main() -> int:
    """Exit code 1 if the proposers' texts differ."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--modes", default=MODES)
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--svg", type=Path, help="draw the bars into this file")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    given = parser.parse_args()
    runs = [run(mode, given.files, given.model) for mode in given.modes.split(",")]
    if given.svg:
        given.svg.write_text(as_picture(runs), encoding="utf-8")
    same = all(found["text"] == runs[0]["text"] for found in runs)
    if given.json:
        plain = [{name: value for name, value in found.items() if name != "text"} for found in runs]
        given.json.write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")
    print(as_table(runs))
    print("the texts are equal" if same else "THE TEXTS DIFFER")
    return 0 if same else 1


if __name__ == "__main__":
    raise SystemExit(main())
