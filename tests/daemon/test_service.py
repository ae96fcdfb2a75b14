"""The daemon as a service: its files are what launchd and systemd take, and need nothing of whoever starts them."""

from __future__ import annotations

import os
import plistlib
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from typer.testing import CliRunner

from daemon import launchd, service, systemd
from daemon.cli import app
from daemon.launchd import LaunchAgent
from daemon.service import Plan, Ran, ServiceState, make_plan
from daemon.systemd import UserUnit
from storage.errors import ExitCode, ServiceError, SettingsError, VanishedError
from storage.settings import Settings

ROOT = Path(__file__).parents[2]
MakeFile = Callable[..., Path]
ODD = 'Scäns 100% $HOME "quoted" \\n & <b>'


def example(port: int | None = None) -> Plan:
    """The plan that the files of `launchd/golden` are for; the folder need not be there."""
    home = Path("/Users/you/Library/Application Support/ocrd")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "is_dir", lambda path: True)
        return make_plan(
            home,
            [Path("/Users/you/Scans")],
            port=port,
            default_home=home,
            interpreter="/Users/you/.local/share/uv/tools/ocrd-mlx/bin/python",
        )


class Tool:
    """A service manager's tool: remembers how it was called, answers as told."""

    def __init__(self, *answers: Ran) -> None:
        self.calls: list[list[str]] = []
        self.answers = list(answers)

    def __call__(self, words: Sequence[str]) -> Ran:
        self.calls.append([Path(words[0]).name, *words[1:]])
        return self.answers.pop(0) if self.answers else Ran(0, "")


def plan_in(tmp_path: Path, *folders: str) -> Plan:
    paths = [tmp_path / folder for folder in folders]
    for path in paths:
        path.mkdir()
    return make_plan(tmp_path / "home", paths, default_home=tmp_path / "default")


# --- the files ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "port"),
    [
        ("org.ocrd.daemon.plist", None),
        ("org.ocrd.daemon-serve.plist", 8470),
        ("ocrd.service", None),
        ("ocrd-serve.service", 8470),
    ],
)
def test_the_file_for_the_example_is_the_one_in_the_repository(name: str, port: int | None) -> None:
    plan = example(port)
    rendered = launchd.render(plan).decode() if name.endswith(".plist") else systemd.render(plan)
    assert rendered == (ROOT / "launchd" / "golden" / name).read_text("utf-8")


def test_every_key_is_one_of_launchd_s_and_every_path_absolute(tmp_path: Path) -> None:
    job = plistlib.loads(launchd.render(plan_in(tmp_path, ODD)))
    assert launchd.check(job) == []
    assert job["KeepAlive"] == {"SuccessfulExit": False} and job["ThrottleInterval"] >= 10
    assert job["ProcessType"] == "Background" and job["LowPriorityIO"] is True
    assert job["ProgramArguments"][0] == sys.executable
    assert not {"PATH", "HOME", "LANG"} & set(job["EnvironmentVariables"])


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"KeepAlve": True}, "unknown key KeepAlve"),
        ({"ThrottleInterval": "30"}, "ThrottleInterval is a str"),
        ({"ThrottleInterval": True}, "ThrottleInterval is a bool"),
        ({"KeepAlive": {"SuccesfulExit": False}}, "KeepAlive cannot have SuccesfulExit"),
        ({"ProcessType": "Lazy"}, "ProcessType is none of"),
        ({"StandardErrorPath": "ocrd.log"}, "StandardErrorPath is not absolute"),
        ({"ProgramArguments": ["ocrd"]}, "not named by its absolute path"),
        ({"ProgramArguments": []}, "ProgramArguments is missing"),
        ({"EnvironmentVariables": {"A": 1}}, "EnvironmentVariables holds"),
    ],
)
def test_what_launchd_would_ignore_or_refuse_is_found(change: dict[str, Any], fault: str) -> None:
    job = plistlib.loads(launchd.render(example())) | change
    assert any(fault in found for found in launchd.check(job))


def test_odd_names_stay_one_argument_each(tmp_path: Path) -> None:
    plan = plan_in(tmp_path, ODD)
    assert plistlib.loads(launchd.render(plan))["ProgramArguments"][-1] == str(tmp_path / ODD)
    [line] = [line for line in systemd.render(plan).splitlines() if line.startswith("ExecStart=")]
    # systemd's quoting inside double quotes is the shell's, but for $$ and %%.
    words = shlex.split(line.removeprefix("ExecStart=").replace("$$", "$"))
    assert [word.replace("%%", "%") for word in words] == list(plan.arguments)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_takes_the_unit_without_a_remark(tmp_path: Path) -> None:
    unit = UserUnit(plan_in(tmp_path, ODD), folder=tmp_path)
    unit.path.write_text(unit.render(), "utf-8")
    env = os.environ | {"XDG_RUNTIME_DIR": str(tmp_path), "SYSTEMD_LOG_LEVEL": "warning"}
    command = ["systemd-analyze", "verify", "--user", str(unit.path)]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    if "Failed to initialize manager" in done.stderr:
        pytest.skip(f"systemd-analyze cannot work here: {done.stderr.strip()}")
    about_ours = [line for line in done.stderr.splitlines() if unit.unit in line]
    assert (done.returncode, about_ours) == (0, [])
    broken = unit.render().replace("Restart=on-failure", "Restart=sometimes")
    unit.path.write_text(broken, "utf-8")
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert "sometimes" in done.stderr  # so it does look


def test_a_plan_is_absolute_and_has_a_name_per_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in").mkdir()
    monkeypatch.chdir(tmp_path)
    plan = make_plan(tmp_path / "home", [Path("in")], out=Path("out"), default_home=tmp_path / "home")
    assert plan.label == "org.ocrd.daemon"
    assert plan.arguments[-4:] == ("--out", str(tmp_path / "out"), "--", str(tmp_path / "in"))
    other = make_plan(tmp_path / "other", [Path("in")], default_home=tmp_path / "home")
    assert other.label != plan.label and other.label.startswith("org.ocrd.daemon.")


def test_folders_that_cannot_be_watched_or_named_are_refused(tmp_path: Path) -> None:
    with pytest.raises(VanishedError):
        make_plan(tmp_path, [tmp_path / "none"])
    (tmp_path / "two\nlines").mkdir()
    with pytest.raises(SettingsError, match="cannot hold"):
        make_plan(tmp_path, [tmp_path / "two\nlines"])


# --- the managers ------------------------------------------------------------------------------------------


def test_a_launch_agent_replaces_the_one_before_and_waits_for_its_end(tmp_path: Path) -> None:
    tool = Tool(Ran(36, "Operation now in progress"), Ran(0, ""), Ran(37, "already in progress"), Ran(0, ""))
    slept: list[float] = []
    agent = LaunchAgent(
        plan_in(tmp_path, "in"), runner=tool, folder=tmp_path / "LaunchAgents", sleep=slept.append
    )
    agent.install()
    assert [call[1] for call in tool.calls] == ["bootout", "enable", "bootstrap", "bootstrap"]
    assert len(slept) == 1
    assert plistlib.loads(agent.path.read_bytes())["Label"] == agent.path.stem == agent.plan.label
    assert agent.plan.log.stat().st_mode & 0o777 == 0o600
    assert agent.plan.home.stat().st_mode & 0o777 == 0o700
    assert agent.uninstall() and not agent.path.exists()
    tool.answers = [Ran(3, "No such process")]
    assert not agent.uninstall()


def test_a_launch_agent_needs_a_graphical_session(tmp_path: Path) -> None:
    tool = Tool(Ran(3, ""), Ran(0, ""), Ran(125, "Domain does not support specified action"))
    agent = LaunchAgent(plan_in(tmp_path, "in"), runner=tool, folder=tmp_path)
    with pytest.raises(ServiceError, match="Log in at the screen"):
        agent.install()


PRINTED = """gui/501/org.ocrd.daemon = {
\tactive count = 1
\tpath = /Users/you/Library/LaunchAgents/org.ocrd.daemon.plist
\tstate = running

\tprogram = /opt/python
\tpid = 4711
\tlast exit code = 10
}"""


@pytest.mark.parametrize(
    ("text", "state"),
    [
        (PRINTED, ServiceState(True, True, 4711, 10, "running")),
        (
            PRINTED.replace("state = running", "state = spawn scheduled").replace("\tpid = 4711\n", ""),
            ServiceState(True, False, None, 10, "spawn scheduled"),
        ),
        ("\tlast exit code = (never exited)", ServiceState(True)),
    ],
)
def test_state_is_read_from_what_launchctl_prints(text: str, state: ServiceState, tmp_path: Path) -> None:
    assert launchd.parse_print(text, installed=True) == state
    agent = LaunchAgent(plan_in(tmp_path), runner=Tool(Ran(113, "Could not find service")), folder=tmp_path)
    assert agent.state() == ServiceState(False)


def test_a_unit_is_written_enabled_and_restarted(tmp_path: Path) -> None:
    tool = Tool()
    unit = UserUnit(plan_in(tmp_path, "in"), runner=tool, env={"XDG_CONFIG_HOME": str(tmp_path / "config")})
    unit.install()
    assert unit.path.parent == tmp_path / "config" / "systemd" / "user"
    assert [call[2] for call in tool.calls] == ["daemon-reload", "enable", "restart"]
    tool.answers = [
        Ran(0, "MainPID=12\nExecMainStatus=0\nLoadState=loaded\nActiveState=active\nSubState=running"),
        Ran(0, "Linger=no"),
    ]
    assert unit.state() == ServiceState(True, True, 12, 0, "active (running)")
    assert unit.lingers() is False
    assert unit.uninstall() and not unit.path.exists() and not unit.uninstall()


def test_a_machine_without_a_user_manager_says_so(tmp_path: Path) -> None:
    unit = UserUnit(plan_in(tmp_path, "in"), runner=Tool(Ran(1, "Failed to connect to bus")), folder=tmp_path)
    with pytest.raises(ServiceError, match="No user service manager"):
        unit.install()
    assert service.run(["/nonexistent/tool"]).status == 127


# --- the commands ------------------------------------------------------------------------------------------


def test_print_installs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "in").mkdir()
    words = [
        "service",
        "install",
        str(tmp_path / "in"),
        "--home",
        str(tmp_path / "home"),
        "--print",
        "--kind",
    ]
    result = CliRunner().invoke(app, [*words, "launchd"])
    assert result.exit_code == 0
    assert plistlib.loads(result.stdout.encode())["ProgramArguments"][-1] == str(tmp_path / "in")
    assert CliRunner().invoke(app, [*words, "systemd"]).stdout.startswith("[Unit]")
    assert CliRunner().invoke(app, [*words, "cron"]).exit_code == ExitCode.USAGE
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


@pytest.mark.parametrize(
    ("flags", "port"), [(["--serve"], "8470"), (["--serve", "--port", "9000"], "9000"), ([], None)]
)
def test_a_service_serves_where_that_is_said(tmp_path: Path, flags: list[str], port: str | None) -> None:
    home, folder = tmp_path / "home", tmp_path / "in"
    folder.mkdir()
    words = ["service", "install", str(folder), "--home", str(home), "--print", "--kind", "launchd", *flags]
    job = plistlib.loads(CliRunner().invoke(app, words).stdout.encode())
    serving = [] if port is None else ["--serve", "--port", port]
    assert job["ProgramArguments"][-len(serving) - 4 :] == ["--home", str(home), *serving, "--", str(folder)]


@pytest.mark.parametrize("command", [["service", "install"], ["watch"]])
def test_a_port_that_nothing_listens_on_is_refused(tmp_path: Path, command: list[str]) -> None:
    result = CliRunner().invoke(app, [*command, str(tmp_path), "--home", str(tmp_path), "--port", "9000"])
    assert result.exit_code == ExitCode.USAGE and "--serve" in result.output
    assert list(tmp_path.iterdir()) == []


def test_status_and_logs_without_a_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "run", Tool(Ran(1, "Failed to connect to bus")))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    home = tmp_path / "home"
    home.mkdir()
    (home / "ocrd.log").write_text("".join(f"line {n}\n" for n in range(100)), "utf-8")
    (home / "service.log").write_text("ocrd: it failed\n", "utf-8")
    words = ["--home", str(home), "--kind", "systemd"]
    result = CliRunner().invoke(app, ["service", "status", *words])
    assert result.exit_code == ExitCode.NO_MATCH and "not installed" in result.stdout
    result = CliRunner().invoke(app, ["service", "logs", "--lines", "2", *words])
    assert result.stdout.splitlines()[1:3] == ["line 98", "line 99"] and "it failed" in result.stdout
    assert CliRunner().invoke(app, ["service", "uninstall", *words]).exit_code == ExitCode.NO_MATCH


def test_variables_a_service_will_not_see_are_named() -> None:
    assert service.unheard({"OCRD_DPI": "300", "OCRD_HOME": "/x", "PATH": "/bin", "OCRD_OUT": ""}) == [
        "OCRD_DPI"
    ]


# --- the mechanism -----------------------------------------------------------------------------------------


def test_it_reads_and_serves_without_path_home_and_language(
    tmp_path: Path, settings: Settings, conn: sqlite3.Connection, make_png: MakeFile
) -> None:
    """As launchd starts it; agents found no program there (https://github.com/basnijholt/agent-cli/issues/481)."""
    folder = tmp_path / "Scäns 走査"
    file = make_png(folder / "naïve ☂.png")
    settings.settings_path.write_text('engine = "fake"\nsettle_s = 0.1\nworkers = 1\n', "utf-8")
    plan = make_plan(settings.home, [folder], port=0)
    job = plistlib.loads(launchd.render(plan))
    process = subprocess.Popen(
        job["ProgramArguments"],
        cwd=job["WorkingDirectory"],
        env={"PATH": "/usr/bin:/bin", "HOME": "/var/empty"} | job["EnvironmentVariables"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        sidecar = folder / "naïve ☂.png.json"
        deadline = time.monotonic() + 60
        while not sidecar.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        assert sidecar.exists(), (settings.home / "ocrd.log").read_text("utf-8")[-2000:]
        [place] = {
            connection.laddr
            for connection in psutil.Process(process.pid).net_connections("tcp")
            if connection.status == psutil.CONN_LISTEN
        }
        assert place.ip == "127.0.0.1"
        assert httpx.get(f"http://127.0.0.1:{place.port}/api/status", timeout=60).status_code == 200
    finally:
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=60)
    assert (process.returncode, output) == (0, b"")
    assert [row["path"] for row in conn.execute("SELECT path FROM files")] == [str(file)]
    assert f"path='{file}'" in (settings.home / "ocrd.log").read_text("utf-8")
