from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipeline.cer import character_error_rate
from pipeline.document import DocumentReader
from pipeline.engines import tessdata
from pipeline.engines.base import EngineReading, PageImage
from pipeline.engines.classic import ClassicEngine, doubt, doubtful_part, is_other_language, reread
from pipeline.engines.lines import make_line
from pipeline.engines.rapid import Reread
from pipeline.structure import structure
from storage.records import Box, Direction, Line, Word
from storage.settings import Settings
from tests.elsewhere import corpus

from .conftest import drawn

TruePage = Callable[[str], tuple[PageImage, str]]
BOX = (0.0, 0.0, 10.0, 10.0)


@pytest.fixture(scope="module")
def engine(settings: Settings) -> Iterator[ClassicEngine]:
    engine = ClassicEngine(settings)
    yield engine
    engine.close()


def text_of(reading: EngineReading) -> str:
    assert reading.lines is not None
    return "\n".join(block.text for block in structure(reading.lines))


def test_what_tesseract_is_sure_of_is_not_read_again(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = ClassicEngine(settings)
    monkeypatch.setattr(engine, "_rapid", None)  # touching it would fail
    reading = engine.read(drawn(["The report is due on Friday", "Please bring the signed copy"]))
    assert " ".join(text_of(reading).split()) == "The report is due on Friday Please bring the signed copy"


def test_doubt_is_that_of_the_least_sure_word_with_a_letter() -> None:
    words = [Word("©", BOX, 0.1), Word("two", BOX, 0.9), Word("3", BOX, 0.8)]
    assert doubt(make_line(words)) == 0.8
    assert doubt(make_line(words[:1])) == 0.1


def test_what_is_cut_out_ends_at_the_edges_of_the_page() -> None:
    page = drawn(["text"])
    whole = page.cut((-10.0, -10.0, page.width_pt + 10, page.height_pt + 10), (5.0, 5.0))
    assert whole.size == page.image.size
    part = page.cut((72.0, 36.0, 144.0, 72.0))
    assert part.size == (201, 101)


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("francais.pdf:1", 0.015),  # Tesseract alone: 0.07
        ("eurotext.tif:1", 0.01),  # 0.022
        ("G_cjk_image.pdf:1", 0.005),  # 1.1
        ("nemotron_multipage.pdf:4", 0.005),
        pytest.param("jpn-vert.jpeg:1", 0.06, marks=pytest.mark.slow),
        pytest.param("typewriter.png:1", 0.02, marks=pytest.mark.slow),
        pytest.param("2400dpi.pdf:1", 0.02, marks=pytest.mark.slow),
        pytest.param("cardinal.pdf:4", 0.01, marks=pytest.mark.slow),
    ],
)
def test_true_pages_are_read_with_few_errors(
    engine: ClassicEngine, true_page: TruePage, name: str, most: float
) -> None:
    page, truth = true_page(name)
    assert character_error_rate(truth, text_of(engine.read(page))) <= most


@pytest.mark.slow
def test_vertical_japanese_runs_down_and_from_right_to_left(
    engine: ClassicEngine, true_page: TruePage
) -> None:
    page, _ = true_page("jpn-vert.jpeg:1")
    lines = engine.read(page).lines
    assert lines is not None
    assert {line.direction for line in lines.lines} == {Direction.TTB}
    rights = [line.box[2] for line in lines.lines]
    assert rights == sorted(rights, reverse=True)


def test_a_script_that_nobody_covers_is_told(engine: ClassicEngine, true_page: TruePage) -> None:
    page, _ = true_page("issue11656.pdf:1")  # Hebrew
    reading = engine.read(page)
    assert [warning.code for warning in reading.warnings] == ["unknown_script"]
    assert "Hebrew" in reading.warnings[0].message


@pytest.mark.parametrize(
    ("text", "confidence", "score", "stays"),
    [
        ("a worn line of print", 0.4, 0.3, True),
        ("a worn line of print", 0.2, 0.3, False),
        ("~7", 0.6, 0.3, False),
        ("42", 0.8, 0.3, True),
        ("42", 0.6, 0.95, True),
    ],
)
def test_lines_that_are_nothing_to_either_engine_are_dropped(
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    confidence: float,
    score: float,
    stays: bool,
) -> None:
    engine = ClassicEngine(settings)
    monkeypatch.setattr(engine._rapid, "recognise", lambda crop: Reread(text, score))
    line = make_line([Word(word, BOX, confidence) for word in text.split()])
    assert bool(engine._doubtful(drawn([text]), [line])) is stays
    engine.close()


def spaced(*words: tuple[str, float]) -> Line:
    made = [
        Word(text, (at * 50.0, 10.0, at * 50.0 + 45, 20.0), sure) for at, (text, sure) in enumerate(words)
    ]
    return make_line(made, size_pt=11, region=3)


LINE = spaced(("He", 0.95), ("was", 0.95), ("sotting", 0.3), ("in", 0.96), ("the", 0.95), ("door", 0.96))


def test_only_the_doubtful_words_and_their_neighbours_are_read_again() -> None:
    asked: list[Box] = []

    def second(box: Box) -> Reread:
        asked.append(box)
        return Reread("was setting in", 0.99)

    assert doubtful_part(LINE) == slice(1, 4)
    again = reread(LINE, second, doubtful_part(LINE), 0.95)
    assert asked == [(50.0, 10.0, 195.0, 20.0)]
    assert again is not None
    assert again.text == "He was setting in the door"
    assert (again.box, again.region) == (LINE.box, 3)
    assert again.words[2].box == LINE.words[2].box


def test_all_of_a_line_is_read_again_where_most_is_doubtful() -> None:
    ends = spaced(("Ho", 0.3), ("was", 0.95), ("in", 0.95), ("the", 0.95), ("dcor", 0.4))
    assert doubtful_part(ends) == slice(None)
    assert doubtful_part(spaced(("all", 0.95), ("sure", 0.95))) == slice(None)


def test_a_second_reading_that_is_no_better_changes_nothing() -> None:
    assert reread(LINE, lambda box: Reread("wxs sctting in", 0.4), slice(1, 4), 0.95) is LINE


@pytest.mark.parametrize(
    ("text", "other"),
    [
        (
            "Linzensoep a la Waterman 4 ons linzen 3 liter water 3 uien bloem boter kopjes melk laurier kerrie zout",
            True,
        ),
        (
            "the boats of the harbour were in the bay and it was the end of a long day at sea for all on them",
            False,
        ),
        ("Total due 12.40", False),  # too short to tell
    ],
)
def test_a_text_without_the_commonest_words_is_no_english(text: str, other: bool) -> None:
    line = make_line(tuple(Word(word, (0, 0, 1, 1), 0.9) for word in text.split()))
    assert is_other_language([line]) is other


@pytest.mark.skipif(
    "kor" not in tessdata.available(tessdata.folders()), reason="Tesseract's `kor` data are not installed"
)
def test_data_for_the_script_of_a_page_are_used_unasked(tmp_path: Path) -> None:
    settings = Settings(tmp_path)
    with DocumentReader(corpus("G_cjk_image.pdf"), settings, ClassicEngine(settings)) as reader:
        assert "모든 인간은 태어날 때부터" in reader.read_page(3).text
