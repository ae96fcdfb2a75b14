"""Places where faults are injected: named once, used, and nothing without the switch."""

from __future__ import annotations

import inspect
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from storage import failpoints

ROOT = Path(__file__).parent.parent.parent
CALL = re.compile(r"""\breach\("([a-z.]+)"\)""")


def used() -> set[str]:
    return {
        name
        for package in ("storage", "pipeline", "daemon")
        for path in (ROOT / package).rglob("*.py")
        for name in CALL.findall(path.read_text("utf-8"))
    }


def test_every_place_is_on_the_list_and_every_entry_is_a_place() -> None:
    assert used() == set(failpoints.NAMES)


def test_every_migration_can_be_broken_off() -> None:
    from storage.migrations import migrations

    for step in migrations._migrations:
        assert 'reach("migrate.step")' in inspect.getsource(step.fn), step.name


def run(points: str, code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", f"from storage.failpoints import reach\n{code}"],
        env=os.environ | {failpoints.VARIABLE: points},
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )


def test_without_the_switch_nothing_happens() -> None:
    failpoints.reach("page.read")
    failpoints.reach("no such place")  # not even looked up: it costs nothing


@pytest.mark.parametrize(
    ("action", "ending"),
    [("kill", signal.SIGKILL), ("abort", signal.SIGABRT), ("segfault", signal.SIGSEGV)],
)
def test_the_process_ends_as_asked(action: str, ending: signal.Signals) -> None:
    done = run(
        f"page.read={action}@2", "reach('page.saved'); reach('page.read'); print('once', flush=True)\n" * 2
    )
    assert (done.returncode, done.stdout) == (-ending, "once\n")


def test_only_the_first_process_to_make_the_file_is_meant(tmp_path: Path) -> None:
    points = f"page.read=kill?{tmp_path / 'mark'}"
    assert [run(points, "reach('page.read')").returncode for _ in range(2)] == [-signal.SIGKILL, 0]


def test_an_error_is_raised_by_its_name() -> None:
    done = run(
        "page.read=error:ENOSPC", "try: reach('page.read')\nexcept OSError as error: print(error.errno)"
    )
    assert done.stdout == "28\n"


@pytest.mark.parametrize("points", ["no.place=kill", "page.read=jump", "page.read"])
def test_what_is_not_there_is_refused(points: str) -> None:
    with pytest.raises(ValueError, match="no such"):
        failpoints.parse(points)
