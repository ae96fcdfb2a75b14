"""A worker and a server at work in this process, as a daemon has them in several."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

from daemon import processes
from daemon.asks.desk import MOST, Desk
from daemon.asks.listener import Listener
from daemon.asks.places import Doorplate
from daemon.server.serve import HttpServer, Listening
from daemon.worker import Worker, create_engine
from pipeline.engines.base import EngineReading, PageImage, Piece
from pipeline.engines.fake import FakeEngine
from storage.database import open_database
from storage.records import Line
from storage.settings import Settings, load

PATIENCE_S = 60.0  # for what takes a moment, on a machine that has other things to do


def wait_for(is_so: Callable[[], object]) -> None:
    """Until it is so."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_so() and time.monotonic() < deadline:
        time.sleep(0.005)
    assert is_so()


def settings_in(home: Path, **flags: Any) -> Settings:
    """Settings of a home whose pages are made up, unless told otherwise."""
    return load({"home": home, "engine": "fake", **flags}, {})


class Working:
    """A worker that listens, in a thread of this process."""

    def __init__(
        self, settings: Settings, make_engine: Callable[..., Any] = create_engine, most: int = MOST
    ) -> None:
        self.settings = settings
        self.make_engine = make_engine
        self.desk = Desk(most)
        self.worker: Worker | None = None
        self._bell = threading.Event()
        self._ready = threading.Event()
        self._end = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Working:
        self._thread.start()
        assert self._ready.wait(PATIENCE_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._end = True
        self._bell.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        owner = processes.owner_id()
        with contextlib.closing(open_database(self.settings.database_path)) as conn:
            worker = Worker(conn, owner, self.settings, make_engine=self.make_engine, desk=self.desk)
            self.worker = worker

            def ring() -> None:
                assert worker.answers is not None
                worker.answers.look_ahead()
                self._bell.set()

            listener = Listener(Doorplate(self.settings.home, owner), self.desk, ring)
            listener.start()
            self._ready.set()
            while not self._end:
                if not worker.turn():
                    self._bell.wait(0.2)
                    self._bell.clear()
            listener.end()
            worker.close()


class Writing(FakeEngine):
    """A fake that streams, a word a pass, for as long as it is let; `closed` is set when a reading is broken off."""

    def __init__(self, words: Sequence[str], passes: threading.Semaphore | None = None) -> None:
        super().__init__()
        self.words = words
        self.passes = passes  # None: as many as there are words
        self.began = threading.Event()
        self.closed = threading.Event()
        self.written = 0

    def stream(self, page: PageImage, *, hint: Sequence[Line] = ()) -> Generator[Piece, None, EngineReading]:
        """The words, one by one, then what `text:` would read."""
        self.began.set()
        try:
            for word in self.words:
                if self.passes is not None:
                    assert self.passes.acquire(timeout=PATIENCE_S)
                self.written += 1
                yield Piece(word + " ", "model", 1, 0)
        except GeneratorExit:
            self.closed.set()
            raise
        return FakeEngine("text:" + " ".join(self.words)).read(page)


@contextlib.contextmanager
def serving(settings: Settings, **listening: Any) -> Iterator[HttpServer]:
    """The server of a home, on a free port."""
    server = HttpServer(settings, Listening("127.0.0.1", 0, **listening))
    try:
        server.start()
        yield server
    finally:
        server.stop()
