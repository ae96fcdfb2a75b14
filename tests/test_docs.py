"""The documents say what the program does: every command has help and examples, every line shown exists."""

import inspect
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import cogapp
import pytest
import typer

from daemon.cli import app
from storage.errors import error_classes

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
REFERENCE = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
PAGES = sorted([ROOT / "README.md", ROOT / "AGENTS.md", *(ROOT / "docs").glob("*.md")])
EVERYWHERE = {"--help", "-h", "--version", "--install-completion", "--show-completion"}


def every_command() -> dict[str, Any]:
    """`bench pages` → its command object, and so on."""
    found: dict[str, Any] = {}

    def walk(prefix: str, group: Any) -> None:
        for name, command in group.commands.items():
            if hasattr(command, "commands"):
                walk(f"{prefix}{name} ", command)
            else:
                found[prefix + name] = command

    walk("", typer.main.get_command(app))
    return found


COMMANDS = every_command()
OPTIONS = [
    pytest.param(name, parameter, id=f"{name} {parameter.name}")
    for name, command in COMMANDS.items()
    for parameter in command.params
]


def test_every_command_the_project_promises_is_there() -> None:
    promised = [
        "batch",
        "watch",
        "read",
        "status",
        "search",
        "show",
        "retry",
        "pause",
        "resume",
        "forget",
        "config",
    ]
    assert set(promised) <= set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_command_has_help_with_examples_and_is_in_the_reference(name: str) -> None:
    text = inspect.cleandoc(COMMANDS[name].help or "")
    assert len(text.splitlines()[0]) < 70
    assert "Example" in text and f"ocrd {name}" in text.partition("Example")[2]
    assert f"### ocrd {name}\n" in REFERENCE


@pytest.mark.parametrize(("name", "parameter"), OPTIONS)
def test_option_has_help_and_is_in_the_reference(name: str, parameter: Any) -> None:
    assert parameter.help
    section = REFERENCE.partition(f"### ocrd {name}\n")[2].partition("\n### ")[0]
    spellings = [parameter.metavar] if parameter.param_type_name == "argument" else parameter.opts
    assert all(f"`{spelling}" in section for spelling in spellings)


@pytest.mark.parametrize("page", ["docs/reference.md", "docs/models.md"])
def test_tables_are_what_the_program_says(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    arguments = ["cog", "--check", "-I", "tools", page]
    assert cogapp.Cog().main(arguments) == 0, f"run: uv run cog -r -I tools {page}"


def shell_lines(text: str) -> list[str]:
    """What a reader is told to type: the `$` lines of console blocks, all lines of bash blocks."""
    lines = []
    for kind, body in re.findall(r"^```(\w+)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        if kind == "console":
            lines += [line[2:] for line in body.splitlines() if line.startswith("$ ")]
        elif kind in ("bash", "sh"):
            lines += [line for line in body.splitlines() if line and not line.startswith("#")]
    return lines


def shown_runs() -> list[tuple[str, str]]:
    """Commands of the README's console blocks, each with the output shown below it."""
    runs = []
    for body in re.findall(r"^```console\n(.*?)^```", README, re.MULTILINE | re.DOTALL):
        for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            runs.append((command, output))
    return runs


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the README shows the home folder of Linux")
def test_output_in_the_readme_is_what_the_program_prints(tmp_path: Path) -> None:
    """`status` is a moment of a running daemon; the others are run on the samples, as `you`."""
    checkout = tmp_path / "ocrd"
    samples = shutil.copytree(ROOT / "samples", checkout / "samples", ignore=shutil.ignore_patterns("*.*.*"))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OCRD_", "XDG_"))}
    env = kept | {"HOME": str(tmp_path), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def run(command: list[str]) -> str:
        done = subprocess.run(command, env=env, cwd=checkout, capture_output=True, text=True, check=True)
        return done.stdout

    assert len(list(samples.iterdir())) == 3
    run(["ocrd", "batch", "samples"])
    compared = 0
    for command, output in shown_runs():
        words = [word.replace("~", str(tmp_path)) for word in shlex.split(command)]
        if "status" not in words:
            printed = re.sub(
                r'"id": \d+', '"id": 1', run(words[2:])
            )  # two workers: any page may be the first
            assert printed == output.replace("/home/you", str(tmp_path)), command
            compared += 1
    assert compared == 4


def ocrd_calls() -> list[Any]:
    """Every call of `ocrd` that a document or a help text shows, as words."""
    sources = [(path.name, shell_lines(path.read_text(encoding="utf-8"))) for path in PAGES]
    helps = [line.strip() for command in COMMANDS.values() for line in (command.help or "").splitlines()]
    sources.append(("help", [line for line in helps if re.match(r"(\w+=\S+ )?ocrd ", line)]))
    for name in ("README.md", "AGENTS.md"):
        sources.append((name, re.findall(r"`(ocrd [^`]+)`", (ROOT / name).read_text(encoding="utf-8"))))
    remedies = " ".join(kind.default_remedy for kind in error_classes())
    sources.append(("remedy", re.findall(r"`(ocrd [^`]+)`", remedies)))
    calls = []
    for where, lines in sources:
        for line in lines:
            words = shlex.split(re.sub(r"\s+\(.*\)$", "", line), comments=True)
            ends = [at for at, word in enumerate(words) if word in ("|", "||", "&&")]
            words = words[: ends[0]] if ends else words
            if "ocrd" in words and "tool" not in words:
                calls.append(pytest.param(words[words.index("ocrd") + 1 :], id=f"{where}: {line[:60]}"))
    return calls


CALLS = ocrd_calls()


def test_the_readme_shows_calls() -> None:
    assert len([call for call in CALLS if str(call.id).startswith("README.md")]) > 8


@pytest.mark.parametrize("words", CALLS)
def test_call_shown_is_one_that_exists(words: list[str]) -> None:
    if words[0] in EVERYWHERE:
        return
    name = words[0] if words[0] in COMMANDS else " ".join(words[:2])
    assert name in COMMANDS
    if name.startswith("bench "):  # what follows is its script's
        return
    known = {option for parameter in COMMANDS[name].params for option in parameter.opts} | EVERYWHERE
    given = words[: words.index("--")] if "--" in words else words
    assert {word.partition("=")[0] for word in given if re.match(r"--?[a-z]", word)} <= known


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_inside_the_repository_lead_somewhere(path: Path) -> None:
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (path.parent / target).exists(), target


def test_the_tree_in_the_readme_names_what_is_there() -> None:
    tree = re.search(r"^## .*tree.*?^```\w*\n(.*?)^```", README, re.MULTILINE | re.DOTALL | re.IGNORECASE)
    assert tree is not None
    names = [line.split()[0] for line in tree[1].splitlines() if line.strip()]
    for name in names:
        assert (ROOT / name).exists(), name
    shown = {name.strip("/").split("/")[0] for name in names}
    assert {"pipeline", "daemon", "storage", "tests", "launchd", "docs", "samples", "tools"} <= shown


def test_the_commands_of_the_first_screen_are_those_ci_runs() -> None:
    first_screen = "\n".join(README.splitlines()[:40])
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    for command in ("uv run ocrd batch samples", "uv run pytest -n auto"):
        assert f"\n{command}\n" in first_screen
        assert f"\n{command}\n" in ci


def test_the_design_names_every_module_and_no_other() -> None:
    design = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    files = design.partition("## Files")[2].partition("\n## ")[0]
    modules = {
        path.parent.name if path.name == "__init__.py" else path.stem
        for package in ("storage", "pipeline", "daemon")
        for path in (ROOT / package).rglob("*.py")
        if path.name != "__main__.py"
    }
    assert modules - set(re.findall(r"[a-z]\w+", files)) == set()
    titles = re.findall(
        r"^(?: {4}(?:storage|pipeline|daemon)/ +| {15})([a-z]\w+)/? {1,}", files, re.MULTILINE
    )
    assert len(titles) > 40
    assert set(titles) - modules == set()
