"""What reaches a terminal: escapes, errors, durations."""

import io
import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon import console
from storage.errors import PasswordError

# Everything a terminal acts on, or that makes text read otherwise than it is stored.
DANGEROUS = {
    chr(c) for c in (*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("plain.pdf", "plain.pdf"),
        ("new\nline.pdf", r"new\nline.pdf"),
        ("tab\tname.pdf", r"tab\tname.pdf"),
        ("rtl \u202egpj.pdf", r"rtl \u202egpj.pdf"),
        ("\x1b[31mred\x1b]0;title\x07.pdf", r"\x1b[31mred\x1b]0;title\x07.pdf"),
        ("c1 \x9b31m", r"c1 \x9b31m"),
        ("[link](x) *md*.pdf", "[link](x) *md*.pdf"),
        (b"latin \xe9.pdf", r"latin \xe9.pdf"),
        ("über café 📄.pdf", "über café 📄.pdf"),
        ("نامه\u200cها.pdf", "نامه\u200cها.pdf"),
        (Path("/a/한글.pdf"), "/a/한글.pdf"),
    ],
)
def test_name_is_shown_on_one_line(name: str | bytes | Path, shown: str) -> None:
    assert console.escape_name(name) == shown


@given(st.text())
def test_no_name_can_steer_a_terminal(name: str) -> None:
    shown = console.escape_name(name)
    assert not DANGEROUS & set(shown)
    assert len(shown.splitlines()) <= 1
    shown.encode("utf-8")


@given(st.binary())
def test_any_bytes_can_be_shown(name: bytes) -> None:
    console.escape_name(name).encode("utf-8")


@given(st.text())
def test_page_text_keeps_its_lines_and_loses_its_control_characters(text: str) -> None:
    shown = console.escape_text(text)
    assert not (DANGEROUS - {"\n", "\t"}) & set(shown)
    assert shown.count("\n") == text.count("\n")


def test_page_text_is_escaped_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for stream, expected in ((Terminal(), "a\\x1b[2Jb\n"), (io.StringIO(), "a\x1b[2Jb\n")):
        monkeypatch.setattr(sys, "stdout", stream)
        console.write_text("a\x1b[2Jb")
        assert stream.getvalue() == expected


@pytest.mark.parametrize(
    ("variables", "bold"), [({"TERM": "xterm"}, True), ({"TERM": "dumb"}, False), ({"NO_COLOR": "1"}, False)]
)
def test_colour_is_for_terminals_that_want_it(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], bold: bool
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert console.has_colour(Terminal()) is bold
    assert not console.has_colour(io.StringIO())


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0 s"),
        (59.4, "59 s"),
        (60, "1 min"),
        (200, "3 min 20 s"),
        (3600, "1 h"),
        (7500, "2 h 5 min"),
        (360000, "4 d 4 h"),
    ],
)
def test_duration(seconds: float, shown: str) -> None:
    assert console.duration(seconds) == shown


@given(st.text(min_size=0, max_size=60), st.integers(8, 40))
def test_shortened_name_fits_and_keeps_its_end(name: str, width: int) -> None:
    short = console.shorten(name, width)
    assert len(short) <= max(width, 0)
    assert short == name or (name.endswith(short.partition("…")[2]) and "…" in short)


def test_error_says_file_page_cause_and_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    console.complain(PasswordError("is encrypted", file="a\nb.pdf", page=3, remedy="ask its author"))
    assert capsys.readouterr().err == "ocrd: a\\nb.pdf, page 3: is encrypted. Ask its author\n"


def test_json_holds_nothing_that_a_terminal_obeys_and_says_the_same(
    capsys: pytest.CaptureFixture[str],
) -> None:
    value = {"a\x9b31m": "\u202efdp.exe \x1b[31m \u2028 \x7f naïve ☃ 😀 \n\t", "lone": "\udc80"}
    console.write_json(value)
    shown = capsys.readouterr().out
    assert json.loads(shown) == value
    assert "naïve ☃ 😀" in shown
    assert not [c for c in shown if console._is_unsafe(ord(c)) and c != "\n"]
