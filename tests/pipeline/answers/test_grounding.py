"""Boxes in special tokens: parsed, placed, and never evaluated."""

from __future__ import annotations

from pipeline.answers.cells import AnswerSpace
from pipeline.answers.grounding import parse_det, parse_ref
from storage.records import Category

FRAME = AnswerSpace(999, 999, 600, 800)


def test_labels_boxes_and_texts_of_deepseek() -> None:
    answer = (
        "<|ref|>title<|/ref|><|det|>[[100, 50, 899, 90]]<|/det|>\n# Harbour dues\n\n"
        "<|ref|>text<|/ref|><|det|>[[0, 100, 499, 200], [500, 100, 999, 220]]<|/det|>\nPaid in full.\n"
        "<|ref|>image<|/ref|><|det|>[[0, 300, 999, 600]]<|/det|>\n"
        "<|ref|>table<|/ref|><|det|>[[0, 700, 999, 999]]<|/det|>\n<table><tr><td>1</td></tr></table>"
    )
    title, text, image, table = parse_ref(answer, FRAME).blocks
    assert (title.category, title.level, title.text) == (Category.TITLE, 1, "Harbour dues")
    assert (text.text, text.box[0], text.box[2]) == ("Paid in full.", 0, 600)
    assert image.category is Category.PICTURE
    assert table.text == "1"
    assert table.box[3] == 800


def test_words_in_place_of_labels_are_the_text() -> None:
    (block,) = parse_ref("<|ref|>Total 12.40<|/ref|><|det|>[[1, 2, 3, 4]]<|/det|>", FRAME).blocks
    assert (block.text, block.category) == ("Total 12.40", Category.TEXT)


def test_labels_boxes_and_texts_of_unlimited_ocr() -> None:
    answer = (
        "<PAGE><|det|>title [10, 20, 500, 60]<|/det|>Tides<|det|>text [10, 80, 900, 300]<|/det|>High at noon."
    )
    title, text = parse_det(answer, FRAME).blocks
    assert (title.text, text.text) == ("Tides", "High at noon.")
    assert text.box[1] == 80 / 999 * 800


def test_text_before_any_mark_is_kept() -> None:
    blocks = parse_ref("Loose words <|ref|>text<|/ref|><|det|>[[1, 2, 3, 4]]<|/det|> more", FRAME).blocks
    assert [b.text for b in blocks] == ["Loose words", "more"]


def test_code_in_place_of_numbers_is_text_never_run() -> None:
    answer = "<|ref|>text<|/ref|><|det|>__import__('os').abort()<|/det|>still here"
    (block,) = parse_ref(answer, FRAME).blocks
    assert (block.text, block.box) == ("still here", FRAME.whole)
