"""Drafts are used only where they were seen to be right and to pay."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pipeline import startup_check
from pipeline.startup_check import Verdict, check, load_or_check
from storage.errors import EngineError


@dataclass
class Reading:
    ids: list[int] = field(default_factory=lambda: [1, 2, 3])
    passes: int = 3


def reads(*seconds: float, ids: list[int] | None = None) -> Callable[[], tuple[Reading, float]]:
    """Readings that take `seconds` by turns, the last for ever."""
    left = list(seconds)

    def read() -> tuple[Reading, float]:
        return Reading(ids or [1, 2, 3]), left.pop(0) if len(left) > 1 else left[0]

    return read


def fails(error: Exception) -> Callable[[], tuple[Reading, float]]:
    def read() -> tuple[Reading, float]:
        raise error

    return read


def test_equal_and_sooner_is_good() -> None:
    verdict = check("lookup", reads(1.0), reads(0.3))
    assert verdict == Verdict("lookup", "", 1.0, 0.3, 3, 3)
    assert verdict.ok


@pytest.mark.parametrize(
    ("ids", "where"),
    [([1, 9, 3], "from token 2 on"), ([1, 2], "the length, 2 for 3"), ([1, 2, 3, 4], "4 for 3")],
)
def test_other_ids_switch_drafts_off_however_fast(ids: list[int], where: str) -> None:
    verdict = check("lookup", reads(1.0), reads(0.1, ids=ids))
    assert not verdict.ok
    assert where in verdict.reason


def test_drafts_that_cost_switch_themselves_off_but_a_slow_moment_does_not() -> None:
    assert (
        check("lookup", reads(1.0), reads(2.0)).reason
        == "drafts do not pay here: 2.00 s against 1.00 s without"
    )
    assert check("lookup", reads(1.0), reads(2.0, 1.1)).ok
    assert check("lookup", reads(1.9, 1.0), reads(2.0)).ok  # 2.0 against 1.9: noise


def test_a_proposer_that_raises_is_switched_off_and_a_model_that_fails_is_not_hidden() -> None:
    assert "KeyError: 7" in check("lookup", reads(1.0), fails(KeyError(7))).reason
    assert "it broke" in check("lookup", reads(1.0), fails(EngineError("it broke"))).reason
    with pytest.raises(EngineError):
        check("lookup", fails(EngineError("it broke")), reads(1.0))


def test_a_verdict_is_kept_and_a_damaged_one_taken_again(tmp_path: Path) -> None:
    path = tmp_path / "home" / "x.check.json"
    verdicts = [Verdict("a"), Verdict("b", "no"), Verdict("c"), Verdict("d")]
    assert load_or_check(path, lambda: verdicts[0]) == verdicts[0]
    assert load_or_check(path, lambda: verdicts[1]) == verdicts[0]
    assert load_or_check(path, lambda: verdicts[1], again=True) == verdicts[1]
    for damage in ("", "[]", '{"format": 0}', '{"format": 1, "what": 2}'):
        path.write_text(damage)
        assert load_or_check(path, lambda: verdicts[2]) == verdicts[2]


def test_workers_that_start_together_check_one_at_a_time_and_share_the_verdict(tmp_path: Path) -> None:
    path, running, most = tmp_path / "home" / "x.check.json", 0, 0

    def take() -> Verdict:
        nonlocal running, most
        running += 1
        most = max(most, running)
        time.sleep(0.05)  # a second one had the time to begin
        running -= 1
        return Verdict("a", tokens=7)

    with ThreadPoolExecutor(4) as pool:
        verdicts = list(pool.map(lambda _: load_or_check(path, take), range(4)))
    assert verdicts == [Verdict("a", tokens=7)] * 4
    assert most == 1


def test_the_picture_has_ink_on_every_line_and_sides_that_patches_divide() -> None:
    for height, width in ((20, 504), (None, None), (12, 280)):
        image = startup_check.picture(height, width)
        assert image.width % 28 == image.height % 28 == 0
        rows = image.convert("L").resize((1, image.height)).tobytes()
        inked = [value < 250 for value in rows]
        assert sum(1 for a, b in itertools.pairwise(inked) if b and not a) >= len(startup_check.LINES)
