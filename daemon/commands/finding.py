"""The commands that look into the library and change nothing: status, search, show."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from daemon.commands import flags
from daemon.commands.flags import AsJson, Format, Home, Quiet, Verbose
from storage.errors import ExitCode


def status(
    watch: Annotated[bool, typer.Option("--watch", help="Show it again every second, until Ctrl-C.")] = False,
    all_documents: Annotated[
        bool, typer.Option("--all", help="With --json: every document, not only the last 500 done.")
    ] = False,
    as_json: AsJson = False,
    home: Home = None,
    verbose: Verbose = False,
) -> None:
    """Show what is done, running, failed, and how long the rest takes.

    \b
    Examples:
      ocrd status
      ocrd status --watch
      ocrd status --json | jq .counts
    """
    from daemon import status_view
    from storage.database import open_readonly

    connection = open_readonly(flags.settings(home=home).database_path)
    show = status_view.watch if watch else status_view.show
    show(lambda: status_view.take(connection, time.time(), as_json, all_documents), as_json=as_json)


def search(
    query: Annotated[
        list[str] | None,
        typer.Argument(metavar="QUERY", help='Words, a "phrase", a prefix*; any text is safe.'),
    ] = None,
    path: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Only below this folder, or with this in the path; * works."),
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="WHEN", help="Only files added since: 2026-01-31, 12h, 7d, 3w.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only files with this in the name; needs no QUERY.")
    ] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="At most so many hits.")] = 20,
    as_json: AsJson = False,
    home: Home = None,
    verbose: Verbose = False,
) -> None:
    """Find pages by their words.

    A hit is a path, a page (with the printed page number, where there is one) and the words around the match.

    Exits with 1 when nothing matches, as grep does.

    \b
    Examples:
      ocrd search harbour ledgers
      ocrd search '"net income" 2025*' --path invoices --since 7d
      ocrd search --name report
      ocrd search --json -- -40
    """
    from daemon import search_view
    from storage import index
    from storage.database import open_readonly
    from storage.query import parse as query_of

    words, since_time = " ".join(query or []), flags.moment(since, time.time())
    connection = open_readonly(flags.settings(home=home).database_path)
    marks = search_view.marks(as_json)
    found = index.search(connection, words, path=path, since=since_time, limit=limit, name=name, marks=marks)
    note = "" if name and not words.strip() else query_of(words).note
    search_view.show(found, as_json=as_json, note=note)
    raise typer.Exit(ExitCode.OK if found else ExitCode.NO_MATCH)


def show(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Path or file name.")],
    page: Annotated[str | None, typer.Option(metavar="PAGES", help="Only these pages: 3, or 2-4,7.")] = None,
    output: Format = "md",
    home: Home = None,
    verbose: Verbose = False,
) -> None:
    """Print what the library holds of a file.

    \b
    Examples:
      ocrd show letter.pdf
      ocrd show ~/Scans/book.pdf --page 12 --format text
    """
    from daemon import stored
    from storage.database import open_readonly

    flags.check_format(output)
    connection = open_readonly(flags.settings(home=home).database_path)
    raise typer.Exit(stored.show(connection, file, pages=page, output=output))


def export(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH", help="Files that were read, and folders with all below.")
    ],
    kind: Annotated[
        str, typer.Option("--format", metavar="NAME", help="text, jsonl, hocr or docling.")
    ] = "text",
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write files below this folder; else to standard output."),
    ] = None,
    home: Home = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Hand what was read to other programs.

    text parts pages by form feeds, jsonl has a page per line, hocr is what OCRmyPDF makes searchable PDFs from,
    docling is a DoclingDocument (it needs the extra `docling`). Exits with 1 where nothing was read of a PATH.

    \b
    Examples:
      ocrd export report.pdf
      ocrd export ~/Scans --format jsonl | jq .text
      ocrd export ~/Scans --format hocr --out ~/hocr
    """
    import os
    import sys

    from daemon import console, exporting
    from daemon.watching import check_writable
    from storage.database import open_readonly
    from storage.exports import FORMATS

    flags.require_one_of(kind, FORMATS, "--format")
    connection = open_readonly(flags.settings(home=home).database_path)
    chosen, nothing = exporting.choose(connection, paths)
    if out is None and len(chosen) > 1 and not FORMATS[kind].streams:
        raise typer.BadParameter(f"{kind} of several documents needs --out", param_hint="--format")
    if out is not None and chosen:
        check_writable(os.fsencode(out))
    written = []
    for number, one in enumerate(chosen):
        if out is None and number and kind == "text":
            sys.stdout.write("\f")
        written += exporting.export(connection, one, FORMATS[kind], out, console.write_text)
    for path in nothing:
        console.remark(f"nothing was read of {path}. See `ocrd status`")
    if out is not None and not quiet:
        console.say(f"{console.plural(len(written), 'file')} written below {console.escape_name(out)}")
    raise typer.Exit(ExitCode.NO_MATCH if nothing else ExitCode.OK)
