"""The desk: bounded, and fair to clients whatever one of them asks for."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.asks.desk import Asked, Desk
from daemon.asks.frames import Ask


class Sockets:
    def __init__(self) -> None:
        self.all: list[socket.socket] = []

    def asked(self, client: str) -> Asked:
        ours, theirs = socket.socketpair()
        self.all += [ours, theirs]
        return Asked(Ask((), client), ours)

    def close(self) -> None:
        for one in self.all:
            one.close()


@pytest.fixture
def sockets() -> Iterator[Sockets]:
    made = Sockets()
    yield made
    made.close()


def test_no_more_than_its_places_are_taken(sockets: Sockets) -> None:
    desk = Desk(4)
    assert [desk.add(sockets.asked(str(n))) for n in range(6)] == [0, 1, 2, 3, None, None]


def test_one_client_has_half_of_the_places(sockets: Sockets) -> None:
    desk = Desk(4)
    assert [desk.add(sockets.asked("one")) for _ in range(3)] == [0, 1, None]
    assert desk.add(sockets.asked("other")) == 2


def test_a_book_of_one_client_holds_up_nobody(sockets: Sockets) -> None:
    desk = Desk()
    book, note = sockets.asked("reader"), sockets.asked("clerk")
    desk.add(book)
    assert desk.next() is book
    desk.add(note)
    desk.back(book, 1.0)  # more pages are to come
    assert desk.next() is note
    desk.finished()
    assert desk.next() is book


def test_what_nobody_waits_for_loses_its_place(sockets: Sockets) -> None:
    desk = Desk(2)
    gone = sockets.asked("one")
    desk.add(gone)
    gone.gone = True
    assert desk.waiting == 0
    assert desk.next() is None


def test_a_closed_desk_takes_nothing(sockets: Sockets) -> None:
    desk = Desk()
    desk.add(waiting := sockets.asked("one"))
    assert desk.close() == [waiting]
    assert desk.add(sockets.asked("two")) is None


def test_who_is_turned_away_is_told_when_to_come_back(sockets: Sockets) -> None:
    desk = Desk(4)
    desk.add(sockets.asked("one"))
    soon = desk.retry_s
    for n in range(3):
        desk.add(sockets.asked(str(n)))
    assert 1 <= soon < desk.retry_s <= 120


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 6)), min_size=1, max_size=10))
def test_each_waits_for_one_page_of_every_other_at_most(asks: list[tuple[int, int]]) -> None:
    """With n clients in line, between two pages of one of them there are at most n - 1 others."""
    sockets, desk = Sockets(), Desk(64)
    try:
        pages = {}
        for client, count in asks:
            asked = sockets.asked(str(client))
            pages[id(asked)] = count
            desk.add(asked)
        order: list[str] = []
        while (asked := desk.next()) is not None:
            order.append(asked.ask.client)
            pages[id(asked)] -= 1
            if pages[id(asked)]:
                desk.back(asked, 0.1)
            else:
                desk.finished()
        assert len(order) == sum(count for _, count in asks)
        clients = len({client for client, _ in asks})
        for client in set(order):
            at = [position for position, name in enumerate(order) if name == client]
            assert all(later - earlier <= clients for earlier, later in pairwise(at))
    finally:
        sockets.close()
