"""The fault harness with a few trials of each kind; `python -m tests.faults` is the whole of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.catalogue import SCENARIOS
from tests.faults.scenario import Ground, Skipped

BUDGET_S = 30.0


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_it_holds(name: str, tmp_path: Path) -> None:
    ground = Ground(tmp_path, seed=5, budget_s=BUDGET_S, small=True)
    try:
        SCENARIOS[name][0](ground)
    except Skipped as reason:
        pytest.skip(str(reason))
