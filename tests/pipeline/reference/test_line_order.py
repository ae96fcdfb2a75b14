"""The order of lines, learned from the steps between them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.reference.line_order import LineOrder, expected_step


@pytest.mark.parametrize(
    ("steps", "following"),
    [
        ((), 1),
        ((1, 1, 1, 1), 1),
        ((1, 2, 2), 1),  # seen once: chance
        ((1, 2, 2, 2), 2),  # a column of two, read across
        ((1, 2, 2, 2, -5, 2), 1),  # two things followed
        ((2, -1, 2, 1, 2, -1, 2, 1, 2, -1, 2), 1),  # halves of two lines by turns
        ((2, -1, 2, 1, 2, -1, 2, 1, 2, -1, 2, 1, 2), -1),
        ((1, 3, 1, 1, 1, 3, 1, 1, 1, 3), 1),  # a line left out here and there
    ],
)
def test_what_followed_the_last_times_is_expected(steps: tuple[int, ...], following: int) -> None:
    assert expected_step(steps) == following


def order_of(*lines: tuple[int, int]) -> LineOrder:
    """After (line, characters found in it)."""
    order = LineOrder()
    for line, characters in lines:
        for _ in range(characters):
            order.found(line)
    return order


def test_a_few_characters_are_no_line() -> None:
    assert order_of((0, 9), (5, 2), (1, 9)).steps == (1, 1)


def test_an_order_is_straight_until_a_line_is_left_out() -> None:
    assert order_of((0, 9), (1, 9), (2, 9)).is_straight
    assert not order_of((0, 9), (2, 9)).is_straight
    assert not order_of((1, 9)).is_straight


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), max_size=99))
def test_any_order_is_borne(lines: list[tuple[int, int]]) -> None:
    order = order_of(*lines)
    assert len(order.steps) <= 48
    assert expected_step(order.steps) in {1, *order.steps}
