"""Lines of a block as compact JSON, and back; defaults are left out, coordinates keep hundredths of a point."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any

from storage.records import Box, Direction, Line, Word


def encode_lines(lines: Iterable[Line]) -> str:
    """`[{"t": text, "b": box, "w": [[text, left, top, right, bottom, confidence?], …], …}, …]`."""
    return json.dumps([_line(line) for line in lines], ensure_ascii=False, separators=(",", ":"))


def decode_lines(text: str) -> tuple[Line, ...]:
    """The lines `encode_lines` wrote."""
    return tuple(
        Line(
            item["t"],
            _box(item["b"]),
            tuple(
                Word(word[0], _box(word[1:5]), word[5] if len(word) > 5 else None)
                for word in item.get("w", ())
            ),
            item.get("s", 0.0),
            Direction(item.get("d", "ltr")),
            "B" in item.get("f", ""),
            "I" in item.get("f", ""),
            "M" in item.get("f", ""),
            item.get("c"),
            item.get("r"),
            item.get("a", 0.0),
        )
        for item in json.loads(text)
    )


def round_box(box: Box) -> Box:
    """The box to hundredths of a point; what is no finite number becomes 0."""
    left, top, right, bottom = (round(value, 2) if math.isfinite(value) else 0.0 for value in box)
    return left, top, right, bottom


def round_confidence(value: float | None) -> float | None:
    """A confidence to four places; None if it is no number."""
    return None if value is None or not math.isfinite(value) else round(value, 4)


def _line(line: Line) -> dict[str, Any]:
    item: dict[str, Any] = {"t": line.text, "b": [_short(value) for value in round_box(line.box)]}
    if line.words:
        item["w"] = [_word(word) for word in line.words]
    if line.size_pt and math.isfinite(line.size_pt):
        item["s"] = round(line.size_pt, 2)
    if line.direction is not Direction.LTR:
        item["d"] = line.direction.value
    if flags := "B" * line.bold + "I" * line.italic + "M" * line.mono:
        item["f"] = flags
    if (confidence := round_confidence(line.confidence)) is not None:
        item["c"] = confidence
    if line.region is not None:
        item["r"] = line.region
    if line.angle and math.isfinite(line.angle):
        item["a"] = round(line.angle, 2)
    return item


def _word(word: Word) -> list[Any]:
    item: list[Any] = [word.text, *(_short(value) for value in round_box(word.box))]
    if (confidence := round_confidence(word.confidence)) is not None:
        item.append(confidence)
    return item


def _short(value: float) -> float | int:
    return int(value) if value == int(value) else value


def _box(values: list[float]) -> Box:
    left, top, right, bottom = (float(value) for value in values)
    return left, top, right, bottom
