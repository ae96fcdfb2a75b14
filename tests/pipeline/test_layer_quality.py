"""What a text layer is worth: each verdict on a PDF made for it, and statistics of text."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline import layer_text
from storage.records import LayerVerdict
from tests.pdf_factory import Page, pdf, picture, rule, scan, text
from tests.pipeline.layers import read, texts

PRINTED = [
    ("The quick brown fox jumps over the lazy dog near", 72, 700, 12),
    ("the river bank while seven wizards make toxic brew", 72, 680, 12),
    ("for the evil queen and jack in the tall green house", 72, 660, 12),
    ("that stands upon the hill above the quiet old town", 72, 640, 12),
]
FALSE = [
    "Quarterly results of the company exceeded all estimates",
    "with a revenue that grew by a third over the last year",
    "and a margin of nine percent before taxes and interest",
    "so that shareholders may look forward to a dividend",
]


def scanned(*content: str) -> bytes:
    """A scan of four printed lines with other content over it."""
    return pdf(Page(picture(0, 0, 0, 612, 792) + "".join(content), images=[scan(PRINTED)]))


def printed_width(string: str, size: float) -> float:
    """How wide `scan` prints a string, in points."""
    from PIL import ImageFont

    return ImageFont.load_default(size=size * 100 / 72).getlength(string) * 72 / 100


def fitted(string: str, x: float, y: float, size: float, over: str) -> str:
    """Invisible text as wide as `over` is printed, as OCR programs place it."""
    stretch = printed_width(over, size) / (0.6 * size * len(string)) * 100
    return text(string, x, y, size, mode=3, font="C", more=f"{stretch:.2f} Tz")


# --- good ------------------------------------------------------------------------------------------------


def test_visible_text_is_good_without_any_rendering(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.textlayer._render", lambda *_: pytest.fail("rendered for nothing"))
    layer = read(pdf(Page("".join(text(*line) for line in PRINTED))), tmp_path)
    assert (layer.verdict, layer.reason) == (LayerVerdict.GOOD, "its text is what the page shows")


def test_hidden_text_that_lies_on_its_print_is_good(tmp_path: Path) -> None:
    words = []
    for line, x, y, size in PRINTED:
        for at in range(len(line)):
            if at == 0 or line[at - 1] == " ":
                word = line[at:].split(" ")[0]
                words.append(fitted(word, x + printed_width(line[:at], size), y, size, word))
    layer = read(scanned(*words), tmp_path)
    assert (layer.verdict, layer.reason) == (LayerVerdict.GOOD, "its invisible text lies on what is printed")
    assert " ".join(texts(layer)).split() == " ".join(line[0] for line in PRINTED).split()


def test_page_with_a_photograph_and_enough_text_is_good(tmp_path: Path) -> None:
    from PIL import Image

    noise = Image.effect_noise((300, 400), 90)
    body = "".join(
        text("a paragraph that stands below the photograph on the page", 72, 100 - 11 * i, 10)
        for i in range(9)
    )
    layer = read(pdf(Page(picture(0, 0, 110, 612, 682) + body, images=[noise])), tmp_path)
    assert layer.verdict is LayerVerdict.GOOD


def test_digits_and_dot_leaders_are_text(tmp_path: Path) -> None:
    content = text("Contents ............................. 3", 72, 700) + text(
        "2019 1.234,56 77 % 12/03 4.500", 72, 680
    )
    assert read(pdf(Page(content)), tmp_path).verdict is LayerVerdict.GOOD


# --- absent ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (rule(10, 10, 200, 10), "the page has no text layer"),
        (text("   ", 72, 700), "its text layer is white space"),
        (text("beside the page", 1200, 700), "all of its text lies outside the page"),
    ],
)
def test_pages_without_words_have_no_layer(tmp_path: Path, content: str, reason: str) -> None:
    layer = read(pdf(Page(content)), tmp_path)
    assert (layer.verdict, layer.reason, layer.text) == (LayerVerdict.ABSENT, reason, None)


# --- bad -------------------------------------------------------------------------------------------------


def test_font_that_maps_its_glyphs_to_other_characters_is_bad(tmp_path: Path) -> None:
    # https://github.com/docling-project/docling/issues/2963
    layer = read(pdf(Page(text("PHONENUMBERS", 72, 700, font="X"))), tmp_path)
    assert layer.verdict is LayerVerdict.BAD
    assert "symbols" in layer.reason


def test_control_characters_for_text_are_bad_and_never_come_out(tmp_path: Path) -> None:
    layer = read(pdf(Page(text("0123456789 31", 72, 700, font="X"))), tmp_path)
    assert layer.verdict is LayerVerdict.BAD
    assert "control codes" in layer.reason
    assert not any(ord(char) < 32 for line in texts(layer) for char in line)


@pytest.mark.parametrize(
    "stamp", ["a", "Page 3 of 10", "Case 1:20-cv-00123 Document 12 Filed 01/01/20 Page 3 of 10"]
)
def test_a_few_words_on_a_scan_do_not_stand_for_it(tmp_path: Path, stamp: str) -> None:
    # https://github.com/ocrmypdf/OCRmyPDF/issues/1563
    layer = read(scanned(text(stamp, 72, 770, 9)), tmp_path)
    assert layer.verdict is LayerVerdict.BAD
    assert "more are printed on the page" in layer.reason


def test_hidden_text_where_nothing_is_printed_is_bad(tmp_path: Path) -> None:
    layer = read(scanned(*(text(line, 72, 400 - 20 * i, mode=3) for i, line in enumerate(FALSE))), tmp_path)
    assert layer.verdict is LayerVerdict.BAD


def test_false_hidden_text_over_the_printed_lines_is_bad(tmp_path: Path) -> None:
    content = [
        fitted(false, x, y, size, line) for false, (line, x, y, size) in zip(FALSE, PRINTED, strict=True)
    ]
    layer = read(scanned(*content), tmp_path)
    assert (layer.verdict, layer.reason) == (
        LayerVerdict.BAD,
        "its invisible words do not lie on the printed ones",
    )


def test_hidden_text_without_any_print_is_bad(tmp_path: Path) -> None:
    layer = read(pdf(Page(text("nobody sees this", 72, 700, mode=3))), tmp_path)
    assert layer.verdict is LayerVerdict.BAD
    assert "nothing is printed" in layer.reason


# --- lines nobody sees -----------------------------------------------------------------------------------


@pytest.mark.parametrize("unseen", [{"mode": 3}, {"grey": 1}])
def test_lines_that_cannot_be_seen_are_left_out(tmp_path: Path, unseen: dict) -> None:
    content = text("Visible heading line", 72, 700) + text(
        "hidden keywords for search engines", 72, 600, **unseen
    )
    layer = read(pdf(Page(content)), tmp_path)
    assert layer.verdict is LayerVerdict.GOOD
    assert texts(layer) == ["Visible heading line"]
    assert "1 lines that cannot be seen are left out" in layer.reason


def test_white_text_on_a_dark_ground_is_kept(tmp_path: Path) -> None:
    content = "q 0.1 0.2 0.5 rg 60 680 300 40 re f Q\n" + text("White on blue", 72, 695, grey=1)
    assert texts(read(pdf(Page(content + text("Black on white", 72, 600))), tmp_path)) == [
        "White on blue",
        "Black on white",
    ]


def test_hidden_copy_of_visible_text_is_read_once(tmp_path: Path) -> None:
    content = text("Signed and sealed", 72, 700) + text("Signed and seated", 72, 700, mode=3)
    assert texts(read(pdf(Page(content)), tmp_path)) == ["Signed and sealed"]


# --- the sample reader -----------------------------------------------------------------------------------


def answering(answer: str, asked: list) -> object:
    """A cheap engine that reads the same in every picture."""

    def reader(image: object) -> str:
        asked.append(image)
        return answer

    return reader


def test_sample_reader_settles_what_statistics_doubt(tmp_path: Path) -> None:
    data = pdf(Page(text("%%& (#) +*+ ~~ {}", 72, 700)))
    asked: list = []
    assert read(data, tmp_path, reader=answering("%%& (#) +*+ ~~ {}", asked)).verdict is LayerVerdict.GOOD
    assert read(data, tmp_path, reader=answering("Phone numbers", asked)).verdict is LayerVerdict.BAD
    assert asked[0].height > 20  # a piece of the page, sharp enough to read
    assert read(data, tmp_path).verdict is LayerVerdict.BAD


def test_sample_reader_is_asked_about_hidden_text_only(tmp_path: Path) -> None:
    asked: list = []
    read(pdf(Page("".join(text(*line) for line in PRINTED))), tmp_path, reader=answering("", asked))
    assert not asked


def test_hidden_text_that_reads_otherwise_is_bad(tmp_path: Path) -> None:
    one_word = "Electroencephalographically"
    data = pdf(
        Page(
            picture(0, 0, 0, 612, 792) + text("Counterrevolutionaries today", 72, 700, 12, mode=3),
            images=[scan([(one_word + " me", 72, 700, 12)])],
        )
    )
    asked: list = []
    assert read(data, tmp_path).verdict is LayerVerdict.GOOD  # the ink cannot tell
    layer = read(data, tmp_path, reader=answering(one_word + " me", asked))
    assert layer.verdict is LayerVerdict.BAD
    assert "read otherwise" in layer.reason
    assert len(asked) == 1


# --- statistics ------------------------------------------------------------------------------------------


def test_unreadable_share_counts_what_is_no_character() -> None:
    assert layer_text.unreadable_share([ord(char) for char in "Straße, naïve: 北京 привет שלום 😀"]) == 0
    assert layer_text.unreadable_share([0x19, 0x12]) == 1
    assert layer_text.unreadable_share([0xFFFD, ord("a"), ord(" "), ord("b"), ord("c")]) == 0.25
    assert layer_text.unreadable_share([0xF0B7, ord("a")]) == 0  # a bullet of the Symbol font


@pytest.mark.parametrize(
    "sentence",
    [
        "Alle Menschen sind frei und gleich an Würde und Rechten geboren und sollen einander begegnen im Geist",
        "Všichni lidé rodí svobodní stejní důstojnosti právech jsou nadáni rozumem svědomím mají spolu jednat",
        "Wszyscy ludzie rodzą wolni równi pod względem swej godności swych praw obdarzeni rozumem sumieniem",
        "Все люди рождаются свободными равными своем достоинстве правах наделены разумом совестью должны",
        "Tous êtres humains naissent libres égaux dignité droits doués raison conscience doivent agir envers",
        "The JavaScript function getElementById returns HTMLElement while parseFloat converts strings into numbers",
    ],
)
def test_sentences_of_any_language_are_plausible(sentence: str) -> None:
    assert layer_text.implausible_share(" ".join([sentence] * 3)) < 0.3


@pytest.mark.parametrize("shift", [3, 7, 13, 29])
def test_shifted_letters_are_not(shift: int) -> None:
    sentence = " ".join(line[0] for line in PRINTED) + " " + " ".join(FALSE)
    shifted = "".join(chr((ord(c) - 97 + shift) % 26 + 97) if c.islower() else c for c in sentence)
    assert layer_text.implausible_share(sentence) < 0.1
    assert layer_text.implausible_share(shifted) > layer_text.implausible_share(sentence)


def test_symbols_are_counted_but_leaders_are_not() -> None:
    assert layer_text.symbol_share('"7+%-') == 0.8
    assert layer_text.symbol_share("Chapter ........................ 7") == 0
