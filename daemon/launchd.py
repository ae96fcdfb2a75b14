"""The service as a launchd agent of macOS: its property list, and `launchctl`."""

from __future__ import annotations

import os
import plistlib
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from daemon import service
from daemon.service import Plan, Ran, Runner, ServiceState
from storage.errors import ServiceError

TEMPLATE = "org.ocrd.daemon.plist"
TRIES = 10  # `bootout` returns before the old job is gone
WAIT_S = 0.5
_NOT_LOADED = frozenset((3, 113))  # no such process; could not find service
_NO_DOMAIN = 125

# launchd.plist(5): every key a job may have, and what its value must be.
_SCHEDULE = (dict, list)
KEYS: dict[str, type | tuple[type, ...]] = {
    "AbandonProcessGroup": bool, "AssociatedBundleIdentifiers": (str, list), "BundleProgram": str, "Debug": bool,
    "Disabled": bool, "EnableGlobbing": bool, "EnablePressuredExit": bool, "EnableTransactions": bool,
    "EnvironmentVariables": dict, "ExitTimeOut": int, "GroupName": str, "HardResourceLimits": dict, "InitGroups": bool,
    "KeepAlive": (bool, dict), "Label": str, "LaunchEvents": dict, "LaunchOnlyOnce": bool, "LegacyTimers": bool,
    "LimitLoadFromHosts": list, "LimitLoadToHardware": dict, "LimitLoadToHosts": list,
    "LimitLoadToSessionType": (str, list), "LowPriorityBackgroundIO": bool, "LowPriorityIO": bool,
    "MachServices": dict, "MaterializeDatalessFiles": bool, "Nice": int, "OnDemand": bool, "ProcessType": str,
    "Program": str, "ProgramArguments": list, "QueueDirectories": list, "RootDirectory": str, "RunAtLoad": bool,
    "SessionCreate": bool, "SoftResourceLimits": dict, "Sockets": dict, "StandardErrorPath": str,
    "StandardInPath": str, "StandardOutPath": str, "StartCalendarInterval": _SCHEDULE, "StartInterval": int,
    "StartOnMount": bool, "ThrottleInterval": int, "TimeOut": int, "Umask": (int, str), "UserName": str,
    "WaitForDebugger": bool, "WatchPaths": list, "WorkingDirectory": str, "inetdCompatibility": dict,
}  # fmt: skip
KEEP_ALIVE_KEYS = {
    "SuccessfulExit": bool, "NetworkState": bool, "PathState": dict, "OtherJobEnabled": dict, "Crashed": bool,
    "AfterInitialDemand": bool,
}  # fmt: skip
PROCESS_TYPES = ("Background", "Standard", "Adaptive", "Interactive")
_PATHS = (
    "StandardOutPath",
    "StandardErrorPath",
    "StandardInPath",
    "WorkingDirectory",
    "RootDirectory",
    "Program",
)


def render(plan: Plan) -> bytes:
    """The property list: the template of the folder `launchd`, filled in as values, never as text."""
    filled: dict[str, Any] = _filled(plistlib.loads(service.template(TEMPLATE).encode("utf-8")), plan)
    if faults := check(filled):
        raise ServiceError("the property list is not one for launchd: " + "; ".join(faults))
    return plistlib.dumps(filled, sort_keys=False)


def _filled(value: Any, plan: Plan) -> Any:
    if isinstance(value, dict):
        return {key: _filled(inner, plan) for key, inner in value.items()}
    if value == ["{arguments}"]:
        return list(plan.arguments)
    if isinstance(value, str):
        return {"{label}": plan.label, "{home}": str(plan.home), "{log}": str(plan.log)}.get(value, value)
    return value


def check(job: dict[str, Any]) -> list[str]:
    """What launchd would refuse or, worse, ignore: unknown keys, wrong types, paths that depend on something."""
    faults = [f"unknown key {key}" for key in job if key not in KEYS]
    for key, kinds in KEYS.items():
        value = job.get(key)
        if value is None:
            continue
        allowed = kinds if isinstance(kinds, tuple) else (kinds,)
        if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
            faults.append(f"{key} is a {type(value).__name__}")
    faults += [f"{key} is not absolute" for key in _PATHS if not str(job.get(key, "/")).startswith("/")]
    return faults + _check_start(job) + _check_keep_alive(job.get("KeepAlive"))


def _check_start(job: dict[str, Any]) -> list[str]:
    faults = [f"{key} is missing" for key in ("Label", "ProgramArguments") if not job.get(key)]
    words = job.get("ProgramArguments") or ["/"]
    if not all(isinstance(word, str) for word in words):
        faults.append("ProgramArguments holds something else than texts")
    elif not words[0].startswith("/"):
        faults.append("the program is not named by its absolute path")
    if job.get("ProcessType", "Standard") not in PROCESS_TYPES:
        faults.append(f"ProcessType is none of {', '.join(PROCESS_TYPES)}")
    variables = job.get("EnvironmentVariables") or {}
    if not all(isinstance(value, str) for value in variables.values()):
        faults.append("EnvironmentVariables holds something else than texts")
    return faults


def _check_keep_alive(value: object) -> list[str]:
    if not isinstance(value, dict):
        return []
    return [
        f"KeepAlive cannot have {key}"
        for key, inner in value.items()
        if key not in KEEP_ALIVE_KEYS or not isinstance(inner, KEEP_ALIVE_KEYS[key])
    ]


class LaunchAgent:
    """Our agent in the user's graphical session: there macOS can show its questions, and secrets are unlocked."""

    name = "launchd"

    def __init__(
        self,
        plan: Plan,
        *,
        runner: Runner = service.run,
        folder: Path | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.plan = plan
        self.path = (folder or Path.home() / "Library" / "LaunchAgents") / f"{plan.label}.plist"
        self._run = runner
        self._sleep = sleep
        self._domain = f"gui/{os.getuid()}"

    def render(self) -> str:
        """The property list as XML."""
        return render(self.plan).decode("utf-8")

    def install(self) -> None:
        """Write the property list and load it. Raises: `ServiceError`, storage errors."""
        text = self.render()
        service.prepare_home(self.plan)
        self._bootout()
        service.write_file(self.path, text, 0o644)
        self._launchctl("enable", f"{self._domain}/{self.plan.label}")  # it may have been disabled by hand
        for attempt in range(TRIES):
            ran = self._launchctl("bootstrap", self._domain, str(self.path))
            if ran.status == 0:
                return
            if ran.status == _NO_DOMAIN or attempt == TRIES - 1:
                raise _refused("bootstrap", ran)
            self._sleep(WAIT_S)

    def uninstall(self) -> bool:
        """Unload the agent and remove its property list. Raises: `ServiceError`."""
        was_loaded = self._bootout()
        had_file = self.path.exists()
        self.path.unlink(missing_ok=True)
        return was_loaded or had_file

    def state(self) -> ServiceState:
        """What `launchctl print` says."""
        ran = self._launchctl("print", f"{self._domain}/{self.plan.label}")
        if ran.status != 0:
            return ServiceState(self.path.exists(), detail="not loaded" if self.path.exists() else "")
        return parse_print(ran.output, installed=self.path.exists())

    def _bootout(self) -> bool:
        ran = self._launchctl("bootout", f"{self._domain}/{self.plan.label}")
        if ran.status not in (0, 36, *_NOT_LOADED, _NO_DOMAIN):  # 36: on its way out
            raise _refused("bootout", ran)
        return ran.status in (0, 36)

    def _launchctl(self, *words: str) -> Ran:
        return self._run(("/bin/launchctl", *words))


def _refused(step: str, ran: Ran) -> ServiceError:
    message = f"launchctl {step} failed with {ran.status}: {' '.join(ran.output.split())}"
    if ran.status == _NO_DOMAIN:
        return ServiceError(message, remedy="log in at the screen first: agents run in a graphical session")
    return ServiceError(message)


def parse_print(text: str, *, installed: bool) -> ServiceState:
    """The state in the output of `launchctl print` (meant for people, so nothing is taken for granted)."""
    state = re.search(r"^\s*state = (.+)$", text, re.MULTILINE)
    pid = re.search(r"^\s*pid = (\d+)$", text, re.MULTILINE)
    last = re.search(r"^\s*last exit code = (-?\d+)", text, re.MULTILINE)
    return ServiceState(
        installed,
        running=bool(pid) or (state is not None and state[1] == "running"),
        pid=int(pid[1]) if pid else None,
        last_exit=int(last[1]) if last else None,
        detail=state[1] if state else "",
    )
