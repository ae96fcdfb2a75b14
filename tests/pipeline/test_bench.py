import json
from pathlib import Path

import pytest
from PIL import Image

from pipeline import bench
from storage.errors import SettingsError
from storage.settings import Settings


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    (tmp_path / "GROUNDTRUTH").mkdir()
    (tmp_path / "files").mkdir()
    Image.new("L", (200, 100), 255).save(tmp_path / "files" / "one.png")
    (tmp_path / "GROUNDTRUTH" / "one.txt").write_text("something")
    (tmp_path / "GROUNDTRUTH" / "INDEX.tsv").write_text(
        "gt\tfiles (page)\none.txt\tone.png:1, missing.pdf:1\none.txt\tmany.pdf:2-4\n"
    )
    return tmp_path


def test_pages_are_those_whose_files_are_there(corpus: Path) -> None:
    assert [page.name for page in bench.true_pages(corpus)] == ["one.png:1"]
    (corpus / "files" / "many.pdf").touch()
    assert [page.name for page in bench.true_pages(corpus)][1:] == ["many.pdf:2", "many.pdf:3", "many.pdf:4"]


def test_a_folder_without_list_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"INDEX\.tsv"):
        bench.true_pages(tmp_path)


def test_every_engine_gets_every_page_and_a_failure_is_all_wrong(
    corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(home=corpus)
    monkeypatch.setenv("OCRD_FAKE_SCRIPT", "text:some thing")
    monkeypatch.setenv("PATH", "")  # no ocrmypdf here
    told: list[str] = []
    (result,) = bench.measure(bench.true_pages(corpus), ["fake", "ocrmypdf"], settings, tell=told.append)
    assert result.mean_cer == result.mean_cer_of_texts == pytest.approx(1 / 9, abs=1e-4)
    assert "ocrmypdf: not installed, left out" in told
    assert "one.png:1 | 0.111" in bench.as_table([result])
    plain = json.loads(json.dumps(bench.as_json([result])))
    assert plain["engines"][0]["pages"][0]["truth"] == "one.txt"


def test_means_weigh_pages_or_texts() -> None:
    result = bench.Result("x", "1")
    for truth, cer in (("a", 0.0), ("a", 0.0), ("b", 0.3)):
        result.scores.append(bench.Score("p", truth, cer, 2.0, 1.0))
    assert result.mean_cer == pytest.approx(0.1)
    assert result.mean_cer_of_texts == pytest.approx(0.15)
    assert result.pages_per_min == pytest.approx(30)
    assert result.pages_per_cpu_min == pytest.approx(60)
