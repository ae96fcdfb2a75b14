"""Separators come from the borders that were written; before that, from what is usual."""

from __future__ import annotations

import pytest

from pipeline.reference.draft import Break
from pipeline.reference.scanner import Mode
from pipeline.reference.separators import Border, Separators, border


def at(mark: Break, kind: str = "stop upper", head: str = "", tail: str = "") -> Border:
    return Border(head, mark, tail, kind)


@pytest.mark.parametrize(
    ("mode", "found", "text"),
    [
        (Mode.TEXT, at(Break.WRAP, "word lower"), " "),
        (Mode.TEXT, at(Break.PARAGRAPH), "\n\n"),
        (Mode.TEXT, at(Break.PARAGRAPH, "word lower"), " "),  # a paragraph does not go on in lower case
        (Mode.TEXT, at(Break.PARAGRAPH, "stop upper 2"), "\n\n## "),
        (Mode.TEXT, at(Break.WRAP, "hyphen lower", head="-"), ""),  # a divided word
        (Mode.TEXT, at(Break.WRAP, "wide wide"), ""),  # no space between Chinese characters
        (Mode.HTML, at(Break.CELL), "</td><td>"),
        (Mode.PIPE, at(Break.ROW), " |\n| "),
    ],
)
def test_what_is_usual(mode: Mode, found: Border, text: str) -> None:
    assert Separators().guess(mode, found).text == text


def test_what_was_written_lately_is_expected() -> None:
    separators = Separators()
    for _ in range(3):
        separators.learn(Mode.TEXT, at(Break.PARAGRAPH), "\n")
    guess = separators.guess(Mode.TEXT, at(Break.PARAGRAPH))
    assert guess.text == "\n"
    assert guess.chance > 0.7


def test_borders_of_another_look_keep_their_own() -> None:
    separators = Separators()
    for _ in range(3):
        separators.learn(Mode.TEXT, at(Break.PARAGRAPH, "stop bullet", tail="• "), "\n- ")
    assert separators.guess(Mode.TEXT, at(Break.PARAGRAPH, "stop bullet", tail="• ")).text == "\n- "
    assert separators.guess(Mode.TEXT, at(Break.PARAGRAPH)).text == "\n\n"


def test_hyphens_are_kept_where_the_model_keeps_them() -> None:
    separators, divided = Separators(), at(Break.WRAP, "hyphen lower", head="-")
    for _ in range(3):
        separators.learn(Mode.TEXT, divided, "-")
    assert separators.guess(Mode.TEXT, divided).text == "-"


def test_a_begun_separator_is_finished_as_learned() -> None:
    separators = Separators()
    separators.learn(Mode.HTML, at(Break.CELL), "</td><td rowspan=1 colspan=1>")
    going_on = separators.going_on(Mode.HTML, None, "</td><td row")
    assert going_on is not None
    assert going_on.text == "</td><td rowspan=1 colspan=1>"
    assert separators.guess(Mode.HTML, at(Break.ROW)).text == "</td></tr><tr><td rowspan=1 colspan=1>"


def test_tags_are_finished_without_any_history() -> None:
    separators = Separators()
    assert separators.unfinished("\n\n<table") == "><tr><td>"
    separators.see('<div align="center">')
    assert separators.unfinished("text\n\n</") == "div>"


def test_a_border_takes_what_stands_around_its_mark() -> None:
    assert border("-\x01“", "word lower") == Border("-", Break.WRAP, "“", "word lower")
    assert border(" - ", "word lower") is None
