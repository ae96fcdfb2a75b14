"""Settings: precedence, validation, origins."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from storage.errors import ExitCode, SettingsError
from storage.settings import Settings, Source, explain, load


def write(home: Path, text: str, mode: int = 0o600) -> Path:
    home.mkdir(exist_ok=True)
    path = home / "ocrd.toml"
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return path


def env(home: Path, **variables: str) -> dict[str, str]:
    return {"OCRD_HOME": str(home), **variables}


def test_defaults_need_no_file(tmp_path: Path) -> None:
    settings = load({}, env(tmp_path))
    assert settings == Settings(home=tmp_path)
    assert settings.database_path == tmp_path / "ocrd.db"
    assert settings.library_out == tmp_path / "sidecars"
    assert not settings.settings_path.exists()


def test_home_without_variable_is_the_platforms_data_folder() -> None:
    assert load({}, {}).home.name == "ocrd"
    assert load({}, {}).home.is_absolute()


def test_flag_beats_variable_beats_file_beats_default(tmp_path: Path) -> None:
    write(tmp_path, "dpi = 150\nworkers = 3\nmax_attempts = 5\n")
    variables = env(tmp_path, OCRD_DPI="300", OCRD_WORKERS="4")
    settings = load({"dpi": 400, "settle_s": None}, variables)
    assert (settings.dpi, settings.workers, settings.max_attempts, settings.settle_s) == (400, 4, 5, 2.0)
    origins = {origin.name: origin for origin in explain({"dpi": 400}, variables)}
    assert origins["dpi"].origin is Source.FLAG and origins["dpi"].where == "--dpi"
    assert origins["workers"].origin is Source.VARIABLE and "OCRD_WORKERS" in origins["workers"].where
    assert origins["max_attempts"].origin is Source.FILE
    assert origins["max_attempts"].where == f"{tmp_path / 'ocrd.toml'}, line 3"
    assert origins["settle_s"].origin is Source.DEFAULT and origins["settle_s"].where == ""
    assert explain({}, variables)[0].name == "home"
    assert all(origin.about for origin in origins.values())


@pytest.mark.parametrize(
    ("text", "place", "nearest"),
    [
        ("# c\n\ndip = 300", "line 3", "dpi"),
        ("langauges = ['eng']", "line 1", "languages"),
        ("settle-s = 3", "line 1", "settle_s"),
        ("[worker]\nx = 1", "line 1", "workers"),
    ],
)
def test_unknown_key_in_the_file_names_place_and_nearest(
    tmp_path: Path, text: str, place: str, nearest: str
) -> None:
    path = write(tmp_path, text)
    with pytest.raises(SettingsError) as caught:
        load({}, env(tmp_path))
    assert str(path) in str(caught.value) and place in str(caught.value)
    assert caught.value.remedy.endswith(nearest)
    assert caught.value.exit_code is ExitCode.SETTINGS


def test_unknown_variable_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"OCRD_LANGUAGE: .* OCRD_LANGUAGES"):
        load({}, env(tmp_path, OCRD_LANGUAGE="deu"))
    with pytest.raises(SettingsError, match="OCRD_DPI"):
        load({}, env(tmp_path, OCRD_dpi="300"))


def test_test_switches_are_no_settings(tmp_path: Path) -> None:
    tests = {"OCRD_CORPUS": "/x", "OCRD_SPEC_PAGES": "/x", "OCRD_CHROMIUM": "/x", "OCRD_FAKE_DELAY": "1"}
    assert load({}, env(tmp_path, **tests, _OCRD_COMPLETE="x", OTHER="y")) == load({}, env(tmp_path))


def test_home_cannot_be_moved_by_the_file_in_it(tmp_path: Path) -> None:
    write(tmp_path, "home = '/elsewhere'")
    with pytest.raises(SettingsError, match="OCRD_HOME"):
        load({}, env(tmp_path))


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("dpi", "0", "36 to 1200"),
        ("dpi", "fast", "whole number"),
        ("dpi", "1.5", "whole number"),
        ("settle_s", "nan", "seconds from 0"),
        ("settle_s", "-1", "seconds from 0"),
        ("engine", "tess", "one of auto, classic, tesseract"),
        ("text_layer", "maybe", "auto, ignore, require"),
        ("words", "perhaps", "true or false"),
        ("languages", ",", "language codes"),
        ("languages", "en g", "language codes"),
        ("log_level", "LOUD", "DEBUG, INFO"),
    ],
)
def test_bad_value_names_key_value_and_what_is_allowed(
    tmp_path: Path, key: str, value: str, allowed: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        load({}, env(tmp_path, **{f"OCRD_{key.upper()}": value}))
    message = str(caught.value)
    assert f"'{key}'" in message and repr(value) in message and allowed in message


@pytest.mark.parametrize(
    "line", ["dpi = true", "dpi = 200.0", "words = 1", "ignore = [1]", "out = 3", "engine = []"]
)
def test_wrong_type_in_the_file_is_refused(tmp_path: Path, line: str) -> None:
    write(tmp_path, line)
    with pytest.raises(SettingsError, match="line 1"):
        load({}, env(tmp_path))


def test_broken_toml_names_the_line(tmp_path: Path) -> None:
    write(tmp_path, "dpi = 200\nworkers = = 3\n")
    with pytest.raises(SettingsError, match=r"ocrd\.toml.*line 2"):
        load({}, env(tmp_path))


def test_file_that_is_no_utf8_is_a_settings_error(tmp_path: Path) -> None:
    write(tmp_path, "").write_bytes(b"model = '\xff'")
    with pytest.raises(SettingsError, match="not valid TOML"):
        load({}, env(tmp_path))


def test_lists_in_variables_are_separated_by_commas(tmp_path: Path) -> None:
    settings = load({}, env(tmp_path, OCRD_LANGUAGES="eng+deu, chi_sim", OCRD_IGNORE="*.bak,~*"))
    assert settings.languages == ("eng", "deu", "chi_sim")
    assert settings.ignore == ("*.bak", "~*")
    assert load({"languages": ("fra",)}, env(tmp_path)).languages == ("fra",)


def test_tilde_and_relative_paths_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    monkeypatch.chdir(tmp_path)
    home = tmp_path / "h"
    write(home, "tessdata = 'data'")
    settings = load({"out": "~/texts"}, env(home))
    assert settings.out == tmp_path / "me" / "texts"
    assert settings.tessdata == home / "data"  # a path in the file starts at the file's folder
    assert load({"out": "x"}, env(home)).out == tmp_path / "x"


def test_passwords_in_a_file_others_may_read_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "passwords = ['s3cret']", mode=0o644)
    with pytest.raises(SettingsError, match="0644") as caught:
        load({}, env(tmp_path))
    assert caught.value.remedy == f"run: chmod 600 '{path}'"
    path.chmod(0o600)
    assert load({}, env(tmp_path)).passwords == ("s3cret",)
    write(tmp_path, "dpi = 300", mode=0o644)
    assert load({}, env(tmp_path)).dpi == 300


def test_passwords_are_never_shown(tmp_path: Path) -> None:
    write(tmp_path, "passwords = ['s3cret']")
    settings = load({}, env(tmp_path))
    assert "s3cret" not in repr(settings)
    assert "s3cret" not in repr(explain({}, env(tmp_path)))
    with pytest.raises(SettingsError) as caught:
        load({"passwords": 12345}, env(tmp_path))
    assert "12345" not in str(caught.value)


def test_settings_cross_process_borders(tmp_path: Path) -> None:
    settings = load({"passwords": "a,b", "words": False}, env(tmp_path))
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_loading_imports_nothing_heavy() -> None:
    script = (
        "import sys, storage.settings as s; s.load({}, {'OCRD_HOME': '/tmp/x'});"
        "print([m for m in ('sqlite_utils', 'numpy', 'PIL', 'pandas', 'typer', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_model_is_a_name_or_becomes_an_absolute_folder(tmp_path: Path) -> None:
    home = {"home": tmp_path}
    assert load({**home, "model": "glm-ocr"}, env={}).model == "glm-ocr"
    assert load({**home, "model": "./ours"}, env={}).model == str(Path.cwd() / "ours")
    write(tmp_path, 'model = "models/ours"')
    assert load(home, env={}).model == str(tmp_path / "models" / "ours")


def test_trusted_models_are_absolute_and_come_as_list_or_path_text(tmp_path: Path) -> None:
    write(tmp_path, 'trusted_models = ["ours", "/opt/theirs"]')
    assert load({"home": tmp_path}, env={}).trusted_models == (tmp_path / "ours", Path("/opt/theirs"))
    env = {"OCRD_TRUSTED_MODELS": "/a:/b"}
    assert load({"home": tmp_path}, env=env).trusted_models == (Path("/a"), Path("/b"))


@pytest.mark.parametrize("value", [-1, "much", float("nan"), True])
def test_a_budget_is_gigabytes(value: object, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="gigabytes"):
        load({"home": tmp_path, "features_gb": value}, env={})
    assert load({"home": tmp_path, "features_gb": "0.5"}, env={}).features_bytes == 500_000_000
