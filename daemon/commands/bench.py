"""The measuring commands: `decode` everywhere; the others run `tests/bench/NAME.py` of a checkout."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from daemon.commands import flags
from daemon.commands.flags import AsJson, Home, MaxDraft, MaxTokens, ModelName, TextLayer, Verbose, Verify
from storage.errors import ExitCode

SCRIPTS = Path(__file__).parents[2] / "tests" / "bench"
# Name → what it measures, and an example of what may follow.
MEASURES = {
    "pages": ("Measure accuracy and speed of the engines on pages with known text.", "--engine classic"),
    "digital": ("Measure pages whose text layer is good.", "samples/paper.pdf"),
    "draft": ("Replay stored model outputs through the proposers.", "pages.json --tokenizer qwen2"),
    "rendered": ("Compare proposers on drawn pages with good and bad drafts.", "--pages 30"),
    "lengths": ("Measure the schedule of draft lengths against fixed ones.", "--width 512 --layers 12"),
    "stages": ("Measure `ocrd batch` under each proposer, stage by stage.", "samples/letter-scan.pdf"),
    "index": ("Measure search and status in a large library.", "/tmp/large-home"),
    "overhead": ("Measure the daemon against a bare loop over the same pages.", "--pages 60"),
    "memory": ("Measure a worker's memory over a long document.", "--pages 1200"),
    "load": ("Measure many files at the start, and very long documents.", "files --files 10000,20000"),
    "flood": ("Measure what thousands of files at once do to the watcher.", "--files 10000"),
}
_AS_GIVEN = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": ["--help"]}


def add_to(app: typer.Typer) -> None:
    """Add `bench` with those of its commands whose script is there."""
    found = [name for name in MEASURES if (SCRIPTS / f"{name}.py").is_file()]
    bench = typer.Typer(
        help="Measure, as docs/benchmarks.md tells.", no_args_is_help=True, rich_markup_mode=None
    )
    bench.callback()(lambda: None)  # a group, even with a single command
    bench.command("decode")(decode)
    bench.command("vision")(vision)
    for name in found:
        bench.command(name, help=_help(name), context_settings=_AS_GIVEN)(_runner(name))
    app.add_typer(bench, name="bench")


def decode(
    images: Annotated[list[Path], typer.Option("--image", metavar="FILE", help="PDFs or images to read.")],
    page: Annotated[int | None, typer.Option(metavar="N", help="Only this page of each.")] = None,
    modes: Annotated[
        str, typer.Option(metavar="NAMES", help="Proposers to compare.")
    ] = "none,lookup,reference",
    home: Home = None,
    model: ModelName = None,
    max_draft: MaxDraft = None,
    max_tokens: MaxTokens = None,
    verify: Verify = None,
    text_layer: TextLayer = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Compare proposers on a model, and check that all write the same.

    Each proposer decodes the same pages; the tokens must be equal, only the figures may differ.

    The exit status is not 0 if the tokens of any differ from those of the model alone.

    \b
    Examples:
      ocrd bench decode --image samples/letter-scan.pdf --model tiny
      ocrd bench decode --image page.png --modes none,lookup --json
    """
    from daemon import bench_view
    from pipeline import bench_decode

    chosen = flags.settings(
        home=home, model=model or "tiny", max_draft=flags.max_draft(max_draft), max_tokens=max_tokens,
        verify=verify, text_layer=text_layer,
    )  # fmt: skip
    names = [name.strip() for name in modes.split(",") if name.strip()]
    figures = bench_decode.run(chosen, images, names, page=page)
    bench_view.show(figures, as_json=as_json)
    raise typer.Exit(ExitCode.OK if all(row["identical"] for row in figures["modes"]) else ExitCode.ENGINE)


def vision(
    package: Annotated[
        Path | None,
        typer.Option(metavar="OUT.mlpackage", help="What `ocrd convert coreml` made of the model."),
    ] = None,
    papers: Annotated[
        str, typer.Option(metavar="NAMES", help="Page sizes: a3, a4, letter, a5, a6, a7, a8.")
    ] = "a4,letter,a5,a6",
    units: Annotated[
        str, typer.Option(metavar="NAMES", help="What Core ML may run on.")
    ] = "all,cpu-and-gpu,cpu-and-ne,cpu-only",
    repeat: Annotated[int, typer.Option(metavar="N", min=1, help="Runs of a page; the median counts.")] = 3,
    home: Home = None,
    model: ModelName = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Time the vision encoders of MLX and Core ML on blank pages.

    A row per page size, encoder and compute unit. On Linux MLX's CPU is timed, and the other rows say that they need
    a Mac.

    \b
    Examples:
      ocrd bench vision --model dots-ocr --package vision.mlpackage
      ocrd bench vision --model tiny --papers a8,a7 --repeat 1 --json
    """
    from daemon import bench_view
    from pipeline import bench_vision
    from pipeline.convert.coreml_package import ComputeUnits
    from pipeline.convert.page_shapes import PAPERS

    settings = flags.settings(home=home, model=model or "tiny")
    figures = bench_vision.run(
        settings,
        flags.names(papers, PAPERS, "--papers"),
        [ComputeUnits(name) for name in flags.names(units, ComputeUnits, "--units")],
        package=package,
        repeat=repeat,
    )
    bench_view.show_vision(figures, as_json=as_json)


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
