"""Search: any string is safe, and finds what a person means by it."""

from __future__ import annotations

import re
import shutil
import sqlite3
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from storage import filters as file_filters
from storage import ranking
from storage.database import open_database
from storage.folding import fold, grams, pieces
from storage.index import Hit, HitState, search
from storage.names import name_key
from storage.query import MAX_TOKENS, parse

NOW = 1_700_000_000.0


class Library:
    """A database filled straight through its schema."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.conn = open_database(path)
        self.conn.execute("PRAGMA synchronous = OFF")
        self.documents = 0

    def add(
        self,
        *pages: str,
        path: str = "",
        blocks: list[tuple[str, str]] | None = None,
        labels: tuple[str | None, ...] = (),
        at: float = NOW,
        state: str = "done",
    ) -> int:
        """A document with these pages and one file; its id."""
        self.documents += 1
        document = self.documents
        path = path or f"/library/{document}.pdf"
        self.conn.execute(
            "INSERT INTO documents (id, sha256, size, state, pages, added_at) VALUES (?, ?, 1, ?, ?, ?)",
            (document, f"{document:064x}", state, len(pages), at),
        )
        self.add_file(document, path, at)
        for number, text in enumerate(pages, 1):
            label = labels[number - 1] if labels else None
            page_id = self.conn.execute(
                "INSERT INTO pages (document_id, page, label, text, markdown, source, layer, stop_reason, width_pt,"
                " height_pt, read_at) VALUES (?, ?, ?, ?, '', 'engine', 'absent', 'complete', 595, 842, ?)",
                (document, number, label, text, at),
            ).lastrowid
            if kept := grams(text):
                self.conn.execute("INSERT INTO page_grams VALUES (?, ?)", (page_id, kept))
            for position, (category, part) in enumerate(blocks or [("text", text)]):
                self.conn.execute(
                    'INSERT INTO blocks (page_id, position, category, "left", top, "right", bottom, text, markdown)'
                    " VALUES (?, ?, ?, 0, ?, 100, ?, ?, '')",
                    (page_id, position, category, 10.0 * position, 10.0 * position + 9, part),
                )
        return document

    def add_file(self, document: int | None, path: str, at: float = NOW) -> None:
        self.conn.execute(
            "INSERT INTO files (path, path_bytes, name_key, size, mtime_ns, document_id, state, first_seen, last_seen)"
            " VALUES (?, ?, ?, 1, 1, ?, 'linked', ?, ?)",
            (path, path.encode(), name_key(path.encode()), document, at, at),
        )

    def found(self, query: str, **options: object) -> list[str]:
        """Names of the files found, in order of names."""
        return sorted(Path(hit.path).name for hit in search(self.conn, query, **options))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("empty") / "ocrd.db"
    open_database(path).close()
    return path


@pytest.fixture
def library(empty: Path, tmp_path: Path) -> Iterator[Library]:
    library = Library(Path(shutil.copy(empty, tmp_path)))
    yield library
    library.conn.close()


CJK_PAGE = (
    "人人生而自由,在尊严和权利上一律平等。すべての人間は、生まれながらにして自由であり、"
    "かつ、尊厳と権利とについて平等である。모든 인간은 태어날 때부터 자유로우며"
)
CJK_QUERIES = ["尊严", "权利", "人間", "平等である", "인간", "自", "人", "る。", "모든 인간", "自由であり"]


@pytest.mark.parametrize(
    "query", ["尊严", "权利", "人間", "平等である", "인간", "自", "人", "る。", "모든 인간", "自由であり"]
)
def test_cjk_of_any_length_hits(library: Library, query: str) -> None:
    """https://github.com/thedotmack/claude-mem/pull/3810"""
    library.add("Nothing of that kind", path="/a/latin.pdf")
    library.add(CJK_PAGE, path="/a/cjk.pdf")
    assert library.found(query) == ["cjk.pdf"]
    assert "[" in search(library.conn, query)[0].snippet
    assert len(search(library.conn, query)[0].boxes) == 1


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("日本の本", "日の"),
        ("東京。京都", "東京都"),
        ("人権", "権人"),
        ("人間 abc", "abc人"),
        ("大学生", "大生"),
        ("使用Python语言", "用语"),
    ],
)
def test_characters_that_do_not_adjoin_are_no_hit(library: Library, text: str, query: str) -> None:
    library.add(text)
    assert library.found(query) == []


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("Zażółć gęślą jaźń", "zazolc"),
        ("Tiếng Việt rất đẹp", "rat dep"),
        ("naïve CAFÉ", "cafe"),
        ("cafe", "café"),
        (unicodedata.normalize("NFD", "Übergröße é"), "übergröße"),
        ("Ünïcödé", unicodedata.normalize("NFD", "ünïcödé")),
        ("Ｆｕｌｌ　Ｗｉｄｔｈ １２３", "full width 123"),
        ("full width", "ｆｕｌｌ"),
        ("the ﬁnal oﬀer", "final offer"),
        ("reve\u00adnue rises", "revenue"),
        ("revenue", "reve\u00adnue"),
        ("profit² rises", "profit"),
        ("使用Python3语言编程", "python3"),
        ("使用Python语言", "用Python语"),
        ("人間ABC", "間ABC"),
        ("ﾊﾝｶｸ", "ハンカク"),
        ("Привет, ёлка", "елка"),
        ("ΜΈΓΑΣ λόγος", "μεγας λογος"),
        ("مُحَمَّد", "محمد"),
        ("हिन्दी भाषा", "हिन्दी"),
        ("ภาษาไทยง่าย", "ไทย"),
        ("日\n本国", "日本"),
        ("한국어는", "한국어"),
        (unicodedata.normalize("NFD", "각 서류"), "서류"),
        ("が", unicodedata.normalize("NFD", "が")),
        ("state-of-the-art reading", "state-of-the-art"),
        ("State of the art", "state-of-the-art"),
        ("It's here", "it's"),
        ("costs 50% more", "50%"),
        ("we use C++ here", "C++"),
        ("a:b", "a:b"),
        ("net income of 2023", "NET income"),
        ("net income of 2023", '"net income"'),
        ("net income of 2023", "“net income”"),
        ("net income of 2023", "inc*"),
        ("net income of 2023", '"net inc"*'),
        ("net income of 2023", '"net inc*"'),
        ("net income of 2023", '"net income'),
        ('price 5" disk', '5" disk'),
        ("CO₂ and H₂O", "co2"),
        ("invoice 2024/117-B", "2024/117-B"),
        ("mail a.b@example.org", "a.b@example.org"),
        ("plain", "plain\ud800"),
        ("plain", "plain\0"),
        ("📄 report", "📄 report"),
    ],
)
def test_one_spelling_finds_the_other(library: Library, text: str, query: str) -> None:
    library.add("unrelated")
    library.add(text, path="/a/it.pdf")
    assert library.found(query) == ["it.pdf"]
    hit = search(library.conn, query)[0]
    assert "[" in hit.snippet and len(hit.boxes) == 1


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("income net", '"net income"'),
        ("incoming", "income"),
        ("only net", "net income"),
        ("xinc", "inc*"),
        ("artful state of", "state-of-the-art"),
    ],
)
def test_what_is_not_there_is_not_found(library: Library, text: str, query: str) -> None:
    library.add(text)
    assert library.found(query) == []


AWKWARD = [
    'state-of-the-art', "It's", '"unbalanced', "a:b", "NEAR(", "NEAR(a b, 2)", "(", ")", "*", "^x", "AND", "OR", "NOT",
    "x OR", "x AND NOT y", "", " ", "-", "--", "-x", "col:val", "text:foo", "{text}:foo", "C++", "50%", "\\", "\0",
    "a\0b", "\ud800", "\udcff", "📄", "x" * 10_000, "x " * 5_000, "人" * 10_000, "人 x " * 2_500, '"' * 999, "***",
    '""', '"" *', '"*"', "a*b*", "'", "';--", "\n", "\u202e", "٣", "½", "a" + "\u0301" * 500, "異異異", "終終終",
    "😀" * 99,
]  # fmt: skip


@pytest.mark.parametrize("query", AWKWARD, ids=range(len(AWKWARD)))
def test_any_string_is_a_safe_query(library: Library, query: str) -> None:
    """https://github.com/Dicklesworthstone/meta_skill/pull/100"""
    library.add("some text, C++, 50% and x of the art 人間", CJK_PAGE)
    for name in (None, query):
        assert isinstance(search(library.conn, query, name=name, path=query or None), list)
        assert isinstance(search(library.conn, query, name=name), list)


@given(query=st.text(alphabet=st.characters(exclude_categories=()), max_size=60))
@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
def test_no_string_breaks_the_search(library: Library, query: str) -> None:
    search(library.conn, query)


def pages_of_text() -> st.SearchStrategy[str]:
    letters = st.sampled_from(list("aAbéÉßﬁＡ１2²日本人がカﾊ한글ไทยёйά \n-.'\u00ad\u0301"))
    return st.text(letters, min_size=1, max_size=40)


@given(text=pages_of_text(), data=st.data())
@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
def test_every_word_of_a_page_finds_it_and_is_marked(
    library: Library, text: str, data: st.DataObject
) -> None:
    words = text.split()
    if not words:
        return
    library.conn.execute("BEGIN")
    document = library.add(text)
    word = data.draw(st.sampled_from(words))
    hits = [hit for hit in search(library.conn, word, limit=1000) if hit.document_id == document]
    library.conn.execute("ROLLBACK")
    if parse(word).terms:
        assert hits, (text, word)
        assert hits[0].boxes and "[" in hits[0].snippet, (text, word, hits[0].snippet)


def test_letters_are_found_as_folded_or_have_a_row_of_their_own() -> None:
    """Folding and SQLite's unicode61 agree on every character, or `grams` knows that they do not."""
    conn = sqlite3.connect(":memory:")
    conn.execute("CREATE VIRTUAL TABLE t USING fts5(x, tokenize='unicode61 remove_diacritics 2')")
    conn.execute("CREATE VIRTUAL TABLE v USING fts5vocab(t, instance)")
    codes = [
        code
        for code in (
            *range(0x80, 0x3400),
            *range(0xA000, 0xAC00),
            *range(0xF900, 0x10000),
            *range(0x1D400, 0x1D800),
        )
        if unicodedata.category(chr(code)) not in ("Cn", "Cs")
    ]
    conn.executemany("INSERT INTO t(rowid, x) VALUES (?, ?)", [(code, f"a{chr(code)}b") for code in codes])
    tokens: dict[int, list[str]] = {}
    for code, term in conn.execute("SELECT doc, term FROM v ORDER BY doc, offset"):
        tokens.setdefault(code, []).append(term)
    wrong = [
        hex(code)
        for code in codes
        if not grams(f"a{chr(code)}b")
        and [piece for piece, _ in pieces(fold(f"a{chr(code)}b"))] != tokens[code]
    ]
    assert len(wrong) <= 5, wrong  # Tibetan and Mongolian marks that have changed class since Unicode 6


def test_plain_pages_have_no_grams() -> None:
    for text in ("Plain ASCII.", "naïve café, “quoted” — 50 €", "Việt Nam", "Русский текст", "straße ™ …"):
        assert grams(text) == ""


def test_a_hit_says_where(library: Library) -> None:
    blocks = [
        ("page_header", "needle header"),
        ("text", "hay"),
        ("text", "a needle, and"),
        ("text", "one more\nneedle"),
    ]
    library.add("hay\n\na needle, and\n\none more\nneedle", path="/x/a.pdf", blocks=blocks, labels=("iii",))
    (hit,) = search(library.conn, "needle")
    assert (hit.path, hit.paths, hit.page, hit.label) == ("/x/a.pdf", ("/x/a.pdf",), 1, "iii")
    assert hit.snippet == "hay a [needle], and one more [needle]"
    assert hit.boxes == ((0.0, 20.0, 100.0, 29.0), (0.0, 30.0, 100.0, 39.0))
    assert hit.score > 0 and hit.state is HitState.CURRENT


def test_a_phrase_across_blocks_has_both_boxes(library: Library) -> None:
    library.add("the end of\n\nthe line", blocks=[("text", "the end of"), ("text", "the line")])
    assert len(search(library.conn, '"of the line"')[0].boxes) == 2


def test_more_telling_pages_come_first(library: Library) -> None:
    library.add("walrus " + "filler " * 400, path="/a/once.pdf")
    library.add("walrus walrus walrus and few words", path="/a/often.pdf")
    for _ in range(8):
        library.add("filler")
    hits = search(library.conn, "walrus")
    assert [Path(hit.path).name for hit in hits] == ["often.pdf", "once.pdf"]
    assert hits[0].score > hits[1].score


def test_mixed_queries_need_both(library: Library) -> None:
    library.add("東京 report", path="/a/both.pdf")
    library.add("東京 only", path="/a/city.pdf")
    library.add("report only", path="/a/report.pdf")
    assert library.found("report 東京") == ["both.pdf"]
    assert library.found("report") == ["both.pdf", "report.pdf"]


def test_snippets_show_the_match_in_a_long_page(library: Library) -> None:
    library.add("start " + "filler words " * 200 + "the needle here " + "more words " * 200)
    snippet = search(library.conn, "needle", marks=("\x02", "\x03"))[0].snippet
    assert "\x02needle\x03" in snippet
    assert snippet.startswith("…") and snippet.endswith("…") and len(snippet) < 200
    assert "ller" not in snippet.split()[0].strip("…")[:4]


def test_snippets_prefer_the_place_with_all_words(library: Library) -> None:
    library.add("income " * 3 + "x " * 300 + "net of all income" + " y" * 300)
    assert "[net] of all [income]" in search(library.conn, "net income")[0].snippet


def test_snippets_have_no_control_characters(library: Library) -> None:
    library.add("a\x1b[31mred\x07 needle \u202etxt\n\nnext\tline")
    snippet = search(library.conn, "needle")[0].snippet
    assert snippet == "a[31mred [needle] txt next line"
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e]", snippet)


def test_filters(library: Library) -> None:
    library.add("word", path="/data/Invoices/2023/a.pdf", at=NOW)
    library.add("word", path="/data/letters/b.PDF", at=NOW + 100)
    library.add("word", path="/data/Invoices-old/c.png", at=NOW + 200)
    assert library.found("word", path="/data/Invoices") == ["a.pdf"]
    assert library.found("word", path="/data/Invoices/") == ["a.pdf"]
    assert library.found("word", path="Invoices") == ["a.pdf"]
    assert library.found("word", path="*.p*") == ["a.pdf", "c.png"]
    assert library.found("word", path="letters/*") == ["b.PDF"]
    assert library.found("word", path="/data/letters/b.PDF") == ["b.PDF"]
    assert library.found("word", path="/nowhere") == []
    assert library.found("word", since=NOW + 100) == ["b.PDF", "c.png"]
    assert library.found("word", since=NOW + 100, path="/data/letters") == ["b.PDF"]
    assert len(search(library.conn, "word", limit=2)) == 2
    assert search(library.conn, "word", limit=0) == []


def test_relative_paths_start_at_the_working_folder(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library.add("word", path=f"{tmp_path}/in/a.pdf")
    library.add("word", path="/other/in2/a2.pdf")
    monkeypatch.chdir(tmp_path)
    assert library.found("word", path="./in") == ["a.pdf"]
    assert library.found("word", path=".") == ["a.pdf"]


def test_names_are_found_composed_or_not_and_without_case(library: Library) -> None:
    """https://github.com/paperless-ngx/paperless-ngx/issues/5044"""
    decomposed = unicodedata.normalize("NFD", "/a/Übergröße é.pdf")
    library.add("some text", path=decomposed)
    library.add_file(None, "/a/waiting [1].pdf", NOW + 5)
    for name in (
        "Übergröße é",
        unicodedata.normalize("NFD", "übergröße é"),
        "ÜBERGRÖSSE",
        "*é.pdf",
        "ubergro",
    ):
        (hit,) = search(library.conn, "", name=name)
        assert hit.path == decomposed and hit.page is None and hit.snippet == "some text"
    (waiting,) = search(library.conn, "", name="[1]")
    assert waiting.document_id is None
    assert library.found("", name=".pdf") == sorted([Path(decomposed).name, "waiting [1].pdf"])
    assert library.found("text", name="größ".upper()) == [Path(decomposed).name]
    assert library.found("text", name="other") == []
    composed = unicodedata.normalize("NFC", decomposed)
    assert library.found("text", path=composed) == [Path(decomposed).name]


def test_missing_files_stay_findable_and_say_so(library: Library) -> None:
    library.add("word", path="/a/gone.pdf")
    library.conn.execute("UPDATE files SET missing_since = 1")
    (hit,) = search(library.conn, "word")
    assert hit.state is HitState.MISSING and hit.path == "/a/gone.pdf"
    library.add_file(hit.document_id, "/a/copy.pdf")
    (hit,) = search(library.conn, "word")
    assert hit.state is HitState.CURRENT
    assert hit.paths == ("/a/copy.pdf", "/a/gone.pdf")


def supersede(library: Library, old: int, new: int) -> None:
    library.conn.execute("DELETE FROM files WHERE document_id = ?", [old])
    library.conn.execute("UPDATE documents SET superseded_by = ? WHERE id = ?", [new, old])


def test_changed_files_show_each_page_once(library: Library) -> None:
    old = library.add("word one", "word two", "word three", path="/a/v.pdf")
    new = library.add("word new", path="/a/v2.pdf", state="running")
    supersede(library, old, new)
    hits: list[Hit] = search(library.conn, "word")
    assert sorted((hit.page or 0, hit.state.value) for hit in hits) == [
        (1, "current"),
        (2, "superseded"),
        (3, "superseded"),
    ]
    assert {hit.path for hit in hits} == {"/a/v2.pdf"}
    assert len(search(library.conn, "word", path="/a")) == 3
    library.conn.execute("UPDATE documents SET state = 'done' WHERE id = ?", [new])
    assert [hit.page for hit in search(library.conn, "word")] == [1]


def test_superseded_pages_take_no_places(library: Library) -> None:
    for i in range(30):
        old = library.add("word word word", path=f"/a/{i}.pdf")
        supersede(library, old, library.add("word and other things", path=f"/a/{i}.v2.pdf"))
    assert len(search(library.conn, "word", limit=20)) == 20
    assert len(search(library.conn, "word", limit=100)) == 30


def test_pages_no_file_leads_to_are_no_hits(library: Library) -> None:
    library.add("word")
    library.conn.execute("DELETE FROM files")
    assert search(library.conn, "word") == []


@pytest.mark.parametrize("common", [5, 50_000], ids=["common", "telling"])
@pytest.mark.parametrize(
    "filters",
    [
        {"path": "/b"},
        {"since": NOW + 30},
        {"until": NOW + 30},
        {"since": NOW + 20, "until": NOW + 30},
        {"name": "7.pdf"},
        {"engine": "vlm"},
        {"engine": "engine", "path": "/b"},
        {"engine": "nobody"},
        {"path": "/nowhere", "engine": "vlm"},
    ],
    ids=str,
)
def test_a_filter_finds_the_same_in_each_of_its_ways(
    library: Library, monkeypatch: pytest.MonkeyPatch, filters: dict[str, str | float], common: int
) -> None:
    monkeypatch.setattr(ranking, "COMMON_PAGES", common)
    for n in range(60):
        library.add(
            f"common word {n}", f"common {n} {'人間' * (n % 2)}", path=f"/{'abc'[n % 3]}/{n}.pdf", at=NOW + n
        )
    library.conn.execute("UPDATE pages SET engine = 'vlm' WHERE document_id % 4 = 0")
    # Content newer than its file, content older than its file, and pages that are being read again.
    library.conn.execute("UPDATE documents SET added_at = added_at + 25 WHERE id % 5 = 0")
    library.conn.execute("UPDATE files SET first_seen = first_seen + 25 WHERE id % 7 = 0")
    supersede(library, 8, library.add("common and new", path="/b/new 7.pdf", at=NOW + 28, state="running"))
    for query in ("common", "comm*", "common 人間", "人間", "7"):
        everything = [hit.page_id for hit in search(library.conn, query, limit=200)]
        ways = []
        for few_documents, few, looked_up, some, newest in (
            (999, 999, 999, 999, 0),
            (999, 999, 0, 999, 0),
            (0, 999, 0, 999, 0),
            (0, 10, 0, 999, 0),
            (0, 0, 0, 999, 0),
            (0, 0, 0, 0, 0),
            (0, 0, 0, 0, 10),
        ):
            monkeypatch.setattr(ranking, "NEWEST_PAGES", newest)
            monkeypatch.setattr(file_filters, "FEW_FILES", some)
            monkeypatch.setattr(ranking, "FEW_DOCUMENTS", few_documents)
            monkeypatch.setattr(ranking, "FEW_PAGES", few)
            monkeypatch.setattr(ranking, "LOOKED_UP", looked_up)
            monkeypatch.setattr(ranking, "SOME_DOCUMENTS", some)
            hits = search(library.conn, query, limit=200, **filters)  # type: ignore[arg-type]
            ways.append([hit.page_id for hit in hits])
        assert ways == [[page for page in everything if page in set(ways[0])]] * 7
        assert set(ways[0]) == _let_through(library, filters) & set(everything)


def _let_through(library: Library, filters: dict[str, str | float]) -> set[int]:
    """The pages of a filter, by looking at each."""
    rows = library.conn.execute(
        """SELECT p.id, coalesce(p.engine, p.source) AS read_by, d.added_at, f.path, f.first_seen FROM pages p
           JOIN documents d ON d.id = p.document_id JOIN files f ON f.document_id = coalesce(d.superseded_by, d.id)"""
    )
    return {
        row["id"]
        for row in rows
        if row["path"].startswith(str(filters.get("path", "")))
        and str(filters.get("name", "")) in row["path"]
        and filters.get("engine", row["read_by"]) == row["read_by"]
        and max(row["first_seen"], row["added_at"]) >= float(filters.get("since", 0))
        and row["first_seen"] < float(filters.get("until", 1e12))
    }


def test_words_on_very_many_pages_do_not_rank(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranking, "COMMON_PAGES", 5)
    for n in range(8):
        library.add(f"common {'common ' * (n == 2)}{'rare ' * (n in (3, 4))}{'rare ' * (n == 3)}word {n}")
    ids = [hit.document_id for hit in search(library.conn, "common word")]
    assert ids == [8, 7, 6, 5, 4, 3, 2, 1]  # the newest first
    assert [hit.document_id for hit in search(library.conn, "common rare")] == [4, 5]
    assert [hit.document_id for hit in search(library.conn, "common rare missing")] == []
    assert [hit.document_id for hit in search(library.conn, "common rare", path="/library/5.pdf")] == [5]
    assert [hit.document_id for hit in search(library.conn, '"common word"')] == [8, 7, 6, 3, 2, 1]
    assert len(search(library.conn, "comm* word")) == 8


def test_common_words_rank_the_newest_pages(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranking, "RANKED_PAGES", 10)
    for i in range(30):
        library.add("word", path=f"/a/{i:02}.pdf")
    assert library.found("word", limit=5) == [f"{i:02}.pdf" for i in range(25, 30)]
    assert library.found("word", path="/a/03.pdf") == ["03.pdf"]  # a filter comes before the limit
    assert len(library.found("word", limit=30)) == 30


def test_reading_again_replaces_the_words(library: Library) -> None:
    """https://github.com/mihaelamj/cupertino/issues/62"""
    library.add("old words 人間", path="/a/v.pdf")
    library.conn.execute("UPDATE pages SET text = 'new words'")
    library.conn.execute("DELETE FROM page_grams")
    assert library.found("words") == ["v.pdf"]
    assert library.found("old") == library.found("人間") == []
    library.conn.execute("INSERT INTO pages_fts(pages_fts) VALUES('integrity-check')")
    library.conn.execute("INSERT INTO page_grams_fts(page_grams_fts) VALUES('integrity-check')")


def test_deleting_a_page_deletes_its_grams(library: Library) -> None:
    library.add("人間")
    library.conn.execute("DELETE FROM documents")
    assert library.conn.execute("SELECT count(*) FROM page_grams").fetchone()[0] == 0
    assert search(library.conn, "人間") == []


def test_queries_say_what_is_wrong_with_them() -> None:
    assert "nothing to search for" in parse("*** --").note
    assert "nothing to search for" in parse("").note
    assert str(MAX_TOKENS) in parse("word " + " ".join(map(str, range(500)))).note
    assert str(MAX_TOKENS) in parse("人" * 500).note
    assert parse("word word").terms == parse("word").terms
    assert parse("word").note == ""


def test_sqlite_utils_and_datasette_open_the_file_as_it_is(library: Library) -> None:
    library.add("the net income of the year", path="/a/report.pdf")
    library.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    from click.testing import CliRunner
    from datasette.utils import detect_fts
    from sqlite_utils.cli import cli

    done = CliRunner().invoke(cli, ["search", str(library.path), "pages", "income", "-c", "text"])
    assert done.exit_code == 0 and "net income of the year" in done.output

    plain = sqlite3.connect(library.path)
    assert detect_fts(plain, "pages") == "pages_fts"
    plain.close()


def test_searching_imports_only_what_it_needs() -> None:
    script = (
        "import sys, storage.index;"
        "print([m for m in ('sqlite_utils', 'numpy', 'PIL', 'pandas', 'typer', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
