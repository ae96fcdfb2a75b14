"""Invented sentences are told, words a noisy reading garbles are not, and bad readings judge nobody."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from pipeline.support import check, warning
from storage.records import Line

BOX = (0.0, 0.0, 1.0, 1.0)
PAGE = [
    "The harbour office was founded in 1868 and moved to the",
    "present building on the north quay in the spring of 1904. Its regis-",
    "ters list every vessel, cargo and master; twenty-three boxes of cor-",
    "respondence survive. Visitors may consult them on weekdays between",
    "ten and four o'clock, after writing to the archivist, Mrs Ellen Thorpe.",
    "Photography is permitted without flash. Copies cost 2,50 a sheet.",
]
TEXT = " ".join(PAGE).replace("- ", "")
INVENTED = (
    "In addition, several prominent scientists praised groundbreaking quantum experiments, "
    "revolutionising artificial photosynthesis throughout Scandinavian laboratories."
)


def lines(texts: Sequence[str], confidence: float | None = None) -> list[Line]:
    return [Line(text, BOX, confidence=confidence) for text in texts]


def test_a_page_that_says_the_same_is_supported() -> None:
    found = check(TEXT, lines(PAGE))
    assert found is not None
    assert (found.unknown, found.runs) == (0, ())
    assert warning(TEXT, lines(PAGE)) is None


def test_order_does_not_matter() -> None:
    columns = " ".join([*PAGE[3:], *PAGE[:3]]).replace("- ", "")
    assert warning(columns, lines(PAGE)) is None
    assert warning(TEXT, lines(PAGE[::-1])) is None


@pytest.mark.parametrize("place", [0, 120, len(TEXT)])
def test_an_invented_sentence_is_told_with_its_words(place: int) -> None:
    found = warning(f"{TEXT[:place]} {INVENTED} {TEXT[place:]}", lines(PAGE, 0.9))
    assert found is not None
    assert found.code == "unsupported_text"
    assert "addition" in found.message
    assert "Scandinavian laboratories”" in found.message
    assert "harbour" not in found.message


def test_the_spans_count_the_words() -> None:
    found = check(f"{TEXT} {INVENTED}", lines(PAGE))
    assert found is not None
    (run,) = found.runs
    assert run.words[-1] == "laboratories"
    assert run.unknown >= 11
    assert run.last - run.first + 1 == len(run.words)


@pytest.mark.parametrize("seed", range(8))
def test_noise_of_a_scan_is_no_invention(seed: int) -> None:
    chance = random.Random(seed)
    swap = {"e": "c", "l": "1", "o": "0", "h": "b", "i": "l", "n": "u", "r": "t", "t": "f"}
    noisy = ["".join(swap.get(c, c) if chance.random() < 0.1 else c for c in line) for line in PAGE]
    assert warning(TEXT, lines(noisy, 0.8)) is None


def test_formulas_and_tags_are_not_words() -> None:
    formula = "$$\\operatorname{softmax} \\mathbf{unknown} \\mathcal{letters} in every \\widehat{place}$$ "
    table = "<table><tr><td>harbour</td><td>1868</td></tr></table>"
    assert warning(TEXT + formula * 6 + table, lines(PAGE)) is None


@pytest.mark.parametrize(
    "other",
    [
        [],
        lines(PAGE[:1]),
        lines(PAGE, 0.4),
        lines(["Tbc hfrbpr QffXcg wfs fpvndgd ngrth qvzzk sprxng"] * 6),
        lines(["~~ || // ;; -- ++ ab != ?? ## cd %% && ef"] * 12),
    ],
)
def test_a_poor_reading_judges_nobody(other: list[Line]) -> None:
    assert check(TEXT + INVENTED, other) is None


def test_what_the_other_reading_cannot_write_is_not_judged() -> None:
    """An English Tesseract on a bilingual page."""
    russian = (
        "Портовая контора была основана в тысяча восемьсот шестьдесят восьмом году на северной набережной"
    )
    assert warning(f"{TEXT} {russian}", lines(PAGE)) is None


def test_scripts_without_spaces() -> None:
    page = [
        "这份报告描述了在城市中心进行的考古发掘工作",
        "以及当地居民如何参与保护文化遗产的各项活动",
        "所有资料均可查阅",
    ]
    text = "".join(page)
    assert warning(text, lines(page)) is None
    found = warning(text + "量子计算机彻底改变人类未来航天飞船登陆火星", lines(page))
    assert found is not None
