"""A conversion for MLX: the same values, streamed, resumed, whole or not at all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from pipeline import blas
from pipeline.convert import manifest, plan, to_mlx
from pipeline.convert.names import Part
from pipeline.convert.to_mlx import Converted, Options
from storage import failpoints
from storage.errors import BusyError, DiskFullError, ExistsError, ModelError, UntrustedModelError
from tests.pipeline.convert import small
from tools import full_size

blas.preload()
pytest.importorskip("mlx.core", reason="mlx has no wheel for this machine")

NOW = 1_800_000_000.0
SHARD = 100_000  # bytes: several files for a checkpoint of half a megabyte
NORM = "vision_tower.blocks.1.norm1.weight"
ROOT = Path(__file__).parents[3]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return small.make(tmp_path / "source")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def convert(source: Path, target: Path, options: Options | None = None, **named: object) -> Converted:
    found = plan.examine(source, trusted=[source])
    return to_mlx.convert(found, target, options or Options(), now=NOW, shard_bytes=SHARD, **named)  # type: ignore[arg-type]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# --- what comes out --------------------------------------------------------------------------------------


def test_every_value_is_that_of_the_source(source: Path, out: Path) -> None:
    made = convert(source, out / "model")
    before, after = plan.examine(source), plan.examine(out / "model")
    assert made.files == len(after.checkpoint.weights) > 3 and made.resumed == 0
    assert list(after.entries) == list(before.entries)
    for name, entry in after.entries.items():
        np.testing.assert_array_equal(entry.read(), before.values(name), err_msg=name)
    assert [path.name for path in out.iterdir()] == ["model"]


def test_it_is_what_mlx_vlm_itself_converts(source: Path, out: Path) -> None:
    """The whole model in memory, as mlx-vlm's converter does it: the same tensors, bit for bit."""
    import mlx.core as mx
    from mlx.utils import tree_flatten
    from mlx_vlm.quant_utils import quantize_model
    from mlx_vlm.utils import load_config, load_model, skip_multimodal_module

    model, config = load_model(source, lazy=True), load_config(source)
    quantize_model(model, config, 64, 4, quant_predicate=lambda path, _: not skip_multimodal_module(path))
    theirs = dict(tree_flatten(model.parameters()))
    convert(source, out / "model", Options(quantize=4))
    ours = {}
    for path in sorted((out / "model").glob("*.safetensors")):
        ours |= mx.load(str(path))
    assert ours.keys() == theirs.keys()
    assert all(
        ours[name].dtype == theirs[name].dtype and mx.array_equal(ours[name], theirs[name]) for name in ours
    )


def test_a_head_that_is_the_embedding_is_written_as_one(tmp_path: Path, out: Path) -> None:
    source = small.make(
        tmp_path / "tied", tie_word_embeddings=True, vision={"use_bias": True, "post_norm": False}
    )
    assert "lm_head.weight" not in plan.examine(source).entries
    convert(source, out / "model")
    after = plan.examine(out / "model")
    np.testing.assert_array_equal(after.values("lm_head.weight"), after.values("model.embed_tokens.weight"))
    assert "vision_tower.blocks.1.mlp.fc3.bias" in after.entries


@pytest.mark.parametrize("bits", to_mlx.BITS)
def test_the_vision_tower_is_not_quantised_unless_asked(bits: int, source: Path, out: Path) -> None:
    convert(source, out / "plain", Options(quantize=bits))
    convert(source, out / "all", Options(quantize=bits, vision=True))
    kinds = {
        name: [{e.dtype for e in plan.examine(out / name).of(part)} for part in (Part.VISION, Part.LANGUAGE)]
        for name in ("plain", "all")
    }
    assert kinds == {
        "plain": [{"bfloat16"}, {f"{bits} bit", "bfloat16"}],
        "all": [{f"{bits} bit", "bfloat16"}, {f"{bits} bit", "bfloat16"}],
    }


def test_what_is_not_quantised_has_the_dtype_that_is_asked_for(source: Path, out: Path) -> None:
    convert(source, out / "model", Options(dtype="float16"))
    assert {entry.dtype for entry in plan.examine(out / "model").entries.values()} == {"float16"}
    assert json.loads((out / "model" / "config.json").read_text("utf-8"))["torch_dtype"] == "float16"


def test_the_manifest_tells_source_settings_and_versions(source: Path, out: Path) -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    convert(source, out / "model", Options(quantize=8, revision=commit))
    body = manifest.read(out / "model")
    assert body is not None and body["source"]["name"] == "source" and body["source"]["revision"] == commit
    assert body["settings"] == {
        "dtype": "as stored",
        "quantize": 8,
        "group_size": 64,
        "quantize_vision": False,
    }
    assert set(body["versions"]) == {"ocrd-mlx", "mlx", "mlx-vlm", "numpy"}
    weights = small.weights(source)
    assert body["source"]["files"][weights.name] == asdict(manifest.hash_file(weights))
    for name, entry in body["files"].items():
        assert entry == asdict(manifest.hash_file(out / "model" / name))


@pytest.mark.parametrize("place", ["label", "hub's cache", "hub's notes"])
def test_the_revision_is_found_where_it_was_fetched_to(place: str, tmp_path: Path) -> None:
    commit = "89abcdef0123456789abcdef0123456789abcdef"
    folder = tmp_path / (commit if place == "hub's cache" else "model")
    notes = folder / ".cache" / "huggingface" / "download"
    notes.mkdir(parents=True)
    assert manifest.revision_of(folder) == (commit if place == "hub's cache" else None)
    if place == "label":
        (folder / "ocrd.json").write_text(json.dumps({"revision": commit}), "utf-8")
    elif place == "hub's notes":
        (notes / "config.json.metadata").write_text(f"{commit}\netag\n1.0\n", "utf-8")
    assert manifest.revision_of(folder) == commit


def test_what_would_run_code_stays_behind_and_the_rest_comes_along(source: Path, out: Path) -> None:
    auto_map = {"AutoConfig": "configuration_dots.DotsOCRConfig"}
    for name in ("config.json", "preprocessor_config.json"):
        body = json.loads((source / name).read_text("utf-8"))
        (source / name).write_text(json.dumps(body | {"auto_map": auto_map}), "utf-8")
    (source / "configuration_dots.py").write_text("raise SystemExit('run')", "utf-8")
    (source / "LICENSE").write_text("terms", "utf-8")
    (source / "assets").mkdir()
    convert(source, out / "model")
    made = contents(out / "model")
    assert not any(
        b"auto_map" in body or b"configuration_dots" in body
        for name, body in made.items()
        if name != manifest.NAME
    )
    assert made["tokenizer.json"] == (source / "tokenizer.json").read_bytes()
    assert made["LICENSE"] == b"terms" and "configuration_dots.py" not in made and "assets" not in made
    plan.examine(out / "model")


def test_a_model_file_is_not_run_even_where_the_folder_is_trusted(source: Path, out: Path) -> None:
    config = json.loads((source / "config.json").read_text("utf-8"))
    (source / "config.json").write_text(json.dumps(config | {"model_file": "model.py"}), "utf-8")
    (source / "model.py").write_text("raise SystemExit('run')", "utf-8")
    with pytest.raises(UntrustedModelError, match="model_file"):
        convert(source, out / "model")
    assert list(out.iterdir()) == []


# --- whole or not at all ---------------------------------------------------------------------------------


def test_a_second_run_finds_it_done_and_another_is_refused(source: Path, out: Path) -> None:
    first = convert(source, out / "model")
    before = contents(out / "model")
    again = convert(source, out / "model")
    assert again.existed and (again.files, again.quantised) == (first.files, 0)
    with pytest.raises(ExistsError, match="a conversion of other weights or settings"):
        convert(source, out / "model", Options(quantize=8))
    small.poke(source, NORM, b"\x00\x40")
    with pytest.raises(ExistsError, match="a conversion of other weights or settings"):
        convert(source, out / "model")
    assert contents(out / "model") == before


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_is_not_ours_is_never_touched(kind: str, source: Path, out: Path) -> None:
    target = out / "model"
    if kind == "file":
        target.write_text("mine", "utf-8")
    else:
        target.mkdir()
        (target / "notes.txt").write_text("mine", "utf-8")
    with pytest.raises(ExistsError, match="holds something else"):
        convert(source, target)
    assert [path.name for path in out.iterdir()] == ["model"]


def test_an_empty_folder_is_filled(source: Path, out: Path) -> None:
    (out / "model").mkdir()
    assert convert(source, out / "model").files > 3


class Stopped(Exception):
    pass


def test_an_interrupted_conversion_goes_on_where_it_stopped(source: Path, out: Path) -> None:
    convert(source, out / "whole")

    def stop(number: int, count: int, name: str) -> None:
        if number == 3:
            raise Stopped

    with pytest.raises(Stopped):
        convert(source, out / "model", on_file=stop)
    assert not (out / "model").exists()
    kept = {
        path.name: path.stat().st_ino for path in to_mlx.workshop_folder(out / "model").glob("*.safetensors")
    }
    assert len(kept) == 3
    made = convert(source, out / "model")
    assert made.resumed == 3
    assert {name: (out / "model" / name).stat().st_ino for name in kept} == kept  # not written again
    assert contents(out / "model") == contents(out / "whole")
    assert not to_mlx.workshop_folder(out / "model").exists()


def test_what_is_left_of_other_settings_is_not_gone_on_with(source: Path, out: Path) -> None:
    def stop(number: int, count: int, name: str) -> None:
        raise Stopped

    with pytest.raises(Stopped):
        convert(source, out / "model", Options(quantize=8), on_file=stop)
    assert convert(source, out / "model").resumed == 0
    assert {entry.dtype for entry in plan.examine(out / "model").entries.values()} == {"bfloat16"}


@pytest.mark.parametrize("hit", [1, 2, 3, 6])
@pytest.mark.parametrize("place", ["staging.synced", "staging.rename"])
def test_a_disk_that_fills_up_keeps_what_is_finished(
    place: str, hit: int, source: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Hits are: a weight file, the note that it is done, the next weight file …
    monkeypatch.setattr(failpoints, "_armed", failpoints.parse(f"{place}=error:ENOSPC@{hit}"))
    failpoints._hits.clear()
    with pytest.raises(DiskFullError) as caught:
        convert(source, out / "model")
    assert caught.value.file == out / "model" and not (out / "model").exists()
    kept = (hit - 1) // 2
    if kept == 0:
        assert "Nothing was written" in str(caught.value) and list(out.iterdir()) == []
    else:
        assert f"it goes on after {kept} of" in str(caught.value)
    monkeypatch.setattr(failpoints, "_armed", {})
    assert convert(source, out / "model").resumed == kept
    assert [path.name for path in out.iterdir()] == ["model"]


def test_a_disk_too_small_is_told_before_anything_is_written(
    source: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(to_mlx, "_SPARE_BYTES", 10**15)
    with pytest.raises(DiskFullError, match=r"1,000,000,0\d\d MB are needed"):
        convert(source, out / "model")
    assert list(out.iterdir()) == []


def test_two_conversions_to_one_place_do_not_meet(source: Path, out: Path) -> None:
    def meanwhile(number: int, count: int, name: str) -> None:
        with pytest.raises(BusyError, match="another process converts"):
            convert(source, out / "model")

    assert convert(source, out / "model", on_file=meanwhile).resumed == 0
    assert [path.name for path in out.iterdir()] == ["model"]


@pytest.mark.parametrize(
    ("value", "options", "said"),
    [
        (b"\xc0\x7f", Options(), "has values that are not finite"),  # nan
        (b"\x80\x7f", Options(quantize=8), "has values that are not finite"),  # infinite
        (b"\x80\x47", Options(dtype="float16"), "has values that float16 cannot hold"),  # 65,536
    ],
)
def test_values_that_are_none_end_it_without_a_trace(
    value: bytes, options: Options, said: str, source: Path, out: Path
) -> None:
    small.poke(source, NORM, value)
    with pytest.raises(ModelError, match=f"{NORM} {said}"):
        convert(source, out / "model", options)
    assert list(out.iterdir()) == []


def test_a_source_cut_while_it_is_read_ends_it_without_a_trace(source: Path, out: Path) -> None:
    found = plan.examine(source)
    path = small.weights(source)

    def cut(number: int, count: int, name: str) -> None:
        os.truncate(path, 200_000)

    with pytest.raises(ModelError, match=r"vision_tower\.\S+ cannot be read"):
        to_mlx.convert(found, out / "model", Options(), now=NOW, on_file=cut, shard_bytes=SHARD)
    assert list(out.iterdir()) == []


KILLED = """
import sys
from pathlib import Path
from pipeline import blas
blas.preload()
from pipeline.convert import plan, to_mlx
to_mlx.convert(plan.examine(Path(sys.argv[1])), Path(sys.argv[2]), to_mlx.Options(), now=0.0, shard_bytes=100_000)
"""


@pytest.mark.slow
@pytest.mark.parametrize("place", ["staging.opened@5", "staging.renamed@3"])
def test_a_killed_conversion_goes_on_to_the_same_bytes(place: str, source: Path, out: Path) -> None:
    point, _, hit = place.partition("@")
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(source), str(out / "model")],
        env=os.environ | {failpoints.VARIABLE: f"{point}=kill@{hit}"}, cwd=ROOT, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    assert not (out / "model").exists()
    assert convert(source, out / "model").resumed >= 1
    convert(source, out / "whole")
    assert contents(out / "model") == contents(out / "whole")
    assert sorted(path.name for path in out.iterdir()) == ["model", "whole"]


# --- memory ----------------------------------------------------------------------------------------------

MEASURED = """
import resource, sys
from pathlib import Path
from pipeline import blas
blas.preload()
from pipeline.convert import plan, to_mlx, vision_weights
found = plan.examine(Path(sys.argv[1]))
if sys.argv[2] == "npz":
    vision_weights.write(found, Path(sys.argv[3]))
else:
    bits = int(sys.argv[2]) or None
    to_mlx.convert(found, Path(sys.argv[3]), to_mlx.Options(quantize=bits), now=0.0)
if sys.platform == "linux":  # ru_maxrss would begin at the peak of the process that started this one
    status = open("/proc/self/status").read()
    peak = int(status.split("VmHWM:")[1].split()[0]) * 1024
else:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(peak)
"""


@pytest.mark.slow
@pytest.mark.parametrize("what", ["0", "npz"])
def test_memory_holds_one_group_of_tensors_and_not_a_file(what: str, tmp_path: Path) -> None:
    """Full width and vocabulary, fewer layers (holes for weights): the tables decide, and they are there."""
    folder = full_size.make(tmp_path / "model", full_size.config(1, 2), sparse=True)
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(folder), what, str(tmp_path / "out")],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    largest_bytes = 151936 * 1536 * 2  # a table of the vocabulary
    assert int(done.stdout.splitlines()[-1]) <= 1.6 * largest_bytes + 2e9
