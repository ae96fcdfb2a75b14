"""A page that is read again is drafted from what was read of it before."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.engines.base import EngineReading, PageImage
from pipeline.engines.fake import FakeEngine
from storage import jobs, results, retrying
from storage.records import Block, StopReason
from storage.settings import Settings
from tests.daemon.test_worker import Bench


class Keeper:
    """An engine that keeps what it is told was read of each page before, and stops as it is told."""

    name = "fake"

    def __init__(self) -> None:
        self.previous: list[tuple[Block, ...]] = []
        self.stop_reason = StopReason.COMPLETE

    def version(self) -> str:
        return "keeper"

    def read(self, page: PageImage, *, hint: object = ()) -> EngineReading:
        self.previous.append(page.previous)
        return replace(FakeEngine().read(page), stop_reason=self.stop_reason)

    def close(self) -> None:
        pass


@pytest.fixture
def bench(settings: Settings, conn: sqlite3.Connection) -> Iterator[Bench]:
    bench = Bench(settings, conn)
    yield bench
    for worker in bench.workers:
        worker.close()


def again(bench: Bench, engine: Keeper, file: Path) -> None:
    worker = bench.worker()
    worker._make_engine = lambda name, settings: engine
    bench.run(worker)
    retrying.retry(bench.conn, [bytes(file)], {}, bench.now)
    bench.run(worker)


def test_a_page_read_again_brings_its_earlier_reading(
    bench: Bench, tmp_path: Path, make_png: Callable[..., Path]
) -> None:
    engine, file = Keeper(), make_png(tmp_path / "a.png")
    bench.add(file)
    again(bench, engine, file)
    first, second = engine.previous
    assert first == ()
    page = results.load_page(bench.conn, 1, 1)
    assert second == page.blocks != ()  # type: ignore[union-attr]


def test_a_reading_that_was_cut_short_is_no_draft(
    bench: Bench, tmp_path: Path, make_png: Callable[..., Path]
) -> None:
    engine, file = Keeper(), make_png(tmp_path / "a.png")
    engine.stop_reason = StopReason.REPETITION
    bench.add(file)
    again(bench, engine, file)
    assert engine.previous == [(), ()]


def test_what_a_text_layer_said_is_no_draft(
    bench: Bench, tmp_path: Path, make_pdf: Callable[..., Path]
) -> None:
    engine, file = Keeper(), make_pdf(tmp_path / "a.pdf")
    bench.add(file)
    worker = bench.worker()
    worker._make_engine = lambda name, settings: engine
    bench.run(worker)
    assert engine.previous == []  # the layer is good
    retrying.retry(bench.conn, [bytes(file)], {"text_layer": "ignore"}, bench.now)
    bench.run(worker)
    assert engine.previous == [()]
    assert jobs.is_idle(bench.conn, bench.now)
