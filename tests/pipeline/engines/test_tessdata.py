from pathlib import Path

import pytest

from pipeline.engines import tessdata
from storage.errors import EngineUnavailableError


def folder(path: Path, *languages: str) -> Path:
    for language in languages:
        file = path / f"{language}.traineddata"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(language.encode())
    return path


def test_the_wheels_have_english_and_orientation() -> None:
    found = tessdata.available(tessdata.folders())
    assert {"eng", "osd"} <= set(found)


def test_named_folders_come_first_and_missing_ones_are_left_out(tmp_path: Path) -> None:
    mine, prefix = folder(tmp_path / "mine", "deu"), folder(tmp_path / "share" / "tessdata", "fra")
    found = tessdata.folders([None, tmp_path / "nowhere", mine], {"TESSDATA_PREFIX": str(tmp_path / "share")})
    assert found[:3] == [mine, tmp_path / "share", prefix]


def test_the_first_folder_with_a_language_wins(tmp_path: Path) -> None:
    one, two = folder(tmp_path / "1", "eng", "script/Greek"), folder(tmp_path / "2", "eng", "deu")
    found = tessdata.available([one, two])
    assert found["eng"].parent == one
    assert set(found) == {"eng", "deu", "script/Greek"}


def test_languages_of_one_folder_are_used_in_place(tmp_path: Path) -> None:
    place = folder(tmp_path / "1", "eng", "deu")
    with tessdata.as_one_folder(["deu", "eng"], [place]) as found:
        assert found == place


def test_languages_of_several_folders_are_linked_into_one_for_a_while(tmp_path: Path) -> None:
    places = [folder(tmp_path / "1", "eng"), folder(tmp_path / "2", "deu", "script/Greek")]
    with tessdata.as_one_folder(["eng", "deu", "script/Greek"], places) as found:
        assert (found / "eng.traineddata").read_bytes() == b"eng"
        assert (found / "deu.traineddata").read_bytes() == b"deu"
        assert (found / "script/Greek.traineddata").read_bytes() == b"script/Greek"
    assert not found.exists()
    assert (places[0] / "eng.traineddata").exists()


def test_a_missing_language_says_what_there_is_and_where_to_put_more(tmp_path: Path) -> None:
    place = folder(tmp_path / "1", "eng", "osd")
    with (
        pytest.raises(EngineUnavailableError) as caught,
        tessdata.as_one_folder(["eng", "tlh"], [place]),
    ):
        pass
    assert "no language data for tlh; there are: eng" in caught.value.message
    assert "tlh.traineddata" in caught.value.remedy
    assert str(place) in caught.value.remedy
