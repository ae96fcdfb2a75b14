"""Desktop notifications: that a batch is done, that a file could not be read. File names only, never page text."""

from __future__ import annotations

import html
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import PurePath

from daemon.console import escape_name, plural

log = logging.getLogger(__name__)

APART_S = 300.0  # failures are told at most that often while work goes on
TOOL_S = 10.0
NAMES_TOLD = 3
# The texts are arguments of the script, never part of it.
_SCRIPT = ("on run argv", "display notification (item 2 of argv) with title (item 1 of argv)", "end run")


class Digest:
    """Gathers what became of files until there is something to tell."""

    def __init__(self, wanted: str) -> None:
        """`wanted`: never, failures or always."""
        self.wanted = wanted
        self._read = 0
        self._failed: list[str] = []
        self._told_failures = 0
        self._next = float("-inf")

    def add(self, path: str, *, failed: bool) -> None:
        """A file was read, or given up."""
        if failed:
            self._failed.append(PurePath(path).name)
        else:
            self._read += 1

    def due(self, now: float, *, idle: bool) -> tuple[str, str] | None:
        """Title and text of what is to be told now. All is told once nothing is left to do, failures before that."""
        fresh = len(self._failed) > self._told_failures
        if idle and (self._read or self._failed):
            told = (
                self._summary() if self.wanted == "always" or (self.wanted == "failures" and fresh) else None
            )
            self._read, self._failed, self._told_failures = 0, [], 0
            return told
        if self.wanted != "never" and fresh and now >= self._next:
            self._next = now + APART_S
            names = self._failed[self._told_failures :]
            self._told_failures = len(self._failed)
            return "ocrd", _failed(names)
        return None

    def _summary(self) -> tuple[str, str]:
        parts = [f"{plural(self._read, 'file')} read"] if self._read or not self._failed else []
        if self._failed:
            parts.append(_failed(self._failed))
        return "ocrd is done", ", ".join(parts)


def _failed(names: Sequence[str]) -> str:
    shown = ", ".join(escape_name(name) for name in names[:NAMES_TOLD])
    more = f" and {len(names) - NAMES_TOLD} more" if len(names) > NAMES_TOLD else ""
    return f"not read: {shown}{more}"


def command(title: str, text: str, *, darwin: bool) -> list[str]:
    """The call that shows a notification."""
    if darwin:
        script = [word for line in _SCRIPT for word in ("-e", line)]
        return ["/usr/bin/osascript", *script, title, text]
    # Servers may take the text for mark-up.
    return [
        "notify-send",
        "--app-name=ocrd",
        "--icon=document-properties",
        "--",
        title,
        html.escape(text, quote=False),
    ]


def send(
    title: str, text: str, *, wait: bool = False, run: Callable[[Sequence[str]], object] | None = None
) -> None:
    """Show a notification; where there is no way to, nothing happens. `wait`: for a process that is about to end."""
    words = command(title, text, darwin=sys.platform == "darwin")
    thread = threading.Thread(target=run or _run, args=(words,), name="notification", daemon=True)
    thread.start()
    if wait:
        thread.join(TOOL_S)


def _run(words: Sequence[str]) -> None:
    try:
        subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=TOOL_S, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        log.debug("no notification was shown: %s", error)
