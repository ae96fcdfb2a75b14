"""The command that lets a language model search the library: mcp."""

from __future__ import annotations

from daemon.commands import flags
from daemon.commands.flags import Home, Verbose


def mcp(home: Home = None, verbose: Verbose = False) -> None:
    """Let a model search and read the library (MCP over stdio).

    For programs that start MCP servers themselves: they are given this command, and get the tools search, read_page,
    list_documents and status. Nothing can be changed through it. It needs the extra `mcp`.

    \b
    Examples:
      ocrd mcp
      ocrd mcp --home ~/ocrd-home
    """
    from storage.errors import EngineUnavailableError

    settings = flags.settings(home=home)
    try:
        from daemon.mcp import server
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types"):
            raise
        raise EngineUnavailableError(
            "`ocrd mcp` needs the package mcp (2.x)",
            remedy="install ocrd with the extra: uv tool install '.[mcp]'",
        ) from error
    server.run(settings.database_path)
