"""Lines that another thread still makes, for readers that need them late or never."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from typing import overload

from storage.records import Line


class LateLines(Sequence[Line]):
    """Lines in the making: whoever looks at them waits until they are there.

    Raises, when they are looked at: what making them raised; `CancelledError` if they will never be made.
    """

    def __init__(self, made: Future[tuple[Sequence[Line], float]], otherwise: Sequence[Line] = ()) -> None:
        self._made = made
        self._otherwise = otherwise

    @classmethod
    def by(cls, executor: Executor, make: Callable[[], Sequence[Line]]) -> LateLines:
        """The lines that `make` gives, called in a thread of `executor`."""

        def timed() -> tuple[Sequence[Line], float]:
            started = time.perf_counter()
            return make(), time.perf_counter() - started

        return cls(executor.submit(timed))

    def or_else(self, lines: Sequence[Line]) -> LateLines:
        """The same, but `lines` where nothing was found."""
        return LateLines(self._made, lines)

    @property
    def seconds(self) -> float | None:
        """How long they took to make; None where they are not there, or never will be."""
        if not self._made.done() or self._made.cancelled() or self._made.exception() is not None:
            return None
        return self._made.result()[1]

    @overload
    def __getitem__(self, index: int) -> Line: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Line]: ...
    def __getitem__(self, index: int | slice) -> Line | Sequence[Line]:
        return self._lines()[index]

    def __len__(self) -> int:
        return len(self._lines())

    def _lines(self) -> Sequence[Line]:
        return self._made.result()[0] or self._otherwise
