"""The engine `vlm` and what it drafts from: a reading that comes late, an earlier reading of the same page."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline import blas

blas.preload()
pytest.importorskip("mlx.core", reason="mlx has no wheel for this machine")

from pipeline.document import DocumentReader  # noqa: E402
from pipeline.engines.base import EngineReading, PageImage, to_end  # noqa: E402
from pipeline.engines.vlm import VlmEngine  # noqa: E402
from pipeline.model_reader import ImageReading  # noqa: E402
from pipeline.proposers.lookup import NGramTable  # noqa: E402
from storage.errors import EngineUnavailableError  # noqa: E402
from storage.records import Block, Category, Line, PageReading  # noqa: E402
from storage.settings import load  # noqa: E402
from tests.pipeline.adapter import checkpoints  # noqa: E402

from .conftest import letter_of  # noqa: E402

LINES = ("Harbour Trust", "Founded in 1868")


@pytest.fixture(scope="module")
def letter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return letter_of(LINES, tmp_path_factory.mktemp("letter"), (520, 240), 30)


@pytest.fixture(scope="module")
def page_model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VlmEngine]:
    """A model of whole pages, with random weights: what it writes is arbitrary, and always the same."""
    with checkpoints.shrink_towers():
        folder = checkpoints.make("dots_ocr", tmp_path_factory.mktemp("model"))
        home = tmp_path_factory.mktemp("home")
        engine = VlmEngine(
            load(
                {"home": home, "model": str(folder), "mode": "reference", "calibrate": False, "max_tokens": 24,
                 "max_draft": 8, "page_timeout_s": 600},
                env={},
            )
        )  # fmt: skip
        engine.needs = replace(engine.needs, dpi=100, max_pixels=100_000)  # a small picture will do
        engine.reader()
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VlmEngine]:
    home = tmp_path_factory.mktemp("tiny-home")
    engine = VlmEngine(load({"home": home, "model": "tiny", "mode": "reference", "calibrate": False}, env={}))
    yield engine
    engine.close()


@pytest.fixture(autouse=True)
def no_classic(monkeypatch: pytest.MonkeyPatch) -> None:
    """The random model never ends its text; what would then be read instead is not asked for here."""

    def missing(*_: object) -> EngineReading:
        raise EngineUnavailableError("not in this test")

    monkeypatch.setattr(VlmEngine, "_classically", missing)


def readings(
    path: Path, engine: VlmEngine, mode: str = "reference", previous: Sequence[Block] = ()
) -> tuple[PageReading, list[ImageReading]]:
    reader = engine.reader()
    usual, reader.settings = reader.settings, replace(reader.settings, mode=mode)
    engine._table = ("", NGramTable())
    engine.keep = kept = []
    try:
        with DocumentReader(path, engine.settings, engine) as document:
            return document.read(document.prepare(1, previous)), kept
    finally:
        reader.settings = usual


def passes(kept: list[ImageReading]) -> int:
    return sum(reading.outcome.passes for reading in kept)


def ids(kept: list[ImageReading]) -> list[list[int]]:
    return [reading.outcome.ids for reading in kept]


def test_decoding_begins_before_the_draft_is_there(
    letter: Path, page_model: VlmEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = threading.Event()
    usual = VlmEngine._read_cheaply

    def late(self: VlmEngine, page: PageImage) -> Sequence[Line]:
        assert begun.wait(60)
        return usual(self, page)

    monkeypatch.setattr(VlmEngine, "_read_cheaply", late)
    page_model.keep = kept = []
    with DocumentReader(letter, page_model.settings, page_model) as reader:
        pieces = reader.stream(reader.prepare(1))
        next(pieces)
        begun.set()
        seconds = to_end(pieces).seconds
    assert seconds["draft"] > 0
    _, alone = readings(letter, page_model, "none")
    assert ids(kept[:1]) == ids(alone[:1])


def test_a_draft_that_fails_fails_the_page_as_any_bug_does(
    letter: Path, tiny: VlmEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: VlmEngine, page: PageImage) -> Sequence[Line]:
        raise ZeroDivisionError

    monkeypatch.setattr(VlmEngine, "_read_cheaply", broken)
    with pytest.raises(ZeroDivisionError):
        readings(letter, tiny)


def test_what_was_read_before_is_the_better_draft_and_changes_nothing(letter: Path, tiny: VlmEngine) -> None:
    _, alone = readings(letter, tiny, "none")
    first, usual = readings(letter, tiny)
    second, again = readings(letter, tiny, previous=first.blocks)
    assert ids(alone) == ids(usual) == ids(again)
    assert second.text == first.text
    assert passes(again) <= passes(usual) < passes(alone)
    nonsense = [replace(b, lines=tuple(_reversed(line) for line in b.lines)) for b in first.blocks]
    wrong, misled = readings(letter, tiny, previous=nonsense)
    assert ids(misled) == ids(alone)
    assert wrong.text == first.text
    assert passes(misled) > passes(usual)  # it was looked at, not Tesseract's


def _reversed(line: Line) -> Line:
    return replace(line, words=tuple(replace(word, text=word.text[::-1]) for word in line.words))


def test_a_page_model_drafts_from_the_blocks_it_wrote_before(
    letter: Path, page_model: VlmEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not from the cheap reading, which then is only what invented text is told by."""
    seen: list[object] = []
    import pipeline.engines.vlm as module

    monkeypatch.setattr(module, "from_page", lambda *_: pytest.fail("the cheap reading was drafted from"))
    usual = module.from_blocks
    monkeypatch.setattr(module, "from_blocks", lambda *given: seen.append(given[0]) or usual(*given))
    previous = Block(Category.TEXT, (0, 0, 100, 50), "before", "before")
    _, kept = readings(letter, page_model, previous=[previous])
    assert seen[0] == (previous,)
    _, alone = readings(letter, page_model, "none")
    assert ids(kept[:1]) == ids(alone[:1])


def test_another_rung_of_the_ladder_computes_no_features(letter: Path, page_model: VlmEngine) -> None:
    """The page is cut short, then asked for under another prompt: the picture is the same, so are its features."""
    reading, kept = readings(letter, page_model)
    assert [attempt.rung for attempt in reading.attempts][:2] == ["page", "task"]
    assert kept[1].hit
    assert kept[0].prompt != kept[1].prompt
