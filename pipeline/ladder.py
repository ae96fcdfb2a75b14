"""A page that was not read to its end is tried in other ways, each written down; if none succeeds, the best is kept."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, replace

from pipeline.engines.base import EngineReading, Piece
from pipeline.repeats import skeleton
from storage.errors import EngineError, EngineUnavailableError
from storage.records import PageWarning, ReadingAttempt, StopReason

log = logging.getLogger(__name__)

FINISHED = frozenset({StopReason.COMPLETE, StopReason.BLANK})
SMALLER = 0.75  # of the resolution, on the rung "dpi": shrinking pictures has broken loops
# Of the time a page may take: what a further rung may end at. The rest is for the last one and for what follows.
_SHARE_OF_TIME = 0.6


@dataclass(frozen=True, slots=True)
class Rung:
    """A way to read the page; `cheap` ones are tried however late it is."""

    name: str  # as `storage.records.ReadingAttempt` calls it
    read: Callable[[], Generator[Piece, None, EngineReading]]
    cheap: bool = False


def climb(
    rungs: Iterable[Rung], *, time_s: float, clock: Callable[[], float] = time.monotonic
) -> Generator[Piece, None, EngineReading]:
    """Read by the first rung that finishes; the reading tells of all that were tried, if it was not the first.

    `time_s`: what a page may take. Raises: what the first rung raises.
    """
    started = clock()
    readings: list[EngineReading] = []
    attempts: list[ReadingAttempt] = []
    longest = 0.0
    for number, rung in enumerate(rungs):
        began = clock()
        if number and not rung.cheap and began - started + longest > _SHARE_OF_TIME * time_s:
            continue
        try:
            reading = yield from rung.read()
        except (EngineError, EngineUnavailableError) as error:
            if not number:
                raise
            log.warning("%s: %s", rung.name, error.message)
            attempts.append(ReadingAttempt(rung.name, StopReason.ERROR, 0, clock() - began))
            continue
        seconds = clock() - began
        longest = max(longest, seconds)
        attempts += reading.attempts or (_attempt(rung.name, reading, seconds),)
        readings.append(reading)
        if reading.stop_reason is StopReason.COMPLETE or (reading.stop_reason in FINISHED and not number):
            return _told(reading, attempts)
    return replace(max(readings, key=_worth), attempts=tuple(attempts))


def _attempt(name: str, reading: EngineReading, seconds: float) -> ReadingAttempt:
    return ReadingAttempt(name, reading.stop_reason, reading.decode.tokens if reading.decode else 0, seconds)


def _told(reading: EngineReading, attempts: Sequence[ReadingAttempt]) -> EngineReading:
    """The reading with what led to it, which is nothing where the first attempt was the last."""
    if len(attempts) == 1:
        return reading
    warnings = reading.warnings
    if attempts[-1].rung == "classic" and not any(warning.code == "fallback" for warning in warnings):
        failed = " and ".join(sorted({a.stop_reason.value for a in attempts[:-1]}))
        message = f"the model did not read this page to its end ({failed}); a classic engine did"
        warnings = (*warnings, PageWarning("fallback", message))
    return replace(reading, attempts=tuple(attempts), warnings=warnings)


def _worth(reading: EngineReading) -> int:
    """How much a reading that was cut short says."""
    blocks = reading.blocks or ()
    lines = reading.lines.lines if reading.lines is not None else ()
    return len(skeleton(" ".join([*(block.text for block in blocks), *(line.text for line in lines)])))
