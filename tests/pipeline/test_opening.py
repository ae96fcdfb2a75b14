"""A model's first load on a machine: measured, checked, and drafts switched off where the check says so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pipeline import blas, calibration, model_files, startup_check
from storage.errors import SettingsError
from storage.settings import Settings

blas.preload()
pytest.importorskip("mlx.core", reason="mlx has no wheel for this machine")

from pipeline import opening  # noqa: E402
from pipeline.beside import Beside  # noqa: E402
from pipeline.model_reader import ModelReader  # noqa: E402
from pipeline.proposers import corrupt  # noqa: E402
from pipeline.reference.draft import DraftLine  # noqa: E402
from pipeline.reference.source import ReadyDraft  # noqa: E402
from pipeline.schedule import CostSchedule  # noqa: E402
from tests.pipeline.adapter import random_drafters  # noqa: E402
from tests.pipeline.test_calibration import MEASURED  # noqa: E402


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    taken = iter([MEASURED])  # a second measurement would be a StopIteration
    monkeypatch.setattr(calibration, "measure", lambda *_, **__: next(taken))
    monkeypatch.setattr(startup_check, "MAX_TOKENS", 12)
    return Settings(tmp_path / "home", mode="lookup", max_tokens=16)


def opened(settings: Settings) -> ModelReader:
    return opening.open_reader(settings, model_files.locate("tiny", settings))


def test_first_load_measures_and_checks_and_later_ones_do_not(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = opened(settings)
    assert reader.calibration == MEASURED
    assert isinstance(reader._schedule(), CostSchedule)
    assert reader._tau() == MEASURED.tau
    assert len(list(settings.calibration_path.glob("*.check.json"))) == 1
    monkeypatch.setattr(startup_check, "check", pytest.fail)
    again = opened(settings)
    assert again.calibration == MEASURED
    assert (again.settings.mode, again.drafts_off) == (reader.settings.mode, reader.drafts_off)


def test_without_drafts_or_where_it_is_not_wanted_nothing_is_measured(settings: Settings) -> None:
    for quiet in (replace(settings, calibrate=False), replace(settings, mode="none")):
        reader = opened(quiet)
        assert reader.calibration is None
        assert not settings.calibration_path.exists()


def test_a_corrupt_proposer_is_found_and_pages_are_read_without(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = startup_check.picture(20, 504)
    unchecked = replace(settings, calibrate=False)
    truth = opened(replace(unchecked, mode="none")).read(image)
    monkeypatch.setenv(corrupt.VARIABLE, corrupt.CORRUPT)
    assert opened(unchecked).read(image).outcome.ids != truth.outcome.ids  # it does spoil what is written
    reader = opened(settings)
    assert "reads otherwise" in reader.drafts_off
    reading = reader.read(image)
    assert (reading.text, reading.outcome.drafted) == (truth.text, 0)


@pytest.mark.parametrize("kind", ["eagle3", pytest.param("dspark", marks=pytest.mark.slow)])
def test_a_drafter_named_in_the_settings_drafts_and_changes_nothing(
    kind: str, settings: Settings, tmp_path: Path
) -> None:
    image = startup_check.picture(20, 504)
    plain = replace(settings, calibrate=False, mode="none")
    reader = opened(plain)
    truth = reader.read(image).outcome
    folder = random_drafters.make(kind, reader.loaded, tmp_path / "drafter")
    drafted = opened(replace(plain, mode=kind, drafter=folder)).read(image).outcome
    assert drafted.ids == truth.ids
    assert drafted.drafted > 0


@pytest.mark.slow
def test_where_there_is_no_reading_to_draft_from_auto_takes_the_trained_drafter(settings: Settings) -> None:
    image = startup_check.picture(20, 504)
    quiet = replace(settings, calibrate=False, max_tokens=60, max_draft=5)
    truth = opened(replace(quiet, mode="none")).read(image).outcome
    reader = opened(replace(quiet, mode="auto"))
    alone = reader.read(image).outcome
    assert alone.ids == truth.ids
    assert alone.passes < truth.passes / 2  # it has learnt something: 3.8 tokens a pass here
    lines = [DraftLine(line) for line in startup_check.LINES]
    helped = reader.read(image, beside=Beside(reference=lambda _: ReadyDraft(lines))).outcome
    assert helped.ids == truth.ids
    assert helped.passes < alone.passes


@pytest.mark.slow
def test_where_the_draft_is_of_another_page_auto_falls_back_on_the_trained_drafter(
    settings: Settings,
) -> None:
    image = startup_check.picture(20, 504)
    quiet = replace(settings, calibrate=False, max_tokens=60)
    wrong = Beside(
        reference=lambda _: ReadyDraft([DraftLine("Nothing of the kind"), DraftLine("was ever printed")])
    )
    misled = opened(replace(quiet, mode="reference")).read(image, beside=wrong).outcome
    rescued = opened(replace(quiet, mode="auto")).read(image, beside=wrong).outcome
    assert rescued.ids == misled.ids
    assert rescued.passes < misled.passes / 2


def test_a_drafter_that_fails_the_check_is_left_aside_and_auto_goes_on_without(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(proposer: str, *_: object) -> startup_check.Verdict:
        return startup_check.Verdict(proposer, "slower" if proposer == "eagle3" else "")

    monkeypatch.setattr(startup_check, "check", check)
    reader = opened(replace(settings, mode="auto"))
    assert (reader.drafter, reader.drafts_off, reader.settings.mode) == (None, "", "auto")


def test_a_mode_without_its_drafter_is_an_error_before_any_page(settings: Settings) -> None:
    with pytest.raises(SettingsError, match="needs a drafter"):
        opened(replace(settings, calibrate=False, mode="dflash"))
