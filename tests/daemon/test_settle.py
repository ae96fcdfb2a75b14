"""Files at rest, on a clock the tests hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.settle import EMPTY_FACTOR, Settler

PATH = b"/r/a.pdf"


def test_a_file_settles_after_its_wait_unchanged() -> None:
    settler = Settler(2.0)
    settler.observe(PATH, 10, 5, now=100.0)
    assert settler.due(101.9) == []
    assert settler.due(102.0) == [PATH]
    assert settler.confirm(PATH, 10, 5, now=102.0)
    assert len(settler) == 0


def test_repeated_hints_do_not_prolong_the_wait() -> None:
    settler = Settler(2.0)
    for tenth in range(20):
        settler.observe(PATH, 10, 5, now=100.0 + tenth / 10)
    assert settler.due(102.0) == [PATH]


@given(st.lists(st.tuples(st.integers(1, 1000), st.floats(0.01, 1.99)), min_size=1, max_size=50))
def test_a_growing_file_waits_as_long_as_it_grows(steps: list[tuple[int, float]]) -> None:
    settler = Settler(2.0)
    size, now = 1, 0.0
    settler.observe(PATH, size, 0, now)
    for growth, pause in steps:
        now += pause
        assert settler.due(now) == []
        size += growth
        settler.observe(PATH, size, 0, now)
    assert settler.due(now + 2.001) == [PATH]


def test_growth_without_any_event_is_noticed_when_it_is_confirmed() -> None:
    settler = Settler(2.0)
    settler.observe(PATH, 10, 5, now=0.0)
    assert settler.due(2.0) == [PATH]
    assert not settler.confirm(PATH, 20, 5, now=2.0)
    assert settler.due(3.9) == []
    assert settler.confirm(PATH, 20, 5, now=4.0)


def test_an_empty_file_waits_longer_and_settles_all_the_same() -> None:
    settler = Settler(2.0)
    settler.observe(PATH, 0, 5, now=0.0)
    assert settler.due(2.0 * EMPTY_FACTOR - 0.1) == []
    assert settler.due(2.0 * EMPTY_FACTOR) == [PATH]
    settler.observe(PATH, 7, 6, now=20.0)  # its writer began after all
    assert settler.due(21.0) == []
    assert settler.due(22.0) == [PATH]
    assert len(settler) == 1


@pytest.mark.parametrize("mtime_ns", [0, -1, 2**32 * 10**9, 2**63 - 1])
def test_times_from_any_century_settle(mtime_ns: int) -> None:
    settler = Settler(2.0)
    settler.observe(PATH, 10, mtime_ns, now=1_000_000.0)
    assert settler.due(1_000_002.0) == [PATH]


def test_a_clock_set_back_delays_by_one_wait_at_most() -> None:
    settler = Settler(2.0)
    settler.observe(PATH, 10, 5, now=10_000.0)
    assert settler.due(100.0) == []
    assert settler.due(102.0) == [PATH]


def test_next_due_is_the_earliest_of_both_kinds() -> None:
    settler = Settler(2.0)
    assert settler.next_due() is None
    settler.observe(b"/r/empty", 0, 0, now=0.0)
    assert settler.next_due() == 20.0
    settler.observe(PATH, 1, 0, now=5.0)
    assert settler.next_due() == 7.0


@given(
    st.lists(
        st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.integers(0, 2), st.integers(0, 2), st.floats(0, 3)),
        max_size=60,
    )
)
def test_nothing_is_due_that_changed_within_the_wait(steps: list[tuple[bytes, int, int, float]]) -> None:
    settler, now = Settler(1.0), 0.0
    changed: dict[bytes, float] = {}
    looks: dict[bytes, tuple[int, int]] = {}
    for path, size, mtime, pause in steps:
        now += pause
        for ripe in settler.due(now):
            assert now - changed[ripe] >= 1.0
        if looks.get(path) != (size, mtime):
            looks[path], changed[path] = (size, mtime), now
        settler.observe(path, size, mtime, now)
