"""Loops are found early and cut back; what pages really repeat is left alone; block length changes nothing."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.decode import DecodeOptions, Outcome, decode
from pipeline.guard import Guard, GuardedSchedule
from pipeline.periods import PeriodTracker
from pipeline.proposers.base import NoProposer, Proposer
from pipeline.proposers.lookup import LookupProposer, NGramTable
from pipeline.schedule import FixedSchedule
from pipeline.target import Banned, Decision
from storage.records import StopReason


class Words:
    """A tokenizer of words, tags and single signs, for the part of one that the guard uses."""

    def __init__(self) -> None:
        self.tokens: list[str] = []
        self.ids: dict[str, int] = {}

    def encode(self, text: str) -> list[int]:
        found = []
        for token in re.findall(r" ?[^\W_]+| ?.|\n", text):
            if token not in self.ids:
                self.ids[token] = len(self.tokens)
                self.tokens.append(token)
            found.append(self.ids[token])
        return found

    def decode(self, ids: Sequence[int], **_: object) -> str:
        return "".join(self.tokens[i] for i in ids)


def watched(text: str, *, independent: str = "", budget: int | None = None) -> tuple[Guard, str]:
    """The guard after `text`, or after the id it stopped at, and the text that it calls good."""
    words = Words()
    guard = Guard(words, independent=lambda: independent, budget=budget)
    for token in words.encode(text):
        if guard(token):
            break
    return guard, words.decode(guard.ids[: guard.keep])


SENTENCE = "Die Versammlung wurde vom Vorsitzenden um 20 Uhr eröffnet. "
LEAD = "Protokoll der ordentlichen Sitzung.\nAnwesend waren zwölf Mitglieder, zwei fehlten.\n"


# --- loops ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("loop", "most"),
    [
        (SENTENCE, 4),
        ("La séance est levée à vingt et une heures.\n", 4),
        ("这份报告描述了在城市中心进行的考古发掘工作。", 4),
        (" of the company", 10),
        (" the", 40),
        (" a", 40),
        ("\\frac{1}{2} + \\frac{3}{4} \\times ", 10),
        ('{"bbox": [93, 120, 700, 140], "category": "Text", "text": "Rechnung"}, ', 4),
        ("<tr><td>Schrauben M8 verzinkt, Packung zu 100 Stück</td><td>4,20</td></tr>", 10),
        ("| Schrauben M8 verzinkt, Packung zu 100 | 4,20 |\n", 10),
        ("<|det|>text [10, 20, 30, 40]<|/det|>Rechnung Nr. 5\n", 64),
        ("<tr><td></td><td></td><td></td></tr>", 64),
        ("<td></td>", 223),
        (".", 2000),
        ("_", 2000),
        (" ---", 667),
        (" }", 40),
        ("\n", 64),
        ("Ja  Nein\n", 64),
        ("Name: ____________ Datum: ________\n", 64),
    ],
)
def test_a_loop_is_ended_and_cut_back_to_one_copy(loop: str, most: int) -> None:
    guard, good = watched(LEAD + loop * 3000)
    assert guard.verdict is not None
    assert guard.verdict.reason is StopReason.REPETITION
    unit = len(Words().encode(loop))
    # Up to 16 ids later where only the rows tell; the lead's end may count as the loop's beginning.
    assert len(guard.ids) <= len(Words().encode(LEAD)) + most * unit + 16
    assert good.startswith(LEAD.rstrip())
    assert len(good) <= len(LEAD) + len(loop) + 5
    assert len(good) >= len(LEAD) + len(loop) - unit


def test_the_description_holds_none_of_the_text() -> None:
    guard, _ = watched(SENTENCE * 9)
    assert guard.verdict is not None
    assert guard.verdict.note == "the model wrote the same 10 tokens 4 times over"


@settings(max_examples=50)
@given(period=st.integers(1, 1024), lead=st.integers(0, 300), seed=st.integers(0, 10**6))
def test_every_period_is_found_before_the_sixth_copy(period: int, lead: int, seed: int) -> None:
    """Of units as long as a sentence, whatever repeats within them; what is shorter is allowed more (see above)."""
    chance = random.Random(seed)
    words = ["spoorweg", "vergadering", "notulen", "besluit", "voorzitter", "aanwezig"]
    unit = [chance.randrange(6) for _ in range(period)]
    unit[-1] = 6  # primitive: nothing else is the sixth word
    tokenizer = Words()
    tokenizer.tokens = [*words, "onherroepelijke-samenvoegingsbesluiten", *(f"w{i}" for i in range(lead))]
    guard = Guard(tokenizer)
    stopped = None
    for at, token in enumerate([*range(7, 7 + lead), *(unit * 6)]):
        if guard(token):
            stopped = at + 1
            break
    # A unit may hold a loop of its own ("besluit besluit besluit …"), which ends it before.
    assert stopped is not None
    assert stopped <= lead + 4 * period
    if stopped == lead + 4 * period:
        assert guard.keep == lead + period


def test_a_row_loop_is_found_though_boxes_and_tags_differ() -> None:
    cells = "".join(
        f'{{"bbox": [93, {at * 13}, 700, {at * 13 + 11}], "category": "Text", "text": "Tous droits réservés à '
        "l'éditeur de ce volume.\"}, "
        for at in range(40)
    )
    guard, good = watched("[" + cells)
    assert guard.verdict is not None
    assert guard.verdict.note == "the model wrote the same 1 rows 10 times over"
    assert good == "[" + cells[: cells.index("}") + 1]


def test_many_small_loops_that_make_half_the_text_end_it() -> None:
    parts = " ".join(f"word{at} " + "of the people " * 8 for at in range(200))
    guard, good = watched(LEAD + parts)
    assert guard.verdict is not None
    assert "loops make" in guard.verdict.note
    assert good.startswith(LEAD + "word0 of the people")
    assert len(good) < len(LEAD) + 40


def test_more_ids_than_the_picture_can_hold_are_a_runaway() -> None:
    guard, good = watched(" ".join(map(str, range(5000))), budget=700)
    assert guard.verdict is not None
    assert guard.verdict.reason is StopReason.LENGTH
    assert len(guard.ids) == 700
    assert good.endswith("699")


# --- what pages do repeat ---------------------------------------------------------------------------

GENUINE = {
    "form lines": "Name: ____________________ Date: __________\n" * 26,
    "form lines without a rule": "Datum, Name, Unterschrift des Erziehungsberechtigten:\n" * 26,
    "boxes to tick": "☐ trifft zu   ☐ trifft nicht zu   ☐ weiß nicht\n" * 26,
    "short lines": "Ja   Nein\n" * 26,
    "a scale": "1  2  3  4  5\n" * 30,
    "a column": "0,00\n" * 50,
    "ditto": "idem\n" * 40,
    "table of contents": "".join(f"Kapitel {n} {'.' * 90} {n * 7}\n" for n in range(1, 40)),
    "spaced leaders": "".join(f"Chapter {n}{' .' * 60} {n * 7}\n" for n in range(1, 40)),
    "rules": ("-" * 80 + "\n") * 12,
    "dashes": "--- " * 60,
    "signatures": "_" * 120 + "\n" + "_" * 120 + "\nOrt, Datum\n",
    "lines to write on": ("_" * 60 + "\n") * 30,
    "empty pipe rows": "| Name | Ort |\n| --- | --- |\n" + "|  |  |\n" * 40,
    "empty rows": "<table><tr><th>Name</th><th>Ort</th></tr>"
    + "<tr><td></td><td></td><td></td><td></td></tr>" * 40
    + "</table>",
    "empty cells": "<tr>" + "<td></td>" * 60 + "</tr>",
    "equal rows": "<table>" + "<tr><td>Ja</td><td>Nein</td><td>0</td></tr>" * 30 + "</table>",
    "a receipt": "| Pfand Mehrwegflasche 0,5 l klein und groß | 0,08 |\n" * 8,
    "rows that differ": "".join(
        f"<tr><td>Posten</td><td>{n}</td><td></td><td></td></tr>" for n in range(300)
    ),
    "a refrain": (
        "Freude, schöner Götterfunken, Tochter aus Elysium!\n" * 3 + "Seid umschlungen, Millionen!\n"
    )
    * 3,
    "laughter": "ha " * 30,
    "matrix": "0 & 0 & 0 & 0 & 0 & 0 & 0 & 0 \\\\\n" * 12,
    "quads": "x \\quad \\quad \\quad \\quad \\quad \\quad \\quad \\quad \\quad \\quad \\quad y",
    "layout of a form": "".join(
        f'{{"bbox": [60, {at * 20}, 500, {at * 20 + 15}], "category": "Text", "text": "Name: ______"}}, '
        for at in range(26)
    ),
    "layout of pictures": "".join(
        f'{{"bbox": [60, {at * 20}, 500, {at * 20 + 15}], "category": "Picture"}}, ' for at in range(40)
    ),
}


@pytest.mark.parametrize("name", GENUINE)
def test_what_pages_repeat_survives(name: str) -> None:
    text = LEAD + GENUINE[name] + SENTENCE
    guard, good = watched(text)
    assert guard.verdict is None
    assert good == text


def test_what_another_reading_has_as_often_may_be_repeated() -> None:
    line = "Anlage zum Bescheid vom 3. Mai, Blatt ohne Nummer\n"
    assert watched(line * 12)[0].verdict is not None
    assert watched(line * 12, independent=line * 12)[0].verdict is None
    guard, good = watched(line * 99, independent=line * 12)
    assert guard.verdict is not None
    assert good.count("Anlage") in (11, 12)


@settings(max_examples=150)
@given(st.lists(st.integers(0, 4), max_size=400))
def test_no_false_stop_on_text_without_four_copies(ids: list[int]) -> None:
    tokenizer = Words()
    tokenizer.tokens = [f" langes-und-seltenes-wort-nummer-{'abcde'[n]}" for n in range(5)]
    clean: list[int] = []
    for token in ids:
        clean.append(token)
        if any(clean[-4 * p :] == clean[-p:] * 4 for p in range(1, len(clean) // 4 + 1)):
            clean.pop()
    guard = Guard(tokenizer)
    assert not any(map(guard, clean))
    # And the first fourth copy is the end.
    guard = Guard(tokenizer)
    copies = [*clean, 0, 1, 2, 3, 4, *([1, 2, 3, 4, 0] * 4)]
    assert any(map(guard, copies))
    assert any(guard.ids[-4 * p :] == guard.ids[-p:] * 4 for p in range(1, len(guard.ids) // 4 + 1))


@settings(max_examples=100)
@given(st.lists(st.integers(0, 2), max_size=200), st.integers(1, 40))
def test_runs_are_those_counted_by_hand(ids: list[int], longest: int) -> None:
    tracker = PeriodTracker(longest, 4)
    for at, token in enumerate(ids):
        tracker.push(token)
        for period in range(1, longest + 1):
            run = 0
            while at - run - period >= 0 and ids[at - run] == ids[at - run - period]:
                run += 1
            assert tracker.run(period) == run


# --- with the decode loop ---------------------------------------------------------------------------


class LoopingTarget:
    """A model that always writes the same ids, whatever it is fed in what blocks."""

    def __init__(self, ids: Sequence[int]) -> None:
        self.ids = ids
        self.length = 0
        self.rows = 0  # verified

    def room(self) -> int:
        return 64

    def start(self, *, banned: Sequence[int] = (), margins: bool = False) -> Decision:
        return Decision((self.ids[0],), None)

    def forward(self, tokens: Sequence[int], *, banned: Banned = (), margins: bool = False) -> Decision:
        at = self.length
        self.length += len(tokens)
        self.rows += len(tokens)
        return Decision(tuple(self.ids[at + 1 : at + 1 + len(tokens)]), None)

    def trim(self, count: int) -> None:
        self.length -= count


def decoded(text: str, proposer: Proposer, length: int) -> tuple[Outcome, Guard, LoopingTarget]:
    words = Words()
    target = LoopingTarget(words.encode(text))
    guard = Guard(words)
    options = DecodeOptions(len(target.ids) - 64, watch=guard)
    loop = decode(target, proposer, options, GuardedSchedule(FixedSchedule(length), guard))
    while True:
        try:
            next(loop)
        except StopIteration as end:
            return end.value, guard, target


@settings(max_examples=40)
@given(length=st.integers(1, 40), name=st.sampled_from(["sentence", "rows", "short", "none"]))
def test_the_result_does_not_depend_on_the_blocks(length: int, name: str) -> None:
    text = {
        "sentence": LEAD + SENTENCE * 60,
        "rows": LEAD + "".join(f"<tr><td>{SENTENCE}</td><td x={n}>1</td></tr>" for n in range(60)),
        "short": LEAD + " the" * 300,
        "none": LEAD + " ".join(map(str, range(200))),
    }[name]
    plain, plain_guard, _ = decoded(text, NoProposer(), 0)
    outcome, guard, _ = decoded(text, LookupProposer(NGramTable()), length)
    assert outcome.ids == plain.ids
    assert outcome.stop_reason is plain.stop_reason
    assert guard.verdict == plain_guard.verdict


def test_a_loop_is_not_drafted_past_its_end() -> None:
    """ " the" 40 times: drafts of 32 would verify ids that the guard has no use for."""
    outcome, guard, target = decoded(" the" * 200, LookupProposer(NGramTable()), 32)
    assert outcome.stop_reason is StopReason.REPETITION
    assert target.rows <= len(guard.ids) + 1


def test_it_says_while_something_is_going_on() -> None:
    words = Words()
    guard = Guard(words)
    assert guard.left() is None
    for token in words.encode(LEAD + " the" * 10):
        guard(token)
    assert guard.left() == 30
    for token in words.encode(" end of it"):
        guard(token)
    assert guard.left() is None
