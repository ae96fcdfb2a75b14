import pytest

from pipeline.engines.fusion import fuse
from pipeline.engines.lines import make_line
from pipeline.engines.rapid import Reread
from storage.records import Line, Word


def line(*words: tuple[str, float]) -> Line:
    made = [
        Word(text, (at * 50.0, 10.0, at * 50.0 + 47, 20.0), sure) for at, (text, sure) in enumerate(words)
    ]
    return make_line(made, size_pt=11, region=2)


LINE = line(("une", 0.95), ("alcOve", 0.48), ("bleue", 0.96))


@pytest.mark.parametrize(
    ("second", "text"),
    [
        (Reread("une alcôve bleue", 0.98), "une alcôve bleue"),  # the doubtful word is replaced
        (Reread("unè alcôve bleuë", 0.98), "une alcôve bleue"),  # sure words stay
        (Reread("unealcOvebleue", 0.98), "une alcOve bleue"),  # only spaces differ: Tesseract has them right
        (Reread("une alcôve bleue", 0.60), "une alcOve bleue"),  # the second reading is no better
        (Reread("", 0.99), "une alcOve bleue"),
        (Reread("une al côve bleue", 0.98), "une al côve bleue"),
        (Reread("une bleue", 0.98), "une bleue"),  # a doubtful word that is not there
    ],
)
def test_words_of_a_second_reading_replace_doubtful_ones(second: Reread, text: str) -> None:
    fused = fuse(LINE, second, 0.9)
    assert fused.text == text == " ".join(word.text for word in fused.words)
    assert (fused.box, fused.region, fused.size_pt) == (LINE.box, 2, 11)
    for word in fused.words:
        assert LINE.box[0] <= word.box[0] < word.box[2] <= LINE.box[2]


def test_a_word_keeps_the_box_of_the_one_it_replaces() -> None:
    fused = fuse(LINE, Reread("une alcôve bleue", 0.98), 0.9)
    assert fused.words[1] == Word("alcôve", LINE.words[1].box, 0.98)


def test_a_missed_word_is_put_into_its_gap() -> None:
    first = line(("Cras", 0.9), ("nec", 0.9))
    wide = make_line([first.words[0], Word("nec", (150.0, 10.0, 180.0, 20.0), 0.9)])
    fused = fuse(wide, Reread("Cras ante nec", 0.99), 0.8)
    assert fused.text == "Cras ante nec"
    assert 47 <= fused.words[1].box[0] < fused.words[1].box[2] <= 150
    assert fuse(first, Reread("Cras ante nec", 0.99), 0.8).text == "Cras nec"  # no room for it


def test_readings_with_nothing_in_common_are_not_mixed() -> None:
    garbage = line(("AMS", 0.2), ("BR", 0.1))
    assert fuse(garbage, Reread("すべての人間は", 0.99), 0.88).text == "すべての人間は"
    assert (
        fuse(line(("Invoice", 0.95), ("42", 0.93)), Reread("すべての人間は", 0.99), 0.97).text == "Invoice 42"
    )
