"""The server as a process of its own and as a part of the daemon; slow and broken clients."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from typer.testing import CliRunner

from daemon import serving as serving_run
from daemon.cli import app
from daemon.commands import serving as serve_command
from daemon.server import serve
from daemon.server.serve import HttpServer, Listening
from storage.database import open_readonly
from storage.errors import AccessError, ExitCode, SettingsError
from tests.daemon.conftest import png_of
from tests.daemon.server.running import PATIENCE_S, serving, settings_in, wait_for
from tests.daemon.server.test_chat import data_url, messages, scan_of_two


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_others_reach_it_only_with_a_token(tmp_path: Path, host: str) -> None:
    with pytest.raises(SettingsError, match=r"no TLS.*`ssh -L` or a reverse proxy"):
        HttpServer(settings_in(tmp_path), Listening(host=host, port=0))


@pytest.mark.parametrize(("host", "warned"), [("0.0.0.0", True), ("127.0.0.1", False)])
def test_who_opens_it_to_others_is_told_that_nothing_is_encrypted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, warned: bool
) -> None:
    monkeypatch.setattr(serve_command, "http_server", lambda *_, **__: None)
    monkeypatch.setattr(serving_run, "run", lambda *_, **__: ExitCode.OK)
    result = CliRunner().invoke(app, ["serve", "--host", host, "--home", str(tmp_path)])
    assert result.exit_code == ExitCode.OK
    assert ("no TLS" in result.stderr and "ssh -L" in result.stderr) is warned


@pytest.mark.parametrize("host", ["0.0.0.0", "this computer's name"])
def test_it_answers_at_the_address_it_shows(tmp_path: Path, host: str) -> None:
    if host != "0.0.0.0":
        host = socket.gethostname()
        try:
            socket.gethostbyname(host)
        except OSError as error:
            pytest.skip(f"this computer's name, {host}, leads nowhere: {error}")
    server = HttpServer(settings_in(tmp_path), Listening(host=host, port=0, token="t" * 20))
    server.start()
    try:
        shown = httpx.URL(server.url).netloc.decode()
        address = f"{socket.gethostbyname(host)}:{server.port}"
        headers = {"Host": shown, "Authorization": "Bearer " + "t" * 20}
        asked = httpx.get(f"http://{address}/v1/models", headers=headers, timeout=PATIENCE_S)
        assert asked.status_code == 200
        elsewhere = {**headers, "Host": "else.example"}
        asked = httpx.get(f"http://{address}/v1/models", headers=elsewhere, timeout=PATIENCE_S)
        assert asked.status_code == 421
    finally:
        server.stop()


def test_a_port_that_is_taken_is_told_at_once(tmp_path: Path) -> None:
    with serving(settings_in(tmp_path)) as running, pytest.raises(AccessError, match=str(running.port)):
        HttpServer(settings_in(tmp_path), Listening("127.0.0.1", running.port))


def test_a_host_that_is_none_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> list[Any]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)  # no name server is asked
    with pytest.raises(SettingsError, match="nowhere"):
        HttpServer(settings_in(tmp_path), Listening(host="nowhere.invalid", port=0, token="t" * 20))


@pytest.mark.parametrize(
    ("host", "wanted", "needed"), [("localhost", False, False), ("::1", True, True), ("0.0.0.0", False, True)]
)
def test_the_command_makes_a_token_where_one_is_needed(
    tmp_path: Path, host: str, wanted: bool, needed: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    found = [serve_command._token(settings_in(tmp_path), host, wanted=wanted, file=None) for _ in range(2)]
    assert found[0] == found[1]
    assert (found[0] is not None) is needed
    assert capsys.readouterr().out.count(str(found[0])) == needed  # shown once, not twice


def test_the_command_takes_a_token_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("a" * 20 + "\n")
    path.chmod(0o600)
    assert serve_command._token(settings_in(tmp_path), "localhost", wanted=False, file=path) == "a" * 20


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    with serving(settings_in(tmp_path_factory.mktemp("home"))) as running:
        yield running


def wait_until_closed(connection: socket.socket) -> None:
    """Raises: `TimeoutError` if it stays open."""
    with contextlib.suppress(ConnectionResetError):
        while connection.recv(1 << 16):
            pass


@pytest.mark.parametrize("begin", [b"", b"G", b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nX-Slow: "])
def test_a_request_that_does_not_come_is_not_waited_for(
    running: HttpServer, begin: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "HEADERS_S", 0.5)
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", running.port), timeout=PATIENCE_S) as connection:
        with contextlib.suppress(ConnectionError):  # closed already, if this took a while
            connection.sendall(begin)
        wait_until_closed(connection)
    assert time.monotonic() - began > 0.3


def test_a_second_request_that_does_not_come_is_not_waited_for_either(
    running: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with socket.create_connection(("127.0.0.1", running.port), timeout=PATIENCE_S) as connection:
        connection.sendall(request)
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200")
        monkeypatch.setattr(serve, "HEADERS_S", 0.5)
        connection.sendall(request[:30])
        wait_until_closed(connection)


@pytest.mark.parametrize(
    ("request_bytes", "status_line"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", b"HTTP/1.1 400"),
        (b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 400"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", b"HTTP/1.1 400"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 1_000_000 + b"\r\n\r\n", b"HTTP/1.1 400"),
        (b"GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n", b"HTTP/1.1 4"),
        (b"GET /static/../serve.py HTTP/1.1\r\nHost: localhost\r\n\r\n", b"HTTP/1.1 404"),
        (b"GET /static/%2e%2e/serve.py HTTP/1.1\r\nHost: localhost\r\n\r\n", b"HTTP/1.1 404"),
        (b"GET /static/..%2fserve.py HTTP/1.1\r\nHost: localhost\r\n\r\n", b"HTTP/1.1 404"),
        (b"GET /static//etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n", b"HTTP/1.1 404"),
        (
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"HTTP/1.1 400",
        ),
    ],
)
def test_odd_requests_are_answered_with_a_refusal(
    running: HttpServer, request_bytes: bytes, status_line: bytes
) -> None:
    with socket.create_connection(("127.0.0.1", running.port), timeout=PATIENCE_S) as connection:
        connection.sendall(request_bytes)
        assert connection.recv(1 << 16).startswith(status_line)


def test_it_says_nothing_of_its_making(running: HttpServer) -> None:
    assert "server" not in httpx.get(f"{running.url}v1/models", timeout=PATIENCE_S).headers


# --- as processes ------------------------------------------------------------------------------------------


class Command:
    """`ocrd …` in a process, and the address it serves at."""

    def __init__(self, home: Path, *words: str, script: str = "") -> None:
        self.home = home
        environment = os.environ | {
            "OCRD_HOME": str(home),
            "OCRD_ENGINE": "fake",
            "OCRD_WORKERS": "1",
            "OCRD_SETTLE_S": "0",
            "OCRD_FAKE_SCRIPT": script,
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "daemon", *words], stdout=subprocess.PIPE, env=environment, text=True
        )
        assert self.process.stdout is not None
        self.lines: list[str] = []
        for line in self.process.stdout:
            self.lines.append(line.rstrip())
            if "serving http" in line:
                break
        self.url = self.lines[-1].rpartition(" ")[2]
        threading.Thread(target=self.lines.extend, args=(self.process.stdout,), daemon=True).start()

    def ask(self, seed: int = 1, **body: Any) -> Any:
        caller = openai.OpenAI(base_url=f"{self.url}v1", api_key="none", max_retries=0, timeout=PATIENCE_S)
        return caller.chat.completions.create(
            **{"model": "auto", "messages": messages(data_url(png_of(seed))), **body}
        )

    def end(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(PATIENCE_S)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Command]]:
    commands: list[Command] = []

    def start(*words: str, **options: str) -> Command:
        commands.append(Command(tmp_path / "home", *words, **options))
        return commands[-1]

    yield start
    for command in commands:
        command.process.kill()
        command.process.wait()


@pytest.mark.slow
def test_serve_reads_with_workers_of_its_own_and_ends_when_told(
    run: Callable[..., Command], tmp_path: Path
) -> None:
    command = run("serve", "--port", "0")
    assert command.ask().choices[0].message.content.startswith("Page 1 of pixels")
    assert command.end() == 130
    left = list((tmp_path / "home" / "asks").iterdir())
    assert left == []


@pytest.mark.slow
def test_watch_serves_too_and_the_folder_is_read_beside_what_is_asked(
    run: Callable[..., Command], tmp_path: Path, make_png: Callable[..., Path]
) -> None:
    folder = tmp_path / "scans"
    for n in range(30):
        make_png(folder / f"{n}.png", n)
    command = run("watch", str(folder), "--serve", "--port", "0", script="delay:50ms")
    for seed in range(5):
        assert command.ask(100 + seed).choices[0].message.content.startswith("Page 1 of pixels")
    conn = open_readonly(tmp_path / "home" / "ocrd.db")
    wait_for(lambda: files_done(conn) == 30)
    conn.close()
    assert command.end() == 130


@pytest.mark.slow
def test_serve_asks_the_daemons_workers_and_takes_over_when_it_ends(
    run: Callable[..., Command], tmp_path: Path
) -> None:
    (tmp_path / "scans").mkdir()
    watching = run("watch", str(tmp_path / "scans"), "--serve", "--port", "0")
    command = run("serve", "--port", "0")
    assert any("its workers read" in line for line in command.lines)
    assert command.ask().choices[0].message.content
    assert watching.end() == 130
    assert command.ask().choices[0].message.content
    assert command.end() == 130


@pytest.mark.slow
def test_pages_that_kill_their_worker_end_neither_daemon_nor_queue(
    run: Callable[..., Command], tmp_path: Path, make_png: Callable[..., Path]
) -> None:
    """Six deaths in a row would end the daemon if each counted as a worker that cannot start."""
    folder = tmp_path / "scans"
    make_png(folder / "0.png", 0)
    command = run("watch", str(folder), "--serve", "--port", "0", script="delay:100ms;;crash:2")
    two = messages(data_url(png_of(1)), data_url(scan_of_two()))
    for _ in range(6):
        with pytest.raises(openai.InternalServerError) as lost:
            command.ask(messages=two)
        assert lost.value.code == "crash"
    assert command.ask().choices[0].message.content
    conn = open_readonly(tmp_path / "home" / "ocrd.db")
    wait_for(lambda: files_done(conn) == 1)
    attempts = conn.execute("SELECT max(attempts) FROM page_jobs").fetchone()[0]
    conn.close()
    assert attempts <= 1
    assert command.end() == 130


def files_done(conn: sqlite3.Connection) -> int:
    return int(conn.execute("SELECT count(*) FROM file_status WHERE state = 'done'").fetchone()[0])


@pytest.mark.slow
def test_others_are_let_in_with_the_token_that_is_shown_once(
    run: Callable[..., Command], tmp_path: Path
) -> None:
    command = run("serve", "--host", "0.0.0.0", "--port", "0")
    token = command.lines[command.lines.index(next(line for line in command.lines if "token" in line)) + 1]
    url = command.url.replace(socket.gethostname(), "127.0.0.1")
    assert httpx.get(f"{url}v1/models", timeout=PATIENCE_S).status_code == 401
    headers = {"Authorization": f"Bearer {token}"}
    assert httpx.get(f"{url}v1/models", headers=headers, timeout=PATIENCE_S).status_code == 200
    command.end()
    again = run("serve", "--host", "0.0.0.0", "--port", "0")
    assert not [line for line in again.lines if token in line]
    assert token not in (tmp_path / "home" / "ocrd.log").read_text()
    again.end()
