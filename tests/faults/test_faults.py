"""The fault harness with a few trials over ten documents; `python -m tests.faults` is the whole of it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.catalogue import IN_TESTS, SCENARIOS
from tests.faults.scenario import Common, Ground, Skipped

BUDGET_S = 30.0


@pytest.fixture(scope="session")
def common(tmp_path_factory: pytest.TempPathFactory) -> Common:
    return Common(tmp_path_factory.mktemp("faults"), few=True)


@pytest.fixture
def quiet() -> Iterator[None]:
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.slow
@pytest.mark.parametrize("name", IN_TESTS)
def test_it_holds(name: str, tmp_path: Path, common: Common, quiet: None) -> None:
    ground = Ground(tmp_path, 5, BUDGET_S, common, small=True)
    try:
        SCENARIOS[name][0](ground)
    except Skipped as reason:
        pytest.skip(str(reason))
