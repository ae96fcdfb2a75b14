"""What a request may name: its own data, files below allowed folders; nothing else is told of."""

from __future__ import annotations

import base64
import io
import os
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.server import urls
from daemon.server.failures import Refused
from daemon.server.urls import Reach


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """scans/page.png, scans/deep/er.png, an outside file, and links of every kind."""
    scans = tmp_path / "scans"
    (scans / "deep").mkdir(parents=True)
    (scans / "page.png").write_bytes(b"page")
    (scans / "deep" / "er.png").write_bytes(b"deeper")
    (scans / "š %20.png").write_bytes(b"odd")
    (tmp_path / "secret").write_bytes(b"secret")
    (scans / "link").symlink_to(tmp_path / "secret")
    (scans / "up").symlink_to(tmp_path)
    (scans / "inner").symlink_to(scans / "deep")
    os.mkfifo(scans / "pipe")
    (tmp_path / "scans-not").mkdir()
    (tmp_path / "scans-not" / "x.png").write_bytes(b"neighbour")
    (scans / "home").mkdir()
    (scans / "home" / "server.token").write_bytes(b"token")
    return tmp_path


def read(url: str, tree: Path, *roots: Path) -> bytes:
    into = io.BytesIO()
    urls.copy(url, into, Reach(roots), private=tree / "scans" / "home")
    return into.getvalue()


@pytest.mark.parametrize(
    ("path", "content"),
    [("page.png", b"page"), ("deep/er.png", b"deeper"), ("inner/er.png", b"deeper"), ("deep/../page.png", b"page"),
     ("š %20.png", b"odd")],
)  # fmt: skip
def test_files_below_an_allowed_folder_are_read(tree: Path, path: str, content: bytes) -> None:
    from urllib.parse import quote

    url = f"file://{quote(str(tree / 'scans'))}/{quote(path)}"
    assert read(url, tree, tree / "scans") == content
    assert read(url.replace("file://", "file://localhost"), tree, tree / "scans") == content


@pytest.mark.parametrize(
    "path",
    ["../secret", "deep/../../secret", "%2e%2e/secret", "link", "up/secret", "deep", "", "none.png", "pipe",
     "page.png%00", "../scans-not/x.png", "home/server.token", "page.png/x"],
)  # fmt: skip
def test_all_else_is_refused_in_the_same_words(tree: Path, path: str) -> None:
    with pytest.raises(Refused) as refused:
        read(f"file://{tree / 'scans'}/{path}", tree, tree / "scans")
    assert refused.value.status == 403
    assert refused.value.message == "not a file below an allowed folder"


@pytest.mark.parametrize(
    "url",
    ["file:page.png", "file://example.org/etc/passwd", "file:", "file:////etc/passwd", "FILE:///etc/passwd"],
)
def test_file_urls_of_other_kinds_are_refused(tree: Path, url: str) -> None:
    with pytest.raises(Refused) as refused:
        read(url, tree, tree / "scans")
    assert refused.value.status == 403


def test_without_a_root_no_file_may_be_named(tree: Path) -> None:
    with pytest.raises(Refused):
        read((tree / "scans" / "page.png").as_uri(), tree)


def test_a_link_put_in_the_way_after_the_look_is_not_followed(tree: Path) -> None:
    """The walk itself takes no link, so that changing the tree between look and opening gains nothing."""
    for names in (["link"], ["up", "secret"]):
        with pytest.raises(OSError):
            os.close(urls._walk(tree / "scans", names))


def test_watched_folders_are_roots_where_that_is_allowed(tree: Path, conn: sqlite3.Connection) -> None:
    conn.execute(
        "INSERT INTO roots (path, path_bytes, watched, added_at) VALUES (?, ?, 1, 0)",
        (str(tree / "scans"), os.fsencode(tree / "scans")),
    )
    assert Reach((Path("/a"),), watched=True).with_watched(conn).roots == (Path("/a"), tree / "scans")


@given(st.binary(min_size=1, max_size=200))
def test_data_urls_come_back(data: bytes) -> None:
    assert urls.data_of("data:image/png;base64," + base64.b64encode(data).decode()) == data


@given(st.text(max_size=60))
def test_no_text_after_data_breaks_it(text: str) -> None:
    try:
        assert urls.data_of("data:" + text)
    except Refused as refused:
        assert refused.status == 400
