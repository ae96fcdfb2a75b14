"""How a page was turned before it was read, and the way of its boxes back to the page as displayed."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from storage.records import Block, Box, Line, Word


@dataclass(frozen=True, slots=True)
class Frame:
    """A page turned counter-clockwise by `degrees` about its middle, on a canvas grown to hold all of it.

    Sizes in points. Quarter turns are exact; after another turn a box comes back as the smallest upright box
    around it.
    """

    degrees: float
    width_pt: float  # of the page as displayed
    height_pt: float

    @property
    def size(self) -> tuple[float, float]:
        """Width and height of the turned page."""
        cos, sin = (abs(part) for part in _cos_sin(self.degrees))
        return self.width_pt * cos + self.height_pt * sin, self.width_pt * sin + self.height_pt * cos

    def to_page(self, box: Box) -> Box:
        """A box of the turned page on the page as displayed, cut at its edges."""
        left, top, right, bottom = _turned(box, -self.degrees, self.size, (self.width_pt, self.height_pt))
        return (
            min(max(left, 0.0), self.width_pt),
            min(max(top, 0.0), self.height_pt),
            min(max(right, 0.0), self.width_pt),
            min(max(bottom, 0.0), self.height_pt),
        )

    def from_page(self, box: Box) -> Box:
        """A box of the page as displayed on the turned page."""
        return _turned(box, self.degrees, (self.width_pt, self.height_pt), self.size)

    def block_to_page(self, block: Block) -> Block:
        """A block of the turned page with all its boxes on the page as displayed."""
        lines = tuple(self.line_to_page(line) for line in block.lines)
        return replace(block, box=self.to_page(block.box), lines=lines)

    def line_to_page(self, line: Line) -> Line:
        """A line of the turned page with all its boxes on the page as displayed."""
        words = tuple(Word(word.text, self.to_page(word.box), word.confidence) for word in line.words)
        return replace(line, box=self.to_page(line.box), words=words)

    def line_from_page(self, line: Line) -> Line:
        """A line of the page as displayed with all its boxes on the turned page."""
        words = tuple(Word(word.text, self.from_page(word.box), word.confidence) for word in line.words)
        return replace(line, box=self.from_page(line.box), words=words)


def _cos_sin(degrees: float) -> tuple[float, float]:
    quarter, rest = divmod(degrees, 90.0)
    if rest == 0.0:  # exact, where math.cos(pi / 2) is not
        return [(1.0, 0.0), (0.0, 1.0), (-1.0, 0.0), (0.0, -1.0)][int(quarter) % 4]
    return math.cos(math.radians(degrees)), math.sin(math.radians(degrees))


def _turned(box: Box, degrees: float, old: tuple[float, float], new: tuple[float, float]) -> Box:
    cos, sin = _cos_sin(degrees)
    xs, ys = [], []
    for x, y in ((box[0], box[1]), (box[2], box[1]), (box[0], box[3]), (box[2], box[3])):
        dx, dy = x - old[0] / 2, y - old[1] / 2
        # y grows downwards, so a counter-clockwise turn has the signs of a clockwise one.
        xs.append(new[0] / 2 + dx * cos + dy * sin)
        ys.append(new[1] / 2 - dx * sin + dy * cos)
    return min(xs), min(ys), max(xs), max(ys)
