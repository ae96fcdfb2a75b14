"""The library API answers from what was really read, in the shapes it promises."""

from __future__ import annotations

import io
import itertools
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from PIL import Image

from daemon.mcp import answers as mcp_answers
from daemon.server import library_api_search, shapes
from daemon.server.app import create_app
from storage import index
from tests.daemon.conftest import pdf_of, png_of
from tests.daemon.server.shelf import Shelf

HARBOUR = (
    "The harbour ledger of the year\nlists forty ships and their cargo\nwith the harbour dues paid by each"
)
MARKET = "Prices at the market rose\nwhen the ships were late again\nand bread was scarce in town"


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory, empty_database: Path) -> Iterator[Shelf]:
    base = tmp_path_factory.mktemp("library")
    home = base / "home"
    home.mkdir(mode=0o700)
    shutil.copy(empty_database, home / "ocrd.db")
    shelf = Shelf(home)
    papers = base / "papers"
    (papers / "old").mkdir(parents=True)
    root_id = shelf.watch(papers)
    (papers / "harbour.pdf").write_bytes(pdf_of([HARBOUR, MARKET, HARBOUR]))
    (papers / "old" / "market.pdf").write_bytes(pdf_of([MARKET]))
    (papers / "scan.png").write_bytes(png_of(1))
    (papers / "broken.pdf").write_bytes(b"%PDF-1.4 and nothing more")
    for n, name in enumerate(("harbour.pdf", "old/market.pdf", "scan.png", "broken.pdf")):
        shelf.put(papers / name, root_id=root_id, now=1_700_000_000.0 + n)
    shelf.read()
    yield shelf
    shelf.conn.close()


@pytest.fixture(scope="module")
def client(shelf: Shelf) -> Iterator[TestClient]:
    with shelf.client() as client:
        yield client


def names(answer: object) -> list[str]:
    return [document["name"] for document in answer["documents"]]  # type: ignore[index]


# --- documents ---------------------------------------------------------------------------------------------


def test_documents_are_told_with_state_and_error(client: TestClient) -> None:
    answer = client.get("/api/documents").json()
    assert answer["next"] is None
    assert {document["name"]: document["state"] for document in answer["documents"]} == {
        "harbour.pdf": "done", "market.pdf": "done", "scan.png": "done", "broken.pdf": "failed",
    }  # fmt: skip
    broken = next(document for document in answer["documents"] if document["name"] == "broken.pdf")
    assert broken["error"]["code"] == "corrupt" and broken["error"]["remedy"]
    harbour = next(document for document in answer["documents"] if document["name"] == "harbour.pdf")
    assert (harbour["pages"], harbour["pages_done"], harbour["media_type"]) == (3, 3, "application/pdf")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("sort=added&order=asc", ["harbour.pdf", "market.pdf", "scan.png", "broken.pdf"]),
        ("sort=name&order=asc", ["broken.pdf", "harbour.pdf", "market.pdf", "scan.png"]),
        ("sort=name", ["scan.png", "market.pdf", "harbour.pdf", "broken.pdf"]),
        ("state=failed", ["broken.pdf"]),
        ("state=done&state=failed&sort=name&order=asc", ["broken.pdf", "harbour.pdf", "market.pdf", "scan.png"]),
        ("folder=PAPERS/old", ["market.pdf"]),
        ("folder=papers/OLD", ["market.pdf"]),
        ("folder=PAPERS/ol", []),
        ("name=ar&sort=name&order=asc", ["harbour.pdf", "market.pdf"]),
        ("name=*.png", ["scan.png"]),
        ("engine=fake", ["scan.png"]),
        ("engine=text-layer&sort=name&order=asc", ["harbour.pdf", "market.pdf"]),
        ("since=1700000002&order=asc", ["scan.png", "broken.pdf"]),
        ("until=1700000001", ["harbour.pdf"]),
        ("until=1700000001&sort=name", ["harbour.pdf"]),
        ("state=missing", []),
    ],
)  # fmt: skip
def test_filters_and_sorts(client: TestClient, shelf: Shelf, query: str, expected: list[str]) -> None:
    papers = str(shelf.settings.home.parent / "papers")
    assert names(client.get("/api/documents?" + query.replace("PAPERS", papers)).json()) == expected


@pytest.mark.parametrize("sort", list(shapes.Sort))
@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("extra", ["", "&name=*&state=done&state=failed"])
def test_pages_of_the_list_make_up_the_whole(client: TestClient, sort: str, order: str, extra: str) -> None:
    address = f"/api/documents?sort={sort}&order={order}{extra}"
    whole = names(client.get(address).json())
    assert len(whole) == 4
    found, cursor = [], ""
    for _ in range(10):
        answer = client.get(address + "&limit=1" + (f"&cursor={cursor}" if cursor else "")).json()
        found += names(answer)
        cursor = answer["next"]
        if cursor is None:
            break
    assert found == whole


def test_a_cursor_of_another_list_is_refused(client: TestClient) -> None:
    cursor = client.get("/api/documents?sort=name&limit=1").json()["next"]
    told = client.get(f"/api/documents?sort=size&limit=1&cursor={cursor}")
    assert (told.status_code, told.json()["error"]["code"]) == (400, "cursor")


def test_a_document_tells_its_sidecars_and_pages(client: TestClient, shelf: Shelf) -> None:
    document = client.get(f"/api/documents/{shelf.id_of('harbour.pdf')}").json()
    markdown, as_json = (client.get(address) for address in document["sidecars"])
    assert b"harbour ledger" in markdown.content and "attachment" in markdown.headers["content-disposition"]
    assert as_json.json()["schema"] == "ocrd/1"
    pages = client.get(f"/api/documents/{document['id']}/pages?limit=2").json()
    assert [page["number"] for page in pages["pages"]] == [1, 2] and pages["next"] == 2
    rest = client.get(f"/api/documents/{document['id']}/pages?after=2").json()
    assert [page["number"] for page in rest["pages"]] == [3] and rest["next"] is None


def test_what_is_not_there_is_404_in_the_one_shape(client: TestClient) -> None:
    for address in (
        "/api/documents/999",
        "/api/documents/999/pages",
        "/api/pages/999",
        "/api/pages/999/image",
    ):
        told = client.get(address)
        assert told.status_code == 404, address
        shapes.Problem.model_validate(told.json())
    assert client.get("/api/documents/9223372036854775808").status_code == 422


def test_a_sidecar_replaced_by_a_link_is_not_handed_out(
    client: TestClient, shelf: Shelf, tmp_path: Path
) -> None:
    document = client.get(f"/api/documents/{shelf.id_of('market.pdf')}").json()
    path = Path(document["path"] + ".md")
    kept = path.read_bytes()
    secret = tmp_path / "secret.md"
    secret.write_bytes(kept + b"secret")
    path.unlink()
    path.symlink_to(secret)
    try:
        assert client.get(document["sidecars"][0]).status_code == 409
    finally:
        path.unlink()
        path.write_bytes(kept)


# --- pages -------------------------------------------------------------------------------------------------


def test_a_page_has_text_blocks_boxes_and_neighbours(client: TestClient, shelf: Shelf) -> None:
    page = client.get(f"/api/documents/{shelf.id_of('harbour.pdf')}/pages/2?words=true").json()
    assert "Prices at the market" in page["text"] and page["markdown"] and page["state"] == "done"
    assert (page["width_pt"], page["height_pt"]) == (595, 842)
    assert (page["previous"]["number"], page["next"]["number"]) == (1, 3)
    assert page["provenance"]["source"] == "text-layer" and page["provenance"]["read_at"] > 1.7e9
    word = page["blocks"][0]["lines"][0]["words"][0]
    assert word["text"] == "Prices" and 70 < word["box"][0] < 74
    assert client.get(f"/api/pages/{page['page_id']}").json() == {
        **page, "blocks": [{**block, "lines": None} for block in page["blocks"]]
    }  # fmt: skip


def test_matches_are_the_boxes_of_the_words(client: TestClient, shelf: Shelf) -> None:
    page = client.get(f"/api/documents/{shelf.id_of('harbour.pdf')}/pages/1?q=harbour&words=true").json()
    words = [word for block in page["blocks"] for line in block["lines"] for word in line["words"]]
    expected = [word["box"] for word in words if word["text"] == "harbour"]
    assert [box for match in page["matches"] for box in match["boxes"]] == expected and len(expected) == 2


def test_a_phrase_over_a_line_end_has_a_box_on_each_line(client: TestClient, shelf: Shelf) -> None:
    page = client.get(
        f"/api/documents/{shelf.id_of('harbour.pdf')}/pages/1", params={"q": '"year lists"'}
    ).json()
    tops = [box[1] for match in page["matches"] for box in match["boxes"]]
    assert len(tops) == 2 and tops[0] < tops[1]


def test_a_document_that_could_not_be_opened_has_no_pages(client: TestClient, shelf: Shelf) -> None:
    broken = shelf.id_of("broken.pdf")
    assert client.get(f"/api/documents/{broken}/pages").json()["pages"] == []
    assert client.get(f"/api/documents/{broken}/pages/1").status_code == 404


def test_the_picture_of_a_page_is_as_wide_as_asked(client: TestClient, shelf: Shelf) -> None:
    page = client.get(f"/api/documents/{shelf.id_of('harbour.pdf')}/pages/1").json()
    told = client.get(f"/api/pages/{page['page_id']}/image?width=300")
    picture = Image.open(io.BytesIO(told.content))
    assert told.headers["content-type"] == "image/png" and abs(picture.width - 300) <= 1
    assert abs(picture.height / picture.width - 842 / 595) < 0.01
    dark = picture.convert("L").point(lambda value: 255 * (value < 128)).getbbox()
    assert dark is not None and 34 < dark[0] < 39  # the left margin of 72 points
    again = client.get(page["image"] + "?width=300", headers={"If-None-Match": told.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    jpeg = client.get(page["image"] + "?width=300&format=jpeg")
    assert jpeg.headers["content-type"] == "image/jpeg" and jpeg.headers["etag"] != told.headers["etag"]


def test_an_app_that_is_started_again_draws_again(shelf: Shelf) -> None:
    app = create_app(shelf.settings)
    address = f"/api/documents/{shelf.id_of('harbour.pdf')}/pages/1/image?width="
    for width in (64, 65):  # another picture, not the kept one
        with TestClient(app, base_url="http://localhost") as client:
            assert client.get(f"{address}{width}").status_code == 200


def test_a_picture_of_a_changed_or_vanished_file_is_refused(client: TestClient, shelf: Shelf) -> None:
    document = client.get(f"/api/documents/{shelf.id_of('scan.png')}").json()
    path = Path(document["path"])
    address = f"/api/documents/{document['id']}/pages/1/image?width=101"
    kept, times = path.read_bytes(), path.stat()
    path.write_bytes(png_of(2))
    told = client.get(address)
    assert (told.status_code, told.json()["error"]["code"]) == (409, "changed")
    path.unlink()
    told = client.get(address)
    assert (told.status_code, told.json()["error"]["code"]) == (404, "vanished")
    path.write_bytes(kept)  # at another time, but with the same bytes
    assert client.get(address).status_code == 200
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


# --- search and status -------------------------------------------------------------------------------------


def test_search_gives_hits_with_pieces_and_boxes(client: TestClient, shelf: Shelf) -> None:
    answer = client.get("/api/search?q=ledger").json()
    assert [hit["number"] for hit in answer["hits"]] == [3, 1] and answer["next"] is None
    hit = answer["hits"][0]
    assert [piece["text"] for piece in hit["snippet"] if piece["match"]] == ["ledger"]
    assert hit["document_id"] == shelf.id_of("harbour.pdf") and hit["boxes"] and hit["state"] == "current"


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("q=ships", 4),
        ("q=ships&engine=text-layer", 4),
        ("q=ships&engine=fake", 0),
        ("q=ships&name=market", 1),
        ("q=ships&folder=old", 1),
        ("q=ships&until=1700000001", 3),
        ("q=ships&since=1600000000", 4),
        ("name=market", 1),
        ("q=", 0),
        ("q=%F0%9F%98%80", 0),
        ("q=%00%22*", 0),
    ],
)
def test_search_filters(client: TestClient, query: str, count: int) -> None:
    assert len(client.get("/api/search?" + query).json()["hits"]) == count


def test_search_is_paged(client: TestClient) -> None:
    whole = client.get("/api/search?q=ships").json()["hits"]
    found, offset = [], 0
    while offset is not None:
        answer = client.get(f"/api/search?q=ships&limit=1&offset={offset}").json()
        found += answer["hits"]
        offset = answer["next"]
    assert found == whole and len(whole) == 4


def test_too_many_searches_are_refused_until_some_are_answered(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    meanwhile: list[int] = []

    def busy(*_: object, **__: object) -> list[index.Hit]:
        meanwhile.append(client.get("/api/search?q=ships").status_code)
        raise ValueError("a search that fails is over too")

    monkeypatch.setattr(library_api_search, "MOST_WAITING", 1)
    with monkeypatch.context() as patched:
        patched.setattr(index, "search", busy)
        assert client.get("/api/search?q=ships").status_code == 500
    assert meanwhile == [429]
    assert len(client.get("/api/search?q=ships").json()["hits"]) == 4


def test_folders_and_facets(client: TestClient, shelf: Shelf) -> None:
    papers = str(shelf.settings.home.parent / "papers")
    top = client.get("/api/folders").json()
    assert top["folders"] == [{"path": papers, "name": "papers", "is_root": True}] and not top["more"]
    below = client.get("/api/folders", params={"below": papers}).json()["folders"]
    assert below == [{"path": papers + "/old", "name": "old", "is_root": False}]
    facets = client.get("/api/facets").json()
    assert facets["engines"] == ["fake", "text-layer"] and facets["roots"] == [papers]
    assert facets["oldest"] == 1_700_000_000.0


def test_a_content_has_the_number_of_its_references_over_mcp(database_path: Path, tmp_path: Path) -> None:
    shelf = Shelf(database_path.parent)
    for name, text in (("harbour.pdf", HARBOUR), ("copy.pdf", HARBOUR), ("market.pdf", MARKET)):
        (tmp_path / name).write_bytes(pdf_of([text]))
        shelf.put(tmp_path / name)
    shelf.read()
    entries = mcp_answers.list_documents(
        database_path, folder=None, name=None, state=None, cursor=None, limit=50
    ).documents
    [found] = mcp_answers.search(database_path, "bread", path=None, name=None, since=None, limit=1).hits
    with shelf.client() as client:
        documents = client.get("/api/documents").json()["documents"]
        [hit] = client.get("/api/search?q=bread").json()["hits"]
    shelf.conn.close()
    assert {one["path"]: f"ocrd:document/{one['content_id']}" for one in documents} == {
        entry.path: entry.ref for entry in entries
    }
    assert found.ref == f"ocrd:document/{hit['content_id']}#page=1"
    assert hit["document_id"] != hit["content_id"], "two files share a content"


def test_status_counts_as_the_command_does(client: TestClient, shelf: Shelf) -> None:
    from storage import status

    told = client.get("/api/status").json()
    assert told["counts"] == status.count(shelf.conn)
    assert told["counts"]["done"] == 3 and told["counts"]["failed"] == 1 and told["state"] == "stopped"
    failures = client.get("/api/failures").json()["documents"]
    assert [document["name"] for document in failures] == ["broken.pdf"]


def test_hours_have_no_gaps_and_end_now(client: TestClient) -> None:
    hours = client.get("/api/stats/hours?hours=5").json()["hours"]
    assert [b["start"] - a["start"] for a, b in itertools.pairwise(hours)] == [3600] * 4
    assert sum(hour["pages"] for hour in hours) == 5
    assert time.time() - hours[-1]["start"] < 3600 + 60


def test_what_is_being_read_is_told(client: TestClient, shelf: Shelf) -> None:
    import socket

    from storage import workers

    path = str(shelf.settings.home.parent / "papers" / "harbour.pdf")
    now = time.time()
    workers.record(shelf.conn, "w", pid=os.getpid(), host=socket.gethostname(), role="worker", now=now)
    workers.beat(shelf.conn, "w", now=now, path=path, page=2, stage="read", stage_since=now)
    try:
        (reading,) = client.get("/api/status").json()["reading"]
        assert (reading["name"], reading["page"], reading["pages"], reading["stage"]) == (
            "harbour.pdf",
            2,
            3,
            "read",
        )
        document = client.get(f"/api/documents/{reading['document_id']}").json()
        assert document["current_page"] == 2
    finally:
        workers.remove(shelf.conn, "w")


# --- reading again -----------------------------------------------------------------------------------------


def test_retry_queues_what_failed_and_reads_with_other_means(client: TestClient, shelf: Shelf) -> None:
    broken = shelf.id_of("broken.pdf")
    told = client.post(f"/api/documents/{broken}/retry")
    assert told.status_code == 200 and told.json()["state"] == "queued"
    market = shelf.id_of("market.pdf")
    told = client.post(f"/api/documents/{market}/retry", json={"text_layer": "ignore", "engine": "fake"})
    assert told.json()["state"] == "queued"
    shelf.read()
    assert client.get(f"/api/documents/{broken}").json()["state"] == "failed"
    page = client.get(f"/api/documents/{market}/pages/1").json()
    assert page["provenance"]["engine"] == "fake"
    assert client.get(f"/api/documents/{market}").json()["options"] == {
        "text_layer": "ignore",
        "engine": "fake",
    }


def test_retry_refuses_what_no_setting_could_be(client: TestClient, shelf: Shelf) -> None:
    told = client.post(f"/api/documents/{shelf.id_of('market.pdf')}/retry", json={"engine": "nonsense"})
    assert told.status_code == 400 and "nonsense" in told.json()["error"]["message"]
    assert client.post("/api/documents/999/retry").status_code == 404
    assert client.post(f"/api/documents/{shelf.id_of('market.pdf')}/retry", json={"x": 1}).status_code == 422


def test_everything_that_failed_can_be_retried_at_once(client: TestClient, shelf: Shelf) -> None:
    assert client.post("/api/retry-failed").json() == {"documents": 1}
    shelf.read()
