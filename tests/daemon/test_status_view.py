"""`ocrd status` as a person sees it."""

import json
from typing import Any

import pytest

from daemon import status_view


def snapshot(**changed: Any) -> dict[str, Any]:
    known: dict[str, Any] = {
        "state": "running",
        "watcher": "alive",
        "roots": [
            {"path": "/scans", "state": "ok", "mode": "native", "message": None},
            {"path": "/mnt/share", "state": "gone", "mode": "polling", "message": "not mounted"},
        ],
        "counts": {
            "queued": 5,
            "running": 1,
            "done": 12,
            "failed": 1,
            "needs_password": 1,
            "missing": 0,
            "pages_total": 400,
            "pages_done": 100,
            "pages_failed": 3,
            "pages_blank": 7,
        },
        "rate_pages_per_min": 30.0,
        "eta_s": 594.0,
        "rss_mb": 412.3,
        "peak_rss_mb": 623.8,
        "workers": [
            {"pid": 4, "path": "/scans/a\x1bb.pdf", "page": 12},
            {"pid": 5, "path": None, "page": None},
        ],
        "engine": "classic",
        "documents": [
            {"path": "/scans/a\x1bb.pdf", "state": "running", "pages": 40, "pages_done": 11, "error": None},
            {
                "path": "/scans/c.pdf",
                "state": "needs_password",
                "pages": None,
                "pages_done": 0,
                "error": {"code": "password", "message": "is encrypted", "remedy": "run `ocrd retry`"},
            },
        ],
    }
    return known | changed


def test_shows_state_folders_sums_bar_and_eta() -> None:
    text = status_view.render(snapshot())
    assert "State   running, watcher alive" in text
    assert "Folder  /scans\n" in text
    assert "/mnt/share (gone, not mounted, polled)" in text
    assert "12 done, 1 being read, 5 waiting, 1 failed, 1 locked" in text
    assert "[######------------------] 100 of 400 read, 3 failed, 7 blank" in text
    assert "30 pages/min, about 9 min 54 s left" in text
    assert "412 MB now, 624 MB at most" in text


def test_shows_what_is_read_now_and_failures_with_remedy() -> None:
    text = status_view.render(snapshot())
    assert "Now reading\n  a\\x1bb.pdf page 12 of 40" in text
    assert "Failures\n  /scans/c.pdf: is encrypted. Run `ocrd retry`" in text
    assert "\x1b" not in text


def test_empty_library_is_no_error() -> None:
    counts = dict.fromkeys(snapshot()["counts"], 0)
    empty = snapshot(
        state="idle", counts=counts, roots=[], workers=[], documents=[], eta_s=None, rate_pages_per_min=0
    )
    text = status_view.render(empty)
    assert "none yet" in text
    assert "Now reading" not in text and "Failures" not in text


def test_only_the_last_failures_are_shown() -> None:
    failed = [
        {"path": f"/f{number}.pdf", "state": "failed", "error": {"code": "corrupt", "message": "damaged"}}
        for number in range(30)
    ]
    counts = snapshot()["counts"] | {"failed": 29, "needs_password": 1}
    text = status_view.render(snapshot(documents=failed, counts=counts))
    assert text.count("damaged") == status_view.FAILURES_SHOWN
    assert "and 20 more" in text


def test_file_read_in_part_is_a_failure_too() -> None:
    warnings = [{"code": "page_failed", "page": 7, "message": "is damaged", "error": "corrupt"}]
    partial = {"path": "/p.pdf", "state": "done", "error": None, "warnings": warnings}
    text = status_view.render(snapshot(documents=[partial]))
    assert "/p.pdf: 1 page failed, page 7: is damaged. Run `ocrd retry /p.pdf`" in text


@pytest.mark.parametrize(
    ("done", "total", "expected"),
    [(0, 0, "[----]"), (0, 9, "[----]"), (1, 2, "[##--]"), (399, 400, "[###-]"), (9, 9, "[####]")],
)
def test_bar_is_full_only_when_all_is_done(done: int, total: int, expected: str) -> None:
    assert status_view.bar(done, total, width=4) == expected


def test_json_is_the_snapshot(capsys: pytest.CaptureFixture[str]) -> None:
    status_view.show(snapshot, as_json=True)
    assert json.loads(capsys.readouterr().out) == snapshot()


def test_watch_takes_a_new_snapshot_each_time(capsys: pytest.CaptureFixture[str]) -> None:
    states = iter(["running", "idle"])
    status_view.watch(lambda: snapshot(state=next(states)), ticks=range(2))
    out = capsys.readouterr().out
    assert out.index("State   running") < out.index("State   idle")


def test_ctrl_c_is_the_way_to_leave_a_watch(capsys: pytest.CaptureFixture[str]) -> None:
    def take() -> dict[str, Any]:
        raise KeyboardInterrupt

    status_view.watch(take, ticks=range(9))
    assert capsys.readouterr().out == ""
