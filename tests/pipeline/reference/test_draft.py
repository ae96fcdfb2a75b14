"""The draft as one string: marks at borders, the characters that count, what stands where."""

from __future__ import annotations

from pipeline.reference.draft import Break, DraftLine, build
from pipeline.reference.lines import from_blocks
from storage.records import Block, Category, Line

BOX = (0.0, 0.0, 10.0, 10.0)


def test_lines_become_one_text_with_marks() -> None:
    draft = build(
        [DraftLine("The  first,", Break.PARAGRAPH), DraftLine("line", Break.WRAP), DraftLine("B", Break.CELL)]
    )
    assert draft.text == "The first,\x01line\x03B"
    assert draft.chars == "Thefirst,lineB"
    assert [draft.chars[start] for start in draft.starts] == ["T", "l", "B"]
    assert draft.gap(9) == "\x01"


def test_ligatures_are_written_out_and_quotes_kept() -> None:
    draft = build([DraftLine("“ﬁne’")])
    assert draft.text == "“fine’"
    assert draft.chars == "fine"


def test_lines_without_letters_are_left_out() -> None:
    assert [line.text for line in build([DraftLine("....... ---"), DraftLine("x")]).lines] == ["x"]


def test_a_lone_number_at_the_foot_is_furniture() -> None:
    lines = [DraftLine("Text of the page.", Break.PARAGRAPH) for _ in range(5)]
    draft = build([*lines, DraftLine("– 37 –", Break.PARAGRAPH)])
    assert [line.furniture for line in draft.lines] == [False] * 5 + [True]


def test_kinds_tell_how_a_border_looks() -> None:
    draft = build(
        [
            DraftLine("A first line that is long enough to be called full", Break.PARAGRAPH),
            DraftLine("and goes on with another that is just as long as it.", Break.WRAP),
            DraftLine("• an item", Break.PARAGRAPH),
        ]
    )
    assert draft.kinds[1:] == ("word lower", "stop bullet")


def test_blocks_give_lines_tables_give_cells_row_by_row() -> None:
    lines = (Line("one", BOX), Line("two", BOX))
    blocks = [
        Block(Category.SECTION_HEADER, BOX, "Head", "## Head", level=2),
        Block(Category.TEXT, BOX, "one two", "one two", lines=lines),
        Block(Category.TABLE, BOX, "a\tb\nc\td", ""),
        Block(Category.PAGE_FOOTER, BOX, "7", "7"),
    ]
    drafted = from_blocks(blocks, lambda box: (box[0], box[1], box[2] * 2, box[3] * 2))
    P, W, C, R = Break.PARAGRAPH, Break.WRAP, Break.CELL, Break.ROW
    assert [(line.text, line.before) for line in drafted] == [
        ("Head", P), ("one", P), ("two", W), ("a", P), ("b", C), ("c", R), ("d", C), ("7", P),
    ]  # fmt: skip
    assert drafted[0].level == 2
    assert drafted[0].box == (0.0, 0.0, 20.0, 20.0)
    assert drafted[-1].furniture
