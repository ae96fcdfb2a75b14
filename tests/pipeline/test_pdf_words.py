"""Characters to words and lines, on PDFs made in the test and on real ones."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.pdf_chars import Characters, Style
from pipeline.pdf_words import to_lines
from storage.records import Direction, Line
from tests.elsewhere import corpus
from tests.pdf_factory import Page, pdf, text
from tests.pipeline.layers import read, texts


def lines(folder: Path, content: str, **page: object) -> list[Line]:
    layer = read(pdf(Page(content, **page)), folder)  # type: ignore[arg-type]  # as Page takes them
    return list(layer.text.lines) if layer.text else []


def characters(places: list[tuple[float, float, str]], size: float) -> Characters:
    """Square characters at (left, top), as `read_characters` would give them."""
    count = len(places)
    corners = np.array([place[:2] for place in places])
    return Characters(
        codes=np.array([ord(place[2]) for place in places], dtype=np.uint32),
        boxes=np.concatenate((corners, corners + size), axis=1),
        origins=corners + np.array((0, size)),
        style_of=np.zeros(count, dtype=np.int64),
        object_of=np.arange(count),
        spaced=np.zeros(count, dtype=bool),
        styles=(Style(size_pt=size, angle=0.0),),
    )


def words_of(line: Line) -> list[str]:
    return [word.text for word in line.words]


# --- boxes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rotate", [0, 90, 180, 270])
def test_boxes_lie_where_the_displayed_page_shows_the_words(tmp_path: Path, rotate: int) -> None:
    found = lines(tmp_path, text("Corner", 112, 640, 20), rotate=rotate, crop=(100, 50, 500, 700))
    left, top, right, bottom = found[0].box
    # Turned back: from the left and the bottom of the word to the left and the top of the upright page.
    x, y = {
        0: (left, bottom),
        90: (top, 650 - left),
        180: (400 - right, 650 - top),
        270: (400 - bottom, right),
    }[rotate]
    assert x == pytest.approx(12, abs=2)
    assert y == pytest.approx(60, abs=6)
    assert found[0].text == "Corner"
    assert found[0].size_pt == pytest.approx(20)


def test_word_boxes_lie_side_by_side_within_the_line(tmp_path: Path) -> None:
    (found,) = lines(tmp_path, text("three little words", 72, 700))
    assert words_of(found) == ["three", "little", "words"]
    for one, two in zip(found.words, found.words[1:], strict=False):
        assert one.box[2] <= two.box[0] + 0.5
    assert found.box[0] == found.words[0].box[0]
    assert found.box[2] == found.words[-1].box[2]


@pytest.mark.parametrize("angle", [0, 30, 45, 90, 180, 270])
def test_turned_text_is_one_line_in_its_own_direction(tmp_path: Path, angle: int) -> None:
    (found,) = lines(tmp_path, text("read me along", 306, 396, angle=angle))
    assert found.text == "read me along"
    assert found.angle % 360 == -angle % 360


# --- words -----------------------------------------------------------------------------------------------


def test_a_gap_without_a_space_character_parts_words(tmp_path: Path) -> None:
    content = "BT /H 12 Tf 72 700 Td [(no) -300 (space) -280 (here) 20 (in)] TJ ET"
    assert [line.text for line in lines(tmp_path, content)] == ["no space herein"]


def test_letter_spaced_text_stays_one_word(tmp_path: Path) -> None:
    (found,) = lines(tmp_path, text("WIDE HEADING", 72, 700, more="3 Tc"))
    assert found.text == "WIDE HEADING"


def test_letters_drawn_in_any_order_are_read_by_place(tmp_path: Path) -> None:
    content = "".join(
        text(char, 72 + 9 * i, 700, 12, font="C") for i, char in reversed(list(enumerate("reversed")))
    )
    assert [line.text for line in lines(tmp_path, content)] == ["reversed"]


def test_soft_hyphens_go_within_a_word_and_show_at_the_end_of_a_line(tmp_path: Path) -> None:
    content = text("Mit\u00adarbei\u00adter Hand\u00ad", 72, 700, font="U") + text("werk", 72, 685, font="U")
    assert [line.text for line in lines(tmp_path, content)] == ["Mitarbeiter Hand-", "werk"]


def test_ligatures_and_arabic_forms_become_plain_letters(tmp_path: Path) -> None:
    (found,) = lines(tmp_path, text("ofﬁceﬂow", 72, 700, font="U"))
    assert found.text == "officeflow"


def test_compatibility_characters_that_mean_something_stay(tmp_path: Path) -> None:
    (found,) = lines(tmp_path, text("m²½", 72, 700))
    assert found.text == "m²½"


def test_control_and_private_use_characters_are_left_out(tmp_path: Path) -> None:
    (found,) = lines(tmp_path, text("some text, long enough\ue001\u200b\ufeff", 30, 700, 10, font="U"))
    assert found.text == "some text, long enough"


def test_accents_drawn_over_letters_are_put_on_them(tmp_path: Path) -> None:
    # As old TeX fonts do: the accent first, then back under it the letter.
    content = "BT /H 12 Tf 72 700 Td [(f) (\xa8) 333 (u) (r)] TJ ET"
    content = content.replace("(\xa8) 333", "110 (\xa8) 440")
    assert [line.text for line in lines(tmp_path, content)] == ["für"]


# --- lines -----------------------------------------------------------------------------------------------


def test_columns_on_one_baseline_are_different_lines(tmp_path: Path) -> None:
    rows = "".join(
        text("left column of text", 72, 700 - 14 * i, 10)
        + text("right column of text", 172, 700 - 14 * i, 10)
        for i in range(4)
    )
    assert [line.text for line in lines(tmp_path, rows)] == [
        "left column of text",
        "right column of text",
    ] * 4


def test_cells_of_a_table_row_are_different_lines(tmp_path: Path) -> None:
    row = text("Apples", 72, 700, 10) + text("12", 160, 700, 10) + text("3.50", 200, 700, 10)
    assert [line.text for line in lines(tmp_path, row)] == ["Apples", "12", "3.50"]


def test_numbers_and_bullets_stay_with_the_text_they_introduce(tmp_path: Path) -> None:
    content = text("1.2", 72, 700) + text("Introduction to it", 72 + 16.7 + 14, 700)
    content += text("\x95", 72, 680) + text("an item of a list", 72 + 4.2 + 14, 680)
    assert [line.text for line in lines(tmp_path, content)] == [
        "1.2 Introduction to it",
        "• an item of a list",
    ]


def test_justified_text_with_wide_spaces_stays_one_line(tmp_path: Path) -> None:
    (found,) = lines(tmp_path, text("few words stretched wide", 72, 700, more="14 Tw"))
    assert found.text == "few words stretched wide"


def test_scripts_belong_to_their_line_and_bridge_what_follows(tmp_path: Path) -> None:
    content = text("Edgar the king", 72, 700) + text("[1]", 149, 704.5, 8) + text("ruled", 162, 700)
    content += text("next line of the text", 72, 686)
    assert [line.text for line in lines(tmp_path, content)] == [
        "Edgar the king[1] ruled",
        "next line of the text",
    ]


@pytest.mark.parametrize("shift", [0.0, 0.4])
def test_text_printed_twice_for_boldness_is_read_once(tmp_path: Path, shift: float) -> None:
    content = text("Total amount", 72, 700) + text("Total amount", 72 + shift, 700) + text("due", 150, 700)
    assert [line.text for line in lines(tmp_path, content)] == ["Total amount due"]


def test_letters_printed_twice_one_by_one_are_read_once(tmp_path: Path) -> None:
    content = "".join(
        text(char, 72 + 7.2 * i + d, 700, font="C") for i, char in enumerate("odd") for d in (0, 0.3)
    )
    assert [line.text for line in lines(tmp_path, content)] == ["odd"]


def test_double_letters_of_a_word_are_both_kept(tmp_path: Path) -> None:
    (found,) = lines(tmp_path, text("bookkeeper committee", 72, 700))
    assert found.text == "bookkeeper committee"


def test_style_comes_from_the_font(tmp_path: Path) -> None:
    content = (
        text("bold", 72, 700, font="B")
        + text("slanted", 72, 680, font="I")
        + text("fixed", 72, 660, font="C")
    )
    bold, italic, mono = lines(tmp_path, content)
    assert (bold.bold, bold.italic, bold.mono) == (True, False, False)
    assert (italic.bold, italic.italic, italic.mono) == (False, True, False)
    assert (mono.bold, mono.italic, mono.mono) == (False, False, True)


# --- scripts ---------------------------------------------------------------------------------------------


def test_right_to_left_lines_are_in_reading_order(tmp_path: Path) -> None:
    (found,) = lines(tmp_path, text("שלום עולם"[::-1], 100, 700, font="U"))
    assert found.text == "שלום עולם"
    assert found.direction is Direction.RTL
    assert found.words[0].box[0] > found.words[1].box[0]


def test_latin_word_in_an_arabic_line_stands_apart(tmp_path: Path) -> None:
    # Word sets the space on the wrong side of it: an index would take both for one word.
    (found,) = lines(tmp_path, text("تاودأ نم" + "Python" + "و", 100, 700, font="U"))
    assert found.text == "و Python من أدوات"


def test_characters_stacked_downwards_are_a_vertical_line() -> None:
    columns = {200.0: "縦書きの列", 180.0: "次の列です"}
    places = [(x, 100.0 + 12 * i, char) for x, column in columns.items() for i, char in enumerate(column)]
    found = [item.line for item in to_lines(characters(places, size=12))]
    assert [line.text for line in found] == ["縦書きの列", "次の列です"]
    assert {line.direction for line in found} == {Direction.TTB}
    assert found[0].box == (200, 100, 212, 160)


def test_a_surrogate_pair_is_one_character() -> None:
    places = [
        (100.0, 100.0, "\ud842"),
        (100.0, 100.0, "\udfb7"),
        (112.0, 100.0, "野"),
        (124.0, 100.0, "\ud842"),
    ]
    assert [item.line.text for item in to_lines(characters(places, size=12))] == ["𠮷野"]


def test_cjk_text_has_no_spaces_between_its_characters(tmp_path: Path) -> None:
    (found,) = lines(tmp_path, text("人人生而自由", 72, 700, font="U", more="3 Tc"))
    assert found.text == "人人生而自由"


# --- invariants ------------------------------------------------------------------------------------------


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.text("abcdeXYZ019", min_size=1, max_size=8), min_size=1, max_size=6),
    st.sampled_from([8, 10, 12, 24]),
    st.sampled_from([0, 90, 180, 270]),
)
def test_words_come_out_as_they_went_in(tmp_path: Path, words: list[str], size: int, rotate: int) -> None:
    """Whatever the size and the turn of the page: the same words, in order, each box within the page."""
    found = lines(tmp_path, text(" ".join(words), 20, 400, size), width=1200, height=800, rotate=rotate)
    assert [word.text for line in found for word in line.words] == words
    width, height = (800, 1200) if rotate in (90, 270) else (1200, 800)
    for line in found:
        for left, top, right, bottom in (word.box for word in line.words):
            assert 0 <= left < right <= width
            assert 0 <= top < bottom <= height


places = st.tuples(st.floats(-50, 700), st.floats(-50, 900), st.sampled_from("ab א1(漢字か-. \u0301"))


@settings(max_examples=150)
@given(
    st.lists(places, min_size=1, max_size=60),
    st.sampled_from([0.2, 9.0, 12.0, 700.0]),
    st.sampled_from([0, 45, 90]),
)
def test_no_character_is_lost_or_read_twice_wherever_it_stands(
    found: list[tuple[float, float, str]], size: float, angle: float
) -> None:
    # Letters at one place with the same letter beside it are overprints and combining marks compose: count the rest.
    given_chars = characters(found, size)
    given_chars = replace(given_chars, styles=(Style(size_pt=size, angle=float(angle)),))
    lines_found = to_lines(given_chars)
    read_chars = Counter("".join(item.line.text for item in lines_found).replace(" ", ""))
    put_in = Counter(char for _, _, char in found)
    for char in "1漢字か":
        assert 0 < read_chars[char] <= put_in[char] or put_in[char] == 0
    for item in lines_found:
        assert item.line.text == " ".join(word.text for word in item.line.words)


# --- real files ------------------------------------------------------------------------------------------


def test_hebrew_with_numbers_and_brackets(tmp_path: Path) -> None:
    # https://github.com/mozilla/pdf.js/issues/11656
    assert texts(read(corpus("issue11656.pdf"), tmp_path))[-1].startswith(
        "לחיוב פעולות אלה לפי סעיף 15(ב)(4) לחוק"
    )


def test_arabic_page_reads_as_its_transcription(tmp_path: Path) -> None:
    path = corpus("right_to_left_01.pdf")
    truth = (path.parents[1] / "GROUNDTRUTH" / "right_to_left_01.p1.txt").read_text(encoding="utf-8").split()
    assert " ".join(texts(read(path, tmp_path))).split() == truth


def test_vertical_japanese_page(tmp_path: Path) -> None:
    layer = read(corpus("vertical.pdf"), tmp_path)
    assert texts(layer) == ["日本語", "あいうえお"]
    assert layer.text is not None
    assert {line.direction for line in layer.text.lines} == {Direction.TTB}


def test_ligature_glyphs(tmp_path: Path) -> None:
    # Seven ligatures (ff ffi ffl fi fl and the long s with t) come out as letters.
    assert texts(read(corpus("copy_paste_ligatures.pdf"), tmp_path)) == ["abcdeffffiflffifflſtstghijklmno"]


def test_columns_of_a_paper_stay_apart(tmp_path: Path) -> None:
    found = texts(read(corpus("multicolumn.pdf"), tmp_path))
    assert "This is a sample document with two columns filled" in found
    assert "Proin fermentum massa ac quam. Sed diam turpis," in found
