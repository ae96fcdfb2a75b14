"""Tables as they are written: which draft line is the next cell, where the bars stand."""

from __future__ import annotations

from pipeline.reference.cells import CellOrder
from pipeline.reference.draft import Break
from pipeline.reference.pipes import PipeGrid
from pipeline.reference.scanner import Mode


def test_cells_of_a_draft_by_columns_are_foretold_by_rows() -> None:
    order = CellOrder()
    for row in range(2):
        for column in range(3):
            run = (
                "<table><tr><td>"
                if row == column == 0
                else "</td></tr><tr><td>"
                if column == 0
                else "</td><td>"
            )
            order.advance(Mode.HTML, run)
            order.place(row + 5 * column)  # 5 lines a column
    assert order.columns == 3
    assert order.next(11, 3, 1) == (2, Break.ROW)
    order.advance(Mode.HTML, "</td></tr><tr><td>")
    order.place(2)
    assert order.next(2, 1, 2) == (7, Break.CELL)
    order.advance(Mode.HTML, "</td><td>")
    assert order.expected() == 7


def test_empty_cells_count() -> None:
    order = CellOrder()
    order.advance(Mode.HTML, "<table><tr><td>")
    order.advance(Mode.HTML, "</td><td></td><td>")
    assert order.column == 3


def test_bars_of_markdown_tables_count() -> None:
    order = CellOrder()
    for run in ("| ", " | ", " |\n|---|---|\n| "):
        order.advance(Mode.PIPE, run)
    assert (order.columns, order.row, order.column) == (2, 1, 1)


def test_padded_cells_reach_their_bar() -> None:
    grid = PipeGrid()
    grid.feed("| Name  | Age |\n|-------|-----|\n| Ann")
    assert grid.padding(grid.line) == 3
    assert grid.padding("| Annabel and more") is None


def test_the_rule_is_as_wide_as_a_padded_header() -> None:
    grid = PipeGrid()
    grid.feed("Words\n\n| Name  | Age |\n")
    assert grid.wants_rule
    assert grid.rule() == "|-------|-----|"
    plain = PipeGrid()
    plain.feed("| Name | Age |\n")
    assert plain.rule() == "|---|---|"


def test_cells_without_padding_have_no_bar_to_reach() -> None:
    grid = PipeGrid()
    grid.feed("| a | b |\n|---|---|\n| c")
    assert grid.padding(grid.line) is None
