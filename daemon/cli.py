"""The `ocrd` command: its groups, its version, and what every failure becomes (one message, one exit code)."""

from __future__ import annotations

import io
import sys
import traceback
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from daemon import console
from daemon.commands import (
    bench,
    cache,
    caring,
    control,
    convert,
    finding,
    mcp,
    models,
    reading,
    service,
    serving,
)
from daemon.commands.flags import VERBOSE
from storage.errors import ExitCode, OcrdError, from_os_error


class Commands(TyperGroup):
    """The command group; the one place where an exception becomes a message and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command. Exits with an `ExitCode` on failure."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise typer.Exit(ExitCode.INTERRUPTED) from None
        except Exception as error:
            failure = as_ocrd_error(error)
            if failure is None:
                raise
            if ctx.meta.get(VERBOSE):
                traceback.print_exc()
            console.complain(failure)
            raise typer.Exit(failure.exit_code) from None


def as_ocrd_error(error: Exception) -> OcrdError | None:
    """What a person is told about an exception; None for what the command line parser deals with itself."""
    if isinstance(error, OcrdError):
        return error
    if isinstance(error, BrokenPipeError) or type(error).__module__.startswith(("click.", "typer.")):
        return None
    if isinstance(error, OSError):
        return from_os_error(error)
    if type(error).__module__ == "sqlite3":
        from storage.database import explain

        return explain(error) or OcrdError(f"{type(error).__name__}: {error}")  # type: ignore[arg-type]
    return OcrdError(f"{type(error).__name__}: {error}")


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode=None,  # plain help: rich alone would double the time to the first line
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    reading.batch,
    reading.watch,
    reading.read,
    serving.serve,
    finding.status,
    finding.search,
    finding.show,
    finding.export,
    control.retry,
    control.pause,
    control.resume,
    control.forget,
    control.config,
    caring.verify,
    caring.doctor,
    mcp.mcp,
):
    app.command()(command)
models.add_to(app)
cache.add_to(app)
bench.add_to(app)
service.add_to(app)
convert.add_to(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"ocrd {version('ocrd-mlx')}")
        raise typer.Exit


@app.callback()
def ocrd(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Turn PDFs and scans into Markdown, JSON and an index that finds the page.

    \b
    Begin with:
      ocrd batch FOLDER          read everything in it, once
      ocrd watch FOLDER          the same, and all that is added later
      ocrd search WORDS          find the page that says so
      ocrd status                what is done, running, failed
    """


def main() -> None:
    """The `ocrd` command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that cannot show a character gets its escape; no name may end a command in a traceback.
            stream.reconfigure(errors="backslashreplace")
    app(prog_name="ocrd")
