"""What follows from times and differences, and how a calibration is kept."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import calibration
from pipeline.calibration import Calibration, conclude, load_or_measure, make_room, read, time_passes
from pipeline.schedule import CostCurve
from pipeline.target import Decision


@dataclass(frozen=True)
class Difference:
    equal: bool
    logit: float = 0.0
    margin: float = 0.0
    ids: bool = True


def test_costs_are_of_one_row_and_noise_never_makes_a_small_block_dearer_than_a_large_one() -> None:
    found = conclude({1: 0.010, 2: 0.012, 4: 0.009, 8: 0.030}, {})
    assert found.costs == {1: 1.0, 2: 1.0, 4: 1.0, 8: pytest.approx(30 / 9)}
    assert found.single_ms == pytest.approx(9.0)
    assert CostCurve(found.costs)(6) == pytest.approx((1 + 30 / 9) / 2)


@given(st.dictionaries(st.integers(2, 64), st.floats(1e-4, 1e3), max_size=12), st.floats(1e-4, 1e3))
def test_costs_are_a_curve_whatever_was_timed(times: dict[int, float], single: float) -> None:
    costs = conclude({1: single, **times}, {}).costs
    assert costs[1] == 1.0
    assert list(costs.values()) == sorted(costs.values())
    assert CostCurve(costs)(64) >= 1


def test_near_tie_margin_comes_of_the_blocks_that_differ() -> None:
    differences = {
        2: Difference(True),
        4: Difference(True),
        8: Difference(False, 0.02),
        16: Difference(False, 0.05),
    }
    found = conclude({1: 1.0, 2: 1.0}, differences)  # type: ignore[arg-type]
    assert (found.equal_upto, found.tau) == (4, pytest.approx(0.2))
    # Equal again after a wider block differed: its cache rows come from such blocks, so it is not to be relied on.
    found = conclude({1: 1.0}, {2: Difference(False, 1e-5), 4: Difference(True)})  # type: ignore[arg-type, dict-item]
    assert found.equal_upto == 1
    assert conclude({1: 1.0}, {64: Difference(True)}).tau == 0.0  # type: ignore[dict-item]


@dataclass
class Slow:
    """A session on a clock of its own: `1 + rows / 10` seconds a pass, and one that is slow by chance."""

    now: float = 0.0
    passes: int = 0
    length: int = 0
    owed: int = 0
    widest: int = 64

    def forward(self, tokens: Sequence[int], **_: object) -> Decision:
        assert not self.owed
        self.passes += 1
        self.owed = len(tokens)
        self.length += self.owed
        self.now += 1 + len(tokens) / 10 + (5 if self.passes == 7 else 0)
        return Decision((0,) * len(tokens))

    def trim(self, count: int) -> None:
        assert count <= self.owed
        self.length -= count
        self.owed = 0

    def room(self) -> int:
        return 1 if self.length < 5 else self.widest


def test_passes_are_timed_by_turns_and_the_least_counts() -> None:
    slow = Slow()
    times = time_passes(slow, [1, 4, 16], lambda n: [0] * n, budget_s=1000, clock=lambda: slow.now)  # type: ignore[arg-type]
    assert times == {1: pytest.approx(1.1), 4: pytest.approx(1.4), 16: pytest.approx(2.6)}
    assert slow.length == slow.passes // 3  # single tokens are kept, blocks are taken back
    hasty = Slow()
    time_passes(hasty, [1, 4], lambda n: [0] * n, budget_s=0, clock=lambda: hasty.now)  # type: ignore[arg-type]
    assert hasty.passes == 4  # a warm-up and one round


def test_a_cache_that_takes_blocks_only_later_is_written_to_first() -> None:
    slow = Slow(widest=32)
    assert make_room(slow, 32, [0])  # type: ignore[arg-type]
    assert slow.length == 5
    assert not make_room(slow, 64, [0])  # type: ignore[arg-type]


# --- keeping -----------------------------------------------------------------------------------------------

MEASURED = conclude({1: 0.01, 8: 0.02}, {8: Difference(False, 0.01, 0.005)}, now=5.0)  # type: ignore[dict-item]


def test_it_is_measured_once_and_kept(tmp_path: Path) -> None:
    taken: list[Calibration] = []

    def take() -> Calibration:
        taken.append(MEASURED)
        return MEASURED

    folder = tmp_path / "calibration"
    for _ in range(3):
        assert load_or_measure(folder, "a", take) == MEASURED
    assert len(taken) == 1
    load_or_measure(folder, "b", take)
    load_or_measure(folder, "a", take, again=True)
    assert len(taken) == 3


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"costs": {}}', '{"costs": {"1": "x"}}'])
def test_a_damaged_file_is_measured_again(damage: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(damage)
    assert load_or_measure(tmp_path, "a", lambda: MEASURED) == MEASURED
    assert read(tmp_path / "a.json") == MEASURED


def test_nonsense_is_not_believed(tmp_path: Path) -> None:
    load_or_measure(tmp_path, "a", lambda: MEASURED)
    body = json.loads((tmp_path / "a.json").read_text())
    for change in ({"tau": -1.0}, {"costs": {"2": 1.0}}, {"unknown": 1}):
        (tmp_path / "a.json").write_text(json.dumps(body | change))
        assert read(tmp_path / "a.json") is None


def test_machines_and_threads_have_calibrations_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    first = calibration.machine()
    assert first["chip"] and first["cores"]
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "7")
    assert calibration.machine() != first
