import io
import sys
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image

from pipeline.engines.apple_vision import Observation, VisionEngine, vision_languages
from storage.errors import EngineError, EngineUnavailableError
from storage.records import Direction
from storage.settings import Settings

from .conftest import page_of

PAGE = page_of(Image.new("L", (1000, 2000), 255), dpi=72)


class Seen:
    """A recogniser that was told what to find, and remembers what it was asked."""

    def __init__(self, *found: Observation) -> None:
        self.found = found
        self.size = (0, 0)
        self.languages: list[str] = []

    def recognize(self, png: bytes, languages: Any) -> tuple[Observation, ...]:
        self.size, self.languages = Image.open(io.BytesIO(png)).size, list(languages)
        return self.found


def test_boxes_are_turned_from_the_bottom_left_to_points_from_the_top_left(settings: Settings) -> None:
    recognizer = Seen(Observation("Hello  world", 0.5, (0.1, 0.8, 0.4, 0.05)))
    reading = VisionEngine(settings, recognizer).read(PAGE)
    assert reading.lines is not None
    (line,) = reading.lines.lines
    assert line.box == pytest.approx((100, 300, 500, 400))
    assert line.text == "Hello world"
    assert [word.text for word in line.words] == ["Hello", "world"]
    assert line.confidence == reading.confidence == pytest.approx(0.5)
    assert recognizer.size == (1000, 2000)
    assert recognizer.languages == ["en-US"]


def test_a_tall_box_is_vertical_text(settings: Settings) -> None:
    reading = VisionEngine(settings, Seen(Observation("縦書き", 1.0, (0.9, 0.2, 0.05, 0.6)))).read(PAGE)
    assert reading.lines is not None
    assert reading.lines.lines[0].direction is Direction.TTB


def test_languages_vision_does_not_know_are_left_out() -> None:
    assert vision_languages(["deu", "tlh", "chi_sim"]) == ["de-DE", "zh-Hans"]


@pytest.mark.skipif(sys.platform == "darwin", reason="Vision may be there")
def test_without_the_framework_the_remedy_is_named(settings: Settings) -> None:
    with pytest.raises(EngineUnavailableError, match="choose another"):
        VisionEngine(settings).read(PAGE)


@dataclass
class _Text:
    """Stands for a VNRecognizedTextObservation and its VNRecognizedText."""

    words: str
    sure: float

    def topCandidates_(self, count: int) -> list["_Text"]:
        return [self][:count] if self.words else []

    def string(self) -> str:
        return self.words

    def confidence(self) -> float:
        return self.sure

    def boundingBox(self) -> SimpleNamespace:
        return SimpleNamespace(
            origin=SimpleNamespace(x=0.0, y=0.5), size=SimpleNamespace(width=1.0, height=0.1)
        )


class _Framework:
    """The part of `Vision` and `Foundation` that is called, recording its settings."""

    VNRequestTextRecognitionLevelAccurate = 0

    def __init__(self, fails: bool) -> None:
        self.set: dict[str, Any] = {}
        self.fails = fails
        self.VNRecognizeTextRequest = self.VNImageRequestHandler = self.NSData = self

    def alloc(self) -> "_Framework":
        return self

    init = alloc

    def initWithData_options_(self, data: Any, options: Any) -> "_Framework":
        self.set["data"] = data
        return self

    def dataWithBytes_length_(self, data: bytes, length: int) -> bytes:
        return data[:length]

    def setRecognitionLevel_(self, level: int) -> None:
        self.set["level"] = level

    def setUsesLanguageCorrection_(self, is_on: bool) -> None:
        self.set["correction"] = is_on

    def setRecognitionLanguages_(self, languages: list[str]) -> None:
        self.set["languages"] = languages

    def performRequests_error_(self, requests: Any, error: None) -> tuple[bool, str | None]:
        return (False, "no luck") if self.fails else (True, None)

    def results(self) -> list[_Text]:
        return [_Text("Grüße", 0.8), _Text("", 0.0)]


def _engine(
    monkeypatch: pytest.MonkeyPatch, settings: Settings, *, fails: bool
) -> tuple[VisionEngine, _Framework]:
    framework = _Framework(fails)
    monkeypatch.setitem(sys.modules, "Vision", framework)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "Foundation", framework)  # type: ignore[arg-type]
    return VisionEngine(settings), framework


def test_the_framework_is_asked_for_accurate_text(
    monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    engine, framework = _engine(monkeypatch, settings, fails=False)
    reading = engine.read(PAGE)
    assert reading.lines is not None
    assert [line.text for line in reading.lines.lines] == ["Grüße"]
    assert reading.lines.lines[0].box == pytest.approx((0, 800, 1000, 1000))
    assert (framework.set["level"], framework.set["languages"]) == (0, ["en-US"])
    assert framework.set["data"].startswith(b"\x89PNG")


def test_a_failure_of_the_framework_is_an_engine_error(
    monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    engine, _ = _engine(monkeypatch, settings, fails=True)
    with pytest.raises(EngineError, match="no luck"):
        engine.read(PAGE)
