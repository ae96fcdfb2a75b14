"""Blocks against single rows on every architecture, as calibration compares them."""

from __future__ import annotations

import pytest

from pipeline import calibration
from pipeline.adapter.loading import LoadedModel
from pipeline.adapter.measuring import compare, text_session
from pipeline.adapter.session import MlxSession

TEXT = list(range(20, 70))


def sessions(loaded: LoadedModel) -> tuple[MlxSession, MlxSession]:
    made = text_session(loaded, TEXT), text_session(loaded, TEXT)
    for session in made:
        session.start()
    return made


def test_blocks_differ_by_rounding_only_and_carry_on(loaded: LoadedModel) -> None:
    block, single = sessions(loaded)
    for size in (1, 3, 8):
        assert calibration.make_room(block, size, [5])
        while single.length < block.length:
            calibration._advance(single, [5])
        found = compare(block, single, TEXT[:size])
        assert found.ids
        assert found.logit < 1e-3
        assert found.margin <= 2 * found.logit + 1e-6
        assert not found.equal or found.logit == 0
        assert block.length == single.length
        if size == 1:
            assert found.equal


def test_a_difference_is_seen(loaded: LoadedModel) -> None:
    block, single = sessions(loaded)
    calibration._advance(single, [9])
    calibration._advance(block, [11])
    found = compare(block, single, [4])
    assert not found.equal
    assert found.logit > 1e-3


def test_logits_wait_for_a_trim_as_passes_do(loaded: LoadedModel) -> None:
    session, _ = sessions(loaded)
    session.logits([3])
    with pytest.raises(RuntimeError, match="trim"):
        session.forward([4])
