"""Names and folders that are no documents."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.ignore import EXTENSIONS, IgnoreRules, Kind

RULES = IgnoreRules()


DOCUMENTS = """a.pdf A.PDF scan.Pdf x.PnG FAX.TIFF p.JPG p.jpeg h.HEIC h.heif w.webp b.bmp g.gif
    double.pdf.pdf page.html.pdf -rf.pdf percent%20.pdf"""
OTHERS = """._a.pdf .DS_Store .hidden.pdf .~lock.a.pdf# Thumbs.db THUMBS.DB desktop.ini ~$draft.pdf
    a.pdf.part a.pdf.crdownload a.pdf.download a.pdf.tmp a.pdf.filepart scan.pd~ a.pdf~ a.PDF.PART
    a.md a.pdf.md a.pdf.json a.txt a.docx a.zip a. .icloud ..icloud .a.txt.icloud"""


@pytest.mark.parametrize("name", DOCUMENTS.split())
def test_extensions_are_known_without_case(name: str) -> None:
    assert RULES.kind(name.encode()) is Kind.DOCUMENT


@pytest.mark.parametrize("name", OTHERS.split())
def test_names_of_others_and_of_ourselves_are_ignored(name: str) -> None:
    assert RULES.kind(name.encode()) is Kind.IGNORED


def test_a_name_without_extension_is_left_to_its_content() -> None:
    assert RULES.kind(b"SCAN0001") is Kind.UNKNOWN


def test_a_placeholder_stands_for_a_file_in_the_cloud() -> None:
    assert RULES.kind(b".report.pdf.icloud") is Kind.CLOUD
    assert RULES.kind(b".Scan.icloud") is Kind.CLOUD


def test_bytes_that_are_no_text_are_judged_like_any_name() -> None:
    assert RULES.kind(b"latin1-\xe9.pdf") is Kind.DOCUMENT
    assert IgnoreRules(patterns=("latin1-*",)).kind(b"latin1-\xe9.pdf") is Kind.IGNORED


@pytest.mark.parametrize(
    "folder", [b".git", b"@eaDir", b".stversions", b"$RECYCLE.BIN", b"P.photoslibrary", b"x.pdf.download"]
)
def test_folders_of_programs_are_not_entered(folder: bytes) -> None:
    assert RULES.skips_folder(b"/scans/" + folder)


def test_our_own_folders_are_not_entered() -> None:
    rules = IgnoreRules(folders=frozenset((b"/scans/out",)))
    assert rules.skips_folder(b"/scans/out")
    assert not rules.skips_folder(b"/scans/other/out")


def test_patterns_match_names_and_with_a_slash_paths_below_the_root() -> None:
    rules = IgnoreRules(patterns=("draft*", "old/*.pdf", "Private/"))
    assert rules.kind(b"Draft 1.pdf") is Kind.IGNORED
    assert rules.kind(b"x.pdf", b"old") is Kind.IGNORED
    assert rules.kind(b"x.pdf", b"new") is Kind.DOCUMENT
    assert rules.skips_folder(b"/scans/private")


@given(st.binary(min_size=1, max_size=60))
def test_any_name_is_judged_and_only_known_extensions_are_documents(name: bytes) -> None:
    kind = RULES.kind(name)
    if kind is Kind.DOCUMENT:
        assert any(name.lower().endswith(extension) for extension in EXTENSIONS)
    if name.startswith(b"."):
        assert kind in (Kind.IGNORED, Kind.CLOUD)
