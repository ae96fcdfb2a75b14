"""Pages typeset in the test: lines with exact boxes, as a text layer gives them."""

from __future__ import annotations

from collections.abc import Sequence

from storage.records import Box, Direction, Line, PageText, Word

WIDTH_EM = 0.5  # of every character


def line(
    text: str,
    x: float,
    y: float,
    size: float = 10.0,
    *,
    bold: bool = False,
    mono: bool = False,
    **more: object,
) -> Line:
    """A line whose top left corner is (x, y); words and gaps as wide as their characters."""
    words = []
    at = x
    for part in text.split(" "):
        width = len(part) * size * WIDTH_EM
        if part:
            words.append(Word(part, (at, y, at + width, y + size)))
        at += width + size * WIDTH_EM
    box = (words[0].box[0], y, words[-1].box[2], y + size) if words else (x, y, x, y + size)
    return Line(
        " ".join(text.split()),
        box,
        tuple(words),
        size_pt=size,
        bold=bold,
        mono=mono,
        **more,  # type: ignore[arg-type]
    )


def wrap(text: str, chars: int) -> list[str]:
    """`text` broken greedily into lines of at most `chars` characters."""
    lines, current = [], ""
    for word in text.split():
        if current and len(current) + 1 + len(word) > chars:
            lines.append(current)
            current = word
        else:
            current = f"{current} {word}" if current else word
    return [*lines, current] if current else lines


def column(
    texts: Sequence[str], x: float, y: float, size: float = 10.0, pitch: float = 1.2, **more: object
) -> list[Line]:
    """Lines one below the other."""
    return [line(text, x, y + at * pitch * size, size, **more) for at, text in enumerate(texts)]  # type: ignore[arg-type]


def page(
    lines: Sequence[Line], rules: Sequence[Box] = (), width: float = 612, height: float = 792
) -> PageText:
    """A letter page."""
    return PageText(width, height, tuple(lines), rules=tuple(rules))


def vertical(text: str, right: float, top: float, size: float = 12.0) -> Line:
    """A column of vertical text with its right edge at `right`."""
    return Line(
        text,
        (right - size, top, right, top + size * len(text)),
        (Word(text, (right - size, top, right, top + size * len(text))),),
        size_pt=size,
        direction=Direction.TTB,
    )


PROSE = (
    "The rules in this chapter apply to all positions in the service and to all incumbents of such positions. "
    "Except as expressly provided in the rule concerned, they shall not apply to persons who serve without pay, "
    "nor to those who are appointed for a time so short that no examination could be held before it ends. "
    "Whoever is in doubt about the meaning of a rule may ask the office, which answers within a month and "
    "keeps a list of the questions that were put to it, so that others need not ask them a second time. "
)
