"""The database locked, held, damaged, of another version; kills while it is migrated, copied and restored."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

from storage.database import STEPS
from storage.errors import ExitCode
from tests.faults.house import House, require
from tests.faults.places import attempts_of, in_environment
from tests.faults.scenario import Ground

SCRIPT = "delay:30ms"
PAGE = 4096
# Imported by every process at its start: 0.3 s of waiting for a lock stand for 30.
IMPATIENT = """
import storage.database
storage.database.BUSY_TIMEOUT_MS = 300
"""


def locked_for_minutes(ground: Ground) -> None:
    """Somebody else holds the write lock ten times longer than anybody waits for it (time compressed 100 to 1)."""
    with ground.house() as house:
        site = house.place / "site"
        site.mkdir()
        (site / "sitecustomize.py").write_text(IMPATIENT, "ascii")
        with in_environment({"PYTHONPATH": str(site)}):
            process = house.start("watch", script=SCRIPT, lease_s=1.0, max_attempts=3)
        for _ in range(2 if ground.small else 5):
            house.until(lambda: len(house.read_times()) > 2, "the first pages", process)
            other = sqlite3.connect(house.database, timeout=30, isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
            time.sleep(3.0)
            other.execute("ROLLBACK")
            other.close()
            time.sleep(ground.random.uniform(0, 0.5))
        house.until(house.is_over, "the end", process)
        process.terminate()
        require(house.end(process) == 0, f"the daemon ended: {house.said()[-500:]}")
        require(attempts_of(house) == 0, "a locked database costs attempts")
        house.check_end(ground.reference)


def held_by_a_reader(ground: Ground) -> None:
    """Somebody reads in one transaction from the first page to the last: the log grows, nothing waits."""
    with ground.house() as house:
        reader = sqlite3.connect(f"{house.database.as_uri()}?mode=ro", uri=True, isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM pages").fetchone()
        house.end(house.start(script=SCRIPT))
        require(house.is_over(), f"not over: {house.states()}")
        require(reader.execute("SELECT count(*) FROM pages").fetchone()[0] == 0, "the reader saw changes")
        reader.close()
        house.check_end(ground.reference)


def damaged(ground: Ground) -> None:
    """The file is damaged between runs: the last backup takes its place, or the start is refused with the remedy."""
    for number in ground.times(12, 1):
        with_backup = number % 3 != 2
        house = ground.house()
        with house:
            house.end(house.start())
            if with_backup:
                _in_process(house, _BACKUP)
            what = _spoil(house.database, ground.random)
            status = house.end(house.start())
            if with_backup:
                require(house.is_over(), f"{what}: {status} {house.said()[-600:]}")
                kept = list(house.home.glob("ocrd-damaged-*.db"))
                require(kept, f"{what}: the damaged file is not there any more")
                house.check_end(ground.reference)
            else:
                require(status == ExitCode.DATABASE, f"{what}: exit status {status}: {house.said()[-600:]}")
                require("move it away" in house.said(), f"{what}: no remedy: {house.said()[-600:]}")
                house.check_now(ground.reference)
        ground.drop(house)


def _spoil(database: Path, rng: random.Random) -> str:
    """Damage the file as disks do; returns how."""
    for companion in ("-wal", "-shm"):
        database.with_name(database.name + companion).unlink(missing_ok=True)
    size = database.stat().st_size
    how = rng.choice(("header", "noise", "truncated", "empty", "zeros"))
    with database.open("r+b") as file:
        if how == "header":
            file.write(rng.randbytes(100))
        elif how == "truncated":
            file.truncate(rng.randrange(1, size // 2))
        elif how == "empty":
            file.truncate(0)
        else:  # the schema's own pages: what is hit is met
            for page in (1, 2, 3, *(rng.randrange(4, size // PAGE) for _ in range(8))):
                file.seek(page * PAGE)
                file.write(rng.randbytes(PAGE) if how == "noise" else bytes(PAGE))
    return how


_BACKUP = """
import sys, time
from pathlib import Path
from storage import backup
home = Path(sys.argv[1])
backup.make(home / "ocrd.db", home / "backups", time.time(), keep=3)
"""


def _in_process(house: House, code: str, failpoints: str = "") -> int:
    words = [sys.executable, "-c", code, str(house.home)]
    done = subprocess.run(
        words,
        env=os.environ | {"OCRD_FAILPOINTS": failpoints},
        cwd=Path(__file__).parent.parent.parent,
        capture_output=True,
        timeout=120,
        check=False,
    )
    return done.returncode


def killed_while_copied_or_restored(ground: Ground) -> None:
    """A kill at each step of making a backup and of putting one in place: the library is there afterwards, whole."""
    for number in ground.times(3, 3):
        place = ("backup.copied", "restore.ready", "restore.aside")[number]
        house = ground.house()
        with house:
            house.end(house.start())
            if place == "backup.copied":
                require(_in_process(house, _BACKUP, f"{place}=kill") == -9, "it was not killed")
            else:
                _in_process(house, _BACKUP)
                with house.database.open("r+b") as file:
                    file.write(b"\xa5" * 8192)
                require(house.end(house.start(failpoints=f"{place}=kill")) == -9, f"{place} was not reached")
            house.end(house.start())
            house.check_end(ground.reference)
        ground.drop(house)


def other_versions(ground: Ground) -> None:
    """A newer database is refused and left alone; each older one is migrated, through kills, and a copy is kept."""
    house = ground.house()
    with house:
        conn = sqlite3.connect(house.database)
        conn.execute(
            "INSERT INTO _sqlite_migrations (migration_set, name, applied_at) VALUES ('ocrd', 'from_the_future', '')"
        )
        conn.commit()
        conn.close()
        before = house.database.read_bytes()
        require(house.end(house.start()) == ExitCode.DATABASE, "a newer database was used")
        require("newer ocrd" in house.said(), house.said()[-500:])
        require(house.database.read_bytes() == before, "a newer database was changed")
    ground.drop(house)
    older = [*reversed(STEPS[1:]), ""]  # the last but one version first; "": no database yet
    for number in ground.times(len(older), 1):
        step = older[number]
        house = ground.house(fresh=True)
        with house:
            if step:
                _make_older(house.database, step)
            points = (
                f"migrate.step=kill@{ground.random.randint(1, 1 + number)}" if step else "migrate.step=kill@2"
            )
            require(house.end(house.start(failpoints=points)) == -9, "the migration was not killed")
            if step and ground.random.random() < 0.7:
                require(house.end(house.start(failpoints="migrate.copied=kill")) == -9, "no copy was made")
            house.end(house.start())
            house.check_end(ground.reference)
            if step:
                copies = list(house.home.glob("ocrd-before-*.db"))
                require(copies, "no copy of the older database is kept")
                kept = sqlite3.connect(min(copies, key=lambda path: path.stat().st_mtime))
                value = kept.execute("SELECT value FROM control WHERE key = 'kept'").fetchone()
                kept.close()
                require(value == ("old",), "the copy does not hold what the older database held")
        ground.drop(house)


def _make_older(path: Path, step: str) -> None:
    """A database of before that step, with something in it."""
    from sqlite_utils import Database

    from storage.migrations import migrations

    conn = sqlite3.connect(path)
    migrations.apply(Database(conn), stop_before=step)
    conn.execute("INSERT INTO control VALUES ('kept', 'old')")
    conn.commit()
    conn.close()
