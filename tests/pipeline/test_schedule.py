"""Lengths follow what a pass costs and what a draft promises."""

from __future__ import annotations

from itertools import accumulate
from operator import mul

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.proposers.base import NOTHING, Draft
from pipeline.schedule import CURVES, CostCurve, CostSchedule, linear

M4 = CURVES["m4pro-4bit"]
FLAT = CostCurve({64: 1.0})


def draft(rates: list[float]) -> Draft:
    survival, chance = [], 1.0
    for rate in rates:
        chance *= rate
        survival.append(chance)
    return Draft(tuple(range(len(rates))), "test", "", tuple(survival))


def test_a_curve_is_straight_between_its_points() -> None:
    curve = CostCurve({2: 1.0, 4: 2.0, 8: 2.0})
    assert [curve(k) for k in (1, 2, 3, 4, 6, 8)] == [1.0, 1.0, 1.5, 2.0, 2.0, 2.0]
    assert curve(64) == 2.0
    assert curve(128) > curve(64)
    assert linear(0.05)(21) == pytest.approx(2.0)


@pytest.mark.parametrize("points", [{2: 0.0}, {0: 1.0}, {3: -1.0}])
def test_a_curve_without_sense_is_refused(points: dict[int, float]) -> None:
    with pytest.raises(ValueError, match="cost curve"):
        CostCurve(points)


def test_a_plateau_is_taken_whole_or_not_at_all() -> None:
    schedule = CostSchedule(M4)
    sure = schedule.choose(draft([0.99] * 63))
    assert len(sure.ids) >= 31  # 10 to 32 rows cost the same
    doubtful = schedule.choose(draft([0.7] * 63))
    assert len(doubtful.ids) <= 3  # a tile would not pay, and nothing between does


def test_nothing_is_drafted_that_does_not_pay() -> None:
    steep = CostSchedule(linear(1.0))
    assert steep.choose(draft([0.9] * 20)) == NOTHING
    assert CostSchedule(M4).choose(NOTHING) == NOTHING


def test_the_rival_that_promises_more_is_taken() -> None:
    weak, strong = draft([0.2] * 8), draft([0.95] * 8)
    chosen = CostSchedule(linear(0.05)).choose(Draft(weak.ids, "weak", "", weak.survival, (strong,)))
    assert chosen.source == "test"
    assert chosen.survival == strong.survival[: len(chosen.ids)]
    assert chosen.rivals == ()


def test_a_free_pass_takes_everything() -> None:
    assert len(CostSchedule(FLAT).choose(draft([0.5] * 40)).ids) == 40


def test_the_better_decoding_goes_the_pickier_it_is() -> None:
    fresh, spoilt = CostSchedule(M4), CostSchedule(M4)
    for _ in range(200):
        spoilt.observe(31, 31)
    assert spoilt.rate > fresh.rate
    middling = draft([0.93] * 63)
    assert len(spoilt.choose(middling).ids) <= len(fresh.choose(middling).ids)


def test_drafts_without_chances_are_judged_by_how_such_did() -> None:
    schedule, plain = CostSchedule(linear(0.2)), Draft(tuple(range(30)), "plain")
    for _ in range(30):
        schedule.observe(8, 8)
    longer = len(schedule.choose(plain).ids)
    for _ in range(200):
        schedule.observe(8, 0)
    assert len(schedule.choose(plain).ids) < longer


def test_a_doubtful_token_before_sure_ones_is_settled_by_a_cheap_pass() -> None:
    """A tile mostly lost costs more than a pass of two rows that tells, and the tile is there after it."""
    schedule = CostSchedule(M4)
    assert len(schedule.choose(draft([0.3] + [0.99] * 62)).ids) <= 2
    assert len(schedule.choose(draft([0.99] * 62)).ids) >= 31
    assert len(schedule.choose(draft([0.8] + [0.99] * 62)).ids) >= 31


def gain(rates: list[float], k: int, schedule: CostSchedule) -> float:
    """What verifying `k` ids gains, and whatever is best after it, while the draft holds."""
    survival = list(accumulate(rates[: k + 1], mul))
    found = 1 + sum(survival[:k]) - schedule.rate * schedule.curve(k + 1)
    if k < len(rates):
        later = (gain(rates[k + 1 :], n, schedule) for n in range(len(rates) - k))
        found += survival[k] * max(0.0, *later) / 2
    return found


@given(st.lists(st.floats(0.0, 1.0), max_size=7), st.sampled_from(sorted(CURVES)))
def test_no_other_length_promises_more(rates: list[float], name: str) -> None:
    schedule = CostSchedule(CURVES[name])
    chosen = len(schedule.choose(draft(rates)).ids)
    gains = [gain(rates, k, schedule) for k in range(len(rates) + 1)]
    assert gains[chosen] >= max(gains) - 1e-6


@pytest.mark.parametrize("name", ["m4pro-4bit", "a0.02"])
def test_no_fixed_length_does_better_over_drafts_of_all_qualities(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Measured with a model's own costs by `ocrd bench lengths`; of single kinds a fixed length may win."""
    pytest.importorskip("mlx.core", reason="mlx has no wheel for this machine")
    from tests.bench import lengths

    monkeypatch.setattr(lengths, "ERRORS", ("64", "24", "10", "5", "3", "none"))
    costs = lengths.replayed(CURVES[name], 400, honest=False)
    sums = {length: sum(row[length] for row in costs.values()) for length in next(iter(costs.values()))}
    assert sums["schedule"] <= min(sums.values())
