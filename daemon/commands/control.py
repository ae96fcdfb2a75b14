"""The commands that steer the queue and tell the settings: retry, pause, resume, forget, config."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from daemon import console
from daemon.commands import flags
from daemon.commands.flags import (
    AsJson,
    Dpi,
    EngineName,
    Home,
    Languages,
    ModelName,
    Out,
    TextLayer,
    Verbose,
    Workers,
)
from storage.errors import ExitCode

_UNKNOWN = "the library holds no file at that path; `ocrd search --name PART` finds where one lies"


def retry(
    files: Annotated[list[Path] | None, typer.Argument(metavar="FILE", help="Files to read again.")] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Every file that failed.")] = False,
    engine: EngineName = None,
    dpi: Dpi = None,
    text_layer: TextLayer = None,
    password: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Opens an encrypted PDF; - asks for it.")
    ] = None,
    home: Home = None,
    verbose: Verbose = False,
) -> None:
    """Read files again, with other means if you say so.

    A running `ocrd watch` begins at once; otherwise `ocrd batch FILE` does the work.

    \b
    Examples:
      ocrd retry locked.pdf --password -
      ocrd retry --failed
      ocrd retry fax.pdf --engine rapidocr --dpi 300
    """
    from storage import library
    from storage.database import open_database

    if failed == bool(files):
        raise typer.BadParameter("name files, or use --failed", param_hint="FILE")
    wanted = {"engine": engine, "dpi": dpi, "text_layer": text_layer}
    chosen = flags.settings(home=home, **wanted)  # refuses what no settings file could say either
    options: dict[str, object] = {name: value for name, value in wanted.items() if value is not None}
    if password is not None:
        options["password"] = flags.secret(password)
    connection = open_database(chosen.database_path)
    count = library.retry(connection, flags.absolute(files or []) or None, options, time.time())
    if not count and not failed:
        console.remark(_UNKNOWN)
    console.say(f"{console.plural(count, 'file')} will be read again")
    raise typer.Exit(ExitCode.OK if count or failed else ExitCode.NO_MATCH)


def pause(
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; `ocrd status` shows it.")] = "",
    home: Home = None,
    verbose: Verbose = False,
) -> None:
    """Read nothing new until `ocrd resume`.

    Pages that are being read are finished.

    \b
    Examples:
      ocrd pause
      ocrd pause --reason "on battery"
    """
    from storage import jobs
    from storage.database import open_database

    jobs.pause(open_database(flags.settings(home=home).database_path), reason or "asked for")
    console.say("paused; `ocrd resume` goes on")


def resume(home: Home = None, verbose: Verbose = False) -> None:
    """Go on reading after `ocrd pause`.

    \b
    Example:
      ocrd resume
    """
    from storage import jobs
    from storage.database import open_database

    jobs.resume(open_database(flags.settings(home=home).database_path))
    console.say("reading goes on")


def forget(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Files, or folders with all below.")],
    home: Home = None,
    verbose: Verbose = False,
) -> None:
    """Remove files from queue and index.

    Originals and sidecars stay where they are.

    \b
    Examples:
      ocrd forget ~/Scans/draft.pdf
      ocrd forget ~/OldScans
    """
    from storage import library
    from storage.database import open_database

    connection = open_database(flags.settings(home=home).database_path)
    count = library.forget(connection, flags.absolute(files))
    if not count:
        console.remark(_UNKNOWN)
    console.say(f"{console.plural(count, 'file')} forgotten")
    raise typer.Exit(ExitCode.OK if count else ExitCode.NO_MATCH)


def config(
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
) -> None:
    """Show the settings in effect and where each came from.

    A flag beats an OCRD_ variable, that beats the file ocrd.toml in the home folder, that beats the default.

    \b
    Examples:
      ocrd config
      OCRD_DPI=300 ocrd config --json
    """
    from daemon import settings_view
    from storage.settings import explain

    origins = explain(
        flags.implied(
            {
                "home": home,
                "out": out,
                "engine": engine,
                "model": model,
                "languages": languages,
                "text_layer": text_layer,
                "workers": workers,
                "dpi": dpi,
            }
        )
    )
    settings_view.show(origins, as_json=as_json)
