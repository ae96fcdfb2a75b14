"""What macOS lets us read: folders it guards (privacy settings), and files whose content is in iCloud.

Elsewhere the same questions have simpler answers, and are asked here as well. A launch agent that is denied gets no
dialogue: it has to say so itself (https://github.com/sonichi/sutando/issues/709).
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

log = logging.getLogger(__name__)

_CLOUD_FOLDERS = ("Library/Mobile Documents", "Library/CloudStorage")
# setiopolicy_np(3): files in the cloud are not fetched by reading them; reading fails with EDEADLK instead.
_IOPOL_MATERIALIZE_DATALESS_FILES, _IOPOL_SCOPE_PROCESS, _IOPOL_OFF = 3, 0, 1


class Access(StrEnum):
    """Whether a folder can be read, and why not."""

    OK = "ok"
    MISSING = "missing"
    NO_FOLDER = "no_folder"
    GUARDED = "guarded"  # by macOS: permissions would allow it, the privacy settings do not
    DENIED = "denied"  # by its permissions
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of looking into a folder."""

    access: Access
    message: str = ""
    remedy: str = ""


def look_into(
    folder: Path, *, darwin: bool | None = None, listing: Callable[[Path], object] = os.listdir
) -> Answer:
    """Try to list a folder, as this process, which is what the answer is about."""
    try:
        listing(folder)
    except OSError as error:
        return explain(error, darwin=darwin)
    return Answer(Access.OK)


def explain(error: OSError, *, darwin: bool | None = None) -> Answer:
    """Why a folder could not be listed. EPERM of a mere listing is macOS's privacy, EACCES the permissions."""
    guarded = sys.platform == "darwin" if darwin is None else darwin
    match error.errno:
        case errno.ENOENT | errno.ESTALE:
            return Answer(
                Access.MISSING, "there is no such folder", "check the spelling, or connect the disk"
            )
        case errno.ENOTDIR:
            return Answer(Access.NO_FOLDER, "this is no folder", "watch the folder it lies in")
        case errno.EPERM if guarded:
            return Answer(
                Access.GUARDED,
                "macOS guards this folder and does not let ocrd read it",
                "in System Settings, Privacy & Security, Full Disk Access, add"
                f" {program()}; then start ocrd again. Or watch a folder outside Desktop, Documents and Downloads",
            )
        case errno.EACCES | errno.EPERM:
            return Answer(
                Access.DENIED, "its permissions do not let this user list it", "allow it with chmod"
            )
        case _:
            return Answer(Access.FAILED, error.strerror or str(error), "it is looked at again by itself")


def program() -> str:
    """The program that macOS must allow: the interpreter itself, behind all links and launchers."""
    import psutil

    try:
        return str(psutil.Process().exe()) or os.path.realpath(sys.executable)
    except (psutil.Error, OSError):
        return os.path.realpath(sys.executable)


def is_in_cloud(path: Path, user_folder: Path) -> bool:
    """Whether macOS keeps that place in step with a cloud, so that contents may not be here."""
    return any(path.is_relative_to(user_folder / name) for name in _CLOUD_FOLDERS)


def leave_cloud_alone(library: Callable[[], ctypes.CDLL] | None = None) -> bool:
    """Have this process fetch nothing from iCloud by opening it; whether the system took that (macOS only)."""
    if library is None:
        if sys.platform != "darwin":
            return False
        library = _system_library
    try:
        answer = library().setiopolicy_np(_IOPOL_MATERIALIZE_DATALESS_FILES, _IOPOL_SCOPE_PROCESS, _IOPOL_OFF)
    except (OSError, AttributeError):
        answer = -1
    if answer != 0:
        log.warning(
            "files in iCloud would be fetched when they are opened: the system does not take that policy"
        )
    return bool(answer == 0)


def _system_library() -> ctypes.CDLL:
    return ctypes.CDLL("/usr/lib/libSystem.B.dylib", use_errno=True)
