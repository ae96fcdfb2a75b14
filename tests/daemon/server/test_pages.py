"""The pages as a browser gets them: whole, linked, and with nothing of a document's in them that acts."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from daemon.server import pages, reader_view
from daemon.server.app import STATIC, create_app
from pipeline.engines import registry
from storage.settings import Settings
from tests.daemon.conftest import pdf_of, png_of
from tests.daemon.server.shelf import Shelf
from tests.daemon.server.test_rendering import NASTY

TOKEN = "a-token-of-the-tests"
HTML = {"Accept": "text/html"}
FRAMES = ("/", "/library", "/status")
EVIL_NAME = "\"><img src=x onerror=alert(1)>'<script>alert(1)<&.pdf"
EVIL = "</textarea></title></svg><script>alert(1)</script><img src=x onerror=alert(1)> \"' onclick=alert(1) {{ 7*7 }}"


class Tags(HTMLParser):
    """Start tags with attributes, and the text that is read."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.all: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.all.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.all and self.all[-1][0] == "script":
            assert not data.strip(), f"a script in the page: {data!r}"
        self.text.append(data)

    def of(self, tag: str, **wanted: str | None) -> list[dict[str, str | None]]:
        return [
            found
            for name, found in self.all
            if name == tag
            and all(found.get(key.rstrip("_").replace("_", "-")) == value for key, value in wanted.items())
        ]


def strict(html: str) -> Tags:
    """The tags of a page. Fails if a Content-Security-Policy without inline script and style would stop any of it."""
    tags = Tags(html)
    for tag, attributes in tags.all:
        assert tag not in ("style", "iframe", "object", "embed", "base"), tag
        assert not [name for name in attributes if name.startswith("on") or name == "style"], (
            tag,
            attributes,
        )
        if tag == "script":
            assert str(attributes["src"]).startswith("/static/")
        for name in ("src", "href", "action", "srcset"):
            value = attributes.get(name)
            assert value is None or value.startswith(("/", "#", "https://", "http://", "mailto:")), (
                tag,
                attributes,
            )
            assert name == "href" or value is None or not value.startswith(("http", "//")), (tag, attributes)
    return tags


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory, empty_database: Path) -> Iterator[Shelf]:
    base = tmp_path_factory.mktemp("pages")
    home = base / "home"
    home.mkdir(mode=0o700)
    shutil.copy(empty_database, home / "ocrd.db")
    shelf = Shelf(home)
    papers = base / "papers"
    papers.mkdir()
    text = "The harbour ledger of the year\nlists forty ships and their cargo\nwith the harbour dues paid by each"
    (papers / "harbour.pdf").write_bytes(
        pdf_of([text, "Prices at the market rose again\nwhen the ships were late", ""])
    )
    (papers / "broken.pdf").write_bytes(b"%PDF-1.4 and nothing more")
    (papers / EVIL_NAME).write_bytes(pdf_of([text + "\nanother page for a name"]))
    (papers / "nasty.png").write_bytes(png_of(1))
    (papers / "failed.pdf").write_bytes(pdf_of([text + "\nyet another", text + "\nand one more"]))
    shelf.put(*sorted(papers.iterdir()))
    shelf.read()
    (papers / "waiting.pdf").write_bytes(pdf_of([text + "\nnot read yet"]))
    shelf.put(papers / "waiting.pdf")
    spoil(shelf)
    yield shelf
    shelf.conn.close()


def spoil(shelf: Shelf) -> None:
    """Have one document say nasty things wherever a document can, and one page be a failure."""
    nasty = "\n\n".join(NASTY)
    evil = [EVIL] * 2
    conn = shelf.conn
    content = "SELECT document_id FROM files WHERE path LIKE '%/nasty.png'"
    page = f"SELECT id FROM pages WHERE document_id = ({content})"
    notes = json.dumps([{"code": EVIL, "message": EVIL}])
    conn.execute(f"UPDATE documents SET title = ?, warnings = ? WHERE id = ({content})", [EVIL, notes])
    conn.execute(
        f"UPDATE pages SET label = ?, markdown = ?, warnings = ?, engine = ?, model = ?, layer_reason = ?, prompt = ?"
        f" WHERE document_id = ({content})",
        [EVIL, nasty, notes, *evil, *evil],
    )
    conn.execute(f"DELETE FROM blocks WHERE page_id = ({page})")
    conn.executemany(
        f'INSERT INTO blocks (page_id, position, category, "left", top, "right", bottom, text, markdown)'
        f" VALUES (({page}), ?, 'text', 10, 10, 200, 20, ?, ?)",
        [(at, text, text) for at, text in enumerate(NASTY)],
    )
    failed = "SELECT document_id FROM files WHERE path LIKE '%/failed.pdf'"
    conn.execute(
        f"UPDATE page_jobs SET state = 'failed', error_code = 'internal', error_message = ?, remedy = ?"
        f" WHERE document_id = ({failed}) AND page = 2",
        [EVIL, f"run `ocrd retry` {EVIL}"],
    )


@pytest.fixture(scope="module")
def client(shelf: Shelf) -> Iterator[TestClient]:
    with shelf.client() as client:
        client.headers.update(HTML)
        yield client


def page_id(shelf: Shelf, name: str, number: int = 1) -> int:
    row = shelf.conn.execute(
        "SELECT pages.id FROM pages JOIN files USING (document_id) WHERE files.path LIKE ? AND page = ?",
        (f"%/{name}", number),
    ).fetchone()
    return int(row[0])


# --- frames ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", FRAMES)
def test_a_page_needs_nothing_inline_and_all_it_names_is_there(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 200
    assert "'unsafe" not in answer.headers["content-security-policy"]
    tags = strict(answer.text)
    named = [tag["href"] for tag in tags.of("link")] + [tag["src"] for tag in tags.of("script")]
    assert named
    for address in named:
        assert client.get(str(address)).status_code == 200
    [current] = tags.of("a", aria_current="page")
    assert current["href"] == path


@pytest.mark.parametrize("path", FRAMES)
def test_every_field_of_a_page_has_a_label(client: TestClient, path: str) -> None:
    tags = Tags(client.get(path).text)
    labelled = {tag["for"] for tag in tags.of("label") if "for" in tag}
    for kind in ("input", "select", "textarea"):
        for field in tags.of(kind):
            wrapped = field.get("type") in ("hidden", "file")
            assert wrapped or field.get("id") in labelled, field
    for button in tags.of("svg", class_="icon"):
        assert button["aria-hidden"] == "true"


def test_what_was_searched_for_stands_in_the_field_and_nowhere_else(client: TestClient) -> None:
    tags = strict(client.get("/", params={"q": EVIL}).text)
    assert tags.of("input", id="q")[0]["value"] == EVIL
    assert "alert" not in "".join(tags.text)


def test_modules_import_what_is_there_and_pictures_are_drawn() -> None:
    drawn = set(re.findall(r'id="(\w+)"', (STATIC / "icons.svg").read_text()))
    sources = [*STATIC.glob("*.js"), *(STATIC.parent / "templates").glob("*.html")]
    for source in sources:
        text = source.read_text()
        for name in re.findall(r'from "\./([\w.]+)"', text):
            assert (STATIC / name).is_file(), (source.name, name)
        wanted = re.findall(r'icon\("(\w+)"\)', text) + re.findall(r'blank\("(\w+)"', text)
        assert set(wanted) <= drawn, source.name


@pytest.mark.parametrize("script", sorted(STATIC.glob("*.js")), ids=lambda path: path.name)
def test_no_script_makes_html_or_code_of_text(script: Path) -> None:
    forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|\beval\(|new Function|https?://(?!www\.w3\.org)"
    assert not re.search(forbidden, script.read_text())


@pytest.mark.parametrize("sheet", sorted(STATIC.glob("*.css")), ids=lambda path: path.name)
def test_no_style_comes_from_elsewhere(sheet: Path) -> None:
    assert not re.search(r"@import|url\((?!\"data:image/svg)", sheet.read_text())


# --- the reader --------------------------------------------------------------------------------------------


def test_the_reader_shows_text_boxes_and_who_read_it(client: TestClient, shelf: Shelf) -> None:
    answer = client.get(f"/pages/{page_id(shelf, 'harbour.pdf')}")
    tags = strict(answer.text)
    blocks = [tag for name, tag in tags.all if str(tag.get("class", "")).startswith("block ")]
    boxes = tags.of("rect", class_="box")
    assert blocks
    assert [block["data-block"] for block in blocks] == [box["data-block"] for box in boxes]
    assert all(float(str(box["width"])) > 0 for box in boxes)
    assert "harbour ledger" in "".join(tags.text)
    assert "Text that the file carries" in "".join(tags.text)
    [picture] = tags.of("img")
    assert str(picture["src"]).endswith("/image?width=1200")
    assert picture["alt"] == "Page 1 of harbour.pdf"


def test_the_reader_marks_what_was_searched_for_in_text_and_picture(client: TestClient, shelf: Shelf) -> None:
    tags = strict(client.get(f"/pages/{page_id(shelf, 'harbour.pdf')}", params={"q": "harbour"}).text)
    assert len(tags.of("mark")) == len(tags.of("rect", class_="match")) == 2
    assert "2 matches on this page" in "".join(tags.text)
    assert tags.of("a", class_="icon-button reader-back")[0]["href"] == "/?q=harbour"


def test_pages_lead_to_their_neighbours_and_keep_the_words(client: TestClient, shelf: Shelf) -> None:
    first, second = (page_id(shelf, "harbour.pdf", number) for number in (1, 2))
    tags = Tags(client.get(f"/pages/{first}", params={"q": "market ships"}).text)
    assert "href" not in tags.of("a", rel="prev")[0]
    assert tags.of("a", rel="next")[0]["href"] == f"/pages/{second}?q=market+ships"
    tags = Tags(client.get(f"/pages/{second}").text)
    assert tags.of("a", rel="prev")[0]["href"] == f"/pages/{first}"


def test_a_blank_page_says_so(client: TestClient, shelf: Shelf) -> None:
    answer = client.get(f"/documents/{shelf.id_of('harbour.pdf')}/pages/3")
    assert answer.status_code == 200
    assert "Nothing is printed on this page" in answer.text


def test_a_failed_page_says_why_and_what_to_do(client: TestClient, shelf: Shelf) -> None:
    tags = strict(client.get(f"/documents/{shelf.id_of('failed.pdf')}/pages/2").text)
    text = "".join(tags.text)
    assert EVIL.strip() in text
    assert tags.of("button", data_retry=None)
    assert "{{ 7*7 }}" in text


def test_a_document_leads_to_its_pages(client: TestClient, shelf: Shelf) -> None:
    document = shelf.id_of("harbour.pdf")
    answer = client.get(f"/documents/{document}", params={"page": 2, "q": "a b"}, follow_redirects=False)
    assert answer.status_code == 302
    assert answer.headers["location"] == f"/documents/{document}/pages/2?q=a+b"
    beyond = client.get(f"/documents/{document}", params={"page": 99}, follow_redirects=False)
    assert beyond.headers["location"] == f"/documents/{document}/pages/3"


@pytest.mark.parametrize(
    ("name", "said"), [("broken.pdf", "To the library"), ("waiting.pdf", "waiting to be opened")]
)
def test_a_document_without_pages_says_why(client: TestClient, shelf: Shelf, name: str, said: str) -> None:
    answer = client.get(f"/documents/{shelf.id_of(name)}")
    assert answer.status_code == 200
    assert said in answer.text
    strict(answer.text)


@pytest.mark.parametrize("words", ["", "alert", "script onerror"])
def test_nothing_a_document_says_acts_in_the_reader(client: TestClient, shelf: Shelf, words: str) -> None:
    answer = client.get(f"/pages/{page_id(shelf, 'nasty.png')}", params={"q": words})
    assert answer.status_code == 200
    strict(answer.text)
    [kept] = re.findall(r"<textarea[^>]*>(.*?)</textarea>", answer.text, re.DOTALL)
    assert "<" not in kept


def test_nothing_a_file_is_called_acts(client: TestClient, shelf: Shelf) -> None:
    row = shelf.conn.execute("SELECT id FROM files WHERE path LIKE '%onerror%'").fetchone()
    answer = client.get(f"/documents/{row[0]}")
    tags = strict(answer.text)
    assert tags.of("h1", title=tags.of("h1")[0]["title"])
    assert EVIL_NAME in "".join(tags.text)


# --- what goes wrong ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/pages/99999", "/documents/99999", "/documents/1/pages/4444", "/nowhere"])
def test_what_is_not_there_is_told_as_a_page(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 404
    assert "There is no such page" in answer.text
    strict(answer.text)


@pytest.mark.parametrize(
    "path", ["/pages/x", "/pages/0", "/pages/99999999999999999999", "/documents/1?page=0"]
)
def test_nonsense_is_told_as_a_page(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 422
    strict(answer.text)


def test_without_the_token_the_page_asks_for_it(shelf: Shelf) -> None:
    with TestClient(
        create_app(shelf.settings, token=TOKEN), base_url="http://localhost", headers=HTML
    ) as client:
        answer = client.get("/library", params={"name": EVIL, "state": "done"})
        assert answer.status_code == 401
        tags = strict(answer.text)
        [form] = tags.of("form")
        assert form["action"] == "/library"
        kept = {str(tag["name"]): tag["value"] for tag in tags.of("input", type="hidden")}
        assert kept == {"name": EVIL, "state": "done"}
        for link in tags.of("link") + tags.of("script"):
            assert client.get(str(link.get("href") or link.get("src"))).status_code == 200
        assert client.get("/static/library.js").status_code == 401
        wrong = client.get("/library", params={"token": "wrong"})
        assert wrong.status_code == 401
        assert "That is not the token" in wrong.text
        right = client.get("/library", params={**kept, "token": TOKEN})
        assert right.status_code == 200
        assert "token" not in str(right.url)


def test_without_a_database_the_frames_come_all_the_same(tmp_path: Path) -> None:
    with Shelf(tmp_path / "other").client() as client:
        for path in FRAMES:
            assert client.get(path, headers=HTML).status_code == 200


# --- small things ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("a b", "A b."),
        ("Done.", "Done."),
        ("why so?", "Why so?"),
        ("a.pdf is gone", "a.pdf is gone."),
    ],
)
def test_sentences(text: str, shown: str) -> None:
    assert pages.sentence(text) == shown


def test_commands_in_a_remedy_are_code_and_nothing_more() -> None:
    shown = pages.with_code("run `ocrd <b>` or <i>wait</i>")
    assert str(shown) == "run <code>ocrd &lt;b&gt;</code> or &lt;i&gt;wait&lt;/i&gt;"


def test_an_address_keeps_any_words() -> None:
    assert reader_view.address(3, 2, None, 'a"&=#') == "/documents/3/pages/2?q=a%22%26%3D%23"
    assert reader_view.address(3, 2, 7) == "/pages/7"


def test_only_engines_that_are_here_are_offered_and_a_model_only_by_its_name(tmp_path: Path) -> None:
    names = {name for name, _ in reader_view.engines(Settings(tmp_path))}
    assert names == {"", *filter(registry.installed, ("tesseract", "rapidocr", "classic", "vision"))}
    assert reader_view.engines(Settings(tmp_path, model="tiny"))[-1] == ("vlm", "The model tiny")
