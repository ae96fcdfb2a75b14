"""A library under fault: real processes at work on it, and everything that must hold afterwards."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from storage.database import open_database, open_readonly
from storage.verify import check_database
from tests.faults import inputs

DEADLINE_S = 120.0
ENDED = ("done", "failed", "needs_password", "missing")
# Names of files that are only there while something is being written.
TEMPORARY = re.compile(
    r"\.tmp$|\.tmp-journal$|^\.writing-|^\.making|^\.ocrd-|\.restored$|-journal$|^\.clock-"
)
_TIMES = re.compile(rb'("read_at": )("[^"]*"|null)|("seconds": )\{[^}]*\}')


class Broken(AssertionError):
    """Something that must hold does not."""


def require(true: object, what: str) -> None:
    """Raise `Broken` where it is not so."""
    if not true:
        raise Broken(what)


def timeless(data: bytes) -> bytes:
    """A sidecar but for the times in its provenance."""
    head, mark, tail = data.rpartition(b'"provenance": ')
    return head + mark + _TIMES.sub(rb"\1\3", tail) if mark else data


def tree(folder: Path) -> dict[str, bytes]:
    """Path below `folder` → content, of all files."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def hashes(folder: Path) -> dict[str, str]:
    """Path below `folder` → SHA-256."""
    return {name: hashlib.sha256(data).hexdigest() for name, data in tree(folder).items()}


def temporaries(*folders: Path) -> list[str]:
    """Temporary files anywhere below."""
    return sorted(
        str(path)
        for folder in folders
        for path in folder.rglob("*")
        if path.is_file() and TEMPORARY.search(path.name)
    )


@dataclass
class House:
    """Inputs, a home and an output folder below `place`. `home` and `out` may lie elsewhere (a small disk)."""

    place: Path
    inputs: Path
    home: Path = field(default=Path())
    out: Path = field(default=Path())
    settings: dict[str, str] = field(default_factory=dict)  # OCRD_* for every process
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.place.mkdir(parents=True, exist_ok=True)
        self.home = self.home if self.home != Path() else self.place / "home"
        self.out = self.out if self.out != Path() else self.place / "out"
        self.home.mkdir(mode=0o700, exist_ok=True)
        self.originals = hashes(self.inputs)

    @property
    def database(self) -> Path:
        """The database's file."""
        return self.home / "ocrd.db"

    def give_database(self, empty: Path) -> None:
        """Start from a migrated database: making one takes seconds, and is a scenario of its own."""
        shutil.copy(empty, self.database)

    # --- processes -----------------------------------------------------------------------------------

    def start(
        self,
        command: str = "batch",
        *,
        failpoints: str = "",
        script: str = "",
        engine: str = "fake",
        **settings: object,
    ) -> subprocess.Popen[bytes]:
        """`ocrd batch` or `ocrd watch` over the inputs, as a process of its own. Its output goes to `place/said`."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("OCRD_")}
        wanted = {"settle_s": 0.1, "workers": 2, "calibrate": "false", "max_attempts": 20, "rescan_s": 2.0}
        wanted |= self.settings | settings
        environment |= {f"OCRD_{name.upper()}": str(value) for name, value in wanted.items()}
        environment |= {"OCRD_FAILPOINTS": failpoints, "OCRD_FAKE_SCRIPT": script, "PYTHONUTF8": "1"}
        words = [sys.executable, "-m", "daemon", command, str(self.inputs)]
        words += ["--home", str(self.home), "--out", str(self.out), "--engine", engine]
        with (self.place / "said").open("ab") as said:
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                env=environment,
                start_new_session=True,
            )
        self.started.append(process)
        return process

    def said(self) -> str:
        """All that processes printed."""
        with contextlib.suppress(OSError):
            return (self.place / "said").read_text("utf-8", "replace")
        return ""

    def log(self) -> str:
        """The end of the log."""
        with contextlib.suppress(OSError):
            return (self.home / "ocrd.log").read_text("utf-8", "replace")[-6000:]
        return ""

    def workers(self, supervisor: subprocess.Popen[bytes]) -> list[int]:
        """The processes that a supervisor started."""
        with contextlib.suppress(psutil.Error):
            return [child.pid for child in psutil.Process(supervisor.pid).children()]
        return []

    def end(self, process: subprocess.Popen[bytes], within_s: float = DEADLINE_S) -> int:
        """Wait for a process; `Broken` where it takes too long."""
        try:
            return process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise Broken(f"it did not end within {within_s:.0f} s: {self.states()}\n{self.log()}") from None

    def gone(self, pids: list[int], within_s: float = 30.0) -> None:
        """Wait until processes have ended by themselves."""
        deadline = time.monotonic() + within_s
        while left := [pid for pid in pids if _runs(pid)]:
            require(time.monotonic() < deadline, f"{left} still run {within_s:.0f} s after their supervisor")
            time.sleep(0.05)

    def until(
        self,
        true: Callable[[], object],
        what: str,
        process: subprocess.Popen[bytes],
        within_s: float = DEADLINE_S,
    ) -> None:
        """Wait until it is true, as long as the process runs."""
        deadline = time.monotonic() + within_s
        while not true():
            if process.poll() is not None or time.monotonic() > deadline:
                raise Broken(
                    f"waited in vain for {what} (exit {process.poll()}): {self.states()}\n{self.said()[-800:]}\n"
                    f"{self.log()}"
                )
            time.sleep(0.05)

    def close(self) -> None:
        """End what still runs."""
        for process in self.started:
            pids = [*self.workers(process), *([process.pid] if process.poll() is None else [])]
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait()
        self.started.clear()

    def __enter__(self) -> House:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- what is there -------------------------------------------------------------------------------

    @contextlib.contextmanager
    def looking(self) -> Iterator[sqlite3.Connection]:
        """The database, read-only."""
        conn = open_readonly(self.database)
        try:
            yield conn
        finally:
            conn.close()

    def states(self) -> dict[str, tuple[str, str]]:
        """Input → state and error code."""
        try:
            with self.looking() as conn:
                rows = conn.execute("SELECT path, state, error_code FROM file_status").fetchall()
        except Exception as error:
            return {"": ("no database", str(error))}
        base = str(self.inputs) + "/"
        return {row["path"].removeprefix(base): (row["state"], row["error_code"] or "") for row in rows}

    def is_over(self) -> bool:
        """Whether all inputs are known, and ended."""
        found = self.states()
        return len(found) >= len(self.originals) and all(state in ENDED for state, _ in found.values())

    def pauses(self) -> list[str]:
        """Kinds of the pauses in force."""
        with self.looking() as conn:
            return [row[0].partition(":")[2] for row in conn.execute(
                "SELECT key FROM control WHERE key LIKE 'pause:%'"
            )]  # fmt: skip

    def read_times(self) -> dict[tuple[int, int], float]:
        """Document and page → when it was read."""
        try:
            with self.looking() as conn:
                rows = conn.execute("SELECT document_id, page, read_at FROM pages").fetchall()
        except Exception:
            return {}
        return {(row[0], row[1]): row[2] for row in rows}

    # --- what must hold ------------------------------------------------------------------------------

    def check_now(self, reference: dict[str, bytes]) -> None:
        """What holds at any moment: originals as they were, every sidecar that is there whole and right."""
        require(hashes(self.inputs) == self.originals, "an original changed")
        for name, data in tree(self.out).items() if self.out.is_dir() else ():
            if not TEMPORARY.search(Path(name).name):
                require(name in reference, f"an unexpected file {name}")
                require(
                    timeless(data) == timeless(reference[name]),
                    f"{name} is not what an undisturbed run writes",
                )

    def check_end(self, reference: dict[str, bytes], *, ends: dict[str, str] | None = None) -> None:
        """What holds after the restart: everything ended as it does undisturbed, once, and nothing is left over."""
        self.check_now(reference)
        found, expected = self.states(), inputs.ENDS if ends is None else ends
        require(set(found) == set(self.originals), f"not each input once: {set(found) ^ set(self.originals)}")
        for name, (state, code) in found.items():
            wanted = expected.get(name, "done")
            require(state == wanted, f"{name} is {state} ({code}) and not {wanted}")
            require(state == "done" or code, f"{name} is {state} without a reason")
        require(set(tree(self.out)) == set(reference), f"sidecars: {set(tree(self.out)) ^ set(reference)}")
        if left := temporaries(self.inputs, self.out, self.home):
            raise Broken(f"temporary files are left: {left}")
        self.check_index()

    def check_index(self) -> None:
        """The database is whole and counts right; no process is said to work."""
        conn = open_database(self.database)
        try:
            faults = [finding.message for finding in check_database(conn, self.database)]
            require(not faults, f"the index: {faults}")
            faults = [row[0] for row in conn.execute("PRAGMA integrity_check") if row[0] != "ok"]
            require(not faults, f"the database: {faults}")
            twice = conn.execute(
                "SELECT count(*) FROM (SELECT 1 FROM pages GROUP BY document_id, page HAVING count(*) > 1)"
            ).fetchone()[0]
            require(twice == 0, f"{twice} pages are there twice")
            held = conn.execute("SELECT count(*) FROM page_jobs WHERE lease_owner IS NOT NULL").fetchone()[0]
            require(held == 0, f"{held} pages are held by nobody")
            require(conn.execute("SELECT count(*) FROM workers").fetchone()[0] == 0, "workers are left")
        finally:
            conn.close()


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def reference_of(house: House) -> dict[str, bytes]:
    """The sidecars of an undisturbed run."""
    with house:
        house.end(house.start())
        require(house.is_over(), f"the undisturbed run: {house.states()} {house.said()[-500:]}")
        found = tree(house.out)
        house.check_end(found)
        body = json.loads(found["pictures/several.tiff.json"])
        require(len(body["pages"]) == 3, "the reference itself is wrong")
    return found
