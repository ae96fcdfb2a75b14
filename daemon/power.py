"""Whether the computer should be spared: on battery, in low power mode, too hot. What the system says, as a reason."""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

KIND = "power"  # of the pause
LOOK_S = 30.0
SUPPLIES = Path("/sys/class/power_supply")
_THERMAL = b"com.apple.system.thermalpressurelevel"
_HEAVY = 2  # of nominal, moderate, heavy, trapping, sleeping

Run = Callable[[Sequence[str]], str]


def reason_to_rest() -> str | None:
    """Why nothing should be read now, or None. Where the system says nothing, there is no reason."""
    if sys.platform == "darwin":
        return mac_reason(_output, thermal_level)
    return linux_reason(SUPPLIES)


@dataclass(frozen=True, slots=True)
class Told:
    """What the system answered."""

    reason: str | None


class Look:
    """Asks every `LOOK_S`, in a thread of its own: the system's tools may take seconds, a supervisor has none."""

    def __init__(
        self,
        ask: Callable[[], str | None] | None = None,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask = ask or (lambda: reason_to_rest())
        self._monotonic = monotonic
        self._next = float("-inf")
        self._answer: Told | None = None
        self._thread: threading.Thread | None = None

    def told(self) -> Told | None:
        """The answer, once, when there is a new one; never waits for it."""
        answer, self._answer = self._answer, None
        asking = self._thread is not None and self._thread.is_alive()
        if not asking and self._monotonic() >= self._next:
            self._next = self._monotonic() + LOOK_S
            self._thread = threading.Thread(target=self._look, name="power", daemon=True)
            self._thread.start()
        return answer

    def _look(self) -> None:
        self._answer = Told(self._ask())


def mac_reason(run: Run, thermal: Callable[[], int | None]) -> str | None:
    """The reason on a Mac, from what `pmset` prints and the thermal level."""
    if parse_source(run(("/usr/bin/pmset", "-g", "batt"))) == "Battery Power":
        return "on battery"
    if parse_low_power(run(("/usr/bin/pmset", "-g"))):
        return "low power mode"
    level = thermal()
    return "the computer is too hot" if level is not None and level >= _HEAVY else None


def parse_source(text: str) -> str | None:
    """`Now drawing from 'Battery Power'` → Battery Power."""
    match = re.search(r"^Now drawing from '([^']*)'", text, re.MULTILINE)
    return match[1] if match else None


def parse_low_power(text: str) -> bool:
    """Whether the settings in force have low power mode on."""
    return re.search(r"^\s*lowpowermode\s+1\b", text, re.MULTILINE) is not None


def linux_reason(supplies: Path) -> str | None:
    """The reason on Linux: a battery empties, and no mains or USB supply is connected."""
    discharging = False
    try:
        for supply in supplies.iterdir():
            kind = _read(supply / "type")
            if kind in ("Mains", "USB") and _read(supply / "online") == "1":
                return None
            # "Device": the battery of a mouse.
            if kind == "Battery" and _read(supply / "scope") != "Device":
                discharging = discharging or _read(supply / "status") == "Discharging"
    except OSError:
        return None
    return "on battery" if discharging else None


def _read(path: Path) -> str:
    try:
        return path.read_text("ascii", "replace").strip()
    except OSError:
        return ""


def _output(words: Sequence[str]) -> str:
    try:
        done = subprocess.run(words, capture_output=True, timeout=10, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode("utf-8", "replace")


def thermal_level() -> int | None:
    """macOS's thermal pressure, 0 (nominal) to 4; None where it is not told. The edge: needs a Mac."""
    try:
        system = ctypes.CDLL("/usr/lib/libSystem.B.dylib")
        token, state = ctypes.c_int(), ctypes.c_uint64()
        if system.notify_register_check(_THERMAL, ctypes.byref(token)) != 0:
            return None
        failed = system.notify_get_state(token, ctypes.byref(state))
        system.notify_cancel(token)
    except (OSError, AttributeError):
        return None
    return None if failed else int(state.value)
