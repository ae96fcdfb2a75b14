"""Which file systems raise events."""

from __future__ import annotations

import pytest

from daemon import mounts

MOUNTINFO = rb"""22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 22 0:40 / /mnt/nas\040share rw shared:20 - nfs4 nas:/scans rw,vers=4.2
41 40 8:2 / /mnt/nas\040share/local rw - ext4 /dev/sdb1 rw
42 22 0:41 / /over rw - cifs //a/b rw
43 22 0:42 / /over rw master:3 - tmpfs tmpfs rw
"""
MOUNT = b"""/dev/disk3s1s1 on / (apfs, sealed, local, read-only, journaled)
//me@nas._smb._tcp.local/scans on /Volumes/scans (smbfs, nodev, nosuid, mounted by me)
nas:/x on /Volumes/on (deep) place (nfs)
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        (b"/home/me", "ext4"),
        (b"/mnt/nas share", "nfs4"),
        (b"/mnt/nas share/a/b", "nfs4"),
        (b"/mnt/nas shared", "ext4"),
        (b"/mnt/nas share/local/x", "ext4"),
        (b"/over", "tmpfs"),
    ],
)
def test_the_innermost_latest_mount_decides(path: bytes, kind: str) -> None:
    assert mounts.kind_of(path, mounts.parse_mountinfo(MOUNTINFO)) == kind


def test_the_output_of_mount_is_understood() -> None:
    assert mounts.parse_mount_output(MOUNT) == [
        (b"/", "apfs"),
        (b"/Volumes/scans", "smbfs"),
        (b"/Volumes/on (deep) place", "nfs"),
    ]


@pytest.mark.parametrize(
    "kind", ["nfs", "nfs4", "cifs", "smbfs", "fuse.sshfs", "9p", "webdav", "virtiofs", "afpfs"]
)
def test_remote_file_systems_are_polled(kind: str) -> None:
    assert mounts.is_remote(kind)


@pytest.mark.parametrize(
    "kind", ["ext4", "apfs", "hfs", "btrfs", "xfs", "zfs", "tmpfs", "overlay", "fuseblk"]
)
def test_local_file_systems_are_not(kind: str) -> None:
    assert not mounts.is_remote(kind)


def test_this_very_folder_lies_on_some_file_system(tmp_path: object) -> None:
    assert mounts.file_system(str(tmp_path).encode())
