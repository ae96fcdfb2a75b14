"""Whether files have come to rest: unchanged size and time for long enough. Pure; never looks at the disk."""

from __future__ import annotations

from dataclasses import dataclass

EMPTY_FACTOR = 10  # an empty file is most often one whose writer has not begun: it waits this much longer


@dataclass(frozen=True, slots=True)
class _Seen:
    size: int
    mtime_ns: int
    since: float


class Settler:
    """Files that wait until they stop changing.

    Ages play no part, only changes do, so that a file from 1970 or 2106 settles like any other. A file that keeps
    growing waits for ever.
    """

    def __init__(self, settle_s: float) -> None:
        self.settle_s = settle_s
        # Both in order of `since`, because an entry that changes is put at the end again.
        self._waiting: dict[bytes, _Seen] = {}
        self._empty: dict[bytes, _Seen] = {}

    def __len__(self) -> int:
        return len(self._waiting) + len(self._empty)

    def __contains__(self, path: bytes) -> bool:
        return path in self._waiting or path in self._empty

    def observe(self, path: bytes, size: int, mtime_ns: int, now: float) -> None:
        """The file looks like this now; its wait starts anew if it looked otherwise before."""
        queue = self._waiting if size else self._empty
        seen = queue.get(path)
        if seen is not None and (seen.size, seen.mtime_ns) == (size, mtime_ns):
            return
        self.discard(path)
        queue[path] = _Seen(size, mtime_ns, now)

    def due(self, now: float) -> list[bytes]:
        """Files unobserved or unchanged for their whole wait: stat each and `confirm` it."""
        return [
            *self._ripe(self._waiting, self.settle_s, now),
            *self._ripe(self._empty, self.settle_s * EMPTY_FACTOR, now),
        ]

    def confirm(self, path: bytes, size: int, mtime_ns: int, now: float) -> bool:
        """Whether the file still looks as observed; then it waits no longer, else it waits anew."""
        seen = self._waiting.get(path) or self._empty.get(path)
        if seen is not None and (seen.size, seen.mtime_ns) == (size, mtime_ns):
            self.discard(path)
            return True
        self.observe(path, size, mtime_ns, now)
        return False

    def discard(self, path: bytes) -> None:
        """The file is of no interest any more."""
        self._waiting.pop(path, None)
        self._empty.pop(path, None)

    def clear(self) -> None:
        """Forget everything: the folder they lie in is away."""
        self._waiting.clear()
        self._empty.clear()

    def next_due(self) -> float | None:
        """When `due` has something next, as far as known now."""
        times = [
            next(iter(queue.values())).since + wait
            for queue, wait in (
                (self._waiting, self.settle_s),
                (self._empty, self.settle_s * EMPTY_FACTOR),
            )
            if queue
        ]
        return min(times, default=None)

    @staticmethod
    def _ripe(queue: dict[bytes, _Seen], wait_s: float, now: float) -> list[bytes]:
        ripe: list[bytes] = []
        stepped_back: list[bytes] = []
        for path, seen in queue.items():
            if seen.since > now:  # the clock was set back: count from now on
                stepped_back.append(path)
            elif now - seen.since >= wait_s:
                ripe.append(path)
            else:
                break
        for path in stepped_back:
            seen = queue.pop(path)
            queue[path] = _Seen(seen.size, seen.mtime_ns, now)
        return ripe
