"""`ocrd bench vision`: what can be timed here is, and every other row says what it needs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from daemon.cli import app
from pipeline import blas

blas.preload()
pytest.importorskip("mlx.core", reason="mlx has no wheel for this machine")

UNITS = ["all", "cpu-and-gpu", "cpu-and-ne", "cpu-only"]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "darwin", reason="on a Mac the rows are timed")
def test_on_linux_mlxs_cpu_is_timed_and_the_rest_needs_a_mac(tmp_path: Path) -> None:
    words = ["bench", "vision", "--home", str(tmp_path), "--papers", "a8", "--repeat", "1"]
    done = CliRunner().invoke(app, [*words, "--json"])
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)["rows"]
    assert [(row["encoder"], row["unit"]) for row in rows] == [
        ("mlx", "cpu"),
        ("mlx", "gpu"),
        *(("coreml", unit) for unit in UNITS),
    ]
    assert [row["note"] for row in rows] == [""] + ["needs a Mac"] * 5
    assert rows[0]["seconds"] > 0
    assert {row["patches"] for row in rows} == {1260}
    assert len({row["multiply_adds"] for row in rows}) == 1


@pytest.mark.parametrize(("option", "value"), [("--papers", "a4,b5"), ("--units", "cpu-only,tpu")])
def test_an_unknown_page_or_unit_is_a_usage_error_that_names_the_known(option: str, value: str) -> None:
    done = CliRunner().invoke(app, ["bench", "vision", option, value])
    assert done.exit_code == 2
    assert value.split(",")[1] in done.output
