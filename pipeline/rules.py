"""Rules that forbid tokens given what was written so far; applied per position inside verification."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class LogitsRule(Protocol):
    """Which ids may not follow a prefix. A function of the prefix alone, so that drafting cannot change it."""

    def banned(self, prefix: Sequence[int]) -> frozenset[int]:
        """Ids that may not come next after `prefix` (output ids only, the prompt left out)."""
        ...


class NoRepeatNGram:
    """Forbids completing an n-gram that stands in the last `window` tokens already.

    DeepSeek-OCR's own decoding rule (deepseek-ai/DeepSeek-OCR-2, `process/ngram_norepeat.py`: size 20, window 50 for
    PDF pages and 90 for images, table cell tags exempt; Unlimited-OCR: 35 with 128 or 1024).
    """

    def __init__(self, size: int, window: int, exempt: frozenset[int] = frozenset()) -> None:
        if size < 1 or window < size:
            raise ValueError(f"n-gram size {size} and window {window} do not fit: 1 <= size <= window")
        self.size = size
        self.window = window
        self.exempt = exempt

    def banned(self, prefix: Sequence[int]) -> frozenset[int]:
        """The ids that would complete an n-gram seen in the window."""
        if len(prefix) < self.size:
            return frozenset()
        recent = list(prefix[-self.window :])
        head = self.size - 1
        tail = recent[len(recent) - head :] if head else []
        found = {recent[i + head] for i in range(len(recent) - head) if recent[i : i + head] == tail}
        return frozenset(found - self.exempt)


def banned_by(rules: Sequence[LogitsRule], prefix: Sequence[int]) -> tuple[int, ...]:
    """The ids any of `rules` forbids after `prefix`, sorted."""
    found: set[int] = set()
    for rule in rules:
        found |= rule.banned(prefix)
    return tuple(sorted(found))
