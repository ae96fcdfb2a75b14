"""What lies in a watched folder: walks it and judges single paths. Looks at names and stat results; opens nothing
but the first bytes of files without an extension. Paths are bytes, as the file system has them."""

from __future__ import annotations

import logging
import os
import stat
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from daemon.ignore import IgnoreRules, Kind

log = logging.getLogger(__name__)

SF_DATALESS = 0x40000000  # macOS: the content is in the cloud; opening the file would fetch it


@dataclass(frozen=True, slots=True)
class WatchRoot:
    """A folder to watch, and where the sidecars of its files go."""

    path: bytes  # absolute
    recursive: bool = True
    out_dir: bytes | None = None  # None: beside each file
    base: bytes | None = None  # out_dir mirrors the tree below this folder


@dataclass(frozen=True, slots=True)
class Found:
    """A regular file that may be a document."""

    path: bytes
    size: int
    mtime_ns: int
    kind: Kind = Kind.DOCUMENT


@dataclass(slots=True)
class Tally:
    """What a walk noticed besides files; complete once the walk has ended."""

    folders: list[tuple[bytes, int]] = field(default_factory=list)  # (path, inode) of folders entered
    unreadable: dict[bytes, OSError] = field(default_factory=dict)  # folders we could not list
    in_cloud: int = 0  # files whose content is not here


def walk(
    root: WatchRoot,
    rules: IgnoreRules,
    tally: Tally,
    *,
    start: bytes | None = None,
    recursive: bool | None = None,
    follow_symlinks: bool = False,
    skip: frozenset[bytes] = frozenset(),
) -> Iterator[Found]:
    """Every file below `start` (the root itself if None) that is to be read, in no particular order.

    Symbolic links to files inside the root are left out (the file itself is found), those to files outside are
    followed only with `follow_symlinks`; a folder is entered once, whatever links lead there. `skip`: folders not to
    enter, such as roots of their own.
    """
    deep = root.recursive if recursive is None else recursive
    real_root = os.path.realpath(root.path)
    visited: set[tuple[int, int]] = set()
    pending = [start or root.path]
    while pending:
        folder = pending.pop()
        try:
            status = os.stat(folder)
            if (status.st_dev, status.st_ino) in visited:
                continue
            visited.add((status.st_dev, status.st_ino))
            with os.scandir(folder) as listing:
                entries = list(listing)
        except OSError as error:
            tally.unreadable[folder] = error
            continue
        tally.folders.append((folder, status.st_ino))
        below = _below(root.path, folder)
        for entry in entries:
            try:
                if entry.is_dir(follow_symlinks=False) or (follow_symlinks and entry.is_dir()):
                    if deep and entry.path not in skip and not rules.skips_folder(entry.path, below):
                        pending.append(entry.path)
                    continue
                found = _judge(entry.path, entry.name, below, rules, real_root, follow_symlinks, entry.stat)
            except OSError as error:  # gone since it was listed, or a name too long to reach
                log.debug("cannot look at a file: %s", error.strerror, extra={"path": entry.path})
                continue
            if found is not None and found.kind is Kind.CLOUD:
                tally.in_cloud += 1
            elif found is not None:
                yield found


def look(path: bytes, root: WatchRoot, rules: IgnoreRules, *, follow_symlinks: bool = False) -> Found | None:
    """The file at `path` if it is to be read; None where a rule, its kind or its place says otherwise.

    Raises: OSError where it cannot be looked at; FileNotFoundError if it is not there.
    """
    below = _below(root.path, os.path.dirname(path))
    if not is_inside(path, root, rules, follow_symlinks=follow_symlinks):
        return None
    real_root = os.path.realpath(root.path)
    return _judge(path, os.path.basename(path), below, rules, real_root, follow_symlinks, None)


def is_inside(path: bytes, root: WatchRoot, rules: IgnoreRules, *, follow_symlinks: bool = False) -> bool:
    """Whether a walk of the root would come to the folder of `path`."""
    below = _below(root.path, os.path.dirname(path))
    if not path.startswith(root.path.rstrip(b"/") + b"/"):
        return False
    parts = [part for part in below.split(b"/") if part]
    if parts and not root.recursive:
        return False
    folder, above = root.path, b""
    for part in parts:
        folder = os.path.join(folder, part)
        if rules.skips_folder(folder, above) or (not follow_symlinks and os.path.islink(folder)):
            return False
        above = os.path.join(above, part)
    return True


def _judge(
    path: bytes,
    name: bytes,
    below: bytes,
    rules: IgnoreRules,
    real_root: bytes,
    follow_symlinks: bool,
    status_of: Callable[..., os.stat_result] | None,
) -> Found | None:
    kind = rules.kind(name, below)
    if kind is Kind.IGNORED:
        return None
    status = status_of(follow_symlinks=False) if status_of else os.lstat(path)
    if stat.S_ISLNK(status.st_mode):
        target = os.path.realpath(path)
        if not follow_symlinks or target.startswith(real_root.rstrip(b"/") + b"/"):
            return None
        status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):  # a pipe or device must not even be opened
        return None
    if kind is Kind.CLOUD or getattr(status, "st_flags", 0) & SF_DATALESS:
        return Found(path, status.st_size, status.st_mtime_ns, Kind.CLOUD)
    return Found(path, status.st_size, status.st_mtime_ns, kind)


def is_document(path: bytes) -> bool:
    """Whether a file without an extension begins like a kind we read. Raises: OSError."""
    from pipeline.source import HEAD_BYTES, sniff

    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        head = os.read(descriptor, HEAD_BYTES)
    finally:
        os.close(descriptor)
    return sniff(head) is not None


def on_disk(path: bytes) -> bytes:
    """`path` with its name spelt as the folder has it.

    File systems that take the composed and the decomposed form of a name for one (macOS), or ignore case, accept both
    spellings; one file must not become two. Where they differ and only the other form is there, that one is meant.
    """
    folder, name = os.path.split(path)
    try:
        names = os.listdir(folder or b".")
    except OSError:
        return path
    if name in names:
        return path
    wanted = unicodedata.normalize("NFC", os.fsdecode(name))
    same = [other for other in names if unicodedata.normalize("NFC", os.fsdecode(other)) == wanted]
    if not same:
        try:
            identity = os.lstat(path)
            same = [
                other for other in names if os.path.samestat(os.lstat(os.path.join(folder, other)), identity)
            ]
        except OSError:
            return path
    return os.path.join(folder, same[0]) if len(same) == 1 else path


def _below(root: bytes, folder: bytes) -> bytes:
    if folder == root:
        return b""
    return folder[len(root.rstrip(b"/")) + 1 :]
