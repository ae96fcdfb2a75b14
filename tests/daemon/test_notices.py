"""Notifications say that work is done or that files failed, not too often, and nothing in a name is obeyed."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from daemon import batch, notices
from daemon.notices import APART_S, Digest
from storage.settings import Settings


def test_the_end_of_a_batch_is_one_notification() -> None:
    digest = Digest("always")
    for number in range(12):
        digest.add(f"/in/{number}.pdf", failed=False)
    assert digest.due(0.0, idle=False) is None
    assert digest.due(1.0, idle=True) == ("ocrd is done", "12 files read")
    assert digest.due(2.0, idle=True) is None


def test_failures_are_told_while_work_goes_on_but_not_all_the_time() -> None:
    digest = Digest("failures")
    digest.add("/in/a.pdf", failed=True)
    assert digest.due(0.0, idle=False) == ("ocrd", "not read: a.pdf")
    for name in "bcdef":
        digest.add(f"/in/{name}.pdf", failed=True)
    assert digest.due(APART_S - 1, idle=False) is None
    assert digest.due(APART_S, idle=False) == ("ocrd", "not read: b.pdf, c.pdf, d.pdf and 2 more")
    digest.add("/in/g.pdf", failed=False)
    assert digest.due(APART_S + 1, idle=True) is None  # all failures are told already


@pytest.mark.parametrize(("wanted", "told"), [("never", False), ("failures", True), ("always", True)])
def test_what_is_told_is_what_is_wanted(wanted: str, told: bool) -> None:
    digest = Digest(wanted)
    digest.add("/in/a.pdf", failed=True)
    assert (digest.due(0.0, idle=True) is not None) is told
    digest.add("/in/a.pdf", failed=False)
    assert (digest.due(1e6, idle=True) is not None) is (wanted == "always")


def test_names_are_arguments_never_script_or_markup() -> None:
    digest = Digest("always")
    digest.add('/in/"; do shell script "rm"<b>\x1b[2J\n.pdf', failed=True)
    title, text = digest.due(0.0, idle=True) or ("", "")
    assert "\x1b" not in text and "\n" not in text
    words = notices.command(title, text, darwin=True)
    assert words[-2:] == [title, text] and all("shell" not in word for word in words[:-2])
    words = notices.command("--urgency", text, darwin=False)
    assert words[-3] == "--" and "&lt;b&gt;" in words[-1] and "<" not in words[-1]


def test_a_machine_without_notifications_is_none_the_worse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    notices.send("a", "b", wait=True)
    ran = threading.Event()
    notices.send("a", "b", run=lambda words: ran.set())
    assert ran.wait(60)


def test_a_batch_tells_when_it_ends(
    settings: Settings,
    tmp_path: Path,
    make_png,
    monkeypatch: pytest.MonkeyPatch,  # type: ignore[no-untyped-def]
) -> None:
    from dataclasses import replace

    told: list[tuple[str, str]] = []
    monkeypatch.setattr(notices, "send", lambda title, text, wait: told.append((title, text)))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "bad.pdf").write_bytes(b"no PDF")
    files = [make_png(tmp_path / "in" / "a.png"), tmp_path / "in" / "bad.pdf"]
    batch.run(replace(settings, notify="always"), files)
    assert told == [("ocrd is done", "1 file read, not read: bad.pdf")]
    batch.run(settings, files)
    assert len(told) == 1
