"""What unpacks to more than fits is found without unpacking it; honest files never are."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from pipeline import pdf_bombs
from pipeline.source import open_source
from storage.errors import TooLargeError
from tests.faults import bombs
from tests.pdf_factory import Page, pdf, picture, scan, text

HONEST = sorted((Path(__file__).parent.parent.parent / "samples").glob("*.pdf"))


def put(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundredth of the limits: unpacking hundreds of megabytes takes seconds."""
    for name in ("LIMIT_BYTES", "LONELY_BYTES", "_NOTABLE"):
        monkeypatch.setattr(pdf_bombs, name, getattr(pdf_bombs, name) // 100)


@pytest.fixture(scope="module")
def packed() -> bytes:
    return bombs._packed(3)


@pytest.mark.parametrize(
    "entries",
    [
        "/Filter /FlateDecode",
        "/Filter[/ASCII /Fl]",
        "/Filter /Fl#61teDecode",
        "/Filter 9 0 R",
        "/Filter [/FlateDecode]",
    ],
)
def test_content_that_unpacks_to_too_much_is_refused_whatever_its_filter_is_called(
    entries: str, packed: bytes, tmp_path: Path
) -> None:
    with pytest.raises(TooLargeError, match="unpack"):
        open_source(put(tmp_path / "a.pdf", bombs._one_page(packed, entries)))


def test_deflated_twice(tmp_path: Path) -> None:
    twice = bombs._one_page(zlib.compress(bombs._packed(3)), "/Filter [/FlateDecode /FlateDecode]")
    assert len(twice) < 10_000
    assert pdf_bombs.find(put(tmp_path / "a.pdf", twice)) is not None


def test_many_that_are_too_much_together(tmp_path: Path) -> None:
    once = bombs._packed(1)
    some = [f"<</Filter /FlateDecode /Length {len(once)}>> stream\n".encode() + once + b"\nendstream"] * 3
    file = bombs._one_page(once, "/Filter /FlateDecode", "", some)
    assert pdf_bombs.find(put(tmp_path / "a.pdf", file)) is not None


def test_honest_files_are_not_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    drawn = "".join(f"{x} {y} m {x + 3} {y + 5} l S\n" for x in range(400) for y in range(400))
    image = scan([("words", 60, 700, 14)], dpi=300)
    made = put(
        tmp_path / "a.pdf", pdf(Page(drawn + text("x", 1, 1)), Page(picture(0, 0, 0, 9, 9), images=[image]))
    )
    for path in (made, *HONEST):
        assert pdf_bombs.find(path) is None


@pytest.mark.parametrize(
    "data", [b"", b">>stream\n", b"<</Filter/FlateDecode>>stream\n", b"<</Filter/Fl/Fl>>stream\nx"]
)
def test_stumps_are_no_bombs(data: bytes, tmp_path: Path) -> None:
    assert pdf_bombs.find(put(tmp_path / "a.pdf", data)) is None
