"""The engine `vlm` with the model that ships: real pictures, real weights, a few lines of print."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
from PIL import Image, ImageDraw

from pipeline import blas

blas.preload()
pytest.importorskip("mlx.core", reason="mlx has no wheel for this machine")

from pipeline import bench_decode, ocr  # noqa: E402
from pipeline.beside import Beside  # noqa: E402
from pipeline.document import DocumentReader  # noqa: E402
from pipeline.engines.vlm import VlmEngine, parse  # noqa: E402
from pipeline.presets import Output  # noqa: E402
from pipeline.proposers.lookup import NGramTable  # noqa: E402
from pipeline.vision import VisionEncoder  # noqa: E402
from storage.records import PageReading, StopReason  # noqa: E402
from storage.settings import Settings, load  # noqa: E402

from .conftest import letter_of  # noqa: E402

LINES = ("Harbour Trust", "Founded in 1868", "boxes 17 to 23")


@pytest.fixture(scope="module")
def letter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return letter_of(LINES, tmp_path_factory.mktemp("letter"), (620, 320), 34)


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    home = tmp_path_factory.mktemp("home")
    return load(
        {"home": home, "engine": "vlm", "model": "tiny", "mode": "lookup", "calibrate": False}, env={}
    )


@pytest.fixture(scope="module")
def engine(settings: Settings) -> Iterator[VlmEngine]:
    made = VlmEngine(settings)
    yield made
    made.close()


def read(path: Path, settings: Settings, engine: VlmEngine) -> PageReading:
    with DocumentReader(path, settings, engine) as reader:
        return reader.read_page(1)


def test_a_page_is_read_by_the_model(letter: Path, settings: Settings, engine: VlmEngine) -> None:
    reading = read(letter, settings, engine)
    said = " ".join(reading.text.split())
    assert sum(word in said for word in ("Harbour", "Founded", "1868", "boxes", "23")) >= 4
    assert (reading.source, reading.engine, reading.model) == ("engine", "vlm", "tiny")
    assert reading.prompt is not None
    assert reading.prompt.startswith("tiny/text@")
    assert reading.decode is not None
    assert 20 < reading.decode.tokens < 100
    assert {"vision", "prefill", "decode", "draft"} <= set(reading.seconds)
    for block in reading.blocks:  # boxes lie on the print
        assert 0 < block.box[0] < block.box[2] < reading.width_pt
        assert 0 < block.box[1] < block.box[3] < reading.height_pt


def test_a_second_reading_never_runs_the_tower_and_says_the_same(
    letter: Path, settings: Settings, engine: VlmEngine
) -> None:
    engine.keep = []
    first = read(letter, settings, engine)
    engine.keep, kept = [], engine.keep
    encoder = engine.reader().encoder
    before = encoder.tower_runs
    with mock.patch("pipeline.adapter.inputs.encode", side_effect=AssertionError("the tower ran")):
        second = read(letter, settings, engine)
    again, engine.keep = engine.keep, None
    assert encoder.tower_runs == before
    assert all(reading.hit for reading in again)
    assert [r.outcome.ids for r in again] == [r.outcome.ids for r in kept]
    assert replace(second, seconds={}) == replace(first, seconds={})


def test_a_store_of_another_encoder_is_not_used(letter: Path, settings: Settings, engine: VlmEngine) -> None:
    read(letter, settings, engine)
    other = VlmEngine(settings)
    try:
        reader = other.reader()
        reader.encoder = VisionEncoder(reader.loaded, "f" * 64, reader.encoder.store, "tiny")
        other.keep = []
        read(letter, settings, other)
        assert not any(reading.hit for reading in other.keep)
    finally:
        other.close()


def test_a_real_loop_ends_early_and_the_same_with_and_without_drafts(engine: VlmEngine) -> None:
    """Bars where the model expects print: it writes two ids for ever."""
    bars = Image.new("RGB", (252, 112), "white")
    draw = ImageDraw.Draw(bars)
    for top in range(5, 102, 14):
        draw.rectangle((5, top, 247, top + 6), fill=0)
    table = NGramTable()
    plain = engine.reader().with_mode("none", None).read(bars)
    drafted = engine.reader().with_mode("lookup", None).read(bars, beside=Beside(table))
    assert plain.stop_reason is StopReason.REPETITION
    assert plain.guard is not None
    assert (drafted.outcome.ids, drafted.guard, drafted.text) == (plain.outcome.ids, plain.guard, plain.text)
    assert drafted.outcome.passes < plain.outcome.passes
    assert len(plain.ids) < 20 < len(plain.outcome.ids) < 150
    assert plain.text == engine.reader().loaded.tokenizer.decode(plain.ids)
    assert table.history == drafted.ids  # what the next page may be drafted from: not the loop


def test_closing_the_stream_cancels_between_passes(
    letter: Path, settings: Settings, engine: VlmEngine
) -> None:
    with DocumentReader(letter, settings, engine) as reader:
        pieces = reader.stream(reader.prepare(1))
        assert next(pieces).text
        pieces.close()
        assert reader.read_page(1).text  # the model is as usable as before


def test_regions_are_streamed_each_on_a_line_of_its_own(
    letter: Path, settings: Settings, engine: VlmEngine
) -> None:
    with DocumentReader(letter, settings, engine) as reader:
        pieces = reader.stream(reader.prepare(1))
        streamed = []
        try:
            while True:
                streamed.append(next(pieces).text)
        except StopIteration as end:
            reading = end.value
    lines = ["".join(line.split()) for line in "".join(streamed).split("\n")]
    written = ["".join(word.text for word in line.words) for block in reading.blocks for line in block.lines]
    assert len(written) > 1
    assert lines == ["".join(line.split()) for line in written]


@pytest.mark.slow
def test_bench_compares_ids_with_the_model_alone(letter: Path, settings: Settings) -> None:
    figures = bench_decode.run(settings, [letter], ["none", "lookup"])
    none, lookup = figures["modes"]
    assert (figures["model"], none["mode"], lookup["mode"]) == ("tiny", "none", "lookup")
    assert none["identical"] is lookup["identical"] is True
    assert none["tokens_per_pass"] <= lookup["tokens_per_pass"]
    assert none["tokens"] == lookup["tokens"]
    assert json.dumps(figures)


def test_python_api(letter: Path, settings: Settings) -> None:
    result = ocr(letter, model="tiny", mode="lookup", home=settings.home, calibrate=False)
    assert "Founded" in result.text
    assert result.blocks
    assert result.tokens_per_sec is not None
    assert result.mean_accept_len is not None


@pytest.mark.parametrize("output", list(Output))
def test_every_form_of_answer_has_a_parser(output: Output) -> None:
    from pipeline.answers.cells import AnswerSpace

    assert parse(output, "", AnswerSpace(1, 1, 1, 1), ()).blocks == ()


def test_reference_drafts_of_the_tiny_model_are_characters_as_it_writes_them(
    letter: Path, settings: Settings, engine: VlmEngine
) -> None:
    reader = engine.reader()
    usual = reader.settings
    try:
        taken = {}
        for mode in ("none", "reference"):
            reader.settings = replace(usual, mode=mode)
            engine.keep = []
            read(letter, settings, engine)
            taken[mode] = engine.keep
    finally:
        reader.settings, engine.keep = usual, None
    ids = {mode: [r.outcome.ids for r in readings] for mode, readings in taken.items()}
    assert ids["none"] == ids["reference"]
    passes = {mode: sum(r.outcome.passes for r in readings) for mode, readings in taken.items()}
    assert passes["reference"] * 3 < passes["none"]
