"""Models on disk: pulled from a hub (a local one here), found again without it, removed."""

from __future__ import annotations

import fcntl
import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline import model_files, presets
from pipeline.presets import PRESETS, TINY_FOLDER
from storage.errors import (
    BusyError,
    DiskFullError,
    ExitCode,
    HubError,
    ModelError,
    ModelMissingError,
    SettingsError,
    UntrustedModelError,
)
from storage.settings import Settings
from tests.pipeline import hub as local
from tests.pipeline.hub import COMMIT, Hub

PRESET = replace(PRESETS["dots-ocr"], repository="owner/model")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path)


@pytest.fixture
def hub() -> Iterator[Hub]:
    files = local.checkpoint_files()
    files["modeling_dots.py"] = b"raise SystemExit('must not be fetched')"
    files["original/consolidated.pth"] = b"weights in a format that runs code"
    with local.serve(Hub(files)) as running:
        yield running


def pull(hub: Hub, settings: Settings, **options: Any) -> model_files.ModelLocation:
    return model_files.pull(PRESET, settings, endpoint=hub.endpoint, **options)


def test_what_was_pulled_is_found_without_the_hub(hub: Hub, settings: Settings) -> None:
    location = pull(hub, settings)
    hub.status = 500
    found = model_files.locate("dots-ocr", settings)
    assert found == location
    assert found.folder == settings.home / "models" / "dots-ocr" / COMMIT
    assert found.revision == found.preset.revision == COMMIT
    assert (found.folder / "model.safetensors").read_bytes() == hub.files["model.safetensors"]
    assert found.size_bytes > found.folder.joinpath("model.safetensors").stat().st_size


def test_python_files_are_never_fetched(hub: Hub, settings: Settings) -> None:
    folder = pull(hub, settings).folder
    assert {p.suffix for p in folder.rglob("*") if p.is_file()} <= {".json", ".safetensors", ".md"}
    assert not any("modeling" in name or "original" in name for name, _ in hub.served)


def test_a_second_pull_fetches_nothing(hub: Hub, settings: Settings) -> None:
    pull(hub, settings)
    hub.served.clear()
    seen: list[model_files.Source] = []
    pull(hub, settings, on_source=seen.append)
    assert not hub.served and not seen


def test_an_interrupted_pull_goes_on_where_it_was(hub: Hub, settings: Settings) -> None:
    hub.files |= local.checkpoint_files(
        weights_bytes=14_000_000
    )  # the client keeps what came in steps of 10 MiB
    hub.absent = {"model.safetensors"}
    with pytest.raises(HubError, match="answers 404"):
        pull(hub, settings)
    assert model_files.is_partly_pulled(PRESET, settings)
    with pytest.raises(ModelMissingError):  # half a model is none
        model_files.locate("dots-ocr", settings)
    hub.absent = set()
    hub.cut["model.safetensors"] = 12_000_000  # and once more, in the middle of the large file
    pull(hub, settings)
    starts = [start for name, start in hub.served if name == "model.safetensors"]
    assert starts[0] == 0 and starts[1] > 0
    small = [name for name, _ in hub.served if name != "model.safetensors"]
    assert len(small) == len(set(small))  # nothing twice
    assert not model_files.is_partly_pulled(PRESET, settings)


def test_another_commit_takes_the_place_of_the_first(hub: Hub, settings: Settings) -> None:
    first = pull(hub, settings)
    hub.commit = "f" * 40
    second = pull(hub, settings)
    assert second.revision == "f" * 40
    assert not first.folder.exists()
    assert model_files.locate("dots-ocr", settings) == second


def test_a_damaged_file_is_an_error_and_is_fetched_again(hub: Hub, settings: Settings) -> None:
    hub.corrupt = {"model.safetensors"}
    with pytest.raises(HubError, match=r"model\.safetensors of owner/model came damaged"):
        pull(hub, settings)
    hub.corrupt = set()
    assert pull(hub, settings).folder.is_dir()


def test_a_repository_of_another_architecture_is_refused(hub: Hub, settings: Settings) -> None:
    preset = replace(PRESETS["glm-ocr"], repository="owner/model")
    with pytest.raises(ModelError, match="is a dots_ocr, and glm-ocr reads glm_ocr"):
        model_files.pull(preset, settings, endpoint=hub.endpoint)
    with pytest.raises(ModelMissingError):
        model_files.locate("glm-ocr", settings)


def test_a_full_disk_is_told_before_anything_is_fetched(
    hub: Hub, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(settings.home)._replace(free=10_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(DiskFullError, match="10 MB are free"):
        pull(hub, settings)
    assert not hub.served


@pytest.mark.parametrize(
    ("status", "code", "told"),
    [
        (404, "RepoNotFound", "the hub has no model owner/model"),
        (404, "RevisionNotFound", "no such revision"),
        (403, "GatedRepo", "asks for consent"),
        (500, "", "answers 500"),
    ],
)
def test_what_the_hub_refuses_is_told_with_a_remedy(
    status: int, code: str, told: str, hub: Hub, settings: Settings
) -> None:
    hub.status, hub.error_code = status, code
    with pytest.raises(HubError, match=told) as caught:
        pull(hub, settings)
    assert caught.value.remedy and caught.value.exit_code is ExitCode.ENGINE


def test_without_a_hub_the_remedy_is_a_folder(settings: Settings) -> None:
    with pytest.raises(HubError, match="cannot be reached") as caught:
        model_files.pull(PRESET, settings, endpoint="http://127.0.0.1:9")  # nothing listens there
    assert "--model FOLDER" in str(caught.value)


def test_two_pulls_of_a_model_do_not_meet(hub: Hub, settings: Settings) -> None:
    parent = settings.models_path / "dots-ocr"
    parent.mkdir(parents=True)
    with (parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(BusyError, match="being fetched by another process"):
            pull(hub, settings)
    assert pull(hub, settings).folder.is_dir()


def test_removed_is_gone(hub: Hub, settings: Settings) -> None:
    size = pull(hub, settings).size_bytes
    assert model_files.remove("dots-ocr", settings) == size
    assert list(settings.models_path.iterdir()) == []
    with pytest.raises(ModelMissingError):
        model_files.remove("dots-ocr", settings)
    with pytest.raises(SettingsError, match="ships with ocrd"):
        model_files.remove("tiny", settings)


# --- finding -----------------------------------------------------------------------------------------------


def test_tiny_is_always_there(settings: Settings) -> None:
    location = model_files.locate("tiny", settings)
    assert location.folder == TINY_FOLDER and location.preset.name == "tiny" and location.revision is None


def test_a_missing_model_names_the_command_that_fetches_it(settings: Settings) -> None:
    with pytest.raises(ModelMissingError, match=r"glm-ocr is not on disk.*`ocrd models pull glm-ocr`"):
        model_files.locate("glm-ocr", settings)


def test_an_unknown_name_names_the_nearest(settings: Settings) -> None:
    with pytest.raises(SettingsError, match="`glm-ocr`"):
        model_files.locate("glm_ocr", settings)


def copy_of_tiny(folder: Path, **config: object) -> Path:
    shutil.copytree(TINY_FOLDER, folder)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    return folder


def test_a_folder_reads_as_its_label_or_architecture_says(settings: Settings, tmp_path: Path) -> None:
    folder = copy_of_tiny(tmp_path / "ours")
    (folder / presets.LABEL).unlink(missing_ok=True)
    found = model_files.locate(str(folder), settings)
    assert found.preset.name == "ours"
    assert found.preset.mode is presets.Mode.PAGE  # as dots-ocr
    (folder / presets.LABEL).write_text('{"preset": "tiny"}')
    assert model_files.locate(str(folder), settings).preset.mode is presets.Mode.REGION
    (folder / presets.LABEL).write_text('{"preset": "glm-ocr"}')  # of another architecture: not believed
    assert model_files.locate(str(folder), settings).preset.output is presets.Output.DOTS_JSON


def test_a_folder_that_is_not_there_is_told(settings: Settings, tmp_path: Path) -> None:
    with pytest.raises(ModelMissingError, match="no such model folder"):
        model_files.locate(str(tmp_path / "nothing"), settings)


def test_a_folder_with_code_needs_trust_by_name(tmp_path: Path) -> None:
    folder = copy_of_tiny(tmp_path / "theirs", model_file="model.py")
    with pytest.raises(UntrustedModelError, match="trusted_models"):
        model_files.locate(str(folder), Settings(home=tmp_path))
    trusting = Settings(home=tmp_path, trusted_models=(folder,))
    assert model_files.locate(str(folder), trusting).folder == folder
