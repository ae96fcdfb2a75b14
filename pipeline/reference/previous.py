"""What was read of a page another time, as the draft of a part of it."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.reference.draft import DraftLine
from pipeline.reference.lines import from_blocks
from storage.records import Block, Box, Line


def lines_within(blocks: Sequence[Block], box: Box) -> list[DraftLine]:
    """The lines of the blocks in `box` (page points); empty where nothing was read there."""
    return from_blocks([block for block in blocks if block.text and _is_in(block.box, box)])


def words_within(blocks: Sequence[Block], box: Box) -> str:
    """What was read in `box`, a piece of one printed line; "" where nothing was."""
    found = (_words(line, box) for block in blocks for line in block.lines)
    # Lines above and below reach into the box where the page is skewed.
    return max(found, key=len, default="")


def _words(line: Line, box: Box) -> str:
    if not line.words:
        return line.text if _is_in(line.box, box) else ""
    return " ".join(word.text for word in line.words if _is_in(word.box, box))


def _is_in(inner: Box, outer: Box) -> bool:
    x, y = (inner[0] + inner[2]) / 2, (inner[1] + inner[3]) / 2
    return outer[0] <= x <= outer[2] and outer[1] <= y <= outer[3]
