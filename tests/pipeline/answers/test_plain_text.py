"""Answers without boxes take those of the draft lines they align with."""

from __future__ import annotations

from pipeline.answers.cells import AnswerSpace
from pipeline.answers.plain_text import parse
from storage.records import Category, Line

FRAME = AnswerSpace(1, 1, 600, 800)
DRAFT = [
    Line("Harbour report", (50, 40, 300, 60)),
    Line("The tide tab1es were re-", (50, 100, 550, 112)),
    Line("printed in March.", (50, 114, 300, 126)),
    Line("Boats: 12", (50, 200, 200, 212)),
]


def test_blocks_are_placed_by_what_they_say() -> None:
    answer = "# Harbour report\n\nThe tide tables were reprinted in March.\n\n- Boats: 12\n- Crews: 40"
    title, text, boats, crews = parse(answer, FRAME, DRAFT).blocks
    assert (title.box, title.level) == (DRAFT[0].box, 1)
    assert text.box == (50, 100, 550, 126)
    assert (boats.box, boats.category) == (DRAFT[3].box, Category.LIST_ITEM)
    assert crews.box == FRAME.whole  # the draft has nothing of it


def test_without_a_draft_blocks_have_the_whole_page() -> None:
    assert [b.box for b in parse("One.\n\nTwo.", FRAME).blocks] == [FRAME.whole] * 2


def test_fences_tables_and_formulas_are_known() -> None:
    answer = "```markdown\n| a | b |\n| --- | --- |\n| 1 | 2 |\n\n$$x^2$$\n```"
    table, formula = parse(answer, FRAME).blocks
    assert (table.category, table.text) == (Category.TABLE, "a\tb\n1\t2")
    assert (formula.category, formula.text) == (Category.FORMULA, "x^2")


def test_nothing_said_is_blank() -> None:
    assert parse("  \n", FRAME).blank
