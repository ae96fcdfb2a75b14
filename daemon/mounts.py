"""What kind of file system a folder lies on, and whether change events arrive from there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable

# Changes made by another machine (or on the other side of a virtual machine) raise no events here.
# fmt: off
REMOTE = frozenset(
    (
        "nfs", "nfs3", "nfs4", "cifs", "smb", "smb2", "smb3", "smbfs", "afpfs", "afs", "ncpfs", "webdav",
        "davfs", "davfs2", "9p", "v9fs", "ceph", "glusterfs", "lustre", "beegfs", "virtiofs", "vboxsf",
        "vmhgfs", "prl_fs", "osxfs", "macfuse", "osxfuse", "drvfs",
    )
)
# fmt: on
# Any FUSE (sshfs, rclone, s3fs, grpcfuse) but these: what happens at its far end raises no event.
_LOCAL_FUSE = frozenset(
    ("fuseblk", "fuse.ntfs-3g", "fuse.ntfs", "fuse.exfat", "fuse.fuse-overlayfs", "fuse.mergerfs")
)


def is_remote(kind: str) -> bool:
    """Whether a file system of this type hides changes made elsewhere."""
    kind = kind.lower()
    return kind in REMOTE or (kind.startswith("fuse") and kind not in _LOCAL_FUSE)


def file_system(path: bytes) -> str | None:
    """Type of the file system `path` lies on ("ext4", "nfs4", "apfs"); None where it cannot be told."""
    try:
        mounts = _linux_mounts() if sys.platform.startswith("linux") else _bsd_mounts()
    except (OSError, subprocess.SubprocessError):
        return None
    return kind_of(os.path.realpath(path), mounts)


def kind_of(path: bytes, mounts: Iterable[tuple[bytes, str]]) -> str | None:
    """Type of the innermost mount `path` lies below; of two at one place the later one."""
    best: tuple[int, str] | None = None
    for place, kind in mounts:
        inside = place == b"/" or path == place or path.startswith(place + b"/")
        if inside and (best is None or len(place) >= best[0]):
            best = (len(place), kind)
    return best[1] if best else None


def parse_mountinfo(text: bytes) -> list[tuple[bytes, str]]:
    """(mount point, type) per line of Linux's /proc/self/mountinfo."""
    mounts = []
    for line in text.splitlines():
        fields = line.split(b" ")
        if len(fields) > 6 and b"-" in fields[6:]:
            place = re.sub(rb"\\([0-7]{3})", lambda match: bytes([int(match[1], 8)]), fields[4])
            kind = fields[fields.index(b"-", 6) + 1]
            mounts.append((place, kind.decode("ascii", "replace")))
    return mounts


def parse_mount_output(text: bytes) -> list[tuple[bytes, str]]:
    """(mount point, type) per line of macOS's `mount`: `//me@nas/share on /Volumes/share (smbfs, nodev)`."""
    found = re.finditer(rb"^.*? on (/.*) \(([A-Za-z0-9_]+)[,)]", text, re.MULTILINE)
    return [(match[1], match[2].decode("ascii")) for match in found]


def _linux_mounts() -> list[tuple[bytes, str]]:
    with open("/proc/self/mountinfo", "rb") as lines:
        return parse_mountinfo(lines.read())


def _bsd_mounts() -> list[tuple[bytes, str]]:
    return parse_mount_output(
        subprocess.run(["/sbin/mount"], capture_output=True, check=True, timeout=10).stdout
    )
