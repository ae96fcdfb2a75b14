"""Where the output stands in the draft: found again after everything that models and text layers do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.reference.align import Aligner, Found
from pipeline.reference.cells import CellOrder
from pipeline.reference.draft import Break, DraftLine, DraftText, build
from pipeline.reference.scanner import OutputScanner

PAGE = [
    "Running head of the book",
    "The first column starts here and goes on",
    "for a second line before it ends.",
    "Another column has other words in it, and",
    "nothing of it was said before.",
]


def draft_of(lines: list[str], mark: Break = Break.PARAGRAPH) -> DraftText:
    return build([DraftLine(text, mark) for text in lines])


def after(output: str, draft: DraftText, piece: int = 9) -> Aligner:
    """The aligner once `output` came in pieces."""
    scanner, aligner = OutputScanner(), Aligner(draft, CellOrder())
    for at in range(0, len(output), piece):
        aligner.follow(scanner.feed(output[at : at + piece]))
    return aligner


def next_of(aligner: Aligner) -> str:
    return aligner.draft.chars[aligner.here : aligner.here + 8]


@pytest.mark.parametrize(
    ("output", "following"),
    [
        ("Running head of the", "bookThef"),
        ("The first column starts", "herea"),  # the head left out
        ("# Running head\n\nThe **first** column starts here", "andgoeso"),
        ("The first co1umn starts here and", "goesonfo"),  # read differently
        ("The very first column starts here", "andgoeso"),  # a word more
        ("The first column here and goes", "onforase"),  # a word less
        ("Another column has other words", "init,and"),  # another order
        (
            "Another column has other words in it, and nothing of it was said before.\n\nThe first column",
            "startshe",
        ),
    ],
)
def test_the_place_is_found_again(output: str, following: str) -> None:
    assert next_of(after(output, draft_of(PAGE))).startswith(following)


def test_a_new_block_is_taken_by_its_first_letters() -> None:
    aligner = after(
        "The first column starts here and goes on for a second line before it ends.", draft_of(PAGE)
    )
    scanner = OutputScanner()
    aligner.follow(scanner.feed("\n\nAno"))
    assert next_of(aligner).startswith("thercolu")
    assert aligner.found is not Found.LOST


def test_a_line_is_taken_by_its_first_letters_where_one_before_it_ends() -> None:
    halves = ["The first column", "Another column", "starts here and", "has other words"]
    aligner = after("The first column st", draft_of(halves, Break.WRAP), piece=1)
    assert next_of(aligner).startswith("artshere")


LEFT = ["Here it begins", "as one column", "with more words", "and some more", "until it ends"]
RIGHT = ["Next is another", "of equal length", "standing beside", "it all the way", "to its last line"]


def test_columns_read_across_are_expected_in_turn_once_two_steps_were_alike() -> None:
    draft = draft_of([line for pair in zip(LEFT, RIGHT, strict=True) for line in pair], Break.WRAP)
    aligner = after(" ".join(LEFT[:4]), draft)
    assert draft.lines[aligner.next_line(6, aligner.order.steps) or 0].text == LEFT[4]
    aligner = after(" ".join(LEFT), draft)
    assert draft.lines[aligner.next_line(8, aligner.order.steps) or 0].text == RIGHT[0]  # the first left
    assert next_of(after(" ".join(LEFT[:4]) + " u", draft)).startswith("ntilit")


def test_text_the_draft_has_nothing_of_leaves_it_lost() -> None:
    aligner = after("Zygotes quiver!", draft_of(PAGE))
    assert aligner.sure <= 2


def test_table_cells_are_found_by_the_rows_above() -> None:
    columns = [["Name", "Ann", "Bob", "Cid"], ["Age", "31", "32", "33"], ["Town", "Rome", "Oslo", "Bonn"]]
    draft = draft_of([cell for column in columns for cell in column])
    rows = "".join(
        f"<tr><td>{a}</td><td>{b}</td><td>{c}</td></tr>" for a, b, c in list(zip(*columns, strict=True))[:3]
    )
    aligner = after(f"<table>{rows}<tr><td>Cid</td><td>3", draft, piece=4)
    assert draft.line[aligner.here] == 7  # the last age, not the first line that begins with 3


@given(
    st.lists(st.text(st.sampled_from("ab1. "), max_size=9), max_size=6),
    st.text(st.sampled_from("ab1. \n|<td>/$\\"), max_size=60),
    st.integers(1, 12),
)
def test_no_output_breaks_it(lines: list[str], output: str, piece: int) -> None:
    draft = draft_of(lines)
    aligner = after(output, draft, piece)
    assert 0 <= aligner.here <= draft.size


@given(st.lists(st.text(st.sampled_from("abcdefgh 123."), min_size=1, max_size=30), min_size=1, max_size=8))
def test_the_draft_itself_is_followed_to_its_end(lines: list[str]) -> None:
    draft = draft_of(lines)
    assert after("\n\n".join(line.text for line in draft.lines), draft).here == draft.size
