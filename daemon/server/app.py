"""The application: routers, guards and state put together for one home."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import FastAPI
from fastapi.staticfiles import StaticFiles

from daemon.server import chat, events, failures, library_api, metrics, pages
from daemon.server.askers import Askers
from daemon.server.bodies import Bounds
from daemon.server.database import Library
from daemon.server.events import Feed
from daemon.server.page_images import Painter
from daemon.server.security import Guard
from daemon.server.staged import sweep_left
from daemon.server.urls import Reach

if TYPE_CHECKING:
    from storage.settings import Settings

CHAT_BYTES = 64 << 20  # a request for reading: its documents are in the JSON, as base64
UPLOAD_BYTES = 512 << 20
STATIC = Path(__file__).with_name("static")


def create_app(
    settings: Settings,
    *,
    token: str | None = None,
    hosts: Sequence[str] = (),
    asks: Askers | None = None,
    reach: Reach | None = None,
) -> FastAPI:
    """The application for the home of `settings`.

    `token`: what every request must show (None: nothing); `hosts`: names it is reached by besides localhost;
    `asks`: who reads for `/v1/chat/completions` (None: the workers of the home).
    `reach`: what requests may name instead of sending it (None: nothing).
    `app.state` has `settings`, `library` (connections), `asks` and `reach`.
    """
    library = Library(settings.database_path)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        sweep_left(settings.home)
        try:
            yield
        finally:
            app.state.feed.close()
            app.state.painter.close()
            library.close()

    # No pages of Swagger or ReDoc: they would load scripts from elsewhere.
    app = FastAPI(title="ocrd", docs_url=None, redoc_url=None, lifespan=lifespan)
    app.state.settings = settings
    app.state.library = library
    app.state.painter = Painter(settings)
    app.state.feed = Feed(library)
    app.state.asks = asks or Askers(settings.home)
    app.state.reach = reach or Reach()
    for part in (chat, library_api, events, metrics, pages):
        app.include_router(part.router)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    failures.install(app)
    app.add_middleware(Bounds, limits={"/v1/": CHAT_BYTES, "/api/documents": UPLOAD_BYTES})
    app.add_middleware(Guard, token=token, hosts=hosts)  # the outermost: added last
    return app
