"""The service as a systemd unit of the user: its file, and `systemctl --user`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from daemon import service
from daemon.service import Plan, Ran, Runner, ServiceState
from storage.errors import ServiceError

TEMPLATE = "ocrd.service"
_ESCAPES = {"\\": "\\\\", '"': '\\"', "$": "$$", "%": "%%", "\t": "\\t"}


def render(plan: Plan) -> str:
    """The unit file: the template of the folder `launchd`, its paths quoted."""
    words = " ".join(quoted(word) for word in plan.arguments)
    text = service.template(TEMPLATE).replace("{home}", str(plan.home).replace("%", "%%"))
    return text.replace("{arguments}", words)


def quoted(word: str) -> str:
    """A word of a command line in a unit file: always one word, nothing in it expanded (systemd.service(5))."""
    return '"' + "".join(_ESCAPES.get(char, char) for char in word) + '"'


class UserUnit:
    """Our unit in the user's service manager."""

    name = "systemd"

    def __init__(
        self,
        plan: Plan,
        *,
        runner: Runner = service.run,
        folder: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.plan = plan
        self.unit = plan.label.replace("org.ocrd.daemon", "ocrd").replace(".", "-") + ".service"
        self.path = (folder or _folder(os.environ if env is None else env)) / self.unit
        self._run = runner

    def render(self) -> str:
        """The unit file."""
        return render(self.plan)

    def install(self) -> None:
        """Write the unit, have it read, enable and (re)start it. Raises: `ServiceError`, storage errors."""
        text = self.render()
        service.prepare_home(self.plan)
        service.write_file(self.path, text, 0o644)
        for words in (("daemon-reload",), ("enable", self.unit), ("restart", self.unit)):
            ran = self._systemctl(*words)
            if ran.status != 0:
                raise _refused(words[0], ran)

    def uninstall(self) -> bool:
        """Stop and disable the unit, and remove its file. Raises: `ServiceError`."""
        if not self.path.exists():
            return False
        ran = self._systemctl("disable", "--now", self.unit)
        if ran.status != 0 and "not loaded" not in ran.output and "does not exist" not in ran.output:
            raise _refused("disable", ran)
        self.path.unlink(missing_ok=True)
        self._systemctl("daemon-reload")
        return True

    def state(self) -> ServiceState:
        """What `systemctl show` says."""
        ran = self._systemctl(
            "show", "--property=ActiveState,SubState,MainPID,ExecMainStatus,LoadState", self.unit
        )
        if ran.status != 0:
            return ServiceState(self.path.exists(), detail=" ".join(ran.output.split()))
        return parse_show(ran.output, installed=self.path.exists())

    def lingers(self) -> bool | None:
        """Whether the unit goes on after the user has logged out; None where that cannot be told."""
        ran = self._run(("loginctl", "show-user", str(os.getuid()), "--property=Linger"))
        return None if ran.status != 0 or "=" not in ran.output else ran.output.endswith("=yes")

    def _systemctl(self, *words: str) -> Ran:
        return self._run(("systemctl", "--user", *words))


def _folder(env: Mapping[str, str]) -> Path:
    configured = env.get("XDG_CONFIG_HOME", "")
    base = Path(configured) if configured.startswith("/") else Path.home() / ".config"
    return base / "systemd" / "user"


def _refused(step: str, ran: Ran) -> ServiceError:
    message = f"systemctl --user {step} failed with {ran.status}: {' '.join(ran.output.split())}"
    if "bus" in ran.output.lower() or ran.status == 127:
        return ServiceError(
            message, remedy="no user service manager runs here; start `ocrd watch` by other means"
        )
    return ServiceError(message)


def parse_show(text: str, *, installed: bool) -> ServiceState:
    """The state in the output of `systemctl show`."""
    values = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    pid = int(values.get("MainPID", "0") or 0)
    status = values.get("ExecMainStatus", "")
    active = values.get("ActiveState", "")
    return ServiceState(
        installed,
        running=active in ("active", "reloading") and pid > 0,
        pid=pid or None,
        last_exit=int(status) if status.isdigit() and values.get("LoadState") == "loaded" else None,
        detail=f"{active} ({values.get('SubState', '')})" if active else "",
    )
