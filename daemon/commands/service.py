"""The commands for `ocrd watch` as a service of launchd or systemd: `ocrd service install|uninstall|status|logs`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from daemon import console
from daemon.commands import flags
from daemon.commands.flags import AsJson, Home, Out, Verbose
from daemon.commands.serving import Port, Serve, served_port
from storage.errors import ExitCode

if TYPE_CHECKING:
    from daemon.service import Manager

Kind = Annotated[
    str | None,
    typer.Option("--kind", metavar="NAME", help="launchd or systemd; else the one of this system."),
]


def install(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR", help="Folders to watch, with all below.")],
    home: Home = None,
    out: Out = None,
    serve: Serve = False,
    port: Port = None,
    show: Annotated[bool, typer.Option("--print", help="Print the service's file; install nothing.")] = False,
    kind: Kind = None,
    verbose: Verbose = False,
) -> None:
    """Watch folders from now on, at every login and after crashes.

    Settings come from ocrd.toml in the home folder: a service does not see this shell's environment.
    Installing again replaces the folders, and what else was said.

    \b
    Examples:
      ocrd service install ~/Scans
      ocrd service install ~/Scans /mnt/office --out ~/Text
      ocrd service install ~/Scans --serve
      ocrd service install ~/Scans --print
    """
    from daemon import service

    at = served_port(serve, port)
    chosen = flags.settings(home=home)
    plan = service.make_plan(chosen.home, folders, out=out or chosen.out, port=at)
    found = service.manager(_kind(kind), plan)
    if show:
        console.say(found.render().rstrip("\n"))
        return
    found.install()
    console.say(f"{found.name} runs it from now on: {console.escape_name(found.path)}")
    if names := service.unheard(os.environ):
        console.remark(f"the service does not see {', '.join(names)}: put that into {chosen.settings_path}")
    if found.name == "systemd" and getattr(found, "lingers", lambda: None)() is False:
        console.remark("it ends when you log out; `loginctl enable-linger` keeps it running")
    console.say("next: ocrd service status")


def uninstall(home: Home = None, kind: Kind = None, verbose: Verbose = False) -> None:
    """Stop the service and remove it; library and sidecars stay.

    \b
    Example:
      ocrd service uninstall
    """
    found = _installed(home, kind)
    gone = found.uninstall()
    console.say(
        "the service is gone; library and sidecars stay" if gone else "there is no service of this home"
    )
    raise typer.Exit(ExitCode.OK if gone else ExitCode.NO_MATCH)


def status(home: Home = None, kind: Kind = None, as_json: AsJson = False, verbose: Verbose = False) -> None:
    """Show whether the service is installed and runs.

    Exits with 1 when it does not run. What it works on is for `ocrd status`.

    \b
    Examples:
      ocrd service status
      ocrd service status --json | jq .pid
    """
    from dataclasses import asdict

    found = _installed(home, kind)
    state = found.state()
    if as_json:
        console.write_json(asdict(state) | {"manager": found.name, "file": str(found.path)})
    else:
        file = console.escape_name(found.path)
        console.say(
            f"Service  {file if state.installed else 'not installed; see `ocrd service install --help`'}"
        )
        console.say(
            f"State    {'running, pid ' + str(state.pid) if state.running else state.detail or 'not running'}"
        )
        if state.last_exit is not None:
            console.say(f"Ended    with {state.last_exit} the last time")
    raise typer.Exit(ExitCode.OK if state.running else ExitCode.NO_MATCH)


def logs(
    lines: Annotated[
        int, typer.Option("--lines", "-n", metavar="N", min=1, help="The last so many lines.")
    ] = 50,
    home: Home = None,
    kind: Kind = None,
    verbose: Verbose = False,
) -> None:
    """Show the last lines of the log, and what failed before it opened.

    \b
    Examples:
      ocrd service logs
      ocrd service logs --lines 500
    """
    from daemon import logs as log_files

    settings = flags.settings(home=home)
    found = _installed(home, kind)
    for path in (settings.home / log_files.LOG_NAME, settings.home / log_files.SERVICE_LOG_NAME):
        if last := log_files.tail(path, lines):
            console.say(f"== {console.escape_name(path)}")
            console.write_text("\n".join(last))
    if found.name == "systemd":
        console.remark(f"earlier output: journalctl --user --unit {found.path.name}")


def _kind(name: str | None) -> str:
    from daemon import service

    if name is None:
        return service.kind_here()
    if name not in ("launchd", "systemd"):
        raise typer.BadParameter(f"{name!r} is neither launchd nor systemd", param_hint="--kind")
    return name


def _installed(home: Path | None, kind: str | None) -> Manager:
    from daemon import service

    plan = service.make_plan(flags.settings(home=home).home, [])
    return service.manager(_kind(kind), plan)


def add_to(app: typer.Typer) -> None:
    """Add `service` with its commands."""
    group = typer.Typer(
        help="`ocrd watch` as a service: at every login, and again after a crash.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    for command in (install, uninstall, status, logs):
        group.command()(command)
    app.add_typer(group, name="service")
