"""Heads of cells from the draft's own geometry, in the form that the model writes."""

from __future__ import annotations

from pipeline.reference.boxes import BoxHeads
from pipeline.reference.draft import Break, DraftLine, build

LINES = [
    DraftLine("Title of it", Break.PARAGRAPH, (10.0, 20.0, 90.0, 40.0)),
    DraftLine("First line of text", Break.PARAGRAPH, (10.0, 50.0, 100.0, 60.0)),
    DraftLine("and the second.", Break.WRAP, (10.0, 62.0, 80.4, 72.6)),
    DraftLine("Last one.", Break.PARAGRAPH, (10.0, 90.0, 60.0, 100.0)),
]
DRAFT = build(LINES)


def test_the_first_head_is_known_before_anything_is_written() -> None:
    head = BoxHeads(DRAFT, json=True).draft("", 1)
    assert head == '[{"bbox": [10, 50, 100, 73], "category": "Text", "text": "'


def test_digits_written_are_kept_and_the_rest_fits() -> None:
    heads = BoxHeads(DRAFT, json=True)
    assert heads.draft('[{"bbox": [10, 5', 1) == '0, 100, 73], "category": "Text", "text": "'
    begun = heads.draft('[{"bbox": [10, 50, 9', 1)
    assert begun is not None
    assert begun.startswith("9, 73]")  # 99 is the nearest to 100 that begins so
    longer = heads.draft('[{"bbox": [10, 1', 1)
    assert longer is not None
    assert longer.startswith("00, ") or longer.startswith("9, ")


def test_form_label_and_offset_are_learned() -> None:
    heads = BoxHeads(DRAFT, json=True)
    assert heads.learn('[{"bbox": [12, 20, 92, 40], "category": "Title", "text": "# ', 0)
    assert heads.learn('"}, {"bbox": [12, 50, 102, 73], "category": "Text", "text": "', 1)
    assert heads.draft('"}', 3) == ', {"bbox": [12, 90, 62, 100], "category": "Text", "text": "'


def test_special_tokens_are_a_form_too() -> None:
    heads = BoxHeads(DRAFT, json=False)
    assert heads.draft("", 1) is None
    assert heads.learn("<|ref|>title<|/ref|><|det|>[[10, 20, 90, 40]]<|/det|>\n# ", 0)
    assert heads.draft("<|ref|>text", 1) == "<|/ref|><|det|>[[10, 50, 100, 73]]<|/det|>\n"


def test_a_picture_between_two_texts_is_passed_over() -> None:
    heads = BoxHeads(DRAFT, json=True)
    heads.learn('[{"bbox": [10, 20, 90, 40], "category": "Text", "text": "', 0)
    begun = '"}, {"bbox": [1, 2, 3, 4], "category": "Picture"}, {"bbox": ['
    assert heads.draft(begun, 1) == '10, 50, 100, 73], "category": "Text", "text": "'


def test_what_is_no_head_is_none() -> None:
    assert not BoxHeads(DRAFT, json=True).learn("</td><td>", 1)
