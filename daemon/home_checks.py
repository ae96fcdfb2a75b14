"""Whether the home folder and what it depends on are in order: permissions, disk, limits, clock, database, service."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from daemon import console, mac_access, mounts
from daemon.diagnosis import Level, Result
from storage import backup
from storage.control import LOW_BYTES
from storage.errors import OcrdError

if TYPE_CHECKING:
    from storage.settings import Settings

TIGHT_BYTES = 2 << 30
CLOCK_APART_S = 5.0
FIRST_DAY = 1_735_689_600.0  # 2025-01-01: clocks before that are not set
COUNT_S = 3.0  # for counting folders
INOTIFY = Path("/proc/sys/fs/inotify/max_user_watches")


def permissions(settings: Settings) -> Iterator[Result]:
    """The home is the owner's alone and can be written; folders can be listed, outputs written."""
    home = settings.home
    if not home.exists():
        yield Result("home", Level.OK, f"{home} does not exist yet")
        return
    yield from _home_mode(home)
    try:
        with tempfile.TemporaryFile(dir=home):
            pass
    except OSError as error:
        yield Result(
            "home",
            Level.FAULT,
            f"{home} cannot be written to: {error.strerror}",
            f"run: chmod u+rwx '{home}'",
        )
    kind = mounts.file_system(os.fsencode(home))
    if kind is not None and mounts.is_remote(kind):
        remedy = "set OCRD_HOME to a folder on a local disk: SQLite's locks cannot be trusted there"
        yield Result("home", Level.FAULT, f"{home} lies on a network file system ({kind})", remedy)
    for path in _roots(settings):
        answer = mac_access.look_into(path)
        level = Level.OK if answer.access is mac_access.Access.OK else Level.FAULT
        yield Result(
            "folders", level, f"{path}{': ' + answer.message if answer.message else ''}", answer.remedy
        )
        if mac_access.is_in_cloud(path, Path.home()):
            remedy = "in Finder choose Keep Downloaded for the folder, or watch another"
            yield Result(
                "folders", Level.WARNING, f"{path} is in a cloud: files wait until they are here", remedy
            )
    if settings.out is not None and settings.out.exists() and not os.access(settings.out, os.W_OK):
        remedy = "choose another --out, or allow writing there"
        yield Result("out", Level.FAULT, f"{settings.out} cannot be written to", remedy)


def _home_mode(home: Path) -> Iterator[Result]:
    mode = stat.S_IMODE(home.stat().st_mode)
    if mode & 0o077:
        remedy = f"run: chmod 700 '{home}'"
        yield Result("home", Level.WARNING, f"others may look into {home} (mode {mode:04o})", remedy)
    else:
        yield Result("home", Level.OK, f"{home} is yours alone")
    for path in sorted(home.glob("*")):
        mode = stat.S_IMODE(path.stat().st_mode)
        if path.is_file() and mode & 0o077 and path.name != "ocrd.toml":
            yield Result(
                "home", Level.WARNING, f"others may read {path} (mode {mode:04o})", f"run: chmod 600 '{path}'"
            )


def disk(settings: Settings) -> Iterator[Result]:
    """Space where we write."""
    for path in filter(None, (settings.home, settings.out)):
        place = path
        while not place.exists() and place != place.parent:
            place = place.parent
        free = shutil.disk_usage(place).free
        message = f"{console.size(free)} are free for {path}"
        if free < LOW_BYTES:
            yield Result("disk", Level.FAULT, message, "free some space; reading pauses until then")
        elif free < TIGHT_BYTES:
            yield Result("disk", Level.WARNING, message, "free some space")
        else:
            yield Result("disk", Level.OK, message)


def inotify(settings: Settings, limit_file: Path = INOTIFY) -> Iterator[Result]:
    """Linux tells of changes in so many folders and no more."""
    try:
        limit = int(limit_file.read_text("ascii"))
    except (OSError, ValueError):
        return  # not Linux
    roots = _roots(settings)
    count = count_folders(roots, limit)
    told = f"{limit:,} folders may be watched, there are {count:,}"
    if count >= limit * 0.9 or count > limit:
        remedy = f"run: sudo sysctl fs.inotify.max_user_watches={max(count * 2, 524_288)} (until then they are polled)"
        yield Result("inotify", Level.WARNING, told, remedy)
    else:
        yield Result("inotify", Level.OK, told)


def count_folders(roots: list[Path], most: int, *, monotonic: Callable[[], float] = time.monotonic) -> int:
    """Folders at and below the roots, as far as counted in a few seconds, at most one more than `most`."""
    deadline, count = monotonic() + COUNT_S, 0
    for root in roots:
        for _ in os.walk(root):
            count += 1
            if count > most or monotonic() > deadline:
                return count
    return count


def clock(settings: Settings, now: float | None = None) -> Iterator[Result]:
    """The clock is set, agrees with that of the disk, and has not gone back behind what was noted."""
    now = time.time() if now is None else now
    shown = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now))
    remedy = "set the clock (on Linux: timedatectl set-ntp true)"
    if now < FIRST_DAY:
        yield Result("clock", Level.FAULT, f"it says {shown}", remedy)
        return
    if settings.home.exists():
        with tempfile.NamedTemporaryFile(dir=settings.home, prefix=".clock-") as file:
            apart = Path(file.name).stat().st_mtime - time.time()
        if abs(apart) > CLOCK_APART_S:
            yield Result("clock", Level.WARNING, f"the disk's clock is {apart:+.0f} s apart", remedy)
    latest = _latest(settings)
    if latest is not None and latest > now + CLOCK_APART_S:
        yield Result(
            "clock",
            Level.WARNING,
            f"it went back by {console.duration(latest - now)} since the last page",
            remedy,
        )
    yield Result("clock", Level.OK, shown)


def database(settings: Settings) -> Iterator[Result]:
    """The file is whole; it has copies; who works on it."""
    from storage.database import open_readonly

    path = settings.database_path
    if not path.exists():
        yield Result("database", Level.OK, "there is none yet")
        return
    restore = "run `ocrd batch` or `ocrd watch`: the last backup is put in its place"
    if faults := backup.check(path):
        remedy = (
            restore
            if backup.copies(settings.backups_path)
            else "move it away to start anew: there is no backup"
        )
        yield Result("database", Level.FAULT, f"damaged: {faults[0]}", remedy)
        return
    with contextlib.closing(open_readonly(path)) as conn:
        files, pages = (
            conn.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("files", "pages")
        )
        problem = conn.execute("SELECT value FROM control WHERE key = 'backup_problem'").fetchone()
    about = f"{console.plural(files, 'file')}, {console.plural(pages, 'page')}, {console.size(path.stat().st_size)}"
    yield Result("database", Level.OK, f"whole: {about}")
    for aside in sorted(settings.home.glob("ocrd-damaged-*.db")):
        yield Result(
            "database", Level.WARNING, f"a damaged one is kept: {aside}", "delete it once you miss nothing"
        )
    yield _copies(settings, None if problem is None else str(problem[0]))


def _copies(settings: Settings, problem: str | None) -> Result:
    if problem is not None:
        return Result("backups", Level.WARNING, f"the last one failed: {problem}", "see `ocrd service logs`")
    found = backup.copies(settings.backups_path)
    if not settings.backups:
        return Result("backups", Level.WARNING, "none are made", "set `backups` in the settings")
    if not found:
        return Result("backups", Level.OK, "none yet: the first is made once ocrd has worked for a minute")
    age_s = time.time() - backup.taken_at(found[0])
    return Result(
        "backups", Level.OK, f"{len(found)} kept, the last is {console.duration(max(0.0, age_s))} old"
    )


def service(settings: Settings) -> Iterator[Result]:
    """The service's program is still there."""
    from daemon import service as services

    plan = services.make_plan(settings.home, [])
    manager = services.manager(services.kind_here(), plan)
    if not manager.path.exists():
        return
    if sys.executable not in manager.path.read_text("utf-8", "replace"):
        remedy = "run `ocrd service install` again with your folders"
        yield Result("service", Level.WARNING, f"{manager.path} runs another ocrd than this one", remedy)
    else:
        yield Result("service", Level.OK, f"{manager.path} runs this ocrd")


def _roots(settings: Settings) -> list[Path]:
    """The folders that a daemon watched last."""
    return [
        Path(os.fsdecode(row[0]))
        for row in _ask(settings, "SELECT path_bytes FROM roots ORDER BY path_bytes")
    ]


def _latest(settings: Settings) -> float | None:
    rows = _ask(settings, "SELECT max(finished_at) FROM page_jobs WHERE finished_at IS NOT NULL")
    return None if not rows or rows[0][0] is None else float(rows[0][0])


def _ask(settings: Settings, query: str) -> list[sqlite3.Row]:
    from storage.database import open_readonly

    try:
        with contextlib.closing(open_readonly(settings.database_path)) as conn:
            return conn.execute(query).fetchall()
    except (OcrdError, sqlite3.Error):
        return []  # the check of the database says why
