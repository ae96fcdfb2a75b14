"""What a folder is found to be before it is loaded: kind, trust, whole weights, hash."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import checkpoint
from storage.errors import ExitCode, ModelError, UntrustedModelError
from tests.pipeline import hub


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "model")


def write(folder: Path, architecture: str = "dots_ocr") -> Path:
    folder.mkdir()
    for name, body in hub.checkpoint_files(architecture).items():
        (folder / name).write_bytes(body)
    return folder


def put(folder: Path, name: str, body: object) -> None:
    (folder / name).write_text(json.dumps(body), encoding="utf-8")


def test_a_checkpoint_is_known_by_its_model_type(folder: Path) -> None:
    found = checkpoint.inspect(folder)
    assert found.architecture == "dots_ocr"
    assert [path.name for path in found.weights] == ["model.safetensors"]
    assert found.size_bytes == (folder / "model.safetensors").stat().st_size


def test_upper_case_and_both_spellings_are_one_architecture(tmp_path: Path) -> None:
    for number, kind in enumerate(("unlimited-ocr", "unlimited_ocr", "Unlimited-OCR")):
        assert checkpoint.inspect(write(tmp_path / str(number), kind)).architecture == "unlimited_ocr"


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_what_is_missing_is_named(name: str, folder: Path) -> None:
    (folder / name).unlink()
    with pytest.raises(ModelError, match=name.replace("model.", r"\*.")) as caught:
        checkpoint.inspect(folder)
    assert caught.value.file == folder and caught.value.remedy
    assert caught.value.exit_code is ExitCode.ENGINE


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "\xff"])
def test_a_config_that_is_none_is_told(text: str, folder: Path) -> None:
    (folder / "config.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(ModelError, match=r"config\.json"):
        checkpoint.inspect(folder)


@pytest.mark.parametrize("kind", [None, "llama", 7])
def test_an_unknown_architecture_lists_the_known(kind: object, folder: Path) -> None:
    put(folder, "config.json", {"model_type": kind})
    with pytest.raises(ModelError, match=r"unknown architecture.*glm_ocr"):
        checkpoint.inspect(folder)


def test_deepseeks_own_release_names_the_conversion(folder: Path) -> None:
    put(folder, "config.json", {"model_type": "deepseek_vl_v2"})
    with pytest.raises(ModelError, match="`ocrd models pull deepseek-ocr-2`"):
        checkpoint.inspect(folder)


# --- weights ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [0, 7, 8, 40, 1500])
def test_weights_cut_short_are_told(length: int, folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(ModelError, match=r"model\.safetensors is (cut short: 1500 of \d+ bytes|damaged)"):
        checkpoint.inspect(folder)


def test_a_git_lfs_pointer_is_no_weights(folder: Path) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 22677728\n"
    (folder / "model.safetensors").write_text(pointer)
    with pytest.raises(ModelError, match="damaged or no safetensors"):
        checkpoint.inspect(folder)


@given(st.binary(max_size=64))
def test_no_bytes_in_a_header_are_more_than_a_model_error(
    tmp_path_factory: pytest.TempPathFactory, header: bytes
) -> None:
    path = tmp_path_factory.mktemp("weights") / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    try:
        checkpoint._check_whole(path)
    except ModelError:
        return
    assert isinstance(json.loads(header), dict)


def test_shards_come_from_the_index(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model-1.safetensors")
    (folder / "unused.safetensors").write_bytes(b"")
    put(folder, "model.safetensors.index.json", {"weight_map": {"w": "model-1.safetensors"}})
    assert [path.name for path in checkpoint.inspect(folder).weights] == ["model-1.safetensors"]
    put(
        folder,
        "model.safetensors.index.json",
        {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}},
    )
    with pytest.raises(ModelError, match=r"missing: model-2\.safetensors"):
        checkpoint.inspect(folder)


@pytest.mark.parametrize("name", ["../secret.safetensors", "/etc/passwd", "sub/model.safetensors"])
def test_an_index_names_nothing_outside_the_folder(name: str, folder: Path) -> None:
    put(folder, "model.safetensors.index.json", {"weight_map": {"w": name}})
    with pytest.raises(ModelError, match="outside the folder"):
        checkpoint.inspect(folder)


@pytest.mark.parametrize("index", [{}, [], {"weight_map": []}, {"weight_map": None}])
def test_an_index_that_is_none_is_told(index: object, folder: Path) -> None:
    put(folder, "model.safetensors.index.json", index)
    with pytest.raises(ModelError, match="index"):
        checkpoint.inspect(folder)


# --- trust ------------------------------------------------------------------------------------------------


def test_model_file_is_refused_unless_the_folder_is_trusted_by_name(folder: Path, tmp_path: Path) -> None:
    put(folder, "config.json", {"model_type": "dots_ocr", "model_file": "model.py"})
    with pytest.raises(UntrustedModelError, match="model_file"):
        checkpoint.inspect(folder, trusted=[tmp_path, folder / "config.json"])
    assert checkpoint.inspect(folder, trusted=[folder]).architecture == "dots_ocr"
    alias = tmp_path / "alias"
    alias.symlink_to(folder)
    assert checkpoint.inspect(alias, trusted=[folder])  # the folder counts, not the way to it


@pytest.mark.parametrize(
    ("name", "target", "is_there"),
    [
        ("config.json", "configuration_x.Config", True),
        ("tokenizer_config.json", ["tokenization_x.Slow", None], True),
        ("preprocessor_config.json", "sub.module.Processor", True),
        ("config.json", "owner/other--configuration_x.Config", False),
    ],
)
def test_auto_map_is_refused_where_its_code_could_be_had(
    name: str, target: object, is_there: bool, folder: Path
) -> None:
    body = json.loads((folder / name).read_text()) if (folder / name).exists() else {}
    put(folder, name, body | {"auto_map": {"AutoSomething": target}})
    if is_there:
        assert checkpoint.inspect(folder)  # the file it names is not there: nothing could run
        first = target[0] if isinstance(target, list) else str(target)
        (folder / f"{first.split('.')[0]}.py").write_text("")
    with pytest.raises(UntrustedModelError, match=f"auto_map in {name}"):
        checkpoint.inspect(folder)
    assert checkpoint.inspect(folder, trusted=[folder])


@pytest.mark.parametrize("auto_map", [None, [], "x", {"A": None}, {"A": [None]}])
def test_an_auto_map_that_names_nothing_asks_for_nothing(auto_map: object, folder: Path) -> None:
    put(folder, "config.json", {"model_type": "dots_ocr", "auto_map": auto_map})
    assert checkpoint.inspect(folder)


# --- hash -------------------------------------------------------------------------------------------------


def test_the_hash_follows_the_content_and_is_remembered(folder: Path, tmp_path: Path) -> None:
    memo = tmp_path / "hashes.json"
    first = checkpoint.weights_hash(checkpoint.inspect(folder), memo)
    known = json.loads(memo.read_text())
    memo.write_text(json.dumps(dict.fromkeys(known, "remembered")))
    assert checkpoint.weights_hash(checkpoint.inspect(folder), memo) != first  # taken from the memo
    memo.write_text("{")
    assert checkpoint.weights_hash(checkpoint.inspect(folder), memo) == first
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert checkpoint.weights_hash(checkpoint.inspect(folder), memo) != first


def test_a_memo_leaves_other_writers_alone_and_may_fail(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / ".hashes.json.tmp"
    other.write_text("half of another worker's")
    first = checkpoint.weights_hash(checkpoint.inspect(folder), tmp_path / "hashes.json")
    assert other.read_text() == "half of another worker's"
    assert checkpoint.weights_hash(checkpoint.inspect(folder), tmp_path / "none" / "hashes.json") == first
