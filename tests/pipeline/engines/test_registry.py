import pytest

from pipeline.engines import registry
from pipeline.engines.base import Engine
from storage.errors import SettingsError
from storage.settings import Settings


@pytest.mark.parametrize("name", [*registry.ENGINES, registry.AUTO])
def test_every_engine_is_made_without_being_set_up(name: str, settings: Settings) -> None:
    engine = registry.create(name, settings)
    assert isinstance(engine, Engine)
    assert engine.name == ("classic" if name == registry.AUTO else name)
    assert engine.version()
    engine.close()


def test_auto_is_classic_while_there_is_no_model(settings: Settings) -> None:
    assert registry.resolve("auto", settings) == ("classic", "no model on disk")


def test_an_unknown_engine_names_the_nearest(settings: Settings) -> None:
    with pytest.raises(SettingsError, match="Did you mean `tesseract`"):
        registry.create("teseract", settings)


def test_an_engine_without_a_near_name_lists_all(settings: Settings) -> None:
    with pytest.raises(SettingsError, match=r"classic.*tesseract.*rapidocr"):
        registry.resolve("xyzzy", settings)
