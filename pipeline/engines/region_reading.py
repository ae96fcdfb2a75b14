"""Regions of a page read one by one; one that is cut short is read smaller, then left to the other reading's words."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pipeline.engines.base import Piece
from pipeline.engines.stops import stop_warning, worst
from pipeline.ladder import SMALLER
from pipeline.reference.draft import DraftLine
from storage.records import DecodeStats, PageWarning, ReadingAttempt, StopReason

if TYPE_CHECKING:
    from PIL import Image

    from pipeline.model_reader import ImageReading
    from pipeline.presets import Task

Reads = Callable[
    ["Image.Image", "Task | None", str, Sequence[DraftLine]], Generator[Piece, None, "ImageReading"]
]


@dataclass(slots=True)
class _Sum:
    """What the regions took in one way of reading them."""

    count: int = 0
    tokens: int = 0
    seconds: float = 0.0
    stops: list[StopReason] = field(default_factory=list)

    def attempt(self, rung: str) -> ReadingAttempt:
        return ReadingAttempt(rung, worst(self.stops), self.tokens, self.seconds)


class RegionReading:
    """The regions of one page, and what they took together."""

    def __init__(self, reads: Reads, *, climbs: bool = True) -> None:
        """`reads`: picture, task, the other reading's words and its draft lines, to a model's reading.

        `climbs`: whether what is cut short is tried in other ways, or left as it is.
        """
        self._reads = reads
        self._climbs = climbs
        self._first, self._again = _Sum(), _Sum()
        self._wrote = False  # whether anything was streamed yet
        self._left = 0  # regions left to the other reading
        self._unfinished: list[StopReason] = []
        self.decode = DecodeStats()
        self.seconds: dict[str, float] = {}

    def read(
        self, picture: Image.Image, task: Task | None, other: str, draft: Sequence[DraftLine] = ()
    ) -> Generator[Piece, None, ImageReading | None]:
        """The reading of a region; None where `other`, another reading's words, is to be taken instead.

        In what is streamed a line end parts it from the region before: a model's answer for a region has none.
        """
        if self._wrote:
            yield Piece("\n", "model", 0, 0)
        first = yield from self._reads(picture, task, other, draft)
        self._wrote = self._wrote or bool(first.text)
        self._add(first, self._first)
        if first.stop_reason is StopReason.COMPLETE:
            return first
        if not self._climbs:
            self._unfinished.append(first.stop_reason)
            return first
        size = max(1, round(picture.width * SMALLER)), max(1, round(picture.height * SMALLER))
        second = yield from self._reads(picture.resize(size), task, other, draft)
        self._add(second, self._again)
        if second.stop_reason is StopReason.COMPLETE and second.text.strip():
            return second
        if other.strip():
            self._left += 1
            return None
        self._unfinished.append(first.stop_reason)
        return max(first, second, key=lambda reading: len(reading.text))

    def _add(self, reading: ImageReading, total: _Sum) -> None:
        stats = reading.outcome.stats
        self.decode = DecodeStats(
            self.decode.tokens + stats.tokens,
            self.decode.target_passes + stats.target_passes,
            self.decode.drafted + stats.drafted,
            self.decode.accepted + stats.accepted,
        )
        for stage, seconds in reading.seconds.items():
            self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds
        total.count += 1
        total.tokens += stats.tokens
        total.seconds += sum(reading.seconds.values())
        total.stops.append(reading.stop_reason)

    @property
    def stop_reason(self) -> StopReason:
        """Complete if every region is, in the model's words or the other reading's."""
        return worst(self._unfinished)

    @property
    def warnings(self) -> tuple[PageWarning, ...]:
        """What a person should know of it."""
        found = stop_warning(self.stop_reason)
        if self._left:
            message = (
                f"{self._left} of {self._first.count} regions were not read to their end by the model;"
                " they have the words of another reading"
            )
            found = (*found, PageWarning("fallback", message))
        return found

    @property
    def attempts(self) -> tuple[ReadingAttempt, ...]:
        """The ways in which regions were tried; none where the first was enough."""
        if not self._again.count:
            return ()
        found = [self._first.attempt("regions"), self._again.attempt("dpi")]
        if self._left:
            found.append(ReadingAttempt("classic", StopReason.COMPLETE))
        return tuple(found)
