"""Denied, guarded and missing folders are told apart, with what to do; files in iCloud stay there."""

from __future__ import annotations

import ctypes
import errno
import os
import plistlib
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from daemon import launchd, mac_access, scanner, service
from daemon.ignore import IgnoreRules
from daemon.mac_access import Access
from daemon.scanner import WatchRoot
from daemon.watcher import RootWatcher
from daemon.watching import check_roots
from storage.errors import AccessError
from storage.settings import Settings


@pytest.mark.parametrize(
    ("number", "darwin", "access"),
    [
        (errno.ENOENT, True, Access.MISSING),
        (errno.ENOTDIR, True, Access.NO_FOLDER),
        (errno.EPERM, True, Access.GUARDED),
        (errno.EPERM, False, Access.DENIED),
        (errno.EACCES, True, Access.DENIED),
        (errno.EIO, True, Access.FAILED),
    ],
)
def test_what_the_system_says_is_told_apart(number: int, darwin: bool, access: Access) -> None:
    def refuse(folder: Path) -> None:
        raise OSError(number, os.strerror(number))

    answer = mac_access.look_into(Path("/x"), darwin=darwin, listing=refuse)
    assert answer.access is access and answer.remedy
    if access is Access.GUARDED:
        assert mac_access.program() in answer.remedy and Path(mac_access.program()).is_absolute()


def test_a_folder_that_can_be_listed_is_fine(tmp_path: Path) -> None:
    assert mac_access.look_into(tmp_path).access is Access.OK
    assert mac_access.look_into(tmp_path / "none").access is Access.MISSING


def test_places_kept_in_a_cloud_are_known() -> None:
    user = Path("/Users/you")
    assert mac_access.is_in_cloud(user / "Library/Mobile Documents/com~apple~CloudDocs/Scans", user)
    assert mac_access.is_in_cloud(user / "Library/CloudStorage/Dropbox", user)
    assert not mac_access.is_in_cloud(user / "Scans", user)


class Library:
    def __init__(self, answer: int) -> None:
        self.answer = answer
        self.asked: list[tuple[int, ...]] = []

    def setiopolicy_np(self, *numbers: int) -> int:
        self.asked.append(numbers)
        return self.answer


def test_the_system_is_asked_to_fetch_nothing() -> None:
    library = Library(0)
    assert mac_access.leave_cloud_alone(lambda: library)  # type: ignore[arg-type,return-value]
    assert library.asked == [(3, 0, 1)]
    assert not mac_access.leave_cloud_alone(lambda: Library(-1))  # type: ignore[arg-type,return-value]
    assert not mac_access.leave_cloud_alone(lambda: ctypes.CDLL("/nonexistent.dylib"))


def guard(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Listing the folder fails as macOS's privacy has it fail."""
    real = os.scandir

    def scandir(path: str | bytes) -> object:
        if os.fsdecode(path) == str(folder):
            raise PermissionError(errno.EPERM, "Operation not permitted")
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    monkeypatch.setattr(sys, "platform", "darwin")


def test_status_names_the_program_to_allow(
    settings: Settings,
    conn,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,  # type: ignore[no-untyped-def]
) -> None:
    folder = tmp_path / "Documents"
    folder.mkdir()
    said: list[str] = []
    watcher = RootWatcher(
        WatchRoot(os.fsencode(folder)), settings, IgnoreRules((), frozenset()), conn, now=0.0, on_event=said.append,
        start_observer=lambda root, hints: pytest.fail("polled"), file_system=lambda path: "nfs",
    )  # fmt: skip
    guard(monkeypatch, folder)
    watcher.tick(0.0)
    message = conn.execute("SELECT message FROM roots").fetchone()[0]
    assert "macOS guards this folder" in message and mac_access.program() in message
    assert any("macOS guards" in line for line in said)
    assert not watcher.is_quiet
    monkeypatch.undo()
    watcher.tick(1e6)
    assert "guards" not in (conn.execute("SELECT message FROM roots").fetchone()[0] or "")


def test_a_guarded_folder_is_told_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard(monkeypatch, tmp_path)
    with pytest.raises(AccessError, match="Full Disk Access"):
        check_roots([WatchRoot(os.fsencode(tmp_path))], set())


@pytest.mark.macos
@pytest.mark.skipif(sys.platform != "darwin", reason="needs macOS")
def test_on_a_mac_the_policy_is_taken_and_the_agent_is_valid(tmp_path: Path, settings: Settings) -> None:
    assert mac_access.leave_cloud_alone()
    plan = service.make_plan(settings.home, [tmp_path])
    path = tmp_path / "agent.plist"
    path.write_bytes(launchd.render(replace(plan, label="org.ocrd.test")))
    assert subprocess.run(["/usr/bin/plutil", "-lint", path], check=False).returncode == 0
    assert plistlib.loads(path.read_bytes())["Label"] == "org.ocrd.test"
    assert scanner.SF_DATALESS == 0x40000000
