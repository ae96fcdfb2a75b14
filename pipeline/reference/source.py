"""Where a page's draft comes from; it may still be in the making when decoding begins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from pipeline.reference.draft import DraftLine, DraftText, build


class DraftSource(Protocol):
    """A draft, once it is there."""

    def get(self) -> DraftText | None:
        """The draft; None until it is ready. Never waits."""
        ...


# Called once the size of the model's input (pixels: width, height) is known; what it gives may still be in the making.
Reference = Callable[[tuple[int, int] | None], DraftSource]


def in_background(make: Callable[[], Sequence[DraftLine]]) -> LateDraft:
    """The draft that `make` gives, made in a thread of its own while the picture is encoded."""
    executor = ThreadPoolExecutor(1, "draft")
    draft = LateDraft(executor.submit(make))
    executor.shutdown(wait=False)
    return draft


class ReadyDraft:
    """A draft that is there from the beginning."""

    def __init__(self, lines: Sequence[DraftLine]) -> None:
        self._draft = build(lines)

    def get(self) -> DraftText | None:
        """The draft."""
        return self._draft


class LateDraft:
    """A draft made in another thread; one that fails never comes."""

    def __init__(self, lines: Future[Sequence[DraftLine]]) -> None:
        self._lines = lines
        self._draft: DraftText | None = None

    def get(self) -> DraftText | None:
        """The draft, or None while it is made."""
        if self._draft is None and self._lines.done() and not self._lines.cancelled():
            self._draft = build(() if self._lines.exception() else self._lines.result())
        return self._draft
