"""Writes the tables of `docs/reference.md` (with cog): commands and options, exit codes, errors, settings."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import typer

from daemon.cli import app
from daemon.settings_view import as_toml
from storage.errors import ExitCode, Fault, error_classes
from storage.settings import explain

AGAIN = {Fault.TRANSIENT: "by itself", Fault.FINAL: "no", Fault.BUG: "up to `max_attempts`"}


def commands() -> str:
    """A section per command: what it does, its arguments and options, its examples."""
    group = typer.main.get_command(app)
    return "\n\n".join(_section(name, command) for name, command in sorted(group.commands.items()))  # type: ignore[attr-defined]


def _section(name: str, command: object) -> str:
    subcommands = getattr(command, "commands", None)
    if subcommands is not None:
        return "\n\n".join(_section(f"{name} {inner}", subcommands[inner]) for inner in sorted(subcommands))
    about, examples = _help(str(command.help))  # type: ignore[attr-defined]
    rows = ["| argument or option | what it does |", "|---|---|"]
    for parameter in command.params:  # type: ignore[attr-defined]
        if not getattr(parameter, "hidden", False):
            rows.append(f"| {_usage(parameter)} | {cell(str(parameter.help or ''))} |")
    table = ["\n".join(rows)] if len(rows) > 2 else []
    return "\n\n".join([f"### ocrd {name}", about, *table, f"```console\n{examples}\n```"])


def _usage(parameter: object) -> str:
    metavar = getattr(parameter, "metavar", None)
    if parameter.param_type_name == "argument":  # type: ignore[attr-defined]
        several = " …" if parameter.nargs == -1 else ""  # type: ignore[attr-defined]
        return f"`{metavar}{several}`"
    names = ", ".join(f"`{name}`" for name in sorted(parameter.opts, key=len, reverse=True))  # type: ignore[attr-defined]
    return names + (f" `{cell(metavar)}`" if metavar else "")


def _help(text: str) -> tuple[str, str]:
    """Prose of a help text, and its examples as lines to type."""
    prose, _, examples = inspect.cleandoc(text).partition("\b")
    lines = [line.strip() for line in examples.splitlines() if line.strip()][1:]
    return prose.strip(), "\n".join(f"$ {line}" for line in lines)


def exit_codes() -> str:
    """The exit status of `ocrd`, and which error codes lead to it."""
    codes: dict[int, list[str]] = {}
    for kind in error_classes():
        codes.setdefault(int(kind.exit_code), []).append(f"`{kind.code}`")
    rows = ["| exit | name | meaning | error codes |", "|--:|---|---|---|"]
    meanings = _comments(ExitCode)
    for code in ExitCode:
        errors = ", ".join(dict.fromkeys(codes.get(int(code), [])))
        rows.append(f"| {int(code)} | {code.name} | {meanings[code.name]} | {errors} |")
    return "\n".join(rows)


def _comments(enum: type) -> dict[str, str]:
    """The comment behind each member: what the source says is what the table says."""
    source = inspect.getsource(enum)
    found = dict(re.findall(r"^\s+([A-Z_]+) = \d+(?:\s+# (.*))?$", source, re.MULTILINE))
    return {"OK": "everything was read"} | {name: text for name, text in found.items() if text}


def errors() -> str:
    """Every error code: meaning, exit status, whether it is tried again, and the remedy."""
    rows = ["| code | meaning | exit | tried again | what to do |", "|---|---|--:|---|---|"]
    seen = set()
    for kind in error_classes():
        if kind.code in seen:
            continue
        seen.add(kind.code)
        about = (
            (inspect.getdoc(kind) or "").splitlines()[0]
            if kind.__name__ != "OcrdError"
            else "A fault of ocrd."
        )
        rows.append(
            f"| `{kind.code}` | {about} | {int(kind.exit_code)} | {AGAIN[kind.fault]} | {cell(kind.default_remedy)} |"
        )
    return "\n".join(rows)


def settings() -> str:
    """Every setting: default, variable, meaning."""
    rows = ["| setting | default | variable | meaning |", "|---|---|---|---|"]
    for origin in explain({"home": Path("/nowhere/ocrd")}, env={}):
        default = "the platform's data folder" if origin.name == "home" else f"`{as_toml(origin.value)}`"
        rows.append(f"| `{origin.name}` | {default} | `OCRD_{origin.name.upper()}` | {cell(origin.about)} |")
    return "\n".join(rows)


def cell(text: str) -> str:
    """Text that does not end its table cell."""
    return text.replace("|", "\\|")
