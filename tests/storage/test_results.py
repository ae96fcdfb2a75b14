from __future__ import annotations

import dataclasses
import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage import jobs, library, results, status
from storage.errors import DatabaseError, DiskFullError, PasswordError, TooLargeError
from storage.lines import decode_lines, encode_lines
from storage.records import (
    Block,
    Category,
    DecodeStats,
    Direction,
    DocumentInfo,
    LayerVerdict,
    Line,
    PageReading,
    PageWarning,
    ReadingAttempt,
    StopReason,
    Word,
)
from storage.results import FailedPage
from tests.storage.conftest import Desk, reading, sha

FULL = PageReading(
    page=1,
    width_pt=595.28,
    height_pt=841.89,
    blocks=(
        Block(
            Category.SECTION_HEADER,
            (72.0, 72.12, 300.5, 90.0),
            "Überschrift",
            "## Überschrift",
            2,
            0.9876,
            (
                Line(
                    "Überschrift",
                    (72.0, 72.12, 300.5, 90.0),
                    (Word("Überschrift", (72.0, 72.12, 300.5, 90.0), 0.5), Word("x", (1.0, 2.0, 3.0, 4.0))),
                    14.5,
                    Direction.RTL,
                    True,
                    True,
                    True,
                    0.75,
                    3,
                    12.5,
                ),
            ),
        ),
        Block(Category.PAGE_NUMBER, (290.0, 800.0, 300.0, 810.0), "iii", "iii"),
    ),
    text="Überschrift",
    markdown="## Überschrift",
    stop_reason=StopReason.LENGTH,
    source="engine",
    engine="vlm",
    label="iii",
    layer=LayerVerdict.BAD,
    layer_reason="garbage",
    model="m",
    revision="r",
    prompt="p",
    dpi=200.0,
    width_px=1654,
    height_px=2339,
    confidence=0.9,
    decode=DecodeStats(100, 40, 80, 60),
    warnings=(PageWarning("low_confidence", "0.4 – niedrig"),),
    seconds={"read": 1.25},
    attempts=(
        ReadingAttempt("page", StopReason.REPETITION, 16384, 90.5),
        ReadingAttempt("task", StopReason.LENGTH, 100, 1.25),
    ),
)


def start(desk: Desk, pages: int = 1) -> list[jobs.PageJob]:
    desk.put("/in/a.pdf", "A", pages)
    return desk.claim(limit=pages)


def loaded(desk: Desk) -> list[PageReading | FailedPage]:
    return list(results.load_document(desk.conn, 1).pages)


def test_everything_read_comes_back(desk: Desk) -> None:
    (job,) = start(desk)
    assert results.save(desk.conn, "w", job, FULL, desk.now)
    assert loaded(desk) == [FULL]


def test_sample_leaves_nothing_at_its_default() -> None:
    """So that a field added to a record and forgotten when saving is noticed."""
    block = FULL.blocks[0]
    for record in (FULL, block, block.lines[0], block.lines[0].words[0]):
        for field in dataclasses.fields(record):
            assert field.default is dataclasses.MISSING or getattr(record, field.name) != field.default, (
                field.name
            )


def test_saving_twice_is_saving_once(desk: Desk) -> None:
    (job,) = start(desk)
    assert results.save(desk.conn, "w", job, FULL, desk.now)
    before = "\n".join(desk.conn.iterdump())
    assert not results.save(desk.conn, "w", job, FULL, desk.now + 1)
    assert "\n".join(desk.conn.iterdump()) == before


def test_lost_lease_writes_nothing(desk: Desk) -> None:
    (job,) = start(desk)
    jobs.release(desk.conn, "w")
    before = "\n".join(desk.conn.iterdump())
    assert not results.save(desk.conn, "w", job, FULL, desk.now)
    assert "\n".join(desk.conn.iterdump()) == before


def test_reading_of_another_page_is_refused(desk: Desk) -> None:
    first, _ = start(desk, 2)
    with pytest.raises(ValueError, match="page 2"):
        results.save(desk.conn, "w", first, reading(2), desk.now)


def test_page_read_again_has_one_row_in_the_index(desk: Desk) -> None:
    start(desk)
    jobs.release(desk.conn, "w")
    for text, grams in (("erster 人間 Versuch", 1), ("zweiter Versuch", 0), ("dritter 尊厳", 1)):
        desk.finish(text)
        assert desk.found("Versuch OR dritter") == [text]
        assert desk.one("SELECT count(*) FROM page_grams") == grams
        desk.check()
        library.retry(desk.conn, [b"/in/a.pdf"], {}, desk.now)


def test_pages_are_findable_as_they_finish(desk: Desk) -> None:
    first, *_ = start(desk, 10)
    desk.save(first, "gefunden")
    assert desk.found("gefunden") == ["gefunden"]
    assert desk.states() == {"/in/a.pdf": "running"}


def test_full_disk_writes_nothing_of_the_page(desk: Desk) -> None:
    (job,) = start(desk)
    desk.conn.execute(f"PRAGMA max_page_count = {desk.one('PRAGMA page_count')}")
    with pytest.raises(DiskFullError):
        desk.save(job, "x" * 100_000)
    desk.conn.execute("PRAGMA max_page_count = 1073741823")
    assert desk.one("SELECT count(*) FROM pages") == 0
    assert desk.one("SELECT state FROM page_jobs") == "leased"
    assert desk.save(job)
    desk.check()


@pytest.mark.parametrize(
    "text", ["half a pair \ud800", "\udfff", "nul \0 in it", "", "\u2028", "a" * 1_000_000]
)
def test_any_text_can_be_saved(desk: Desk, text: str) -> None:
    (job,) = start(desk)
    page = reading(1, text, warnings=(PageWarning("odd", text[:100]),), label=text[:100])
    assert results.save(desk.conn, "w", job, page, desk.now)
    (back,) = loaded(desk)
    assert isinstance(back, PageReading)
    assert len(back.text) == len(text)
    assert "\0" not in back.text
    desk.check()


def test_blank_page_is_counted_as_read(desk: Desk) -> None:
    first, second = start(desk, 2)
    desk.save(first, blank=True)
    desk.save(second)
    row = desk.conn.execute("SELECT pages_done, pages_blank, state FROM documents").fetchone()
    assert tuple(row) == (2, 1, "done")
    assert [page.is_blank for page in loaded(desk) if isinstance(page, PageReading)] == [True, False]


def test_blank_page_read_again_is_counted_once(desk: Desk) -> None:
    (job,) = start(desk)
    desk.save(job, blank=True)
    library.retry(desk.conn, [b"/in/a.pdf"], {"dpi": 300}, desk.now)
    (job,) = desk.claim()
    desk.save(job, "not blank after all")
    assert desk.one("SELECT pages_blank FROM documents") == 0
    desk.check()


def test_wish_uttered_while_a_page_is_read_is_not_lost(desk: Desk) -> None:
    (job,) = start(desk)
    library.retry(desk.conn, [b"/in/a.pdf"], {"engine": "rapidocr"}, desk.now)
    assert not desk.save(job, "the old way")
    (again,) = desk.claim()
    assert again.options == {"engine": "rapidocr"}
    assert desk.save(again, "the new way")
    assert desk.found("old") == [] and desk.one("SELECT state FROM documents") == "done"
    desk.check()


def test_failure_of_what_is_wished_otherwise_by_now_does_not_count(desk: Desk) -> None:
    (job,) = start(desk)
    library.retry(desk.conn, [b"/in/a.pdf"], {"password": "secret"}, desk.now)
    jobs.fail_page(desk.conn, "w", job, PasswordError("x"), desk.now)
    (again,) = desk.claim()
    assert (again.options, again.attempts) == ({"password": "secret"}, 0)
    assert desk.save(again)
    desk.check()


def test_password_of_a_document_goes_no_further(desk: Desk) -> None:
    (job,) = start(desk)
    desk.save(job)
    library.retry(desk.conn, [b"/in/a.pdf"], {"dpi": 300, "password": "secret"}, desk.now)
    assert results.load_document(desk.conn, 1).options == {"dpi": 300}
    assert "secret" not in str(status.snapshot(desk.conn, now=desk.now, all_documents=True))


def test_failed_page_has_its_place_in_the_document(desk: Desk) -> None:
    desk.see("/in/a.pdf")
    info = DocumentInfo("application/pdf", 3, ("i", "ii", "1"), "Titel", ("data.csv",), (PageWarning("xfa"),))
    library.link(desk.conn, desk.intake()[0], sha("A"), 10, info, None, desk.now)
    first, second, third = desk.claim()
    desk.save(third)
    jobs.fail_page(desk.conn, "w", second, TooLargeError("900 megapixels"), desk.now)
    desk.save(first)
    document = results.load_document(desk.conn, 1)
    assert (document.title, document.page_count, document.attachments) == ("Titel", 3, ("data.csv",))
    assert document.warnings == (PageWarning("xfa"),)
    pages = list(document.pages)
    assert [page.page for page in pages] == [1, 2, 3]
    failed = pages[1]
    assert isinstance(failed, FailedPage)
    assert (failed.code, failed.message, failed.label) == ("too_large", "900 megapixels", "ii")


def test_pages_are_loaded_one_by_one(desk: Desk) -> None:
    start(desk, 50)
    jobs.release(desk.conn, "w")
    desk.read_all()
    statements: list[str] = []
    desk.conn.set_trace_callback(statements.append)
    document = results.load_document(desk.conn, 1)
    next(document.pages)
    desk.conn.set_trace_callback(None)
    assert sum("FROM blocks" in statement for statement in statements) == 1


def test_of_a_long_document_only_the_pages_asked_for_are_loaded(desk: Desk) -> None:
    start(desk, 50)
    jobs.release(desk.conn, "w")
    desk.read_all()
    statements: list[str] = []
    desk.conn.set_trace_callback(statements.append)
    pages = list(results.load_document(desk.conn, 1, only={7, 49}).pages)
    desk.conn.set_trace_callback(None)
    assert [page.page for page in pages] == [7, 49]
    assert sum("FROM blocks" in statement for statement in statements) == 2


def test_document_that_is_not_there_is_told(fresh_db: sqlite3.Connection) -> None:
    with pytest.raises(DatabaseError, match="no document 7"):
        results.load_document(fresh_db, 7)


# --- lines --------------------------------------------------------------------------------------------------

coordinates = st.integers(-100_000, 2_000_000).map(lambda value: value / 100)
boxes = st.tuples(coordinates, coordinates, coordinates, coordinates)
confidences = st.none() | st.integers(0, 10_000).map(lambda value: value / 10_000)
words = st.builds(Word, st.text(max_size=8), boxes, confidences)
lines = st.builds(
    Line,
    st.text(max_size=20),
    boxes,
    st.lists(words, max_size=3).map(tuple),
    st.integers(0, 10_000).map(lambda value: value / 100),
    st.sampled_from(Direction),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    confidences,
    st.none() | st.integers(0, 99),
    st.integers(-1800, 1800).map(lambda value: value / 10),
)


@given(st.lists(lines, max_size=4).map(tuple))
def test_lines_come_back_as_they_were(value: tuple[Line, ...]) -> None:
    assert decode_lines(encode_lines(value)) == value


def test_numbers_that_are_none_do_not_reach_the_json() -> None:
    nan, infinite = float("nan"), float("inf")
    line = Line(
        "x",
        (nan, infinite, -infinite, 1.005),
        (Word("x", (0.0, 0.0, 0.0, nan), nan),),
        nan,
        confidence=infinite,
    )
    (back,) = decode_lines(encode_lines((line,)))
    assert back == Line("x", (0.0, 0.0, 0.0, 1.0), (Word("x", (0.0, 0.0, 0.0, 0.0)),))


def test_plain_line_is_short() -> None:
    assert encode_lines((Line("x", (1.0, 2.0, 3.0, 4.25)),)) == '[{"t":"x","b":[1,2,3,4.25]}]'
