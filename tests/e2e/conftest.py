"""A daemon that watches and serves, and Chromium that looks at it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.watching import ROOT, Watching, watch
from tests.elsewhere import CHROMIUM

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

SAMPLES = ROOT / "samples"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
WAIT_MS = 60_000  # for what takes a moment, on a machine that has other things to do
# Kept by every page: what its Content-Security-Policy stopped, and what a script of a document's would do.
LISTENER = """
window.stopped = [];
addEventListener("securitypolicyviolation", (e) => window.stopped.push(`${e.violatedDirective} ${e.blockedURI}`));
window.ran = [];
window.alert = (text) => window.ran.push(String(text));
"""


@pytest.fixture(scope="session")
def watching(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watching]:
    """A daemon over a folder with a scanned letter, a paper of two pages, a broken file and a locked one."""
    base = tmp_path_factory.mktemp("e2e")
    folder = base / "Papers"
    (folder / "Letters").mkdir(parents=True)
    shutil.copy(SAMPLES / "letter-scan.pdf", folder / "Letters")
    shutil.copy(SAMPLES / "paper.pdf", folder)
    shutil.copy(ROOT / "tests" / "data" / "encrypted.pdf", folder / "locked.pdf")
    (folder / "broken.pdf").write_bytes(b"%PDF-1.7\nnothing more of it came")
    with watch(base) as running:
        yield running


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: `uv sync`")
    if CHROMIUM is None:
        pytest.skip("chromium is not installed (Debian: `apt install chromium`), nor named by OCRD_CHROMIUM")
    with playwright.sync_playwright() as running:
        chromium = running.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


class Visit:
    """A browser's window at the daemon's pages, and what went wrong in it."""

    def __init__(self, context: BrowserContext, watching: Watching) -> None:
        self.url = watching.url
        self.page: Page = context.new_page()
        self.page.set_default_timeout(WAIT_MS)
        self.page.add_init_script(LISTENER)
        self.errors: list[str] = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", self._heard)
        self.page.on(
            "dialog", lambda dialog: (self.errors.append(f"a dialog: {dialog.message}"), dialog.dismiss())
        )
        self.page.on("request", self._asked)

    def _heard(self, message: Any) -> None:
        # What the server refuses, the pages tell; the browser's own line about it is no fault.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.errors.append(message.text)

    def _asked(self, request: Any) -> None:
        if not request.url.startswith((self.url, "data:", "blob:")):
            self.errors.append(f"asked elsewhere: {request.url}")

    def go(self, path: str) -> Page:
        """Open a page of the daemon's."""
        self.page.goto(self.url + path)
        return self.page

    def check(self) -> None:
        """Fails if anything was stopped by the policy, ran, or went wrong."""
        assert self.errors == []
        assert self.page.evaluate("window.stopped") == []
        assert self.page.evaluate("window.ran") == []


@pytest.fixture
def visit(browser: Browser, watching: Watching, request: pytest.FixtureRequest) -> Iterator[Visit]:
    """A fresh window, checked at the end. Marks: `pytest.mark.parametrize("visit", [options], indirect=True)`."""
    options = {"viewport": {"width": 1280, "height": 860}, **getattr(request, "param", {})}
    context = browser.new_context(**options)
    try:
        visit = Visit(context, watching)
        yield visit
        visit.check()
    finally:
        context.close()


@pytest.fixture(scope="session")
def read(watching: Watching, browser: Browser) -> Watching:
    """The daemon once it has read the letter and the paper."""
    page = browser.new_page()
    try:
        page.goto(watching.url + "/library")
        for name in ("letter-scan.pdf", "paper.pdf"):
            page.locator(f".document[data-state=done]:has-text('{name}')").wait_for(timeout=2 * WAIT_MS)
        for name, state in (("broken.pdf", "failed"), ("locked.pdf", "needs_password")):
            page.locator(f".document[data-state={state}]:has-text('{name}')").wait_for(timeout=2 * WAIT_MS)
    finally:
        page.close()
    return watching


def letter() -> bytes:
    """The scanned letter, one byte longer than the sample: another content."""
    return (Path(SAMPLES / "letter-scan.pdf")).read_bytes() + b"\n"
