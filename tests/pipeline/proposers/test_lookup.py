"""The table of n-grams: what is forgotten again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pipeline.proposers.lookup import NGramTable

PAGES = st.lists(st.lists(st.integers(0, 4), max_size=20), min_size=1, max_size=4)


def table_of(pages: list[list[int]]) -> NGramTable:
    table = NGramTable()
    for page in pages:
        table.start_page()
        table.add(page)
    return table


@given(
    pages=PAGES, loop=st.lists(st.integers(0, 4), max_size=30), after=st.lists(st.integers(0, 4), max_size=9)
)
def test_what_was_dropped_might_as_well_never_have_been(
    pages: list[list[int]], loop: list[int], after: list[int]
) -> None:
    table, never = table_of(pages), table_of(pages)
    table.add(loop)
    table.drop(len(loop))
    for known in (table, never):
        known.start_page()
        known.add(after)
    assert table.history == never.history
    assert table.longest_continuation(8) == never.longest_continuation(8)


@given(pages=PAGES)
def test_no_more_is_dropped_than_the_page_being_written(pages: list[list[int]]) -> None:
    table = table_of(pages)
    table.drop(1000)
    assert table.history == table_of(pages[:-1]).history
