"""The boxes of what was searched for: words, parts of unspaced runs, words broken at line ends."""

from __future__ import annotations

import pytest

from storage.highlight import Marked, marked
from storage.query import parse
from storage.records import Block, Box, Category, Line, Word


def line(top: float, *words: str) -> Line:
    """Words side by side, ten points to the character."""
    placed, left = [], 0.0
    for word in words:
        placed.append(Word(word, (left, top, left + 10.0 * len(word), top + 9.0)))
        left += 10.0 * len(word) + 10.0
    return Line(" ".join(words), (0.0, top, left, top + 9.0), tuple(placed))


def block(*lines: Line, text: str = "", category: Category = Category.TEXT) -> Block:
    text = text or "\n".join(one.text for one in lines)
    return Block(category, (0.0, 0.0, 500.0, 500.0), text, text, lines=lines)


@pytest.mark.parametrize(
    ("query", "boxes"),
    [
        ("ships", [(50, 0, 100, 9)]),
        ("SHIPS", [(50, 0, 100, 9)]),
        ("ship", []),
        ("ship*", [(50, 0, 100, 9)]),
        ('"the ships"', [(10, 0, 100, 9)]),
        ('"sail home"', [(110, 0, 150, 9), (0, 20, 40, 29)]),
        ("home the", [(10, 0, 40, 9), (0, 20, 40, 29)]),
        ("", []),
    ],
)
def test_words_and_phrases(query: str, boxes: list[Box]) -> None:
    lines = (
        Line(
            "the ships sail",
            (10, 0, 150, 9),
            (Word("the", (10, 0, 40, 9)), Word("ships", (50, 0, 100, 9)), Word("sail", (110, 0, 150, 9))),
        ),
        line(20.0, "home", "again"),
    )
    found = marked([block(*lines)], parse(query))
    assert sorted(box for one in found for box in one.boxes) == sorted(boxes)


def test_a_word_broken_at_a_line_end_is_marked_on_both_lines() -> None:
    broken = block(line(0.0, "many", "har-"), line(20.0, "bours"), text="many harbours")
    (found,) = marked([broken], parse("harbours"))
    assert found.boxes == ((50.0, 0.0, 90.0, 9.0), (0.0, 20.0, 50.0, 29.0))


def test_of_an_unspaced_run_the_part_is_marked() -> None:
    (found,) = marked([block(line(0.0, "日本語文書"))], parse("語文"))
    assert found.boxes == ((20.0, 0.0, 40.0, 9.0),)


def test_without_words_the_block_is_marked() -> None:
    bare = Block(Category.TEXT, (1.0, 2.0, 3.0, 4.0), "the harbour", "the harbour")
    assert marked([block(line(0.0, "no")), bare], parse("harbour")) == [Marked(1, ((1.0, 2.0, 3.0, 4.0),))]


def test_furniture_is_never_marked() -> None:
    header = block(line(0.0, "harbour"), category=Category.PAGE_HEADER)
    assert marked([header], parse("harbour")) == []
