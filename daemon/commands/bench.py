"""The measuring commands: `ocrd bench NAME` runs `tests/bench/NAME.py` of a checkout; elsewhere there are none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import typer

SCRIPTS = Path(__file__).parents[2] / "tests" / "bench"
# Name → what it measures, and an example of what may follow.
MEASURES = {
    "pages": ("Measure accuracy and speed of the engines on pages with known text.", "--engine classic"),
    "index": ("Measure search and status in a large library.", "/tmp/large-home"),
    "overhead": ("Measure the daemon against a bare loop over the same pages.", "--pages 60"),
    "memory": ("Measure a worker's memory over a long document.", "--pages 1200"),
    "flood": ("Measure what thousands of files at once do to the watcher.", "--files 10000"),
}
_AS_GIVEN = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": ["--help"]}


def add_to(app: typer.Typer) -> None:
    """Add `bench` with those of its commands whose script is there."""
    found = [name for name in MEASURES if (SCRIPTS / f"{name}.py").is_file()]
    if not found:
        return
    bench = typer.Typer(
        help="Measure, as docs/benchmarks.md tells.", no_args_is_help=True, rich_markup_mode=None
    )
    bench.callback()(lambda: None)  # a group, even with a single command
    for name in found:
        bench.command(name, help=_help(name), context_settings=_AS_GIVEN)(_runner(name))
    app.add_typer(bench, name="bench")


def _help(name: str) -> str:
    about, example = MEASURES[name]
    more = f"What follows is handed to tests/bench/{name}.py; `-- --help` lists its options."
    return f"{about}\n\n{more}\n\n\b\nExample:\n  ocrd bench {name} {example}"


def _runner(name: str) -> Callable[[typer.Context], None]:
    def run(ctx: typer.Context) -> None:
        import subprocess
        import sys

        script = SCRIPTS / f"{name}.py"
        raise typer.Exit(subprocess.run([sys.executable, script, *ctx.args], check=False).returncode)

    return run
