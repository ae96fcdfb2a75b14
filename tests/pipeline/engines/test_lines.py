import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.engines.lines import (
    is_spaceless,
    join_syllables,
    join_words,
    make_line,
    mean_confidence,
    spread,
)
from storage.records import Direction, Word

BOX = (10.0, 20.0, 110.0, 30.0)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["two", "words"], "two words"),
        (["日本", "語"], "日本語"),
        (["日本", "OCR", "語"], "日本 OCR 語"),
        (["한국", "어"], "한국 어"),
        ([], ""),
    ],
)
def test_spaces_stand_where_the_script_has_them(words: list[str], text: str) -> None:
    assert join_words(words) == text


@given(st.text(alphabet="ab é日本 ", max_size=40))
def test_spread_words_are_the_text_in_order_within_the_box(text: str) -> None:
    words = spread(text, BOX, 0.9)
    assert [word.text for word in words] == text.split()
    edges = [edge for word in words for edge in (word.box[0], word.box[2])]
    assert edges == sorted(edges)
    assert all(BOX[0] - 1e-6 <= edge <= BOX[2] + 1e-6 for edge in edges)


def test_spread_runs_from_the_right_for_right_to_left_text() -> None:
    first, last = spread("שלום עולם", BOX, None)
    assert first.box[0] > last.box[2]
    assert make_line([first, last]).direction is Direction.RTL


def test_spread_runs_downwards_for_vertical_text() -> None:
    first, last = spread("上 下", (0, 0, 10, 100), None, vertical=True)
    assert first.box[3] < last.box[1]


def test_a_line_takes_its_words_box_direction_and_confidence() -> None:
    line = make_line([Word("a", (0, 0, 5, 5), 0.0), Word("bbb", (6, 1, 20, 8), 1.0)], region=4)
    assert (line.text, line.box, line.direction, line.region) == ("a bbb", (0, 0, 20, 8), Direction.LTR, 4)
    assert line.confidence == pytest.approx(0.75)


def test_confidence_is_unknown_where_nobody_has_one() -> None:
    assert mean_confidence([Word("a", BOX)]) is None
    assert mean_confidence([]) is None


def test_scripts_without_spaces_are_told_by_the_majority_of_letters() -> None:
    assert is_spaceless("日本語の OCR")
    assert not is_spaceless("the word 日本")
    assert not is_spaceless("123 …")


def test_hangul_syllables_are_put_together_and_words_are_not():
    places = [("모", 0), ("든", 10), ("인", 25), ("간", 33), ("은", 43), ("OK", 54)]
    words = [Word(text, (x, 0, x + 10, 12), 0.9) for text, x in places]
    assert [word.text for word in join_syllables(words)] == ["모든", "인간은", "OK"]
    latin = [Word("a", (0, 0, 5, 12)), Word("b", (6, 0, 11, 12))]
    assert join_syllables(latin) == latin
