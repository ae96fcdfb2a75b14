"""Where a home's workers can be asked: a socket each, and a card in the home's folder `asks` that names it.

A socket's path may have 104 bytes on macOS and 108 on Linux, and not every file system takes one: then it lies in a
folder of its own among the temporary files, for this user alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from daemon import processes
from storage.staging import write_file

FOLDER = "asks"
LONGEST_PATH = 100  # bytes; the system's limit counts a NUL
_CARD = ".json"


@dataclass(frozen=True, slots=True)
class Place:
    """A worker that can be asked."""

    owner: str
    socket: str


class Doorplate:
    """This process's socket, bound and listening, and its card; both gone after `close`."""

    def __init__(self, home: Path, owner: str) -> None:
        """Raises: OSError where no socket can be made."""
        folder = asks_folder(home)
        _forget_the_dead(folder)
        self._own_folder: str | None = None
        self.listener = self._bind(folder / f"{os.getpid()}.sock")
        self.listener.listen(64)
        self.listener.setblocking(False)
        self.card = folder / f"{os.getpid()}{_CARD}"
        place = Place(owner, self.path)
        try:
            write_file(self.card, json.dumps(asdict(place)).encode())
        except OSError:
            self.close()
            raise

    @property
    def path(self) -> str:
        """Where the socket lies."""
        return str(self.listener.getsockname())

    def _bind(self, wanted: Path) -> socket.socket:
        if len(os.fsencode(wanted)) <= LONGEST_PATH:
            with contextlib.suppress(OSError):
                return _bound(wanted)
        self._own_folder = tempfile.mkdtemp(prefix="ocrd-")
        return _bound(Path(self._own_folder) / "asks.sock")

    def close(self) -> None:
        """Listen no more."""
        path = self.path
        self.listener.close()
        with contextlib.suppress(OSError):
            Path(path).unlink()
        with contextlib.suppress(OSError, AttributeError):
            self.card.unlink()
        if self._own_folder is not None:
            shutil.rmtree(self._own_folder, ignore_errors=True)


def asks_folder(home: Path) -> Path:
    """The folder of sockets, cards and staged documents, made for this user alone."""
    folder = home / FOLDER
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def mark_path(home: Path, owner: str) -> Path:
    """What lies there while the process reads something asked for."""
    return home / FOLDER / f"{processes.pid_of(owner)}.asked"


def died_answering(home: Path, owner: str) -> bool:
    """Whether a process that is dead now was reading something asked for; to be asked once."""
    try:
        mark_path(home, owner).unlink()
    except OSError:
        return False
    return True


def places(home: Path) -> list[Place]:
    """The workers that can be asked, as far as their cards tell; some may just have died."""
    found = []
    for card in sorted((home / FOLDER).glob(f"*{_CARD}")):
        with contextlib.suppress(OSError, ValueError, TypeError):
            place = Place(**json.loads(card.read_bytes()))
            if processes.is_local(place.owner) and processes.is_alive(place.owner):
                found.append(place)
    return found


def _bound(path: Path) -> socket.socket:
    with contextlib.suppress(FileNotFoundError):
        path.unlink()  # of a process that had our number
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # The folder is closed to others; the mode says so again where a home's folder was made by somebody else.
        listener.bind(str(path))
        path.chmod(0o600)
    except OSError:
        listener.close()
        raise
    return listener


def _forget_the_dead(folder: Path) -> None:
    """Remove what workers left that were killed."""
    for card in folder.glob(f"*{_CARD}"):
        with contextlib.suppress(OSError, ValueError, TypeError):
            place = Place(**json.loads(card.read_bytes()))
            if not processes.is_alive(place.owner):
                lies = Path(place.socket)
                lies.unlink(missing_ok=True)
                card.unlink(missing_ok=True)
                if lies.parent != folder and lies.parent.name.startswith("ocrd-"):
                    lies.parent.rmdir()
