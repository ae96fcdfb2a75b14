"""AGENTS.md and llms.txt say what is so: schemas and names are compared, every example is run."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from storage.errors import ExitCode

ROOT = Path(__file__).parent.parent
AGENTS = (ROOT / "AGENTS.md").read_text(encoding="utf-8")
LLMS = (ROOT / "llms.txt").read_text(encoding="utf-8")
BIN = Path(sys.executable).parent
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", AGENTS, re.MULTILINE | re.DOTALL)
# A statement or program, and the output shown below it.
SQL, PYTHON = (
    [(body, BLOCKS[at + 1][1]) for at, (kind, body) in enumerate(BLOCKS) if kind == wanted]
    for wanted in ("sql", "python")
)
CONFIGURATION = json.loads(next(body for kind, body in BLOCKS if kind == "json"))


def apart(function: Callable[[], Awaitable[Any]]) -> Any:
    """What an async function returns, run in a thread of its own: a browser's tests leave a loop in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(anyio.run, function).result()


def section(title: str) -> str:
    return AGENTS.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def rows(title: str) -> list[list[str]]:
    """The cells of the tables in a section, heads left out."""
    lines = [line for line in section(title).splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]


def words(cell: str) -> set[str]:
    return set(re.findall(r"`(\w+)`", cell))


# --- what is said ------------------------------------------------------------------------------------------


def test_every_exit_status_is_told_once() -> None:
    told = [int(number) for row in rows("Exit status")[1:] for number in re.findall(r"\d+", row[0])]
    assert told == sorted(int(code) for code in ExitCode)


def test_tables_and_columns_are_there(fresh_db: sqlite3.Connection) -> None:
    tables = rows("The database")[1:]
    assert len(tables) > 5
    for row in tables:
        (table,) = words(row[0])
        columns = {line[1] for line in fresh_db.execute(f"PRAGMA table_info({table})")}
        assert words(row[2]) and words(row[2]) <= columns, table


@pytest.mark.parametrize("statement", [statement for statement, _ in SQL])
def test_statement_is_understood(fresh_db: sqlite3.Connection, statement: str) -> None:
    fresh_db.execute(f"EXPLAIN {statement}")


def test_sidecar_keys_are_those_of_the_schema() -> None:
    schema = json.loads((ROOT / "storage" / "schema" / "ocrd-1.json").read_text(encoding="utf-8"))
    told = {row[0]: words(row[1]) for row in rows("The sidecars")[1:]}
    keys = {key for cell in told for key in words(cell)}
    assert keys <= set(schema["properties"])
    assert told["`source`"] == set(schema["properties"]["source"]["properties"])
    assert told["`pages[]`"] <= set(schema["$defs"]["page"]["properties"])
    block = set(schema["$defs"]["block"]["properties"])
    assert told["`pages[].blocks[]`"] <= block | {"text", "box", "confidence"}


def test_tools_arguments_and_answers_are_those_of_the_mcp_server(tmp_path: Path) -> None:
    from daemon.mcp.server import server

    tools = {tool.name: tool for tool in apart(server(tmp_path / "ocrd.db").list_tools)}
    told = {next(iter(words(row[0]))): row for row in rows("MCP")[1:]}
    assert set(told) == set(tools)
    for name, (_, arguments, answer) in told.items():
        assert words(arguments) == set(tools[name].input_schema.get("properties", {})), name
        schema = tools[name].output_schema or {}
        known = set(schema["properties"]).union(
            *(part["properties"] for part in schema.get("$defs", {}).values())
        )
        assert words(answer) <= known, name


def test_llms_txt_has_the_agreed_form_and_its_links_lead_somewhere() -> None:
    # https://llmstxt.org: a title, a summary as a quotation, then sections of links with a note each
    lines = LLMS.splitlines()
    assert lines[0] == "# ocrd" and lines[2].startswith("> ")
    links = re.findall(r"^- \[([^\]]+)\]\(([^)]+)\): \S", LLMS, re.MULTILINE)
    assert len(links) == sum(line.startswith("- ") for line in lines) > 8
    for name, target in links:
        assert name == target and (ROOT / target).is_file()


# --- every example, run ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class You:
    """A home folder as the page's reader has it, with a checkout's samples in `ocrd`."""

    home: Path

    @property
    def env(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("OCRD_", "XDG_"))}
        return kept | {
            "HOME": str(self.home),
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
        }

    def run(self, *command: str) -> str:
        done = subprocess.run(
            command, cwd=self.home / "ocrd", env=self.env, stdout=subprocess.PIPE, text=True, timeout=300
        )
        return done.stdout.replace(str(self.home), "/home/you")


@pytest.fixture(scope="module")
def you(tmp_path_factory: pytest.TempPathFactory) -> You:
    """After all console examples, each of which printed what is shown."""
    home = tmp_path_factory.mktemp("you")
    shutil.copytree(
        ROOT / "samples", home / "ocrd" / "samples", ignore=shutil.ignore_patterns("*.md", "*.json")
    )
    person = You(home)
    ran = 0
    for body in (body for kind, body in BLOCKS if kind == "console"):
        for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            if not command.startswith("curl "):
                assert person.run("bash", "-c", command) == shown, command
                ran += 1
    assert ran == 6
    return person


needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="the page shows the home folder of Linux")


@pytest.mark.slow
@needs_linux
@pytest.mark.parametrize(("statement", "shown"), SQL)
def test_statement_gives_the_rows_shown(you: You, statement: str, shown: str) -> None:
    database = you.home / ".local" / "share" / "ocrd" / "ocrd.db"
    with contextlib.closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
        found = [
            "|".join("" if value is None else str(value) for value in row)
            for row in connection.execute(statement)
        ]
    assert "\n".join([*found, ""]).replace(str(you.home), "/home/you") == shown


@pytest.mark.slow
@needs_linux
@pytest.mark.parametrize(("program", "shown"), PYTHON)
def test_program_prints_what_is_shown(you: You, program: str, shown: str) -> None:
    assert you.run(sys.executable, "-c", program) == shown


@pytest.mark.slow
@needs_linux
def test_the_configuration_for_mcp_starts_a_server_that_finds_and_reads_a_page(you: You) -> None:
    from mcp import Client
    from mcp.client.stdio import StdioServerParameters

    (server,) = CONFIGURATION["mcpServers"].values()

    async def ask() -> dict[str, Any]:
        async with Client(StdioServerParameters(**server, env=you.env)) as client:
            found = (await client.call_tool("search", {"query": '"water damage"'})).structured_content
            assert found is not None
            page = await client.call_tool("read_page", {"ref": found["hits"][0]["ref"]})
            assert page.structured_content is not None
            return page.structured_content

    page = apart(ask)
    assert re.fullmatch(r"ocrd:document/\d+#page=1", page["ref"])
    assert "Box 21 shows water damage" in page["text"]


@pytest.fixture(scope="module")
def served(you: You) -> Iterator[httpx.Client]:
    """A client of `ocrd serve` on a free port."""
    process = subprocess.Popen(
        [str(BIN / "ocrd"), "serve", "--port", "0"],
        env=you.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        said = ""
        while (address := re.search(r"http://127\.0\.0\.1:\d+", said)) is None:
            line = process.stdout.readline()
            assert line, f"the server ended: {said}"
            said += line
        with httpx.Client(base_url=address[0], timeout=60) as client:
            yield client
    finally:
        process.terminate()
        process.wait(60)


@pytest.mark.slow
@needs_linux
def test_addresses_shown_answer(served: httpx.Client) -> None:
    addresses = re.findall(r"^\$ curl -s '?http://127\.0\.0\.1:8470([^'\s]*)", AGENTS, re.MULTILINE)
    assert len(addresses) == 3
    for address in addresses:
        answer = served.get(address)
        assert answer.status_code == 200, (address, answer.text)
        assert "letter-scan.pdf" in answer.text or answer.json()["counts"]["done"] == 3


@pytest.mark.slow
@needs_linux
def test_requests_told_are_in_the_openapi_document(served: httpx.Client) -> None:
    paths = {re.sub(r"\{\w+\}", "{id}", path) for path in served.get("/openapi.json").json()["paths"]}
    for row in rows("HTTP")[1:]:
        told = re.findall(r"(?:`|GET |POST )(/[\w/{}-]+)", row[0])
        assert told and set(told) <= paths, row[0]
