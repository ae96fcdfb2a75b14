"""What a walk of a real folder finds, and what it leaves alone."""

# ruff: noqa: PTH119, PTH123 (paths are bytes here)
from __future__ import annotations

import os
import socket
import unicodedata
from pathlib import Path

import pytest

from daemon import scanner
from daemon.ignore import IgnoreRules, Kind
from daemon.scanner import Tally, WatchRoot

PDF = b"%PDF-1.4\n"


def names(folder: Path, **options: object) -> list[str]:
    root = WatchRoot(os.fsencode(folder), recursive=bool(options.pop("recursive", True)))
    rules = options.pop("rules", IgnoreRules())
    found = scanner.walk(root, rules, options.pop("tally", Tally()), **options)  # type: ignore[arg-type]
    return sorted(os.path.relpath(os.fsdecode(file.path), folder) for file in found)


def put(path: Path, content: bytes = PDF) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_a_walk_finds_files_at_every_depth_and_folders_named_like_files(tmp_path: Path) -> None:
    put(tmp_path / "a.pdf")
    put(tmp_path / "dir.pdf" / "b.PDF")
    put(tmp_path / "x" / "y" / "c.png")
    assert names(tmp_path) == ["a.pdf", "dir.pdf/b.PDF", "x/y/c.png"]
    assert names(tmp_path, recursive=False) == ["a.pdf"]


def test_ignored_folders_our_output_and_other_roots_are_left_out(tmp_path: Path) -> None:
    for folder in (".git", "@eaDir", "out", "other", "in"):
        put(tmp_path / folder / "a.pdf")
    rules = IgnoreRules(folders=frozenset((os.fsencode(tmp_path / "out"),)))
    skip = frozenset((os.fsencode(tmp_path / "other"),))
    assert names(tmp_path, rules=rules, skip=skip) == ["in/a.pdf"]


def test_links_make_one_file_at_most_and_loops_end(tmp_path: Path) -> None:
    root = tmp_path / "root"
    put(root / "a.pdf")
    put(tmp_path / "outside.pdf")
    put(tmp_path / "elsewhere" / "b.pdf")
    (root / "link.pdf").symlink_to("a.pdf")
    (root / "out.pdf").symlink_to(tmp_path / "outside.pdf")
    (root / "broken.pdf").symlink_to("/nonexistent/x.pdf")
    (root / "loop").symlink_to(".")
    (root / "sub").mkdir()
    (root / "sub" / "up").symlink_to("..")
    (root / "away").symlink_to(tmp_path / "elsewhere")
    assert names(root) == ["a.pdf"]
    assert names(root, follow_symlinks=True) == ["a.pdf", "away/b.pdf", "out.pdf"]


def test_pipes_and_sockets_are_not_even_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "fifo.pdf")
    os.mkfifo(tmp_path / "fifo")
    monkeypatch.chdir(tmp_path)  # socket paths are limited to some 100 bytes
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("sock.pdf")
        assert names(tmp_path) == []


def test_hard_links_are_two_files(tmp_path: Path) -> None:
    put(tmp_path / "a.pdf")
    os.link(tmp_path / "a.pdf", tmp_path / "b.pdf")
    assert names(tmp_path) == ["a.pdf", "b.pdf"]


def test_names_of_any_bytes_and_any_length_are_found(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path)
    wanted = {
        b"latin1-\xe9.pdf",
        "ä".encode() * 125 + b"x.pdf",
        b"new\nline.pdf",
        unicodedata.normalize("NFD", "é.pdf").encode(),
    }
    made = set()
    for name in wanted:
        try:
            with open(folder + b"/" + name, "wb") as file:
                file.write(PDF)
            made.add(name)
        except OSError:  # a file system that takes UTF-8 only
            continue
    found = {os.path.basename(file.path) for file in scanner.walk(WatchRoot(folder), IgnoreRules(), Tally())}
    assert found == made


def test_a_path_over_a_thousand_bytes_is_found(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["d" * 60] * 20)
    try:
        deep.mkdir(parents=True)
    except OSError as error:  # macOS: 1,024 bytes
        pytest.skip(f"this system has no such paths: {error.strerror}")
    put(deep / "deep.pdf")
    assert len(names(tmp_path)) == 1


def test_a_folder_that_cannot_be_listed_is_tallied_and_the_rest_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "a.pdf")
    closed = put(tmp_path / "closed" / "b.pdf").parent
    real = os.scandir

    def refuse(path: bytes) -> object:
        if path == os.fsencode(closed):
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", refuse)  # root may list what it likes
    tally = Tally()
    assert names(tmp_path, tally=tally) == ["a.pdf"]
    assert list(tally.unreadable) == [os.fsencode(closed)]


def test_placeholders_are_counted_not_found(tmp_path: Path) -> None:
    put(tmp_path / ".report.pdf.icloud", b"bplist00")
    tally = Tally()
    assert names(tmp_path, tally=tally) == []
    assert tally.in_cloud == 1


def test_one_path_is_judged_as_the_walk_would(tmp_path: Path) -> None:
    put(tmp_path / "sub" / "a.pdf")
    put(tmp_path / ".hidden" / "a.pdf")
    put(tmp_path / "SCAN")
    root = WatchRoot(os.fsencode(tmp_path))
    rules = IgnoreRules()

    def look(name: str, root: WatchRoot = root) -> scanner.Found | None:
        return scanner.look(os.fsencode(tmp_path / name), root, rules)

    assert look("sub/a.pdf") is not None
    assert look("sub/a.pdf", WatchRoot(root.path, recursive=False)) is None
    assert look(".hidden/a.pdf") is None
    assert look("sub") is None
    assert (found := look("SCAN")) is not None and found.kind is Kind.UNKNOWN
    assert scanner.look(b"/elsewhere/a.pdf", root, rules) is None
    with pytest.raises(FileNotFoundError):
        look("none.pdf")


def test_content_decides_where_there_is_no_extension(tmp_path: Path) -> None:
    assert scanner.is_document(os.fsencode(put(tmp_path / "SCAN")))
    assert scanner.is_document(os.fsencode(put(tmp_path / "IMG", b"\x89PNG\r\n\x1a\n")))
    assert not scanner.is_document(os.fsencode(put(tmp_path / "Makefile", b"all:\n")))


def test_a_name_is_spelt_as_the_folder_has_it(tmp_path: Path) -> None:
    decomposed = put(tmp_path / unicodedata.normalize("NFD", "Übergröße.pdf"))
    typed = tmp_path / unicodedata.normalize("NFC", "Übergröße.pdf")
    assert scanner.on_disk(os.fsencode(typed)) == os.fsencode(decomposed)
    assert scanner.on_disk(os.fsencode(decomposed)) == os.fsencode(decomposed)
    assert scanner.on_disk(os.fsencode(tmp_path / "none.pdf")) == os.fsencode(tmp_path / "none.pdf")
