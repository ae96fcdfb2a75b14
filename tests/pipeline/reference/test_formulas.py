"""Formulas: spelt as the model has spelt them, closed where words go on."""

from __future__ import annotations

from pipeline.reference.formulas import FormulaStyle
from pipeline.reference.scanner import Mode
from pipeline.reference.spelling import Spelling


def test_a_formula_closes_before_the_first_word() -> None:
    assert FormulaStyle().inside("x = 2 in the case") == "x = 2$ in the case"


def test_characters_are_spaced_once_the_model_spaces_them() -> None:
    style = FormulaStyle()
    style.learn_gap("", " ")
    assert style.inside("70% of all") == "7 0 \\%$ of all"


def test_greek_and_functions_become_commands() -> None:
    assert FormulaStyle().inside("ln λ") == "\\ln \\lambda "


def test_words_become_formulas_once_their_like_did() -> None:
    style = FormulaStyle()
    assert style.outside("about 5% more") == "about 5% more"
    for _ in range(4):
        style.learn_word("12%", True)
    assert style.outside("about 5% more") == "about $5\\%$ more"
    for _ in range(4):
        style.learn_word("12%", False)
    assert style.outside("about 5% more") == "about 5% more"


def test_one_straight_quote_means_straight_quotes() -> None:
    spelling = Spelling()
    spelling.learn(Mode.TEXT, "’", "'")
    assert spelling.apply("“It’s”", Mode.TEXT) == '"It\'s"'
    assert spelling.apply("It’s", Mode.HTML) == "It’s"
    spelling.learn(Mode.HTML, "’", "&#x27;")
    assert spelling.apply("It’s", Mode.HTML) == "It&#x27;s"
