import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from pipeline.engines.base import EngineReading, PageImage
from pipeline.engines.fake import FakeEngine
from storage.errors import EngineError, SettingsError
from storage.records import StopReason


def page(number: int = 1, grey: int = 255) -> PageImage:
    return PageImage(number, Image.new("L", (40, 60), grey), 400.0, 600.0, 72.0)


def texts(reading: EngineReading) -> list[str]:
    assert reading.lines is not None
    return [line.text for line in reading.lines.lines]


def test_unscripted_it_names_page_and_pixels() -> None:
    engine = FakeEngine()
    assert texts(engine.read(page(3))) == texts(engine.read(page(3)))
    assert texts(engine.read(page(3)))[0].startswith("Page 3 ")
    assert texts(engine.read(page(3))) != texts(engine.read(page(3, grey=0)))


def test_boxes_lie_on_the_page() -> None:
    reading = FakeEngine("text:" + "\\n".join(["one two three"] * 200)).read(page())
    assert reading.lines is not None
    assert len(reading.lines.lines) == 200
    for line in reading.lines.lines:
        for left, top, right, bottom in [line.box, *(word.box for word in line.words)]:
            assert 0 <= left < right <= 400
            assert 0 <= top < bottom <= 600


def test_a_loop_ends_with_its_good_prefix_and_says_so() -> None:
    reading = FakeEngine("loop:De linzen wassen. ").read(page())
    assert reading.stop_reason is StopReason.REPETITION
    assert texts(reading) == ["De linzen wassen."]
    assert [warning.code for warning in reading.warnings] == ["repetition"]


def test_truncate_stops_for_length_and_says_so() -> None:
    reading = FakeEngine("truncate").read(page())
    assert reading.stop_reason is StopReason.LENGTH
    assert texts(reading)
    assert [warning.code for warning in reading.warnings] == ["truncated"]


def test_empty_has_no_lines() -> None:
    reading = FakeEngine("empty").read(page())
    assert texts(reading) == []
    assert reading.confidence is None


def test_text_keeps_its_lines() -> None:
    assert texts(FakeEngine("text:C++ costs 50%\\nit's: so").read(page())) == ["C++ costs 50%", "it's: so"]


def test_delays_are_drawn_by_page_and_stay_in_their_range() -> None:
    slept: list[float] = []
    engine = FakeEngine("delay_random:0-50ms", sleep=slept.append)
    for number in (1, 2, 3, 1):
        engine.read(page(number))
    assert slept[0] == slept[3] != slept[1]
    assert all(0 <= seconds <= 0.05 for seconds in slept)


@pytest.mark.parametrize(("script", "seconds"), [("delay:20ms", 0.02), ("delay:2s", 2.0), ("delay:5", 0.005)])
def test_a_delay_has_a_unit(script: str, seconds: float) -> None:
    slept: list[float] = []
    FakeEngine(script, sleep=slept.append).read(page())
    assert slept == [pytest.approx(seconds)]


def test_an_error_may_be_meant_for_one_page() -> None:
    engine = FakeEngine("error:2")
    assert texts(engine.read(page(1)))
    with pytest.raises(EngineError, match="page 2"):
        engine.read(page(2))


def test_steps_follow_each_other() -> None:
    slept: list[float] = []
    reading = FakeEngine("delay:1ms ;; text:after", sleep=slept.append).read(page())
    assert texts(reading) == ["after"]
    assert len(slept) == 1


def test_hanging_never_returns() -> None:
    class Woken(Exception): ...

    naps: list[float] = []

    def sleep(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 5:
            raise Woken

    with pytest.raises(Woken):
        FakeEngine("hang", sleep=sleep).read(page())
    assert texts(FakeEngine("hang:7").read(page(1)))


def test_crash_once_dies_at_the_first_attempt_only(tmp_path: Path) -> None:
    deaths: list[int] = []
    marker = tmp_path / "crashed"
    for _ in range(2):
        FakeEngine(f"crash_once:{marker}", die=lambda: deaths.append(1)).read(page())
    assert deaths == [1]


def test_a_crash_takes_the_process_with_it() -> None:
    code = (
        "from PIL import Image; from pipeline.engines.base import PageImage; "
        "from pipeline.engines.fake import FakeEngine; "
        "FakeEngine.from_environment().read(PageImage(1, Image.new('L', (9, 9)), 9.0, 9.0, 72.0))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "OCRD_FAKE_SCRIPT": "crash"}, capture_output=True
    )
    assert done.returncode == -signal.SIGABRT


def test_an_unknown_command_is_a_setting_that_is_wrong() -> None:
    with pytest.raises(SettingsError, match="explode"):
        FakeEngine("explode")
