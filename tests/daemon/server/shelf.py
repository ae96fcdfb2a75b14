"""A home with documents that were really read, and a client of its server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fastapi.testclient import TestClient

from daemon.server.app import create_app
from daemon.worker import Worker
from storage.database import open_database
from storage.library import SeenFile, add_root, register
from storage.settings import Settings


class Shelf:
    """Puts files into a home's queue and reads them as a worker does."""

    def __init__(self, home: Path, **fields: object) -> None:
        self.settings = Settings(home=home, engine="fake", workers=1, **fields)  # type: ignore[arg-type]
        self.conn = open_database(self.settings.database_path)
        self.conn.execute("PRAGMA synchronous = OFF")

    def watch(self, folder: Path) -> int:
        folder.mkdir(parents=True, exist_ok=True)
        return add_root(self.conn, str(folder).encode(), now=time.time())

    def put(self, *paths: Path, root_id: int | None = None, now: float | None = None) -> None:
        """Queue files that lie there."""
        seen = []
        for path in paths:
            found = path.stat()
            seen.append(SeenFile(str(path).encode(), found.st_size, found.st_mtime_ns, root_id))
        register(self.conn, seen, time.time() if now is None else now)

    def read(self) -> None:
        """Work until nothing is left."""
        worker = Worker(self.conn, "test:1:1", self.settings)
        try:
            while worker.turn():
                pass
        finally:
            worker.close()

    def id_of(self, name: str) -> int:
        row = self.conn.execute("SELECT id FROM files WHERE path LIKE ?", (f"%/{name}",)).fetchone()
        return int(row[0])

    @contextmanager
    def client(self) -> Iterator[TestClient]:
        with TestClient(create_app(self.settings), base_url="http://localhost") as client:
            yield client
