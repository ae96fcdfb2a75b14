"""A page that is cut short is tried in other ways, in order and within its time; the best of what failed is kept."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from itertools import count

import pytest
from PIL import Image

from pipeline.engines.base import EngineReading, PageImage, Piece
from pipeline.engines.fake import FakeEngine
from pipeline.ladder import Rung, climb
from storage.errors import EngineError
from storage.records import StopReason

PAGE = PageImage(1, Image.new("L", (200, 300), 255), 200.0, 300.0, 72.0)
GOOD, LOOP, CUT = "text:all of it", "loop:Dieser Satz kommt immer wieder und hört nicht auf. ", "truncate"


def rung(name: str, script: str, *, cheap: bool = False) -> Rung:
    """A rung that does what the script of the engine `fake` says."""

    def read() -> Generator[Piece, None, EngineReading]:
        reading = FakeEngine(script).read(PAGE)
        yield Piece(name, "model", 1, 0)
        return reading

    return Rung(name, read, cheap)


def climbed(
    rungs: Sequence[Rung], *, time_s: float = 600.0, clock: Callable[[], float] | None = None
) -> tuple[EngineReading, list[str]]:
    """The reading, and the rungs that were read."""
    ticks = count()
    steps = climb(rungs, time_s=time_s, clock=clock or (lambda: float(next(ticks))))
    read: list[str] = []
    while True:
        try:
            read.append(next(steps).text)
        except StopIteration as end:
            return end.value, read


def texts(reading: EngineReading) -> list[str]:
    assert reading.lines is not None
    return [line.text for line in reading.lines.lines]


def tried(reading: EngineReading) -> list[tuple[str, str]]:
    return [(attempt.rung, attempt.stop_reason.value) for attempt in reading.attempts]


def test_a_page_read_to_its_end_is_tried_once() -> None:
    reading, read = climbed([rung("page", GOOD), rung("task", GOOD)])
    assert read == ["page"]
    assert (texts(reading), reading.attempts, reading.warnings) == (["all of it"], (), ())


def test_the_first_way_that_finishes_counts() -> None:
    rungs = [rung("page", LOOP), rung("task", CUT), rung("regions", GOOD), rung("dpi", "error")]
    reading, read = climbed(rungs)
    assert read == ["page", "task", "regions"]
    assert texts(reading) == ["all of it"]
    assert reading.stop_reason is StopReason.COMPLETE
    assert tried(reading) == [("page", "repetition"), ("task", "length"), ("regions", "complete")]
    assert [attempt.seconds for attempt in reading.attempts] == [1.0, 1.0, 1.0]
    assert reading.warnings == ()


def test_truncation_is_tried_again_too_and_a_classic_engine_is_told_of() -> None:
    reading, _ = climbed([rung("page", CUT), rung("classic", GOOD, cheap=True)])
    assert tried(reading) == [("page", "length"), ("classic", "complete")]
    assert [warning.code for warning in reading.warnings] == ["fallback"]
    assert "(length)" in reading.warnings[0].message


def test_if_all_fail_the_longest_good_text_is_kept_with_its_warning() -> None:
    rungs = [rung("page", CUT), rung("task", LOOP), rung("dpi", CUT), rung("classic", "error", cheap=True)]
    reading, _ = climbed(rungs)
    assert texts(reading) == ["Dieser Satz kommt immer wieder und hört nicht auf."]
    assert reading.stop_reason is StopReason.REPETITION
    assert [warning.code for warning in reading.warnings] == ["repetition"]
    assert tried(reading) == [
        ("page", "length"), ("task", "repetition"), ("dpi", "length"), ("classic", "error"),
    ]  # fmt: skip


def test_an_error_of_the_first_way_is_the_page_s() -> None:
    with pytest.raises(EngineError):
        climbed([rung("page", "error"), rung("classic", GOOD)])


def test_dear_ways_are_left_out_when_time_is_short() -> None:
    now = iter([0.0, 0.0, 200.0, 200.0, 201.0, 201.0, 202.0])
    rungs = [rung("page", LOOP), rung("task", GOOD), rung("classic", GOOD, cheap=True)]
    reading, read = climbed(rungs, time_s=300.0, clock=lambda: next(now))
    assert read == ["page", "classic"]
    assert tried(reading) == [("page", "repetition"), ("classic", "complete")]


def test_a_retry_that_finds_nothing_is_no_success() -> None:
    def blank() -> Generator[Piece, None, EngineReading]:
        yield Piece("task", "model", 1, 0)
        return EngineReading(blocks=(), stop_reason=StopReason.BLANK)

    rungs = [rung("page", LOOP), Rung("task", blank), rung("classic", GOOD, cheap=True)]
    reading, _ = climbed(rungs)
    assert texts(reading) == ["all of it"]
    reading, _ = climbed(rungs[:2])
    assert reading.stop_reason is StopReason.REPETITION
    assert texts(reading)
