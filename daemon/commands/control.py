"""The commands that steer the queue and tell the settings: retry, pause, resume, forget, config."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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

if TYPE_CHECKING:
    from storage.settings import Settings

NAMED = 3  # paths that are told by name, where the library holds none of many


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

    A running `ocrd watch` begins at once; otherwise `ocrd batch FILE` does the work. Exits with 1 where the library
    holds no file at one of the paths.

    \b
    Examples:
      ocrd retry locked.pdf --password -
      ocrd retry --failed
      ocrd retry fax.pdf --engine rapidocr --dpi 300
    """
    from storage import library

    if failed == bool(files):
        raise typer.BadParameter("name files, or use --failed", param_hint="FILE")
    wanted = {"engine": engine, "dpi": dpi, "text_layer": text_layer}
    chosen = flags.settings(home=home, **wanted)  # refuses what no settings file could say either
    options: dict[str, object] = {name: value for name, value in wanted.items() if value is not None}
    if password is not None:
        options["password"] = flags.secret(password)
    connection = _opened(chosen)
    now = time.time()
    if failed:
        counts = {b"": library.retry(connection, None, options, now)}
    else:
        counts = {
            path: library.retry(connection, [path], options, now) for path in flags.absolute(files or [])
        }
    unknown = [] if failed else _told_unknown(counts)
    count = sum(counts.values())
    console.say(f"{console.plural(count, 'file')} will be read again")
    if count and not _is_worked_on(connection):
        console.remark("nothing works on this library now: `ocrd watch DIR` or `ocrd batch FILE` reads them")
    raise typer.Exit(ExitCode.NO_MATCH if unknown else ExitCode.OK)


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

    jobs.pause(_opened(flags.settings(home=home)), reason or "asked for")
    console.say("paused; `ocrd resume` goes on")


def resume(home: Home = None, verbose: Verbose = False) -> None:
    """Go on reading after `ocrd pause`.

    \b
    Example:
      ocrd resume
    """
    from storage import jobs

    jobs.resume(_opened(flags.settings(home=home)))
    console.say("reading goes on")


def forget(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Files, or folders with all below.")],
    home: Home = None,
    verbose: Verbose = False,
) -> None:
    """Remove files from queue and index.

    Originals and sidecars stay where they are. Exits with 1 where the library holds nothing at one of the paths.

    \b
    Examples:
      ocrd forget ~/Scans/draft.pdf
      ocrd forget ~/OldScans
    """
    from storage import library

    connection = _opened(flags.settings(home=home))
    counts = {path: library.forget(connection, [path]) for path in flags.absolute(files)}
    unknown = _told_unknown(counts)
    console.say(f"{console.plural(sum(counts.values()), 'file')} forgotten")
    raise typer.Exit(ExitCode.NO_MATCH if unknown else ExitCode.OK)


def _opened(settings: Settings) -> sqlite3.Connection:
    """The library, for writing. Raises: `DatabaseError` where there is none, and as `open_database`."""
    from storage.database import open_database

    flags.require_library(settings)
    return open_database(settings.database_path)


def _told_unknown(counts: Mapping[bytes, int]) -> list[bytes]:
    """The paths that the library holds nothing at, which is said."""
    unknown = [path for path, count in counts.items() if not count]
    if unknown:
        names = ", ".join(os.fsdecode(path) for path in unknown[:NAMED])
        more = f" and {len(unknown) - NAMED} more" if len(unknown) > NAMED else ""
        console.remark(
            f"the library holds no file at {names}{more}; `ocrd search --name PART` finds where one lies"
        )
    return unknown


def _is_worked_on(connection: sqlite3.Connection) -> bool:
    from daemon import processes
    from storage import workers

    return any(row.role == "supervisor" and processes.is_alive(row.owner) for row in workers.rows(connection))


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
