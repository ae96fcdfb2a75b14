"""Who a process is, whether it still lives, what memory it takes; and the lock that keeps one supervisor per home."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import sys
import time
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

from storage.errors import AccessError, BusyError, from_os_error

LOCK_NAME = "daemon.lock"
_MIB = 1 << 20


@cache
def host() -> str:
    """This machine's name."""
    return socket.gethostname().replace(":", "_") or "localhost"


def owner_id(pid: int | None = None) -> str:
    """`host:pid:start` of a process of this machine (this one if None).

    The start tells a process from a later one that got the same number.
    """
    pid = os.getpid() if pid is None else pid
    return f"{host()}:{pid}:{_start_mark(pid) or '?'}"


def is_local(owner: str) -> bool:
    """Whether an owner id is that of a process of this machine."""
    return owner.rsplit(":", 2)[0] == host()


def pid_of(owner: str) -> int:
    """The number of the process behind an owner id. Raises: `ValueError`, `IndexError` for what is none."""
    return int(owner.rsplit(":", 2)[1])


def is_alive(owner: str) -> bool:
    """Whether the process behind an owner id runs. Of another machine's nothing is known: it counts as alive."""
    parts = owner.rsplit(":", 2)
    if len(parts) != 3 or not parts[1].isdigit():
        return False
    if parts[0] != host():
        return True
    return _start_mark(int(parts[1])) == parts[2]


def _start_mark(pid: int) -> str | None:
    """When a process started; None if it does not run. On Linux setting the clock does not change it."""
    if sys.platform.startswith("linux"):
        return _linux_start(pid)
    import psutil

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else str(int(process.create_time()))
    except psutil.Error:
        return None


def _linux_start(pid: int) -> str | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = text[text.rindex(b")") + 2 :].split()  # the name before may hold spaces and brackets
    if fields[0] in (b"Z", b"X"):
        return None
    return f"{_boot()}-{fields[19].decode('ascii')}"


@cache
def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii")[:8]
    except OSError:
        return "boot"


def rss_mb(pid: int | None = None) -> float:
    """Memory a process holds, in MiB; 0.0 if it does not run."""
    import psutil

    try:
        return float(psutil.Process(pid).memory_info().rss) / _MIB
    except psutil.Error:
        return 0.0


def peak_rss_mb() -> float:
    """The most memory this process ever held, in MiB."""
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (_MIB if sys.platform == "darwin" else 1024)


def cores() -> int:
    """Processor cores this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    count = len(affinity(0)) if affinity else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):  # a container's quota (cgroup 2)
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text("ascii").split()
        if quota != "max":
            count = min(count, max(1, round(int(quota) / int(period))))
    return max(1, count)


def memory_mb() -> float:
    """Memory this machine, or the container we are in, has at all, in MiB."""
    import psutil

    total = psutil.virtual_memory().total
    with contextlib.suppress(OSError, ValueError):
        total = min(total, int(Path("/sys/fs/cgroup/memory.max").read_text("ascii")))
    return total / _MIB


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds the lock of a home."""

    pid: int
    host: str
    since: float
    doing: str  # for a person: "watches /home/me/Scans"


class HomeLock:
    """The right to run workers on a home; released by the kernel when its holder dies, however that happens."""

    def __init__(self, home: Path, doing: str) -> None:
        self.path = home / LOCK_NAME
        self.doing = doing
        self._descriptor: int | None = None

    def acquire(self, now: float) -> None:
        """Take the lock.

        Raises: `BusyError` naming who holds it; `AccessError` or another storage error if it cannot be made.
        """
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise from_os_error(error, file=self.path) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise BusyError(
                f"another ocrd works on this home: {self.describe()}", file=self.path.parent
            ) from None
        except OSError as error:
            os.close(descriptor)
            raise AccessError(
                f"cannot be locked: {error.strerror}",
                file=self.path,
                remedy="set OCRD_HOME to a folder on a local disk",
            ) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(asdict(Holder(os.getpid(), host(), now, self.doing))).encode(), 0)
        self._descriptor = descriptor

    def holder(self) -> Holder | None:
        """What the lock file says of its (last) holder."""
        try:
            return Holder(**json.loads(self.path.read_bytes()))
        except (OSError, ValueError, TypeError):
            return None

    def describe(self) -> str:
        """The holder, for a person."""
        holder = self.holder()
        if holder is None:
            return "a process that has not said who it is"
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(holder.since))
        return f"pid {holder.pid} on {holder.host} since {since}, which {holder.doing}"

    def release(self) -> None:
        """Give the lock back."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
