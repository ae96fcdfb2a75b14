"""The measuring commands: `ocrd bench NAME` runs `tests/bench/NAME.py` of a checkout; elsewhere there are none."""

from __future__ import annotations

from pathlib import Path

import typer

SCRIPTS = Path(__file__).parents[2] / "tests" / "bench"
_AS_GIVEN = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": ["--help"]}


def pages(ctx: typer.Context) -> None:
    """Measure accuracy and speed of the engines on pages with known text.

    What follows is handed to tests/bench/pages.py; `-- --help` lists its options.

    \b
    Example:
      ocrd bench pages
    """
    _run("pages", ctx.args)


def index(ctx: typer.Context) -> None:
    """Measure search and status in a large generated library.

    What follows is handed to tests/bench/index.py; `-- --help` lists its options.

    \b
    Example:
      ocrd bench index /tmp/large-home       (made by tests/bench/make_index.py)
    """
    _run("index", ctx.args)


def _run(name: str, arguments: list[str]) -> None:
    import subprocess
    import sys

    raise typer.Exit(
        subprocess.run([sys.executable, SCRIPTS / f"{name}.py", *arguments], check=False).returncode
    )


def add_to(app: typer.Typer) -> None:
    """Add `bench` with those of its commands whose script is there."""
    bench = typer.Typer(
        help="Measure, as docs/benchmarks.md tells.", no_args_is_help=True, rich_markup_mode=None
    )
    found = [command for command in (pages, index) if (SCRIPTS / f"{command.__name__}.py").is_file()]
    for command in found:
        bench.command(context_settings=_AS_GIVEN)(command)
    if found:
        bench.callback()(lambda: None)  # stays a group, with one command as well
        app.add_typer(bench, name="bench")
