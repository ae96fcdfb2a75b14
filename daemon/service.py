"""`ocrd watch` as a service of the user: what is run, under which name, and what any service manager can do with it.

Managers are `daemon.launchd` (macOS) and `daemon.systemd` (Linux). What only they can do goes through a `Runner`.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from daemon.logs import SERVICE_LOG_NAME
from storage.errors import SettingsError, VanishedError

PATIENCE_S = 60.0  # for an answer of a service manager
_HERE = Path(__file__).parent
_TEMPLATES = (_HERE.parent / "launchd", _HERE / "service_files")  # a checkout; an installed wheel


@dataclass(frozen=True, slots=True)
class Ran:
    """What a program answered."""

    status: int
    output: str


Runner = Callable[[Sequence[str]], Ran]


@dataclass(frozen=True, slots=True)
class Plan:
    """A service as it is to run."""

    label: str
    arguments: tuple[str, ...]  # the interpreter first, by its absolute path
    home: Path

    @property
    def log(self) -> Path:
        """Where its output goes, where the manager keeps none."""
        return self.home / SERVICE_LOG_NAME


@dataclass(frozen=True, slots=True)
class ServiceState:
    """What the manager knows of the service."""

    installed: bool
    running: bool = False
    pid: int | None = None
    last_exit: int | None = None
    detail: str = ""


class Manager(Protocol):
    """A service manager with one service of ours."""

    name: str
    path: Path  # of the service's file

    def render(self) -> str:
        """The service's file."""
        ...

    def install(self) -> None:
        """Write the file and start the service, replacing an older one. Raises: `ServiceError`, storage errors."""
        ...

    def uninstall(self) -> bool:
        """End the service and remove its file; False where there was none. Raises: `ServiceError`."""
        ...

    def state(self) -> ServiceState:
        """Whether it is installed and runs."""
        ...


def run(words: Sequence[str]) -> Ran:
    """Run a service manager's tool. The edge: everything else can be tested without one."""
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=PATIENCE_S,
            check=False,
        )
    except FileNotFoundError:
        return Ran(127, f"{words[0]} is not installed")
    except subprocess.TimeoutExpired:
        return Ran(124, f"{words[0]} did not answer for {PATIENCE_S:g} s")
    return Ran(done.returncode, done.stdout.decode("utf-8", "replace").strip())


def make_plan(
    home: Path,
    folders: Sequence[Path],
    *,
    out: Path | None = None,
    port: int | None = None,
    default_home: Path | None = None,
    interpreter: str | None = None,
) -> Plan:
    """The service that watches the folders and, with a port, serves the library there. Every path in it is absolute.

    A home that is not the default one gets a name of its own, so that several can run.
    Raises: `VanishedError` for a folder that is not there, `SettingsError` for one no service file can name.
    """
    paths = [Path(os.path.abspath(folder.expanduser())) for folder in folders]  # noqa: PTH100 - resolve() follows links
    for path in paths:
        if not path.is_dir():
            raise VanishedError("there is no such folder", file=path, remedy="check the spelling, or make it")
    home = Path(os.path.abspath(home))  # noqa: PTH100
    words = [interpreter or sys.executable, "-P", "-m", "daemon", "watch", "--quiet", "--home", str(home)]
    if out is not None:
        words += ["--out", os.path.abspath(out.expanduser())]  # noqa: PTH100
    if port is not None:
        words += ["--serve", "--port", str(port)]
    words += ["--", *map(str, paths)]
    for word in words:
        _require_nameable(word)
    return Plan(label_of(home, default_home), tuple(words), home)


def label_of(home: Path, default_home: Path | None = None) -> str:
    """The service's name: one per home."""
    if default_home is None:
        from storage.settings import default_home as find_default

        default_home = find_default()
    if home == default_home:
        return "org.ocrd.daemon"
    return f"org.ocrd.daemon.{hashlib.sha256(os.fsencode(home)).hexdigest()[:8]}"


def _require_nameable(word: str) -> None:
    if any(ord(char) < 0x20 or 0xD800 <= ord(char) <= 0xDFFF for char in word):
        raise SettingsError(
            "a service file cannot hold this name",
            file=ascii(word),
            remedy="rename the folder, or watch its parent",
        )


def template(name: str) -> str:
    """A file of the folder `launchd`."""
    for folder in _TEMPLATES:
        if (folder / name).is_file():
            return (folder / name).read_text(encoding="utf-8")
    raise VanishedError("a file of ocrd is missing", file=_TEMPLATES[-1] / name, remedy="install ocrd again")


def manager(kind: str, plan: Plan, *, runner: Runner = run) -> Manager:
    """The service manager called `kind`: "launchd" or "systemd"."""
    if kind == "launchd":
        from daemon.launchd import LaunchAgent

        return LaunchAgent(plan, runner=runner)
    from daemon.systemd import UserUnit

    return UserUnit(plan, runner=runner)


def kind_here() -> str:
    """The service manager of this system."""
    return "launchd" if sys.platform == "darwin" else "systemd"


def unheard(env: Mapping[str, str]) -> list[str]:
    """Settings that this shell has in its environment and a service will not see."""
    return sorted(name for name in env if name.startswith("OCRD_") and name != "OCRD_HOME" and env[name])


def write_file(path: Path, text: str, mode: int) -> None:
    """Write a small file whole or not at all. Raises: storage errors."""
    from storage.errors import from_os_error
    from storage.staging import Staging

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with Staging(os.fsencode(path.parent), mode) as stage:
            stage.open().write(text.encode("utf-8"))
            stage.publish(os.fsencode(path))
    except OSError as error:
        raise from_os_error(error, file=path) from error


def prepare_home(plan: Plan) -> None:
    """The home folder and its log exist, for the owner only, before a service manager makes them for everybody."""
    from storage.errors import from_os_error

    try:
        plan.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        plan.log.touch(mode=0o600)
    except OSError as error:
        raise from_os_error(error, file=plan.log) from error
