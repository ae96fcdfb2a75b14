"""The commands that read pages: batch, watch, read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from daemon import console
from daemon.commands import flags
from daemon.commands.flags import (
    AsJson,
    Dpi,
    EngineName,
    Format,
    Home,
    Languages,
    MaxDraft,
    MaxTokens,
    Mode,
    ModelName,
    Out,
    Quiet,
    TextLayer,
    Verbose,
    Verify,
    Workers,
)
from daemon.commands.serving import LOCAL, Port, Serve, http_server, served_port


def batch(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH", help="Files, and folders with all below.")],
    home: Home = None,
    out: Out = None,
    engine: EngineName = None,
    model: ModelName = None,
    languages: Languages = None,
    text_layer: TextLayer = None,
    workers: Workers = None,
    dpi: Dpi = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> None:
    """Read files and folders, then say what became of each.

    Beside every FILE there will be FILE.md and FILE.json, and every page can be searched. What was read before
    is not read again. Ctrl-C loses nothing: the same command goes on where it stopped.

    \b
    Examples:
      ocrd batch ~/Scans
      ocrd batch report.pdf photo.jpg --out ~/Text
      ocrd batch ~/Scans --languages eng+deu --workers 2
      ocrd batch -- -name-with-a-dash.pdf
    """
    from daemon import batch as work
    from daemon import batch_view, logs

    logs.to_console(flags.log_level(verbose, quiet))
    chosen = flags.settings(
        home=home,
        out=out,
        engine=engine,
        model=model,
        languages=languages,
        text_layer=text_layer,
        workers=workers,
        dpi=dpi,
    )
    with batch_view.batch_progress(quiet or as_json) as show:
        summary = work.run(chosen, paths, on_progress=show)
    batch_view.show_summary(summary, as_json=as_json, quiet=quiet, home=home)
    raise typer.Exit(summary.exit_code)


def watch(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR", help="Folders to watch, with all below.")],
    home: Home = None,
    out: Out = None,
    engine: EngineName = None,
    model: ModelName = None,
    languages: Languages = None,
    text_layer: TextLayer = None,
    workers: Workers = None,
    dpi: Dpi = None,
    serve: Serve = False,
    port: Port = None,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> None:
    """Watch folders and read what appears in them, until Ctrl-C.

    A file is read once it has stopped growing. Folders may come and go, as network shares do.

    \b
    Examples:
      ocrd watch ~/Scans
      ocrd watch ~/Scans /mnt/office --out ~/Text
      ocrd watch ~/Scans --serve
      ocrd status --watch        (in another terminal)
    """
    from daemon import logs, supervisor

    at = served_port(serve, port)
    logs.to_console(flags.log_level(verbose, quiet))
    chosen = flags.settings(
        home=home,
        out=out,
        engine=engine,
        model=model,
        languages=languages,
        text_layer=text_layer,
        workers=workers,
        dpi=dpi,
    )
    roots = flags.watch_roots(folders, chosen.out)
    server = None if at is None else http_server(chosen, LOCAL, at)
    end = supervisor.run(chosen, roots, server=server, on_event=None if quiet else console.say_event)
    raise typer.Exit(end.exit_code)


def read(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A PDF or image.")],
    page: Annotated[str | None, typer.Option(metavar="PAGES", help="Only these pages: 3, or 2-4,7.")] = None,
    output: Format = "md",
    home: Home = None,
    engine: EngineName = None,
    model: ModelName = None,
    languages: Languages = None,
    text_layer: TextLayer = None,
    dpi: Dpi = None,
    password: Annotated[str | None, typer.Option(metavar="TEXT", help="Opens an encrypted PDF.")] = None,
    mode: Mode = None,
    max_draft: MaxDraft = None,
    max_tokens: MaxTokens = None,
    verify: Verify = None,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> None:
    """Read one file to standard output; the library stays as it is.

    With a model, -v shows its text as it is accepted, and tokens per second, passes and accepted length after it.

    \b
    Examples:
      ocrd read letter.pdf
      ocrd read book.pdf --page 2-4 --format text
      ocrd read photo.jpg --format json | jq '.pages[0].blocks'
      ocrd read letter.pdf --model tiny --mode lookup -v
    """
    from daemon import logs, one_file

    logs.to_console(flags.log_level(verbose, quiet))
    chosen = flags.settings(
        home=home,
        engine=engine,
        model=model,
        languages=languages,
        text_layer=text_layer,
        dpi=dpi,
        mode=mode,
        max_draft=flags.max_draft(max_draft),
        max_tokens=max_tokens,
        verify=verify,
    )
    flags.check_format(output)
    code = one_file.read(file, chosen, pages=page, output=output, password=password, live=verbose)
    raise typer.Exit(code)
