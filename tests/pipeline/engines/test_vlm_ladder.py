"""The engine `vlm` when its model goes in circles: what is kept, what is tried next, what a page's row tells of it."""

from __future__ import annotations

import json
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import pytest
from PIL import Image, ImageDraw, ImageFont

from pipeline import blas

blas.preload()
pytest.importorskip("mlx.core", reason="mlx has no wheel for this machine")

from pipeline.decode import Outcome  # noqa: E402
from pipeline.document import DocumentReader  # noqa: E402
from pipeline.engines.base import Piece  # noqa: E402
from pipeline.engines.vlm import VlmEngine  # noqa: E402
from pipeline.guard import Verdict  # noqa: E402
from pipeline.model_reader import ImageReading  # noqa: E402
from pipeline.presets import PRESETS, Task  # noqa: E402
from storage.records import PageReading, StopReason  # noqa: E402
from storage.settings import Settings, load  # noqa: E402

FIRST, SECOND = "The harbour office was founded in 1868", "and later moved to the north quay"
LAST = "where it still stands today."
LAYOUT = json.dumps(
    [
        {
            "bbox": [40, 40, 600, 90],
            "category": "Text",
            "text": f"{FIRST} {SECOND} {LAST}",
        }
    ]
)


@pytest.fixture(scope="module")
def letter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    picture = Image.new("L", (1100, 500), 255)
    draw = ImageDraw.Draw(picture)
    for at, line in enumerate((FIRST, SECOND, LAST)):
        draw.text((60, 60 + 110 * at), line, font=ImageFont.load_default(40), fill=0)
    path = tmp_path_factory.mktemp("letter") / "letter.png"
    picture.save(path, dpi=(200, 200))
    return path


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    home = tmp_path_factory.mktemp("home")
    return load({"home": home, "engine": "vlm", "model": "tiny", "calibrate": False}, env={})


@dataclass
class ScriptedReader:
    """A model that says about each picture what is next on its list: (text, why it ended)."""

    script: list[tuple[str, StopReason]]
    asked: list[tuple[Task | None, int]]  # task, width of the picture

    def stream(
        self, image: Image.Image, task: Task | None = None, *_: object
    ) -> Generator[Piece, None, ImageReading]:
        self.asked.append((task, image.width))
        text, reason = self.script.pop(0)
        yield Piece(text, "model", 3, 0)
        reading = ImageReading(PRESETS["dots-ocr"].prompts[task or Task.LAYOUT], text, input_px=image.size)
        reading.outcome = Outcome(ids=[1, 2, 3], stop_reason=reason)
        if reason is StopReason.REPETITION:
            reading.guard = Verdict(reason, 1, "the model wrote the same 9 tokens 4 times over")
        return reading


def read(
    path: Path, settings: Settings, model: str, *script: tuple[str, StopReason]
) -> tuple[PageReading, ScriptedReader]:
    engine = VlmEngine(settings)
    engine.preset = PRESETS[model]
    scripted = ScriptedReader([*script], [])
    engine.reader = lambda: scripted  # type: ignore[method-assign, assignment, return-value]
    try:
        with DocumentReader(path, settings, engine) as reader:
            return reader.read_page(1), scripted
    finally:
        engine.close()


LOOP, CUT, GOOD = StopReason.REPETITION, StopReason.LENGTH, StopReason.COMPLETE
SHORT = '[{"bbox": [40, 40, 600, 90], "category": "Text", "text": "The harbour office'


def tried(reading: PageReading) -> list[tuple[str, str, int]]:
    return [(attempt.rung, attempt.stop_reason.value, attempt.tokens) for attempt in reading.attempts]


def test_a_page_read_to_its_end_tells_of_no_attempts(letter: Path, settings: Settings) -> None:
    reading, _ = read(letter, settings, "dots-ocr", (LAYOUT, GOOD))
    assert (reading.stop_reason, reading.attempts, reading.warnings) == (GOOD, (), ())
    assert "stands today" in reading.text


def test_a_loop_is_asked_for_the_bare_text(letter: Path, settings: Settings) -> None:
    reading, scripted = read(letter, settings, "dots-ocr", (SHORT, LOOP), (f"{FIRST} {SECOND} {LAST}", GOOD))
    assert [task for task, _ in scripted.asked] == [Task.LAYOUT, Task.TEXT]
    assert reading.stop_reason is GOOD
    assert tried(reading) == [("page", "repetition", 3), ("task", "complete", 3)]
    assert "stands today" in reading.text
    assert reading.prompt is not None
    assert "text" in reading.prompt
    assert reading.warnings == ()


def test_then_region_by_region(letter: Path, settings: Settings) -> None:
    words = [(f"{FIRST} {SECOND}", GOOD)] * 5
    reading, scripted = read(letter, settings, "dots-ocr", (SHORT, CUT), ("The", LOOP), *words)
    assert tried(reading)[:2] == [("page", "length", 3), ("task", "repetition", 3)]
    assert tried(reading)[2][:2] == ("regions", "complete")
    assert {task for task, _ in scripted.asked[2:]} == {Task.TEXT}
    assert reading.stop_reason is GOOD


def test_a_region_in_a_loop_is_read_smaller_then_left_to_the_draft(letter: Path, settings: Settings) -> None:
    loops = [("of the of the", LOOP)] * 20
    reading, scripted = read(letter, settings, "dots-ocr", (SHORT, LOOP), ("The", LOOP), *loops)
    names = [rung for rung, _, _ in tried(reading)]
    assert names == ["page", "task", "regions", "dpi", "classic"]
    widths = [width for _, width in scripted.asked[2:]]
    assert widths[1] == round(widths[0] * 0.75)
    assert reading.stop_reason is GOOD
    assert "harbour office was founded" in reading.text
    assert "of the of the" not in reading.text
    assert [warning.code for warning in reading.warnings] == ["fallback"]


def test_at_last_a_classic_engine(letter: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VlmEngine, "draft", lambda self, page: ())  # no draft: no regions
    reading, scripted = read(letter, settings, "dots-ocr", (SHORT, LOOP), ("The", CUT), (SHORT, LOOP))
    assert tried(reading) == [
        ("page", "repetition", 3), ("task", "length", 3), ("dpi", "repetition", 3), ("classic", "complete", 0),
    ]  # fmt: skip
    assert scripted.asked[2][1] == round(scripted.asked[0][1] * 0.75)
    assert "harbour office was founded" in reading.text
    assert reading.model is not None
    assert "tesseract" in reading.model
    assert [warning.code for warning in reading.warnings] == ["fallback"]


def test_if_nothing_helps_the_good_prefix_is_kept(
    letter: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipeline.engines.classic import ClassicEngine
    from storage.errors import EngineUnavailableError

    def missing(*_: object, **__: object) -> None:
        raise EngineUnavailableError("Tesseract is not there")

    monkeypatch.setattr(VlmEngine, "draft", lambda self, page: ())
    monkeypatch.setattr(ClassicEngine, "read", missing)
    reading, _ = read(letter, settings, "dots-ocr", (SHORT, LOOP), ("The", CUT), ("[", CUT))
    assert reading.text == "The harbour office"
    assert reading.stop_reason is LOOP
    assert tried(reading)[-1] == ("classic", "error", 0)
    assert [warning.code for warning in reading.warnings] == ["repetition"]
    assert "9 tokens 4 times" in reading.warnings[0].message


def test_text_that_no_other_reading_knows_is_told(letter: Path, settings: Settings) -> None:
    invented = (
        "Several prominent scientists praised groundbreaking quantum experiments throughout Scandinavia."
    )
    answer = json.loads(LAYOUT)
    answer.append({"bbox": [40, 100, 600, 190], "category": "Text", "text": invented})
    reading, _ = read(letter, settings, "dots-ocr", (json.dumps(answer), GOOD))
    assert [warning.code for warning in reading.warnings] == ["unsupported_text"]
    assert "quantum experiments" in reading.warnings[0].message
    assert invented in reading.text
