"""The order in which a model writes the draft's lines, learned from its steps from line to line.

A draft read across two columns has the lines of each two apart; one of a tilted scan has them in halves, by turns.
"""

from __future__ import annotations

from collections.abc import Sequence

STRAIGHT = 1  # the step from a line to the next
_ENOUGH = 3  # characters found in a line for it to count as written
_MOST = 48  # steps kept
_LONGEST = 4  # the most steps that are looked for among the earlier ones
_TIMES = (
    2  # how often the same must have followed them: with once, stored pages lose 0.1 tokens a pass to chance
)


class LineOrder:
    """Which line of the draft was written after which."""

    def __init__(self) -> None:
        self.steps: tuple[int, ...] = ()  # from line to line, oldest first
        self.is_straight = True  # so far each line was followed by the next
        self._line = -1  # the latest that counts as written
        self._entered = -1  # the latest in which anything was found
        self._count = 0  # characters found there

    def found(self, line: int) -> None:
        """A character of the output was found in `line`."""
        if line == self._line:
            return
        if line != self._entered:
            self._entered, self._count = line, 0
        self._count += 1
        if self._count == _ENOUGH:
            step, self._line = line - self._line, line
            self.steps = (*self.steps, step)[-_MOST:]
            self.is_straight = self.is_straight and step == STRAIGHT


def expected_step(steps: Sequence[int]) -> int:
    """What followed the last few of `steps` each of the latest times they occurred; `STRAIGHT` where nothing tells."""
    for size in range(min(_LONGEST, len(steps) - 1), 0, -1):
        end = steps[-size:]
        if all(step == STRAIGHT for step in end):
            continue
        starts = range(len(steps) - size - 1, -1, -1)
        followed = [steps[at + size] for at in starts if steps[at : at + size] == end][:_TIMES]
        if len(followed) == _TIMES:
            return followed[0] if len(set(followed)) == 1 else STRAIGHT
    return STRAIGHT
