"""Replays stored page outputs through the proposers and the decode loop: tokens per pass, speed-up per cost curve.

No model runs: a `ReplayTarget` knows the ids of a page and answers as the model did that wrote it.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.decode import DecodeOptions, decode
from pipeline.proposers.base import Draft, NoProposer, Proposer
from pipeline.proposers.lookup import LookupProposer, NGramTable
from pipeline.proposers.reference import ReferenceProposer
from pipeline.reference.codec import Codec
from pipeline.reference.draft import Break, DraftLine
from pipeline.reference.lines import from_page
from pipeline.reference.source import ReadyDraft
from pipeline.schedule import CURVES, CostSchedule, FixedSchedule, Schedule
from pipeline.target import Banned, Decision
from storage.errors import SettingsError
from storage.records import Box, Line, PageText

_LAYER_SIZE, _OCR_SIZE = 0.8, 0.75  # font size to height of a line's box
_MARGIN = 1.07  # page size to the extent of its lines
_MARKS = {"W": Break.WRAP, "P": Break.PARAGRAPH, "C": Break.CELL, "R": Break.ROW}


@dataclass(frozen=True, slots=True)
class StoredPage:
    """What a model wrote for a page, and a cheap reading of it."""

    id: str
    kind: str
    source: str
    target: str
    draft: tuple[DraftLine, ...]
    json: bool


class ReplayTarget:
    """A session whose model always writes `ids`; keeps the number of rows of each pass."""

    def __init__(self, ids: Sequence[int], room: int = 64) -> None:
        self.ids = ids
        self.rows: list[int] = []
        self._at = 0  # ids in the cache
        self._room = room

    @property
    def length(self) -> int:
        """Ids in the cache."""
        return self._at

    def start(self, *, banned: Sequence[int] = (), margins: bool = False) -> Decision:
        """The first id."""
        return Decision((self.ids[0],))

    def forward(self, tokens: Sequence[int], *, banned: Banned = (), margins: bool = False) -> Decision:
        """The ids after each row, as if all before were accepted: beyond a wrong one they do not count."""
        count = len(tokens)
        self.rows.append(count)
        after = list(self.ids[self._at + 1 : self._at + 1 + count])
        self._at += count
        return Decision((*after, *[self.ids[-1]] * (count - len(after))))

    def trim(self, count: int) -> None:
        """Take back rows."""
        self._at -= count

    def room(self) -> int:
        """Rows of a pass."""
        return self._room


@dataclass(slots=True)
class Tally:
    """What pages of a kind took: `rows` → passes of so many rows. The prefill's id counts as a pass of one row."""

    pages: int = 0
    tokens: int = 0
    rows: Counter[int] = field(default_factory=Counter)
    python_s: float = 0.0  # in the proposer

    def add(self, other: Tally) -> None:
        """Take in another."""
        self.pages += other.pages
        self.tokens += other.tokens
        self.rows += other.rows
        self.python_s += other.python_s

    @property
    def passes(self) -> int:
        """Passes in all."""
        return self.rows.total()

    def speed_up(self, curve: str) -> float:
        """Against one pass a token, under a curve of `pipeline.schedule.CURVES`."""
        return self.tokens / sum(CURVES[curve](k) * n for k, n in self.rows.items())

    def figures(self, curves: Iterable[str] = ()) -> dict[str, float | int]:
        """What a report shows; speed-ups by the curve's name."""
        return {
            "pages": self.pages,
            "tokens": self.tokens,
            "tokens_per_pass": round(self.tokens / self.passes, 2),
            "passes_per_1000": round(1000 * self.passes / self.tokens),
            "proposer_ms_per_pass": round(1000 * self.python_s / self.passes, 3),
            **{curve: round(self.speed_up(curve), 2) for curve in curves},
        }


class _Timed:
    """A proposer whose time is counted."""

    def __init__(self, inner: Proposer) -> None:
        self.inner = inner
        self.name = inner.name
        self.seconds = 0.0

    def begin(self, prompt: Sequence[int], first: Decision) -> None:
        self.inner.begin(prompt, first)

    def propose(self, limit: int) -> Draft:
        started = time.perf_counter()
        draft = self.inner.propose(limit)
        self.seconds += time.perf_counter() - started
        return draft

    def observe(self, ids: Sequence[int], draft: Draft, accepted: int, decision: Decision) -> None:
        started = time.perf_counter()
        self.inner.observe(ids, draft, accepted, decision)
        self.seconds += time.perf_counter() - started


def replay(ids: Sequence[int], proposer: Proposer, schedule: Schedule) -> Tally:
    """Decode a page whose `ids` end in its stop id. Raises: `ValueError` when other ids come out."""
    target, timed = ReplayTarget(ids), _Timed(proposer)
    written = [
        i
        for step in decode(target, timed, DecodeOptions(len(ids) + 1, frozenset({ids[-1]})), schedule)
        for i in step.ids
    ]
    if written != list(ids[:-1]):
        raise ValueError(f"{proposer.name} changed the text at id {len(written)} of {len(ids)}")
    return Tally(1, len(ids), Counter([1, *target.rows]), timed.seconds)


def proposer_for(name: str, page: StoredPage, codec: Codec, stop: int) -> Proposer:
    """A fresh proposer, given the page's draft where it takes one. Raises: `SettingsError`."""
    if name == "none":
        return NoProposer()
    if name == "lookup":
        return LookupProposer(NGramTable())
    if name == "reference":
        return ReferenceProposer(codec, ReadyDraft(page.draft), json=page.json, stop=stop)
    raise SettingsError(f"no proposer {name!r} to replay", remedy="choose none, lookup or reference")


def run(
    pages: Iterable[StoredPage], codec: Codec, stop: int, name: str, schedule: Callable[[], Schedule]
) -> Iterator[tuple[StoredPage, Tally]]:
    """Each page and what it took."""
    for page in pages:
        ids = [*codec.encode(page.target)[0], stop]
        yield page, replay(ids, proposer_for(name, page, codec, stop), schedule())


def read_pages(path: Path) -> list[StoredPage]:
    """Pages of a JSON file: a list of records, or one a line. Raises: `SettingsError` where it is no such file."""
    try:
        text = path.read_text(encoding="utf-8")
        records = json.loads(text) if text.lstrip().startswith("[") else [
            json.loads(line) for line in text.splitlines() if line.strip()
        ]  # fmt: skip
        return [_page(record) for record in records]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SettingsError(f"{path} holds no stored pages: {error!r}") from error


def _page(record: Mapping[str, Any]) -> StoredPage:
    boxes = record.get("boxes") or []
    if boxes and len(boxes) == len(record["draft"]):
        lines = _structured(record, boxes)
    else:
        lines = tuple(DraftLine(text, _MARKS[mark]) for text, mark in record["draft"])
    return StoredPage(
        record["id"], record["kind"], record["src"], record["target"], lines, record["fmt"] == "json"
    )


def _structured(record: Mapping[str, Any], boxes: Sequence[Sequence[float]]) -> tuple[DraftLine, ...]:
    """A draft with boxes, through `pipeline.structure` as a page's hint goes; its own marks are not used."""
    is_ocr = record.get("draft_kind") != "textlayer"
    size = _OCR_SIZE if is_ocr else _LAYER_SIZE
    lines = tuple(
        Line(
            text,
            (box[0], box[1], box[2], box[3]),
            size_pt=size * (box[3] - box[1]),
            confidence=0.9 if is_ocr else None,
        )
        for (text, _), box in zip(record["draft"], boxes, strict=True)
    )
    width, height = (_MARGIN * max(box[at] for box in boxes) for at in (2, 3))  # the page's own is not stored
    scale = record.get("scale") or (1.0, 1.0)

    def to_model(box: Box) -> Box:
        return (box[0] * scale[0], box[1] * scale[1], box[2] * scale[0], box[3] * scale[1])

    return tuple(from_page(PageText(width, height, lines), to_model))


def schedule_for(curve: str | None, length: int) -> Schedule:
    """The schedule told the curve, or a fixed length without one."""
    return CostSchedule(CURVES[curve]) if curve is not None else FixedSchedule(length)


FIXED = "fixed"  # `LENGTH` drafted ids at most, whatever they promise
LENGTH = 31  # with the id before them a pass of 32 rows
ALL = "all"


def measure(
    pages: Sequence[StoredPage], codec: Codec, stop: int, names: Sequence[str], curves: Sequence[str]
) -> dict[str, dict[str, dict[str, dict[str, float | int]]]]:
    """Figures by proposer, by schedule (`FIXED`, then each curve) and by kind of page, `ALL` first.

    Under `FIXED` the speed-ups are those of every curve, for a schedule that knows none.
    """
    found: dict[str, dict[str, dict[str, dict[str, float | int]]]] = {}
    for name in names:
        for schedule in (FIXED, *curves):
            curve = None if schedule == FIXED else schedule
            tallies: dict[str, Tally] = {ALL: Tally()}
            for page, tally in run(pages, codec, stop, name, lambda curve=curve: schedule_for(curve, LENGTH)):  # type: ignore[misc]
                tallies[ALL].add(tally)
                tallies.setdefault(page.kind, Tally()).add(tally)
            told = found.setdefault(name, {}).setdefault(schedule, {})
            for kind, tally in sorted(tallies.items(), key=lambda item: (item[0] != ALL, item[0])):
                told[kind] = tally.figures([curve] if curve else curves)
    return found


def as_table(found: Mapping[str, Mapping[str, Mapping[str, Mapping[str, float | int]]]]) -> str:
    """The figures as Markdown: a table for each proposer and kind of page."""
    schedules = [name for name in next(iter(found.values())) if name != FIXED]
    head = ["proposer", "kind", "pages", "tokens", "tokens per pass", "passes per 1,000", *schedules]
    rows = [head, ["---"] * len(head)]
    for proposer, by_schedule in found.items():
        for kind, fixed in by_schedule[FIXED].items():
            speed = [f"{by_schedule[name][kind][name]:.2f}" for name in schedules]
            plain = [proposer, kind, f"{fixed['pages']}", f"{fixed['tokens']:,}"]
            rows.append([*plain, f"{fixed['tokens_per_pass']:.2f}", f"{fixed['passes_per_1000']}", *speed])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
