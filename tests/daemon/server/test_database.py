"""Connections for requests: given back, kept, and left alone where a thread may still be at work."""

from __future__ import annotations

import asyncio

import pytest

from daemon.server.database import Library
from tests.daemon.server.shelf import Shelf


def test_a_connection_that_is_given_back_serves_the_next_request(shelf: Shelf) -> None:
    library = Library(shelf.settings.database_path)
    with library.reading() as first, library.reading() as second:
        assert first is not second
    with library.reading() as third:
        assert third in (first, second)
    library.close()


def test_the_connection_of_a_request_that_was_given_up_stays_open_and_serves_no_other(shelf: Shelf) -> None:
    """Its thread may still be reading."""
    library = Library(shelf.settings.database_path)
    with pytest.raises(asyncio.CancelledError), library.reading() as given_up:
        raise asyncio.CancelledError
    with library.reading() as other:
        assert other is not given_up
    library.close()
    assert given_up.execute("SELECT count(*) FROM files").fetchone()[0] == 0
    given_up.close()
