import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.cer import character_error_rate, errors, normalise


@pytest.mark.parametrize(
    ("printed", "read"),
    [
        ("the ﬁrst “word” — and", 'the first "word" - and'),
        ("hy-\nphen at a line's end", "hyphen at a line's end"),
        ("# Title\n\n- one\n- **two**", "Title\n• one\n• two"),
        ("| a | b |\n|---|---|\n| 1 | 2 |", "a b\n1 2"),
        ("元来日本語は\n漢文に倣い", "元来日本語は漢文に倣い"),
        ("soft\u00adhyphen  and\nspace", "softhyphen and space"),
    ],
)
def test_what_no_reader_calls_an_error_does_not_count(printed: str, read: str) -> None:
    assert character_error_rate(printed, read) == 0.0


@pytest.mark.parametrize(
    ("printed", "read", "rate"),
    [
        ("abcd", "abxd", 0.25),
        ("abcd", "", 1.0),
        ("ab", "abcdef", 2.0),
        ("", "", 0.0),
        ("two words", "twowords", 1 / 9),
    ],
)
def test_errors_are_counted_per_printed_character(printed: str, read: str, rate: float) -> None:
    assert character_error_rate(printed, read) == pytest.approx(rate)


@given(st.text(max_size=60))
def test_normalising_is_final_for_single_lines_and_a_text_equals_itself(text: str) -> None:
    assert errors(text, text)[0] == 0
    assert "  " not in normalise(text)
