"""What is sent is queued like any given file, under a name that was free, and never twice."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st

from daemon.server import uploads
from storage.sidecars import NAME_BYTES, sidecar_names
from tests.daemon.conftest import pdf_of, png_of
from tests.daemon.server.shelf import Shelf


@pytest.fixture
def client(shelf: Shelf) -> Iterator[TestClient]:
    with shelf.client() as client:
        yield client


def left_over(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*.tmp")]


def test_an_upload_is_stored_queued_and_read(client: TestClient, shelf: Shelf) -> None:
    data = pdf_of(["A letter that was sent from a browser\nwith some words on its only page"])
    told = client.post("/api/documents", files={"file": ("../../etc/Brief für Ada.pdf", data)})
    assert told.status_code == 201 and not told.json()["known"]
    document = told.json()["document"]
    path = Path(document["path"])
    assert path == shelf.settings.home / "uploads" / "Brief für Ada.pdf" and path.read_bytes() == data
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and document["state"] == "queued"
    shelf.read()
    assert client.get(f"/api/documents/{document['id']}").json()["state"] == "done"
    assert client.get("/api/search?q=browser").json()["hits"][0]["document_id"] == document["id"]
    assert left_over(shelf.settings.home) == []


def test_the_same_content_is_not_stored_again(client: TestClient, shelf: Shelf) -> None:
    first = client.post("/api/documents", files={"file": ("a.png", png_of(1))}).json()["document"]
    shelf.read()
    again = client.post("/api/documents", files={"file": ("b.png", png_of(1))})
    assert (again.status_code, again.json()["known"]) == (200, True)
    assert again.json()["document"]["id"] == first["id"]
    assert sorted(path.name for path in (shelf.settings.home / "uploads").glob("*.png")) == ["a.png"]
    assert left_over(shelf.settings.home) == []


def test_content_whose_files_are_gone_is_stored(client: TestClient, shelf: Shelf) -> None:
    first = client.post("/api/documents", files={"file": ("a.png", png_of(1))}).json()["document"]
    shelf.read()
    Path(first["path"]).unlink()
    shelf.conn.execute("UPDATE files SET missing_since = 1 WHERE id = ?", (first["id"],))
    assert client.post("/api/documents", files={"file": ("a.png", png_of(1))}).status_code == 201


def test_nothing_is_overwritten(client: TestClient, shelf: Shelf) -> None:
    names = []
    for seed in range(3):
        told = client.post("/api/documents", files={"file": ("scan.png", png_of(seed))}).json()
        names.append(told["document"]["name"])
    assert names == ["scan.png", "scan (2).png", "scan (3).png"]
    kept = [(shelf.settings.home / "uploads" / name).read_bytes() for name in names]
    assert kept == [png_of(seed) for seed in range(3)]


def test_a_file_system_without_links_overwrites_nothing_either(
    client: TestClient, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    for seed in range(2):
        client.post("/api/documents", files={"file": ("scan.png", png_of(seed))})
    assert (shelf.settings.home / "uploads" / "scan.png").read_bytes() == png_of(0)
    assert (shelf.settings.home / "uploads" / "scan (2).png").read_bytes() == png_of(1)


def test_the_bytes_alone_will_do(client: TestClient) -> None:
    headers = {"Content-Type": "application/octet-stream"}
    told = client.post("/api/documents?name=photo", content=png_of(4), headers=headers)
    assert told.json()["document"]["name"] == "photo.png"


@pytest.mark.parametrize(
    ("name", "data", "status", "code"),
    [
        ("page.pdf", b"<!DOCTYPE html><html></html>", 400, "not_a_document"),
        ("mail.pdf", b"PK\x03\x04 something zipped", 400, "not_a_document"),
        ("paper.djvu", b"AT&TFORM and more", 415, "unsupported"),
        ("empty.pdf", b"", 400, "empty_file"),
    ],
)
def test_what_is_no_document_is_refused(
    client: TestClient, shelf: Shelf, name: str, data: bytes, status: int, code: str
) -> None:
    told = client.post("/api/documents", files={"file": (name, data)})
    assert (told.status_code, told.json()["error"]["code"]) == (status, code)
    assert list((shelf.settings.home / "uploads").iterdir()) == []
    assert client.get("/api/documents").json()["documents"] == []


FORM = "multipart/form-data; boundary=x"
PART = b'--x\r\nContent-Disposition: form-data; name="file"'


@pytest.mark.parametrize(
    ("content_type", "body", "code"),
    [
        ("multipart/form-data", b"whatever", "invalid_form"),
        (FORM, b"no boundary at all", "invalid_form"),
        (FORM, PART + b"\r\n\r\n1\r\n--x--\r\n", "no_file"),
        (FORM, PART + b'; filename="a"\r\n\r\n%PDF-', "invalid_form"),
        ("application/octet-stream", b"", "empty_file"),
    ],
)
def test_malformed_bodies_are_refused(
    client: TestClient, shelf: Shelf, content_type: str, body: bytes, code: str
) -> None:
    told = client.post("/api/documents", content=body, headers={"Content-Type": content_type})
    assert (told.status_code, told.json()["error"]["code"]) == (400, code)
    assert left_over(shelf.settings.home) == []


def test_one_file_at_a_time(client: TestClient, shelf: Shelf) -> None:
    told = client.post(
        "/api/documents", files=[("file", ("a.png", png_of(1))), ("file", ("b.png", png_of(2)))]
    )
    assert (told.status_code, told.json()["error"]["code"]) == (400, "many_files")
    assert list((shelf.settings.home / "uploads").iterdir()) == []


def test_a_watched_folder_takes_uploads_and_no_other_does(
    client: TestClient, shelf: Shelf, tmp_path: Path
) -> None:
    papers = tmp_path / "papers"
    root_id = shelf.watch(papers)
    (papers / "below").mkdir()
    (papers / "way-out").symlink_to(tmp_path)
    for folder, name in ((papers, "a.png"), (papers / "below", "b.png")):
        told = client.post(
            f"/api/documents?folder={folder}", files={"file": (name, png_of(len(str(folder))))}
        )
        assert told.status_code == 201 and Path(told.json()["document"]["path"]) == folder / name
    assert [row[0] for row in shelf.conn.execute("SELECT root_id FROM files")] == [root_id, root_id]
    for folder in (tmp_path, papers / "..", papers / "way-out", papers / "none", Path("papers"), Path("/")):
        told = client.post(f"/api/documents?folder={folder}", files={"file": ("c.png", png_of(9))})
        assert (told.status_code, told.json()["error"]["param"]) == (404, "folder"), folder
    assert (
        client.post("/api/documents?folder=/a%00b", files={"file": ("c.png", png_of(9))}).status_code == 404
    )


def test_a_full_disk_is_told_and_leaves_nothing(
    client: TestClient, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    told = client.post("/api/documents", files={"file": ("a.png", png_of(1))})
    assert (told.status_code, told.json()["error"]["code"]) == (503, "disk_full")
    assert list((shelf.settings.home / "uploads").iterdir()) == []


@given(st.text(max_size=400), st.sampled_from(["application/pdf", "image/png"]))
def test_any_name_becomes_a_safe_one(given_name: str, media_type: str) -> None:
    name = uploads.file_name(given_name, media_type)
    encoded = os.fsencode(name)
    assert 0 < len(encoded) <= NAME_BYTES and not name.startswith(".")
    assert not set(name) & set("/\\\0\n\r\x1b\u202e")
    assert uploads.file_name(name, media_type) == name
    markdown, _ = sidecar_names(b"/" + list(zip(range(9), uploads.free_names(name), strict=False))[-1][1])
    assert b"~" not in markdown.replace(encoded, b"") or b"~" in encoded  # none has to be cut
