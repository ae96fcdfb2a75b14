"""Visual order to reading order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import bidi

ALEF, BET, GIMEL = "א", "ב", "ג"


def read(visual: str, *, rtl: bool) -> str:
    return "".join(visual[i] for i in bidi.reading_order(list(visual), rtl=rtl))


@pytest.mark.parametrize(
    ("visual", "logical"),
    [
        (f"{GIMEL}{BET}{ALEF}", f"{ALEF}{BET}{GIMEL}"),
        (f".{BET}{ALEF}", f"{ALEF}{BET}."),
        (f"15 {BET}{ALEF}", f"{ALEF}{BET} 15"),
        (f"1,234.5 {ALEF}", f"{ALEF} 1,234.5"),
        (f"20 10 {ALEF}", f"{ALEF} 10 20"),  # two numbers: the right one is read first
        (f"{BET} Hello World {ALEF}", f"{ALEF} Hello World {BET}"),
        (f"{BET} Python 3.11 {ALEF}", f"{ALEF} Python 3.11 {BET}"),
    ],
)
def test_right_to_left_line_reads_from_the_right_but_numbers_and_latin_do_not(
    visual: str, logical: str
) -> None:
    assert read(visual, rtl=True) == logical


def test_hebrew_words_in_an_english_line_turn_round_within_it() -> None:
    assert read(f"the {BET}{ALEF} {GIMEL} word", rtl=False) == f"the {GIMEL} {ALEF}{BET} word"


@given(st.text("abאב 12.,()", max_size=40), st.booleans())
def test_every_character_is_read_exactly_once(visual: str, rtl: bool) -> None:
    assert sorted(bidi.reading_order(list(visual), rtl=rtl)) == list(range(len(visual)))


@given(st.text("אב .,", max_size=40))
def test_a_line_without_latin_or_digits_is_simply_turned_round(visual: str) -> None:
    assert read(visual, rtl=True) == visual[::-1]


@given(st.text("ab() 12", max_size=40))
def test_a_line_without_right_to_left_letters_stays_as_it_is(visual: str) -> None:
    assert read(visual, rtl=False) == visual


def test_brackets_are_counted_by_how_they_open_and_close() -> None:
    assert bidi.matched_brackets("a(b)[c]") == 2
    assert bidi.matched_brackets(")a(") < 0
    assert bidi.mirror("(a)") == ")a("
