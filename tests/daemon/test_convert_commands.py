"""`ocrd convert mlx|vision-weights|check`: what they print, write and refuse; what is made can be read with."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from daemon import convert_view
from daemon.cli import app
from pipeline import blas, model_files, presets
from pipeline.convert.check import Checked, StageDifference
from storage.errors import ExitCode
from storage.settings import Settings
from tests.pipeline.convert import small

blas.preload()
pytest.importorskip("mlx.core", reason="mlx has no wheel for this machine")
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCRD_HOME", str(tmp_path / "home"))


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["convert", *map(str, arguments)])


def test_a_converted_folder_is_read_as_its_source_is(tmp_path: Path) -> None:
    assert run("mlx", "tiny", tmp_path / "dst", "--quantize", "4", "-q").output == ""
    found = model_files.locate(str(tmp_path / "dst"), Settings(home=tmp_path / "home"))
    assert found.preset.mode == presets.PRESETS["tiny"].mode and found.preset.about.endswith("read as tiny")


@pytest.mark.slow
def test_a_converted_folder_is_read_with(tmp_path: Path) -> None:
    made = run("mlx", "tiny", tmp_path / "dst", "--dtype", "bfloat16")
    assert made.exit_code == 0 and "was written: 16.8 MB of weights" in made.stdout
    read = [
        CliRunner().invoke(app, ["read", str(ROOT / "samples" / "letter-scan.pdf"), "--engine", "vlm", "--model", name])
        for name in ("tiny", str(tmp_path / "dst"))
    ]  # fmt: skip
    assert [result.exit_code for result in read] == [0, 0], read[1].output
    assert len(read[0].stdout.split()) > 50
    same = sum(a == b for a, b in zip(read[0].stdout.split(), read[1].stdout.split(), strict=False))
    assert same > 0.9 * len(read[0].stdout.split())


def test_json_tells_what_was_made(tmp_path: Path) -> None:
    source = small.make(tmp_path / "source")
    made = json.loads(run("mlx", source, tmp_path / "dst", "--quantize", "8", "--json").stdout)
    assert made["folder"] == str(tmp_path / "dst") and made["files"] == 1 and made["quantised"] == 16
    written = json.loads(run("vision-weights", source, tmp_path / "v.npz", "--json").stdout)
    assert written["tensors"] == 24 and "model.norm.weight" in written["left_out"]


def test_vision_weights_prints_the_projectors_width_against_the_language_models(tmp_path: Path) -> None:
    result = run("vision-weights", "tiny", tmp_path / "v.npz")
    assert "38 tensors written, 9.1 MB, float32; 51 " in result.stdout
    assert "the projector gives 128 columns, as the language model takes" in result.stdout
    with np.load(tmp_path / "v.npz") as archive:
        assert archive["projector.weight"].shape == (128, 768)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("mlx", "tiny", "dst", "--quantize", "5"), "5 is none of 4, 8"),
        (("mlx", "tiny", "dst", "--dtype", "int8"), "'int8' is none of bfloat16, float16"),
        (("mlx", "tiny", "dst", "--quantize-vision"), "says nothing without --quantize"),
        (
            ("vision-weights", "tiny", "v.npz", "--dtype", "bfloat16"),
            "'bfloat16' is none of float32, float16",
        ),
        (("check", "tiny", "dst"), "--image"),
    ],
)
def test_a_wrong_command_line_is_told(
    arguments: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    assert result.exit_code == ExitCode.USAGE and said in " ".join(result.output.split())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [("mlx",), ("vision-weights",)])
@pytest.mark.parametrize("kind", ["nothing", "empty", "other", "missing", "code"])
def test_what_is_no_checkpoint_of_dots_ocr_is_refused_without_a_trace(
    kind: str, command: tuple[str], tmp_path: Path
) -> None:
    folder = tmp_path / "source"
    if kind not in ("nothing", "empty"):
        small.make(folder, model_type="glm_ocr" if kind == "other" else "dots_ocr")
    if kind == "empty":
        folder.mkdir()
    if kind == "missing":
        small.edit(folder, lambda header: header.pop("model.norm.weight") and None)
    if kind == "code":
        config = json.loads((folder / "config.json").read_text("utf-8"))
        (folder / "config.json").write_text(json.dumps(config | {"model_file": "model.py"}), "utf-8")
    before = sorted(path.name for path in tmp_path.iterdir())
    result = run(*command, folder, tmp_path / "out.npz")
    assert result.exit_code == ExitCode.ENGINE, result.output
    assert "ocrd: " in result.stderr and "Traceback" not in result.output
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_the_table_of_a_check_says_where_it_differs(capsys: pytest.CaptureFixture[str]) -> None:
    stages = [
        StageDifference("patch embedding", (988, 192), 3.4e-5, 9.5e-7, 23.0, 9.6e-7, 1e-4),
        StageDifference("block 0", (988, 192), 4.1, 0.06, 83.0, 0.3, 1e-4),
    ]
    kept = {"vision tower": "as stored", "projector": "16 bit"}
    result = Checked(stages, (1, 247, 128), 247, 128, kept, "cpu", 15, 16, None)
    convert_view.show(result)
    shown = capsys.readouterr().out
    assert "988 x 192" in shown and "3.4e-05" in shown and "9.5e-07" in shown
    assert "features: (1, 247, 128), 247 placeholders" in shown
    assert "weights of the vision tower: as in the source" in shown and "projector: 16 bit" in shown
    assert "DIFFERS from block 0 on" in shown and "too far off" in shown
    assert not result.is_good
