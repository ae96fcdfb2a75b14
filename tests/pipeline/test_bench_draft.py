"""Replays: the format of stored pages, the figures, and what the proposers reach on them."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from pipeline import bench_draft, bench_tokenizers
from pipeline.bench_draft import ALL, FIXED, StoredPage
from pipeline.reference.draft import Break
from pipeline.schedule import FixedSchedule
from storage.errors import EngineUnavailableError, SettingsError
from tests.elsewhere import SPEC_PAGES
from tests.pipeline.tokens import byte_pairs

SAMPLES = Path(__file__).parents[1] / "data" / "drafts" / "pages.jsonl"


def test_pages_are_read_with_their_marks_and_boxes() -> None:
    pages = {page.id: page for page in bench_draft.read_pages(SAMPLES)}
    assert pages["prose"].draft[4].before is Break.WRAP
    assert pages["prose"].draft[0].box is None
    boxes = [line.box for line in pages["layout"].draft]
    assert all(box is not None for box in boxes)
    assert pages["layout"].json


@pytest.mark.parametrize("text", ["[1]", "{]", '{"id": "x"}', "[[1, 2]]"])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "pages.json"
    file.write_text(text)
    with pytest.raises(SettingsError, match="holds no stored pages"):
        bench_draft.read_pages(file)


def test_figures_count_the_prefill_as_a_pass() -> None:
    page = StoredPage("x", "own", "own", "abcabcabcabc", (), False)
    codec, stop = byte_pairs([page.target], size=260)
    found = bench_draft.measure([page], codec, stop, ["none"], ["m4pro-4bit"])
    figures = found["none"][FIXED][ALL]
    assert figures["tokens_per_pass"] == 1.0
    assert figures["m4pro-4bit"] == 1.0


def test_a_table_has_a_row_for_each_kind() -> None:
    pages = bench_draft.read_pages(SAMPLES)
    codec, stop = byte_pairs(page.target for page in pages)
    found = bench_draft.measure(pages, codec, stop, ["lookup", "reference"], ["m4pro-4bit", "a0.05"])
    table = bench_draft.as_table(found).splitlines()
    assert len(table) == 2 + 2 * (1 + len({page.kind for page in pages}))
    assert len({row.count("|") for row in table}) == 1
    assert found["reference"]["a0.05"][ALL]["a0.05"] > found["lookup"]["a0.05"][ALL]["a0.05"]


def test_a_proposer_that_is_none_is_refused() -> None:
    codec, stop = byte_pairs(["a"], size=260)
    with pytest.raises(SettingsError):
        bench_draft.proposer_for("oracle", bench_draft.read_pages(SAMPLES)[0], codec, stop)


@pytest.mark.slow
@pytest.mark.parametrize("tokenizer", bench_tokenizers.TOKENIZERS)
def test_stored_pages_take_few_passes(tokenizer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if not SPEC_PAGES.is_file():
        pytest.skip(f"no stored pages in {SPEC_PAGES} (OCRD_SPEC_PAGES names them)")
    try:
        codec, stop = bench_tokenizers.load(tokenizer)
    except EngineUnavailableError as error:
        pytest.skip(f"{error.message}: {error.remedy}")
    # Processor time: what else the machine does must not count.
    monkeypatch.setattr(bench_draft, "time", SimpleNamespace(perf_counter=time.process_time))
    pages = bench_draft.read_pages(SPEC_PAGES)[::8]
    total = bench_draft.Tally()
    for _, tally in bench_draft.run(pages, codec, stop, "reference", lambda: FixedSchedule(31)):
        total.add(tally)
    assert total.tokens / total.passes > 5
    assert total.python_s / total.passes < 0.005  # 1 ms is the goal; a loaded machine may take longer


@pytest.mark.parametrize("text", ["The ferry, 1961: 4×4 €", "안녕하세요 <td>1</td>\n\n| a |", "  \n\n\tx"])
@pytest.mark.parametrize("tokenizer", bench_tokenizers.TOKENIZERS)
def test_tokenizers_spell_what_they_are_given(tokenizer: str, text: str) -> None:
    try:
        codec, _ = bench_tokenizers.load(tokenizer)
    except EngineUnavailableError as error:
        pytest.skip(f"{error.message}: {error.remedy}")
    ids, ends = codec.encode(text)
    assert codec.decode(ids) == text
    assert ends[-1] == len(text)
