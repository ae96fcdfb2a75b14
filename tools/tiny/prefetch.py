"""Batches in their order, rendered ahead by other processes; the same ones whatever their number."""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor

from tools.tiny.batches import Batch, Renderer

_AHEAD = 3  # batches in work or waiting, per process

_renderer: Renderer | None = None


def batches(
    renderer: Renderer, steps: Sequence[int] | range, parts: Sequence[int], processes: int
) -> Iterator[Batch]:
    """Batch after batch: of each step all `parts`. With no processes they are rendered when asked for."""
    wanted = ((step, part) for step in steps for part in parts)
    if processes == 0:
        for step, part in wanted:
            yield renderer.batch(step, part)
        return
    # Spawned, not forked: torch's threads do not survive a fork.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context, initializer=_begin, initargs=(renderer,)) as pool:
        queue: deque[Future[Batch]] = deque()
        try:
            for step, part in wanted:
                queue.append(pool.submit(_render, step, part))
                if len(queue) >= _AHEAD * processes:
                    yield queue.popleft().result()
            while queue:
                yield queue.popleft().result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _begin(renderer: Renderer) -> None:
    global _renderer
    _renderer = renderer


def _render(step: int, part: int) -> Batch:
    if _renderer is None:
        raise RuntimeError("the process was started without a renderer")
    return _renderer.batch(step, part)
