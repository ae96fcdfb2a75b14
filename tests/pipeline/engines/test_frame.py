import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.engines.frame import Frame
from storage.records import Block, Box, Category, Line, Word

WIDTH, HEIGHT = 612.0, 792.0
boxes = st.tuples(
    st.floats(0, WIDTH - 50), st.floats(0, HEIGHT - 50), st.floats(1, 50), st.floats(1, 50)
).map(lambda box: (box[0], box[1], box[0] + box[2], box[1] + box[3]))


@given(boxes, st.sampled_from([0.0, 90.0, 180.0, 270.0]))
def test_a_quarter_turn_there_and_back_changes_nothing(box: Box, degrees: float) -> None:
    frame = Frame(degrees, WIDTH, HEIGHT)
    assert frame.to_page(frame.from_page(box)) == pytest.approx(box)


@given(boxes, st.floats(-10, 10))
def test_another_turn_and_back_holds_the_box(box: Box, degrees: float) -> None:
    frame = Frame(degrees, WIDTH, HEIGHT)
    left, top, right, bottom = frame.to_page(frame.from_page(box))
    assert left <= box[0] + 1e-6 and top <= box[1] + 1e-6
    assert right >= box[2] - 1e-6 and bottom >= box[3] - 1e-6


def test_a_quarter_turn_puts_the_right_edge_on_top() -> None:
    frame = Frame(90.0, WIDTH, HEIGHT)
    assert frame.size == (HEIGHT, WIDTH)
    assert frame.from_page((WIDTH - 20, 0, WIDTH, 100)) == pytest.approx((0, 0, 100, 20))


def test_boxes_are_cut_at_the_edges_of_the_page() -> None:
    assert Frame(180.0, 100.0, 100.0).to_page((-10, -10, 50, 50)) == pytest.approx((50, 50, 100, 100))


def test_a_block_comes_back_with_lines_and_words() -> None:
    frame = Frame(180.0, 100.0, 200.0)
    word = Word("up", (0, 0, 10, 20), 0.5)
    block = Block(Category.TEXT, (0, 0, 10, 20), "up", "up", lines=(Line("up", word.box, (word,)),))
    back = frame.block_to_page(block)
    assert back.box == back.lines[0].box == back.lines[0].words[0].box == pytest.approx((90, 180, 100, 200))
    assert back.lines[0].words[0].confidence == 0.5
