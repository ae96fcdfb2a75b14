import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.engines import registry
from pipeline.engines.base import Engine
from storage.errors import SettingsError
from storage.settings import Settings, load


@pytest.mark.parametrize("name", [*registry.ENGINES, registry.AUTO])
def test_every_engine_is_made_without_being_set_up(name: str, settings: Settings) -> None:
    engine = registry.create(name, settings)
    assert isinstance(engine, Engine)
    assert engine.name == ("classic" if name == registry.AUTO else name)
    assert engine.version()
    engine.close()


def test_auto_is_classic_without_a_model_and_says_why(settings: Settings) -> None:
    assert registry.resolve("auto", settings) == ("classic", "no model set")
    name, why = registry.resolve("auto", replace(settings, model="glm-ocr"))
    assert name == "classic"
    assert "glm-ocr is not on disk" in why and "`ocrd models pull glm-ocr`" in why
    name, why = registry.resolve("auto", replace(settings, model="/nowhere/model"))
    assert (name, why) == ("classic", "there is no such model folder: check the path")


def test_auto_is_the_model_that_is_set_and_on_disk(settings: Settings) -> None:
    assert registry.resolve("auto", replace(settings, model="tiny")) == ("vlm", "model tiny is on disk")
    assert (
        registry.resolve("classic", replace(settings, model="tiny"))[0] == "classic"
    )  # what is asked for wins


def test_a_misspelt_model_is_no_reason_to_read_with_another_engine(settings: Settings) -> None:
    with pytest.raises(SettingsError, match="`glm-ocr`"):
        registry.resolve("auto", replace(settings, model="gml-ocr"))


def test_settings_know_every_engine_and_proposer() -> None:
    from pipeline.proposers import registry as proposers

    home = Path("/nowhere")
    for name in [registry.AUTO, *registry.ENGINES]:
        assert load({"home": home, "engine": name}, env={}).engine == name
    for name in [proposers.AUTO, *proposers.PROPOSERS]:
        assert load({"home": home, "mode": name}, env={}).mode == name


def test_choosing_imports_nothing_heavy() -> None:
    code = (
        "import sys; from pathlib import Path; from pipeline.engines import registry;"
        "from storage.settings import Settings;"
        "print(registry.resolve('auto', Settings(home=Path('/nowhere'), model='tiny'))[0]);"
        "print([m for m in ('mlx', 'mlx_vlm', 'transformers', 'huggingface_hub', 'numpy', 'PIL') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split("\n")[:2] == ["vlm", "[]"]


def test_an_unknown_engine_names_the_nearest(settings: Settings) -> None:
    with pytest.raises(SettingsError, match="Did you mean `tesseract`"):
        registry.create("teseract", settings)


def test_an_engine_without_a_near_name_lists_all(settings: Settings) -> None:
    with pytest.raises(SettingsError, match=r"classic.*tesseract.*rapidocr"):
        registry.resolve("xyzzy", settings)
