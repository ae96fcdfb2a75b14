"""What counts in a model's output, and what is mark-up, whatever pieces it comes in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.reference.scanner import Mode, OutputScanner
from pipeline.reference.skeleton import skeleton

CELL = '[{"bbox": [1, 2, 3, 4], "category": "Text", "text": "'


@pytest.mark.parametrize(
    ("text", "counted"),
    [
        ("# A **bold** word", "Aboldword"),
        ("<table><tr><td>a</td><td rowspan=2>b</td></tr></table>", "ab"),
        ("a < b", "ab"),
        ("$\\alpha + \\mathbf { x }$", "α+x"),
        ("\\ln 2 \\%", "ln2%"),
        ("Tom&#x27;s &amp; AT&T too", "Toms&AT&Ttoo"),
        ("<|ref|>text<|/ref|><|det|>[[1, 2, 3, 4]]<|/det|>\nWords", "Words"),
    ],
)
def test_markup_does_not_count(text: str, counted: str) -> None:
    assert "".join(mark.char for mark in OutputScanner().feed(text)) == counted


def test_only_texts_of_a_json_answer_count() -> None:
    scanner = OutputScanner(json=True)
    marks = scanner.feed(CELL + 'say \\"so\\",\\nthen $\\\\alpha $"}, {"bbox": [5')
    assert "".join(mark.char for mark in marks) == "sayso,thenα"
    assert marks[0].run == CELL
    assert marks[6].run == "\\n"
    assert scanner.in_keys
    assert scanner.run[scanner.key_from :] == '"}, {"bbox": [5'


def test_runs_hold_everything_between_two_characters() -> None:
    marks = OutputScanner().feed("a</td><td> b")
    assert [mark.run for mark in marks] == ["", "</td><td> "]


def test_modes_follow_the_table() -> None:
    modes = [
        mark.mode
        for mark in OutputScanner().feed("x\n\n| a | b |\n|---|---|\n| c |\n\ny <table><td>z</table> w")
    ]
    assert modes == [Mode.TEXT, Mode.PIPE, Mode.PIPE, Mode.PIPE, Mode.TEXT, Mode.HTML, Mode.TEXT]


@given(st.text(st.sampled_from('ab1.,<>|/td$\\&;#n"{}[]: \n'), max_size=60), st.booleans(), st.data())
def test_pieces_give_what_the_whole_gives(text: str, json: bool, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(text)))
    text = (CELL if json else "") + text
    whole, parts = OutputScanner(json), OutputScanner(json)
    assert parts.feed(text[:cut]) + parts.feed(text[cut:]) == whole.feed(text)
    assert parts.run == whole.run


@given(st.text(st.characters(exclude_characters="<\\&$|", exclude_categories=["Cs"]), max_size=60))
def test_plain_text_counts_as_the_draft_does(text: str) -> None:
    assert "".join(mark.char for mark in OutputScanner().feed(text)) == skeleton(text)
