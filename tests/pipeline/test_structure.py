"""What holds for any page: nothing lost, nothing doubled, no order of input that matters, no exception."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from pipeline.structure import render_markdown, render_text, structure
from storage.records import Box, Direction, Line, PageText, Word

SIDES = st.one_of(
    st.integers(0, 800).map(float),
    st.floats(-1e9, 1e9),
    st.sampled_from([0.0, -5.0, 1e300, math.inf, -math.inf, math.nan]),
)
BOXES = st.tuples(SIDES, SIDES, SIDES, SIDES)
WORDS = st.text("abcABC12.-–•()1*#|語한א\u00ad", min_size=1, max_size=8)


@st.composite
def lines(draw: st.DrawFn) -> Line:
    words = draw(st.lists(WORDS, min_size=1, max_size=5))
    box = draw(st.one_of(BOXES, neat_boxes()))
    made = ()
    if draw(st.booleans()):
        made = tuple(Word(word, draw(st.one_of(BOXES, neat_boxes()))) for word in words)
    return Line(
        " ".join(words),
        box,
        made,
        size_pt=draw(st.sampled_from([0.0, 10.0, 10.0, 14.0, 20.0, -1.0, math.nan, 1e12])),
        direction=draw(st.sampled_from([Direction.LTR, Direction.LTR, Direction.RTL, Direction.TTB])),
        bold=draw(st.booleans()),
        mono=draw(st.booleans()),
        confidence=draw(st.sampled_from([None, 0.3, 1.0])),
        region=draw(st.sampled_from([None, 0, 1])),
    )


@st.composite
def neat_boxes(draw: st.DrawFn) -> Box:
    left, top = draw(st.integers(0, 50)) * 10, draw(st.integers(0, 60)) * 12
    return (float(left), float(top), float(left + draw(st.integers(0, 30)) * 10), float(top + 10))


PAGES = st.builds(
    PageText,
    st.sampled_from([612.0, 0.0, 1e7, -3.0, math.nan]),
    st.sampled_from([792.0, 0.0, 1e7]),
    st.lists(lines(), max_size=30).map(tuple),
    rules=st.lists(st.one_of(BOXES, neat_boxes()), max_size=6).map(tuple),
    pictures=st.lists(BOXES, max_size=2).map(tuple),
)


def characters(texts: list[str]) -> Counter[str]:
    return Counter("".join("".join(text.split()) for text in texts))


@settings(max_examples=150)
@given(PAGES)
def test_every_character_is_in_exactly_one_block(page: PageText):
    blocks = structure(page)
    found = characters([line.text for block in blocks for line in block.lines])
    assert found == characters([line.text for line in page.lines])
    # A soft hyphen shows nothing by itself.
    assert render_text(blocks).strip() or not any(
        line.text.replace("\xad", "").strip() for line in page.lines
    )


@settings(max_examples=80)
@given(PAGES)
def test_boxes_of_blocks_are_finite_and_hold_their_lines(page: PageText):
    for block in structure(page):
        left, top, right, bottom = block.box
        assert all(map(math.isfinite, block.box)) and left <= right and top <= bottom
        for line in block.lines:
            if all(abs(side) <= 1e6 for side in line.box):
                assert left <= min(line.box[0], line.box[2]) and max(line.box[1], line.box[3]) <= bottom


def grid_page(seed: int) -> PageText:
    """Lines on a grid of distinct places, in any order, with some rules: layouts more like real ones."""
    chance = random.Random(seed)
    places = [(column, row) for column in range(3) for row in range(40)]
    made = []
    for column, row in chance.sample(places, chance.randint(1, 60)):
        count = chance.randint(1, 6)
        left, top = 40 + column * 180 + chance.choice([0, 0, 0, 12]), 40 + row * 14
        words = [chance.choice(["one", "two-", "•", "1.", "Three", "four.", "V"]) for _ in range(count)]
        width = chance.randint(10, 260 if chance.random() < 0.1 else 170)
        made.append(
            Line(
                " ".join(words), (left, top, left + width, top + 10), size_pt=chance.choice([10, 10, 10, 16])
            )
        )
    rules = tuple((40.0, 40.0 + 14 * n, 580.0, 40.5 + 14 * n) for n in range(chance.randint(0, 5)))
    upright = tuple((40.0 + 180 * n, 40.0, 40.5 + 180 * n, 300.0) for n in range(chance.randint(0, 4)))
    return PageText(612, 792, tuple(made), rules=rules + upright)


@pytest.mark.parametrize("seed", range(60))
def test_input_order_does_not_matter_and_nothing_is_lost(seed: int):
    page = grid_page(seed)
    blocks = structure(page)
    shuffled = list(page.lines)
    random.Random(seed + 1).shuffle(shuffled)
    assert structure(PageText(612, 792, tuple(shuffled), rules=page.rules)) == blocks
    found = [line.text for block in blocks for line in block.lines]
    assert characters(found) == characters([line.text for line in page.lines])


@pytest.mark.parametrize("seed", range(60))
def test_markdown_holds_the_words_of_the_text(seed: int):
    blocks = structure(grid_page(seed))
    tokens = MarkdownIt("commonmark").enable("table").parse(render_markdown(blocks))
    shown = " ".join(
        "".join(child.content or " " for child in token.children)
        for token in tokens
        if token.type == "inline"
    )
    letters = Counter(char for char in shown if char.isalpha())
    assert letters == Counter(char for char in render_text(blocks) if char.isalpha())


def test_an_empty_page_has_no_blocks():
    assert structure(PageText(612, 792, ())) == ()
    assert structure(PageText(612, 792, (Line(" \n", (0, 0, 9, 9)),))) == ()
