"""`ocrd models` and `ocrd cache`: what they print and leave on disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from daemon.cli import app
from pipeline import presets
from storage.errors import ExitCode
from storage.features import Features, FeatureStore
from storage.settings import Settings
from tests.pipeline import hub as local

NOW = 1_800_000_000.0
DAY = 86_400.0


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OCRD_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def listed(name: str) -> dict[str, object]:
    entries = json.loads(run("models", "list", "--json").stdout)
    assert [entry["name"] for entry in entries] == list(presets.PRESETS)
    return {entry["name"]: entry for entry in entries}[name]


def test_list_tells_what_is_on_disk_and_under_which_licence(home: Path) -> None:
    plain = run("models", "list").stdout
    assert "built in" in plain and "LICENSE AGREEMENT" in plain and "6.1 GB" in plain
    assert listed("tiny")["state"] == "built in" and listed("tiny")["folder"] == str(presets.TINY_FOLDER)
    assert listed("dots-ocr")["state"] == "no" and listed("dots-ocr")["folder"] is None
    assert not home.exists()  # looking makes nothing


def test_pull_list_path_and_rm(home: Path) -> None:
    with local.serve(local.Hub(local.checkpoint_files("glm_ocr"))) as hub:
        pulled = subprocess.run(  # a process of its own: huggingface_hub reads HF_ENDPOINT when it is imported
            [sys.executable, "-c", "from daemon.cli import main; main()", "models", "pull", "glm-ocr",
             "--repository", "owner/model"],
            env=os.environ | {"HF_ENDPOINT": hub.endpoint}, capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert pulled.returncode == 0, pulled.stderr
    assert "owner/model at 0123456789ab" in pulled.stdout and "licence of the weights: MIT" in pulled.stdout
    assert pulled.stderr == ""  # no progress bars where no one sees them
    folder = home / "models" / "glm-ocr" / local.COMMIT
    assert run("models", "path", "glm-ocr").stdout == f"{folder}\n"
    entry = listed("glm-ocr")
    assert (entry["state"], entry["repository"], entry["revision"]) == ("yes", "owner/model", local.COMMIT)
    assert "freed" in run("models", "rm", "glm-ocr").stdout
    assert not folder.exists() and listed("glm-ocr")["state"] == "no"


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["models", "path", "glm-ocr"], ExitCode.ENGINE, "`ocrd models pull glm-ocr`"),
        (["models", "path", "glmocr"], ExitCode.SETTINGS, "Did you mean `glm-ocr`"),
        (["models", "rm", "tiny"], ExitCode.SETTINGS, "ships with ocrd"),
        (["models", "pull", "glm-ocr", "--repository", "a/b/c"], ExitCode.ENGINE, "OWNER/NAME"),
        (["cache", "prune", "--older-than", "soon"], ExitCode.USAGE, "--older-than"),
    ],
)
def test_what_cannot_be_done_is_told_with_a_remedy(
    arguments: list[str], code: ExitCode, told: str, home: Path
) -> None:
    result = run(*arguments)
    assert result.exit_code == code
    assert told in result.stderr
    assert "Traceback" not in result.output


def test_cache_commands_without_a_store_make_none(home: Path) -> None:
    assert run("cache", "stats").stdout.startswith("0 pictures, 0 bytes of 10.0 GB")
    assert run("cache", "clear").stdout == "0 pictures deleted, 0 bytes freed\n"
    assert not home.exists()


def test_cache_tells_and_frees_what_it_holds(home: Path) -> None:
    store = FeatureStore(Settings(home=home).features_path, 10**9)
    row = Features("F32", (1, 4), bytes(16))
    store.put("a" * 8, row, model="tiny", now=NOW - 40 * DAY)
    store.put("b" * 8, row, model="tiny", now=NOW - 1 * DAY)
    store.get("b" * 8, NOW)
    store.close()
    stats = json.loads(run("cache", "stats", "--json").stdout)
    assert (stats["files"], stats["counters"]["hits"], list(stats["models"])) == (2, 1, ["tiny"])
    assert run("cache", "prune", "--older-than", "2026-12-20").stdout.startswith("1 picture deleted")
    assert run("cache", "stats").stdout.startswith("1 picture, ")
    assert run("cache", "clear", "--quiet").stdout == ""
    assert json.loads(run("cache", "stats", "--json").stdout)["files"] == 0


def test_naming_a_model_means_reading_with_it(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def effective(*arguments: str) -> dict[str, object]:
        return {e["name"]: e["value"] for e in json.loads(run("config", "--json", *arguments).stdout)}

    assert effective()["engine"] == "auto"
    shown = effective("--model", "tiny")
    assert (shown["engine"], shown["model"]) == ("vlm", "tiny")
    assert effective("--model", "tiny", "--engine", "classic")["engine"] == "classic"
    monkeypatch.chdir(tmp_path)
    assert effective("--model", "./ours")["model"] == str(tmp_path / "ours")
