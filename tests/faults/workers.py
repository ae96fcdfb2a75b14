"""Workers that hang, leak, crash and abort: replaced, the page tried again, then set aside; all else goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable

from tests.faults import bombs
from tests.faults.house import House, require
from tests.faults.scenario import Ground
from tests.pdf_factory import Page, pdf, picture, scan

ENDINGS = ("hang", "segfault", "abort", "kill")
QUICK = {"page_timeout_s": 4.0, "lease_s": 2.0}


def worker_that_ends_once(ground: Ground) -> None:
    """A worker hangs in native code, segfaults or aborts at a page, once: the page is read at the second try."""
    for number in ground.times(len(ENDINGS) * 2, 1):
        ending = ENDINGS[(number + ground.seed) % len(ENDINGS)]
        place = "page.read" if number < len(ENDINGS) else "rasterise.draw"
        with ground.house() as house:
            marker = house.place / "mark"
            points = f"{place}={ending}@{ground.random.randint(1, 6)}?{marker}"
            process = house.start(failpoints=points, max_attempts=3, **QUICK)
            house.end(process)
            require(marker.exists(), f"{ending} was never reached")
            house.check_end(ground.reference)
        ground.drop(house)


def page_that_always_ends_it(ground: Ground) -> None:
    """A page that kills its worker each time fails after three tries, with the reason; all others are read."""
    for number in ground.times(3, 1):
        script = ("crash:3", "hang:3", "crash:3")[number]
        workers = (1, 2, 2)[number]
        with ground.house() as house:
            house.end(house.start(script=script, max_attempts=3, workers=workers, **QUICK), within_s=240)
            with house.looking() as conn:
                failed = conn.execute(
                    "SELECT path, page, page_jobs.attempts, page_jobs.error_code FROM page_jobs"
                    " JOIN files USING (document_id)"
                    " WHERE page_jobs.state = 'failed' ORDER BY path"
                ).fetchall()
            require(failed, "no page failed")
            for row in failed:
                require(
                    (row["page"], row["attempts"], row["error_code"]) == (3, 3, "crash"), f"odd: {tuple(row)}"
                )
            others = {name for name in ground.reference if not any(str(row["path"]).endswith(
                name.rpartition(".")[0]) for row in failed)}  # fmt: skip
            written = {str(path.relative_to(house.out)) for path in house.out.rglob("*") if path.is_file()}
            require(others <= written, f"not written: {others - written}")
            require(house.is_over(), f"not over: {house.states()}")
            house.check_index()
        ground.drop(house)


def worker_that_leaks(ground: Ground) -> None:
    """A worker grows beyond its ceiling, within a page too: it is replaced or ended, and everything is read."""
    limits = {"worker_memory_mb": 300}
    with ground.house() as house:  # a bit with each page: replaced between pages
        house.end(house.start(failpoints="page.read=leak:64", **limits), within_s=240)
        require("fresh worker" in house.log() or "recycled" in house.log(), "no worker was replaced")
        house.check_end(ground.reference)
    ground.drop(house)
    with ground.house() as house:  # without end, in one page
        marker = house.place / "mark"
        process = house.start(failpoints=f"page.read=leak:6000@2?{marker}", page_timeout_s=60, **limits)
        most = 0.0
        while process.poll() is None:
            most = max([most, *(_memory_mb(pid) for pid in house.workers(process))])
            require(most < 1500, f"a worker grew to {most:.0f} MiB although {limits} were set")
            time.sleep(0.1)
        house.check_end(ground.reference)
        ground.note(f"a worker allowed 300 MiB was ended at {most:.0f} MiB")
    ground.drop(house)


def _memory_mb(pid: int) -> float:
    from daemon import processes

    return processes.rss_mb(pid)


def orphan_that_hangs(ground: Ground) -> None:
    """The supervisor is killed while its worker hangs for ever: the next start ends the worker and reads the page."""
    with ground.house() as house:
        marker = house.place / "mark"
        process = house.start(failpoints=f"page.read=hang@2?{marker}", workers=1, **QUICK)
        _orphan(house, process, marker.exists)
        house.check_end(ground.reference)
    ground.drop(house)


def orphan_that_beats(ground: Ground) -> None:
    """As before, and the hanging worker goes on telling that it lives."""
    with ground.house() as house:
        _orphan(house, house.start(script="hang", workers=1, **QUICK), lambda: _is_reading(house))
        house.check_end(ground.reference)
    ground.drop(house)


def _orphan(house: House, supervisor: subprocess.Popen[bytes], hangs: Callable[[], object]) -> None:
    """The supervisor is killed once its worker hangs, and another runs to the end: the worker is no more."""
    house.until(hangs, "the hang", supervisor)
    orphans = house.workers(supervisor)
    os.kill(supervisor.pid, signal.SIGKILL)
    supervisor.wait()
    house.end(house.start(workers=1, **QUICK))
    house.gone(orphans)


def _is_reading(house: House) -> bool:
    with house.looking() as conn:
        row = conn.execute("SELECT count(*) FROM workers WHERE stage = 'read'").fetchone()
    return bool(row[0])


def page_that_takes_years(ground: Ground) -> None:
    """PDFium itself never comes back from a page: ended three times, set aside with the reason, all else is read."""
    folder = ground.folder / "in"
    folder.mkdir(parents=True)
    for number in range(6):
        page = Page(picture(0, 0, 0, 612, 792), images=[scan([(f"letter {number}", 60, 700, 14)], dpi=40)])
        (folder / f"letter-{number}.pdf").write_bytes(pdf(page))
    (folder / "years.pdf").write_bytes(bombs.pdf_nested())
    house = House(ground.folder / "house", folder)
    house.give_database(ground.empty_database)
    with house:
        house.end(house.start(max_attempts=3, **QUICK), within_s=240)
        found = house.states()
        with house.looking() as conn:
            years = conn.execute(
                "SELECT page_jobs.state, page_jobs.attempts, page_jobs.error_code FROM page_jobs"
                " JOIN files USING (document_id) WHERE path LIKE '%years.pdf'"
            ).fetchone()
        require(tuple(years) == ("failed", 3, "crash"), f"the page ended as {tuple(years)}")
        others = {state for name, (state, _) in found.items() if name != "years.pdf"}
        require(others == {"done"}, f"the others: {found}")
        house.check_index()
