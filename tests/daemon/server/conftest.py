"""What tests of the server share: a library of their own to serve."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.server.shelf import Shelf


@pytest.fixture
def shelf(database_path: Path) -> Iterator[Shelf]:
    shelf = Shelf(database_path.parent)
    yield shelf
    shelf.conn.close()
