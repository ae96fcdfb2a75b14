"""Write files whole or not at all: temporary files in the target's folder, fsync, rename.

Names of temporary files say which process of which host made them, so that `sweep` can tell what a crash left.
"""

# ruff: noqa: PTH105, PTH108, PTH118 - bytes paths, as file systems have them

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import shutil
import socket
import sys
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from storage.errors import DiskFullError
from storage.failpoints import reach

OLD_S = 86_400.0  # a temporary file of another host is abandoned after this long
_HOST = f"{zlib.crc32(socket.gethostname().encode()):08x}"
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)
_NAME = re.compile(rb"\.ocrd-([0-9a-f]{8})-(\d+)-[0-9a-f]{12}\.tmp\Z")


@dataclass
class Staging:
    """Temporary files in one folder, renamed together at the end; a context that removes what was not published.

    `mode` is that of the files, less the umask.
    """

    folder: bytes
    mode: int
    _files: list[tuple[BinaryIO, bytes]] = field(default_factory=list)

    def __enter__(self) -> Staging:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()

    def open(self) -> BinaryIO:
        """A new file to write to, closed by `publish` or `discard`."""
        name = b".ocrd-%s-%d-%s.tmp" % (_HOST.encode(), os.getpid(), secrets.token_hex(6).encode())
        path = os.path.join(self.folder, name)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, self.mode)
        file = os.fdopen(descriptor, "wb", buffering=1 << 16)
        self._files.append((file, path))
        reach("staging.opened")
        return file

    @property
    def paths(self) -> list[bytes]:
        """Where the files lie until then, in order of opening."""
        return [path for _, path in self._files]

    def publish(self, *targets: bytes) -> None:
        """Make the files durable, and rename each to its target, in order of opening."""
        for file, _ in self._files:
            file.flush()
            _sync(file.fileno())
            file.close()
        reach("staging.synced")
        for target in targets:
            reach("staging.rename")
            os.replace(self._files[0][1], target)
            del self._files[0]
        reach("staging.renamed")
        _sync_folder(self.folder)

    def publish_new(self, targets: Iterable[bytes]) -> bytes:
        """Make the one file durable, and give it the first of the names that is free; which that was.

        Nothing is ever replaced. Raises: FileExistsError when none is free; OSError.
        """
        (file, path) = self._files[0]
        file.flush()
        _sync(file.fileno())
        for target in targets:
            try:
                os.link(path, target)
                os.unlink(path)
            except FileExistsError:
                continue
            except OSError as error:  # file systems without hard links
                if error.errno not in _NO_LINKS:
                    raise
                try:
                    os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, self.mode))
                except FileExistsError:
                    continue
                os.replace(path, target)
            file.close()
            del self._files[0]
            _sync_folder(self.folder)
            return target
        raise FileExistsError(errno.EEXIST, "all names are taken", self.folder)

    def flushed(self) -> Path:
        """Where the one file lies for now, with all that was written to it."""
        file, path = self._files[0]
        file.flush()
        return Path(os.fsdecode(path))

    def discard(self) -> None:
        """Remove what was not published."""
        for file, path in self._files:
            with contextlib.suppress(OSError):  # closing writes what is buffered: the disk may be full
                file.close()
            with contextlib.suppress(OSError):
                os.unlink(path)
        self._files.clear()


def write_file(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write one file whole or not at all. Raises: OSError; no temporary file stays then."""
    with Staging(os.fsencode(path.parent), mode) as stage:
        stage.open().write(data)
        stage.publish(os.fsencode(path))


def is_staged(name: bytes) -> bool:
    """Whether a file name (without folder) is that of a temporary file of ours."""
    return _NAME.match(name) is not None


def require_space(folder: Path, needed: int, *, remedy: str) -> None:
    """Raises: `DiskFullError` naming the bytes needed and free, before anything is written; OSError."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise DiskFullError(
            f"{needed / 1e6:,.0f} MB are needed and {free / 1e6:,.0f} MB are free", file=folder, remedy=remedy
        )


def sweep(folder: bytes, now: float) -> int:
    """Remove temporary files that no living process works on, from this folder alone; how many there were."""
    count = 0
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            match = _NAME.match(entry.name)
            if match is None or not entry.is_file(follow_symlinks=False):
                continue
            is_ours = match[1] == _HOST.encode()
            if (is_ours and not is_running(int(match[2]))) or entry.stat().st_mtime < now - OLD_S:
                with contextlib.suppress(OSError):
                    os.unlink(entry.path)
                    count += 1
    return count


def is_running(pid: int) -> bool:
    """Whether there is a process of that number on this machine, whoever's; one that ended unburied is none."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # exists, and is not ours
        return True
    return pid > 0 and not _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    """On Linux. Elsewhere the system buries the children of the dead at once."""
    with contextlib.suppress(OSError, ValueError):
        stat = Path(f"/proc/{pid}/stat").read_bytes()
        return stat[stat.rindex(b")") + 2 :][:1] in (b"Z", b"X")
    return False


def _sync(descriptor: int) -> None:
    if sys.platform == "darwin":
        import fcntl

        with contextlib.suppress(OSError):  # not on network shares
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
            return
    os.fsync(descriptor)


def _sync_folder(folder: bytes) -> None:
    # Some file systems (network shares) cannot; the rename has happened then all the same.
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
