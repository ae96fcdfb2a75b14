"""Takes the pictures of docs/screenshots: each page of `ocrd serve`, light and dark, and the reader on a phone.

    .venv/bin/python tools/screenshots.py

A library is read from samples/, ledgers made up here, and files that cannot be read. So that the charts show a day of a
model's and not a minute, their numbers are made up, as is when files came.
Needs Playwright (`uv sync`) and Chromium (OCRD_CHROMIUM, or `chromium` on the path).
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.daemon.conftest import pdf_of  # noqa: E402
from tests.e2e.conftest import FLAGS  # noqa: E402
from tests.e2e.watching import watch  # noqa: E402

OUT = ROOT / "docs" / "screenshots"
MOST_BYTES = 200_000
DESKTOP = {"viewport": {"width": 1200, "height": 760}}
TALL = {"viewport": {"width": 1200, "height": 1020}}
PHONE = {"viewport": {"width": 390, "height": 760}, "device_scale_factor": 1, "has_touch": True}
THEMES = ("light", "dark")
PAGES = {
    "search": "/?q=harbour+dues",
    "reader": "/documents/{letter}?q=harbour",
    "library": "/library",
}
READY = ".hit, .document, .sheet:not(.is-loading) img, .chart svg"


SENTENCES = (
    "The {ship} of {port} paid {n} shillings at the {place}.",
    "Master {name} entered {n} casks of lamp oil for the {place}.",
    "Nothing came in on account of the gale; the {ship} lay outside the bar.",
    "Received of {name}, harbour dues for the quarter, {n} pounds.",
    "The pilot was paid {n} shillings for bringing in the {ship} by night.",
    "Rope and canvas for the {place}, of {name}, as by bill.",
    "The {ship} sailed for {port} with slate and {n} passengers.",
    "Mended the steps of the {place}; two men, {n} days.",
)
FILL = {
    "ship": ("Amity", "Good Intent", "Kittiwake", "Perseverance", "Two Brothers"),
    "port": ("Cardiff", "Bristol", "Waterford", "Falmouth", "Roscoff"),
    "place": ("inner quay", "lighthouse", "fish cellar", "weigh house", "slip"),
    "name": ("Pellow", "Thornbury", "Widow Rundle", "Carne", "Tregenza"),
}


def fill(folder: Path) -> None:
    """The samples, ledgers beside them, and files that cannot be read."""
    rng = random.Random(7)
    for sub in ("Letters", "Receipts", "Ledgers"):
        (folder / sub).mkdir(parents=True)
    shutil.copy(ROOT / "samples" / "letter-scan.pdf", folder / "Letters" / "1957-03-14 Harbour Trust.pdf")
    shutil.copy(ROOT / "samples" / "receipt-photo.jpg", folder / "Receipts" / "Pellow & Daughter.jpg")
    shutil.copy(ROOT / "samples" / "paper.pdf", folder / "Letters" / "Reading an archive.pdf")
    shutil.copy(ROOT / "tests" / "data" / "encrypted.pdf", folder / "Letters" / "Statement.pdf")
    (folder / "Receipts" / "Torn.pdf").write_bytes(b"%PDF-1.7\nnothing more of it came")
    for year in range(1871, 1885):
        pages = ["\n".join(_entry(rng) for _ in range(20)) for _ in range(rng.randint(2, 14))]
        (folder / "Ledgers" / f"Dues {year}.pdf").write_bytes(pdf_of(pages))


def _entry(rng: random.Random) -> str:
    values = {key: rng.choice(words) for key, words in FILL.items()}
    return rng.choice(SENTENCES).format(n=rng.randint(2, 60), **values)


def read(base: Path) -> None:
    """Read all of it."""
    command = [sys.executable, "-m", "daemon", "batch", str(base / "Papers"), "--engine", "classic"]
    command += ["--out", str(base / "out"), "--home", str(base / "home"), "-q"]
    subprocess.run(command, cwd=ROOT, env=os.environ | {"OCRD_CALIBRATE": "false"}, check=False)
    spread(base / "home" / "ocrd.db")


def spread(database: Path) -> None:
    """Let it have been read over a day, partly by a model; files have come over some weeks."""
    rng = random.Random(3)
    now = time.time()
    with contextlib.closing(sqlite3.connect(database)) as conn, conn:
        conn.execute("DELETE FROM reading_hours")
        for ago in range(24):
            pages = int(rng.triangular(0, 900, 500)) if not 3 <= ago < 8 else 0
            passes = pages * rng.randint(150, 220)
            accepted = int(passes * (3.4 + rng.random() + (24 - ago) / 12))
            conn.execute(
                "INSERT INTO reading_hours (hour, read_by, pages, tokens, target_passes, drafted, accepted)"
                " VALUES (?, 'vlm', ?, ?, ?, ?, ?)",
                (int(now // 3600 - ago) * 3600, pages, accepted + passes, passes, passes * 9, accepted),
            )
        for (file,) in conn.execute("SELECT id FROM files").fetchall():
            conn.execute(
                "UPDATE files SET first_seen = ? WHERE id = ?", (now - rng.random() ** 2 * 2e6, file)
            )


def queue(folder: Path) -> None:
    """Scans that are read while the status is looked at."""
    scan = (ROOT / "samples" / "letter-scan.pdf").read_bytes()
    for number in range(17, 24):
        (folder / "Letters" / f"Box {number}.pdf").write_bytes(scan + b"\n" * number)


def letter_id(browser: Browser, url: str) -> int:
    """The document that the reader is shown with."""
    context = browser.new_context()
    found = context.request.get(f"{url}/api/documents?name=Harbour+Trust").json()["documents"]
    context.close()
    return int(found[0]["id"])


def take(browser: Browser, url: str, name: str, path: str, theme: str, options: dict[str, object]) -> None:
    """One picture, with few colours, so that it is small. Raises: `SystemExit` where it is not."""
    context = browser.new_context(color_scheme=theme, **options)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(url + path)
    page.locator(READY).first.wait_for(timeout=60_000)
    page.wait_for_timeout(1200)
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    target = OUT / f"{name}-{theme}.png"
    picture.quantize(256, method=Image.Quantize.MAXCOVERAGE, kmeans=2, dither=Image.Dither.NONE).save(
        target, optimize=True
    )
    print(f"{target.relative_to(ROOT)} {target.stat().st_size} bytes")
    if target.stat().st_size > MOST_BYTES:
        raise SystemExit(f"{target} has more than {MOST_BYTES} bytes")
    context.close()


def main() -> None:
    """All of them."""
    chromium = os.environ.get("OCRD_CHROMIUM") or shutil.which("chromium")
    if chromium is None:
        raise SystemExit("chromium is not installed, nor named by OCRD_CHROMIUM")
    OUT.mkdir(parents=True, exist_ok=True)
    base = Path(tempfile.gettempdir()) / "harbour"
    base.mkdir()  # its name is seen in the pictures; whoever has one there keeps it
    try:
        fill(base / "Papers")
        read(base)
        with watch(base) as running, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
            letter = letter_id(browser, running.url)
            for theme in THEMES:
                for name, path in PAGES.items():
                    take(browser, running.url, name, path.format(letter=letter), theme, DESKTOP)
                take(browser, running.url, "phone", PAGES["search"], theme, PHONE)
            queue(base / "Papers")
            for theme in THEMES:
                take(browser, running.url, "status", "/status", theme, TALL)
            browser.close()
    finally:
        shutil.rmtree(base)


if __name__ == "__main__":
    main()
