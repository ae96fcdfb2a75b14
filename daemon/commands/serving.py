"""The command that opens the library to programs and browsers: serve. And what `ocrd watch --serve` needs of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from daemon import console
from daemon.commands import flags
from daemon.commands.flags import EngineName, Home, Languages, ModelName, Quiet, Verbose, Workers

if TYPE_CHECKING:
    from daemon.server.serve import HttpServer
    from daemon.server.urls import Reach
    from storage.settings import Settings

LOCAL = "127.0.0.1"
PORT = 8470
NO_TLS = (
    "token and pages go over the network unencrypted (there is no TLS): where it is not yours alone, leave --host as it"
    " is and put `ssh -L` or a reverse proxy in front; docs/serving.md says how"
)
Port = Annotated[
    int | None,
    typer.Option(metavar="N", min=0, max=65535, help=f"Port to listen on, else {PORT}; 0: any free one."),
]
Serve = Annotated[bool, typer.Option("--serve", help="Serve the library too, as `ocrd serve` does.")]


def serve(
    host: Annotated[
        str,
        typer.Option(metavar="NAME", help="Address to listen on; others than this machine's need a token."),
    ] = LOCAL,
    port: Port = None,
    token: Annotated[
        bool, typer.Option("--token", help="Ask this machine's users for the token, too.")
    ] = False,
    token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Has the token (mode 0600), instead of the home's own."),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A name this server is reached by, besides localhost."),
    ] = None,
    allow_root: Annotated[
        list[Path] | None,
        typer.Option(metavar="DIR", help="Requests may name files below this folder (file: addresses)."),
    ] = None,
    allow_watched: Annotated[
        bool, typer.Option("--allow-watched", help="Requests may name files in watched folders.")
    ] = False,
    allow_remote: Annotated[
        bool,
        typer.Option("--allow-remote", help="Requests may name http(s) addresses outside private networks."),
    ] = False,
    home: Home = None,
    engine: EngineName = None,
    model: ModelName = None,
    languages: Languages = None,
    workers: Workers = None,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> None:
    """Serve the library to browsers and programs, until Ctrl-C.

    Only this machine can reach it unless --host says otherwise; then a token is made, shown once, and kept in the home.
    There is no TLS: over a network that is not yours put `ssh -L` or a reverse proxy in front.
    Where `ocrd watch` or `ocrd batch` runs, its workers read what is asked; else this command has its own.

    \b
    Examples:
      ocrd serve
      ocrd serve --model tiny --port 9000
      ocrd serve --host 0.0.0.0 --allow-host scans.home.arpa
    """
    from daemon import logs, serving
    from daemon.server import security
    from daemon.server.urls import Reach

    logs.to_console(flags.log_level(verbose, quiet))
    chosen = flags.settings(home=home, engine=engine, model=model, languages=languages, workers=workers)
    reach = Reach(tuple(folder.resolve() for folder in allow_root or ()), allow_watched, allow_remote)
    secret = _token(chosen, host, wanted=token, file=token_file)
    if not security.is_loopback(host):
        console.remark(NO_TLS)
    at = PORT if port is None else port
    server = http_server(chosen, host, at, token=secret, hosts=tuple(allow_host or ()), reach=reach)
    raise typer.Exit(serving.run(chosen, server, on_event=None if quiet else console.say_event))


def _token(settings: Settings, host: str, *, wanted: bool, file: Path | None) -> str | None:
    """The token that requests must show, if any; a new one is printed, this once."""
    from daemon.server import security

    if file is not None:
        return security.read_token(file)
    if not wanted and security.is_loopback(host):
        return None
    token, is_new = security.stored_token(settings.home)
    if is_new:
        console.say(f"token, shown this once and kept in {settings.home / security.TOKEN_NAME}:\n{token}")
    return token


def served_port(serve: bool, port: int | None) -> int | None:
    """The port that is served beside other work, None without `--serve`. Raises: a usage error for a port alone."""
    if not serve and port is not None:
        raise typer.BadParameter("it goes with --serve", param_hint="--port")
    return (PORT if port is None else port) if serve else None


def http_server(
    settings: Settings,
    host: str,
    port: int,
    *,
    token: str | None = None,
    hosts: tuple[str, ...] = (),
    reach: Reach | None = None,
) -> HttpServer:
    """The server, listening but not yet answering. Raises: as `HttpServer`."""
    from daemon.server.serve import HttpServer, Listening

    return HttpServer(settings, Listening(host, port, token, hosts, reach))
