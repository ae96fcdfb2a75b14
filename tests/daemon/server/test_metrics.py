"""The metrics say what status says, in a format that Prometheus reads."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.daemon.conftest import pdf_of, png_of
from tests.daemon.server.shelf import Shelf

SAMPLE = re.compile(r'(?P<name>[a-z_]+)(?:\{[a-z_]+="(?:[^"\\\n]|\\.)*"\})? (?P<value>\S+)\Z')


def samples(shelf: Shelf) -> dict[str, float]:
    with shelf.client() as client:
        told = client.get("/metrics")
    assert told.headers["content-type"].startswith("text/plain; version=0.0.4")
    found: dict[str, float] = {}
    kinds: dict[str, str] = {}
    for line in told.text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            assert name not in kinds
            kinds[name] = kind
        elif not line.startswith("# HELP "):
            match = SAMPLE.match(line)
            assert match and match["name"] in kinds, line
            assert (kinds[match["name"]] == "counter") == match["name"].endswith("_total")
            key = line.rpartition(" ")[0]
            assert key not in found
            found[key] = float(match["value"])
    return found


def test_an_empty_library_has_metrics(shelf: Shelf) -> None:
    found = samples(shelf)
    assert found['ocrd_pages{state="done"}'] == 0 and found['ocrd_state{state="stopped"}'] == 1


def test_pages_failures_readers_and_features_are_counted(shelf: Shelf, tmp_path: Path) -> None:
    for name, data in (("a.pdf", pdf_of(["Words enough for a page that is read\nby its text layer alone"] * 2)),
                       ("b.png", png_of(1)), ("c.pdf", b"%PDF-1.4 broken")):  # fmt: skip
        (tmp_path / name).write_bytes(data)
        shelf.put(tmp_path / name)
    shelf.read()
    shelf.settings.features_path.mkdir()
    (shelf.settings.features_path / "counters.json").write_text('{"hits": 7}', encoding="utf-8")
    found = samples(shelf)
    assert found['ocrd_files{state="done"}'] == 2 and found['ocrd_files{state="failed"}'] == 1
    assert found['ocrd_pages{state="done"}'] == 3 and found['ocrd_failures{code="corrupt"}'] == 1
    assert found['ocrd_read_pages_total{reader="text-layer"}'] == 2
    assert found['ocrd_read_pages_total{reader="fake"}'] == 1
    assert found['ocrd_features_total{event="hits"}'] == 7


def test_tokens_per_pass_is_of_all_readings(shelf: Shelf) -> None:
    shelf.conn.execute("INSERT INTO documents (sha256, size, state, added_at) VALUES ('x', 1, 'done', 1)")
    for page, (tokens, passes) in enumerate([(100, 20), (50, 30)], 1):
        shelf.conn.execute(
            "INSERT INTO pages (document_id, page, text, markdown, source, engine, layer, stop_reason, width_pt,"
            " height_pt, tokens, target_passes, drafted, accepted, read_at)"
            " VALUES (1, ?, '', '', 'engine', 'vlm', 'absent', 'complete', 1, 1, ?, ?, 90, 80, 3600)",
            (page, tokens, passes),
        )
    shelf.conn.execute("UPDATE pages SET tokens = 10, target_passes = 10, read_at = 7300 WHERE page = 2")
    found = samples(shelf)
    assert found['ocrd_tokens_per_pass{reader="vlm"}'] == pytest.approx(160 / 60)
    assert found['ocrd_read_pages_total{reader="vlm"}'] == 3
    assert found['ocrd_read_accepted_total{reader="vlm"}'] == 240


def test_labels_are_escaped(shelf: Shelf) -> None:
    shelf.conn.execute("INSERT INTO reading_hours VALUES (0, 'a\"b\\c' || char(10) || 'd', 1, 0, 0, 0, 0)")
    assert samples(shelf)['ocrd_read_pages_total{reader="a\\"b\\\\c\\nd"}'] == 1
