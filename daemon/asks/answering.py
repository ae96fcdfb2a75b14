"""A worker's readings for those who wait: prepared in the PDFium thread, read in the main one, told as they come."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from daemon.asks.desk import Asked, Desk
from daemon.asks.frames import Ask
from storage.errors import OcrdError, TooManyPagesError

if TYPE_CHECKING:
    from daemon.activity import Activity
    from pipeline.document import DocumentReader, Prepared
    from pipeline.engines.base import Engine
    from pipeline.engines.vlm import VlmEngine
    from pipeline.model_reader import ImageReading
    from storage.records import PageReading
    from storage.settings import Settings

log = logging.getLogger(__name__)

PREPARED = 2  # asks whose next page is made ready while another page is read
SHOWN_AS = b"(asked for)"  # what `ocrd status` shows: what was sent has no name of its own


@dataclass(frozen=True, slots=True)
class Page:
    """A page ready to be read."""

    reader: DocumentReader
    prepared: Prepared
    number: int  # of all pages asked for, from 1
    is_last: bool


class Documents:
    """The documents of an ask, a page at a time. Belongs to the PDFium thread."""

    def __init__(self, ask: Ask, settings: Settings, engine: Callable[[Settings], Engine]) -> None:
        self.ask = ask
        self.settings = settings_for(ask, settings)
        self._make = engine
        self._left = list(ask.documents)
        self._reader: DocumentReader | None = None
        self._page = 0  # of the open document
        self._count = 0

    def next(self) -> Page:
        """The next page, prepared. Raises: the input errors; `TooManyPagesError` before any page is read."""
        while self._reader is None or self._page >= self._reader.info.pages:
            self._open()
        self._page += 1
        self._count += 1
        prepared = self._reader.prepare(self._page)
        is_last = self._page >= self._reader.info.pages and not self._left
        return Page(self._reader, prepared, self._count, is_last)

    def close(self) -> None:
        """Close the open document."""
        if self._reader is not None:
            reader, self._reader = self._reader, None
            reader.__exit__(None, None, None)

    def _open(self) -> None:
        from pipeline.document import DocumentReader

        self.close()
        engine = self._make(self.settings)
        reader = DocumentReader(Path(self._left.pop(0)), self.settings, engine)
        reader.__enter__()
        self._reader, self._page = reader, 0
        if self._count + reader.info.pages > self.ask.most_pages:
            raise TooManyPagesError(
                f"{self._count + reader.info.pages} pages: {self.ask.most_pages} may be asked for at once"
            )


@dataclass(slots=True)
class _Work:
    documents: Documents
    page: Future[Page]


class Answerer:
    """Answers what waits at a desk. `answer` is the main thread's; `look_ahead` may be called from any."""

    def __init__(
        self,
        desk: Desk,
        settings: Settings,
        pdfium: Executor,
        engine: Callable[[Settings], Engine],
        activity: Activity,
        *,
        explain: Callable[[Exception], OcrdError],
        mark: Path | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.desk = desk
        self.settings = settings
        self.mark = mark  # lies there while an ask is read: if we die meanwhile, our pages are not to blame
        self._pdfium = pdfium
        self._engine = engine
        self._activity = activity
        self._explain = explain
        self._clock = clock
        self._lock = threading.Lock()
        # The engine with a model other than the worker's own, at most one at a time.
        self._guest: VlmEngine | None = None

    def look_ahead(self) -> None:
        """Have the next pages of those whose turn is next made ready."""
        with self._lock:
            for asked in self.desk.first(PREPARED):
                if asked.work is None and not asked.gone:
                    asked.work = self._begin(asked.ask)

    def answer(self) -> bool:
        """Read a page for whoever waits and has the next turn; whether anybody does."""
        asked = self.desk.next()
        if asked is None:
            return False
        self._turn(asked)
        return True

    def close(self) -> None:
        """Tell those who wait that it is over."""
        for asked in self.desk.close():
            asked.end()

    def _begin(self, ask: Ask) -> _Work:
        documents = Documents(ask, self.settings, self._engine)
        return _Work(documents, self._pdfium.submit(documents.next))

    def _turn(self, asked: Asked) -> None:
        """One page of an ask."""
        with self._lock:
            work = asked.work = asked.work or self._begin(asked.ask)
        started = time.perf_counter()
        goes_on = False
        self._activity.begin(SHOWN_AS, None, "prepare", self._clock())
        try:
            with self._marked():
                goes_on = not asked.gone and self._page(asked, work)
        except Exception as unexpected:
            error = self._explain(unexpected)
            log.info("an ask failed: %s", error.message)
            asked.send("failed", code=error.code, message=error.message, remedy=error.remedy)
            traceback.clear_frames(unexpected.__traceback__)
        self._activity.rest()
        if goes_on:
            self.desk.back(asked, time.perf_counter() - started)
        else:
            self._end(asked, work)

    def _page(self, asked: Asked, work: _Work) -> bool:
        """Read the page that is ready and tell it; whether more are to come."""
        page = work.page.result()
        if not page.is_last:
            work.page = self._pdfium.submit(work.documents.next)
        self.look_ahead()
        asked.send("page", page=page.number)
        self._activity.begin(SHOWN_AS, page.number, "read", self._clock())
        told = self._read(asked, page)
        if told is None:
            log.info("nobody waits for an answer any more: let go")
            return False
        return asked.send("read", page=page.number, last=page.is_last, **told) and not page.is_last

    def _read(self, asked: Asked, page: Page) -> dict[str, object] | None:
        """What was read of a page, in parts as it is accepted; None once nobody waits."""
        from pipeline.engines.base import Streaming
        from pipeline.engines.wishes import Wishes, granted

        ask, engine = asked.ask, page.reader.engine
        assert engine is not None
        self._make_room(engine, page.reader.settings)
        wishes = Wishes(ask.mode, ask.task, ask.max_tokens, ask.climbs)
        if page.prepared.image is None or page.prepared.is_blank or not isinstance(engine, Streaming):
            if wishes.are_for_models and not isinstance(engine, Streaming):
                with granted(engine, wishes):  # says why not
                    pass
            return _told(page.reader.read(page.prepared), ())
        with granted(engine, wishes) as readings:
            pieces = page.reader.stream(page.prepared)
            try:
                while True:
                    piece = next(pieces)
                    if asked.gone or (ask.live and not asked.send("delta", text=piece.text)):
                        return None
            except StopIteration as end:
                return _told(end.value, readings)
            finally:
                pieces.close()  # between two passes; what the model remembered of the page goes with it

    def _make_room(self, engine: Engine, settings: Settings) -> None:
        """Let go of the last foreign model before another is loaded."""
        from pipeline.engines.vlm import VlmEngine

        if not isinstance(engine, VlmEngine) or settings.model == self.settings.model:
            return
        if self._guest is not None and self._guest is not engine:
            self._guest.unload()
        self._guest = engine

    def _end(self, asked: Asked, work: _Work) -> None:
        asked.send("end")
        asked.end()
        asked.work = None
        self.desk.finished()
        work.page.cancel()
        with contextlib.suppress(RuntimeError):  # shut down: the process ends, and with it what is open
            self._pdfium.submit(work.documents.close)

    @contextlib.contextmanager
    def _marked(self) -> Iterator[None]:
        if self.mark is not None:
            with contextlib.suppress(OSError):
                self.mark.touch()
        try:
            yield
        finally:
            if self.mark is not None:
                with contextlib.suppress(OSError):
                    self.mark.unlink()


def settings_for(ask: Ask, settings: Settings) -> Settings:
    """The worker's settings with what is asked; naming a model is wanting to read with it."""
    if ask.model is not None:
        return replace(settings, engine="vlm", model=ask.model)
    if ask.engine is not None:
        return replace(settings, engine=ask.engine)
    return settings


def _told(reading: PageReading, readings: Sequence[ImageReading]) -> dict[str, object]:
    """A page's reading as a frame: what an answer to a chat needs."""
    stats = reading.decode
    return {
        "markdown": reading.markdown,
        "text_source": reading.source,
        "stop_reason": reading.stop_reason.value,
        "engine": reading.engine,
        "model": reading.model,
        "confidence": reading.confidence,
        "warnings": [{"code": warning.code, "message": warning.message} for warning in reading.warnings],
        "seconds": dict(reading.seconds),
        "prompt_tokens": sum(one.prompt_tokens for one in readings),
        "tokens": stats.tokens if stats else 0,
        "passes": stats.target_passes if stats else 0,
        "drafted": stats.drafted if stats else 0,
        "accepted": stats.accepted if stats else 0,
    }
