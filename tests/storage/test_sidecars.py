"""Sidecars: what they say, where they go, and that they are whole or not there."""

# ruff: noqa: PTH101, PTH103, PTH118, PTH119, PTH120, PTH208 - bytes paths, as file systems have them

from __future__ import annotations

import errno
import json
import os
import re
import resource
import subprocess
import sys
import tracemalloc
import unicodedata
from collections.abc import Iterable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage import sidecars
from storage.errors import AccessError, DiskFullError, OcrdError, StorageError, VanishedError
from storage.records import (
    Block,
    Category,
    LayerVerdict,
    Line,
    PageReading,
    PageWarning,
    ReadingAttempt,
    StopReason,
    Word,
)
from storage.results import DocumentResult, FailedPage
from storage.sidecars import Written, is_sidecar, page_markdown, page_object, sidecar_names

SHA = "ab" * 32
PROVENANCE = {"ocrd": "0.1", "engine": "classic", "languages": ["eng"], "dpi": 200, "text_layer": "auto"}
SCHEMA = json.loads((files("storage") / "schema" / "ocrd-1.json").read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA, format_checker=jsonschema.FormatChecker())


def reading(page: int = 1, text: str = "Hello", **changes: Any) -> PageReading:
    words = (Word("Hello", (72, 72.005, 100, 84), 0.98765),)
    line = Line("Hello", (72, 72, 100, 84), words)
    values: dict[str, Any] = {
        "page": page,
        "width_pt": 595.2756,
        "height_pt": 841.8898,
        "blocks": (Block(Category.TEXT, (72, 72, 523, 84), text, text, None, 0.9, (line,)),),
        "text": text,
        "markdown": text,
        "stop_reason": StopReason.COMPLETE,
        "source": "engine",
        "engine": "tesseract",
        "seconds": {"read": 0.25},
    }
    return PageReading(**(values | changes))


def document(*pages: PageReading | FailedPage, count: int | None = None, **changes: Any) -> DocumentResult:
    values: dict[str, Any] = {
        "document_id": 1,
        "sha256": SHA,
        "size": 1234,
        "media_type": "application/pdf",
        "title": "A title",
        "page_count": len(pages) if count is None else count,
        "pages": iter(pages or ()),
        "finished_at": 1_700_000_000.0,
    }
    return DocumentResult(**(values | changes))


class Folder:
    """A folder of sources, and the library's."""

    def __init__(self, tmp_path: Path) -> None:
        self.path = tmp_path / "scans"
        self.path.mkdir()
        self.library = tmp_path / "home" / "sidecars"

    def source(self, name: str | bytes = "report.pdf") -> bytes:
        path = os.path.join(os.fsencode(self.path), os.fsencode(name))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        Path(os.fsdecode(path)).write_bytes(b"%PDF-")
        return path

    def write(
        self,
        source: bytes,
        *pages: PageReading | FailedPage,
        out: Path | None = None,
        base: Path | None = None,
        **changes: Any,
    ) -> Written:
        return sidecars.write(
            source,
            document(*(pages or (reading(),)), **changes),
            out and os.fsencode(out),
            base and os.fsencode(base),
            PROVENANCE,
            self.library,
        )

    def names(self) -> list[bytes]:
        return sorted(os.listdir(os.fsencode(self.path)))


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    sidecars._sweep_once.cache_clear()
    yield Folder(tmp_path)


def load(written: Written) -> dict[str, Any]:
    text = Path(written.json_path).read_text(encoding="utf-8")
    assert text.startswith('{"schema": "ocrd/1",')
    found: dict[str, Any] = json.loads(text)
    VALIDATOR.validate(found)
    return found


# --- what they say -----------------------------------------------------------------------------------------


def test_both_files_hold_all_pages_in_order(folder: Folder) -> None:
    failed = FailedPage(2, "crash", "the reader *died* three times", "run `ocrd retry`", "ii")
    pages = (
        reading(1, "# One", label="i"),
        failed,
        reading(3, "Three", source="text-layer", engine=None, layer=LayerVerdict.GOOD),
        reading(4, "", blocks=(), source="blank", engine=None, stop_reason=StopReason.BLANK),
    )
    written = folder.write(folder.source(), *pages)
    assert folder.names() == [b"report.pdf", b"report.pdf.json", b"report.pdf.md"]
    assert written.note is None
    assert Path(written.markdown_path).read_text(encoding="utf-8") == (
        f"<!-- ocrd/1 source-sha256={SHA} -->\n"
        '\n<!-- page 1 label="i" -->\n\n# One\n'
        '\n<!-- page 2 label="ii" failed="crash" -->\n'
        "\n> Page 2 could not be read: the reader \\*died\\* three times \\(crash\\)\n"
        "\n<!-- page 3 -->\n\nThree\n"
        "\n<!-- page 4 -->\n"
    )
    found = load(written)
    assert [page["page"] for page in found["pages"]] == [1, 2, 3, 4]
    assert [page["label"] for page in found["pages"]] == ["i", "ii", None, None]
    assert [page["source"] for page in found["pages"]] == ["engine", None, "text-layer", "blank"]
    assert found["pages"][1]["error"] == {
        "code": "crash",
        "message": "the reader *died* three times",
        "remedy": "run `ocrd retry`",
    }
    assert found["source"] == {
        "name": "report.pdf",
        "sha256": SHA,
        "size": 1234,
        "media_type": "application/pdf",
        "title": "A title",
        "pages": 4,
    }
    assert found["provenance"]["seconds"] == {"read": 0.75}
    assert found["provenance"]["read_at"] == "2023-11-14T22:13:20+00:00"


def test_blocks_have_boxes_and_words() -> None:
    found = page_object(reading())
    (block,) = found["blocks"]
    assert block["box"] == [72.0, 72.0, 523.0, 84.0]
    assert block["words"] == [{"text": "Hello", "box": [72.0, 72.0, 100.0, 84.0], "confidence": 0.988}]
    assert (found["width_pt"], found["height_pt"]) == (595.28, 841.89)
    assert "words" not in page_object(reading(), words=False)["blocks"][0]


def test_attachments_and_warnings_are_kept(folder: Folder) -> None:
    page = reading(warnings=(PageWarning("low_confidence", "mean 0.4"),))
    written = folder.write(
        folder.source(), page, attachments=("data.csv",), warnings=(PageWarning("xfa"),), title=None
    )
    found = load(written)
    assert found["attachments"] == ["data.csv"]
    assert found["warnings"] == [{"code": "xfa", "message": ""}]
    assert found["pages"][0]["warnings"] == [{"code": "low_confidence", "message": "mean 0.4"}]
    assert found["source"]["title"] is None


def test_the_ways_a_page_was_tried_are_kept_without_their_seconds(folder: Folder) -> None:
    tried = tuple(
        ReadingAttempt(rung, stop, 40, seconds)
        for rung, stop, seconds in (
            ("page", StopReason.REPETITION, 1.5),
            ("classic", StopReason.COMPLETE, 0.5),
        )
    )
    found = load(folder.write(folder.source(), reading(attempts=tried)))
    assert found["pages"][0]["attempts"] == [
        {"rung": "page", "stop_reason": "repetition", "tokens": 40},
        {"rung": "classic", "stop_reason": "complete", "tokens": 40},
    ]
    assert "attempts" not in page_object(reading())


def test_a_document_without_pages_is_valid(folder: Folder) -> None:
    written = sidecars.write(folder.source(), document(), None, None, PROVENANCE, folder.library)
    assert load(written)["pages"] == []


def test_same_input_same_bytes_but_for_times(folder: Folder) -> None:
    source = folder.source()
    first = folder.write(source)
    before = Path(first.json_path).read_text(), Path(first.markdown_path).read_text()
    folder.write(source, reading(seconds={"read": 9.0}), finished_at=1_800_000_000.0)
    after = Path(first.json_path).read_text(), Path(first.markdown_path).read_text()
    assert before[1] == after[1]
    assert before[0] != after[0]

    def without_times(text: str) -> str:
        return re.sub(r'"provenance": .*', "", text)

    assert without_times(before[0]) == without_times(after[0])


@given(label=st.text(max_size=12), text=st.text(max_size=60), code=st.text(max_size=8))
@settings(max_examples=200)
def test_no_label_ends_its_comment_and_no_text_makes_a_mark(label: str, text: str, code: str) -> None:
    for hostile in (text, f"{text}\n<!-- page 7 -->\n<!--  page 8 --> <!-- ocrd/1 {text}"):
        for page in (reading(3, hostile, label=label), FailedPage(3, code, hostile, "", label)):
            markdown = page_markdown(page)
            mark = markdown.splitlines()[0]
            assert mark.startswith("<!-- page 3 label=") and mark.endswith(" -->")
            inner = mark.removeprefix("<!--").removesuffix("-->")
            assert "--" not in inner and ">" not in inner and "<" not in inner
            assert inner.count('"') in (2, 4)
            assert len(re.findall(r"<!--\s*(?:page \d|ocrd/)", markdown)) == 1
            markdown.encode("utf-8")


@given(text=st.text(st.characters(exclude_categories=()), max_size=40), number=st.floats())
@settings(max_examples=200)
def test_any_text_and_number_makes_valid_json(text: str, number: float) -> None:
    block = Block(Category.TABLE, (number, 0, -0.0, 1), text, text, 1, number)
    page = reading(1, text, blocks=(block,), confidence=number, label=text, width_pt=1.0)
    found = json.loads(sidecars.dumps(page_object(page)).encode("utf-8"))
    VALIDATOR.evolve(schema=SCHEMA["$defs"]["page"] | {"$defs": SCHEMA["$defs"]}).validate(found)


def test_the_schema_is_strict_and_says_what_everything_is() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)

    def objects(node: Any, name: str) -> Iterable[str]:
        if isinstance(node, dict):
            if "properties" in node and node.get("type") == "object":
                if "additionalProperties" not in node:
                    yield f"{name} is open"
                if set(node["properties"]) - set(node["required"]) - {"words", "attempts"}:
                    yield f"{name} has optional keys"
            for key, value in node.items():
                yield from objects(value, f"{name}/{key}")
        elif isinstance(node, list):
            for value in node:
                yield from objects(value, name)

    assert list(objects(SCHEMA, "")) == []
    for name, node in SCHEMA["$defs"].items():
        assert node.get("description"), name


def test_the_schema_refuses_what_is_not_right(folder: Folder) -> None:
    found = load(folder.write(folder.source()))
    for change in (
        {"extra": 1},
        {"schema": "ocrd/2"},
        {"pages": [found["pages"][0] | {"page": 0}]},
        {"pages": [found["pages"][0] | {"source": None}]},
        {"pages": [found["pages"][0] | {"error": {"code": "x", "message": "", "remedy": ""}}]},
    ):
        assert not VALIDATOR.is_valid(found | change)


def test_pages_missing_from_the_database_are_no_document(folder: Folder) -> None:
    with pytest.raises(OcrdError, match="1 of 2 pages"):
        folder.write(folder.source(), count=2)
    assert folder.names() == [b"report.pdf"]


def test_pages_are_never_in_memory_together(folder: Folder) -> None:
    text = "word " * 200
    page = reading(1, text)
    result = document(count=3000, pages=(page for _ in range(3000)))
    tracemalloc.start()
    sidecars.write(folder.source(), result, None, None, PROVENANCE, folder.library)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (folder.path / "report.pdf.json").stat().st_size > 6_000_000
    assert peak < 2_000_000


# --- where they go -----------------------------------------------------------------------------------------


def test_out_dir_mirrors_the_tree_below_the_base(folder: Folder, tmp_path: Path) -> None:
    out = tmp_path / "out"
    written = folder.write(folder.source("a/b/report.pdf"), out=out, base=folder.path)
    assert written.markdown_path == str(out / "a/b/report.pdf.md")
    assert written.json_path == str(out / "a/b/report.pdf.json")
    assert folder.write(folder.source("x.pdf"), out=out, base=folder.path).markdown_path == str(
        out / "x.pdf.md"
    )
    assert folder.write(folder.source("y.pdf"), out=out).markdown_path == str(out / "y.pdf.md")
    outside = folder.write(folder.source("z.pdf"), out=out, base=tmp_path / "other")
    assert outside.markdown_path == f"{out}{folder.path}/z.pdf.md"
    assert sorted(os.listdir(folder.path)) == ["a", "x.pdf", "y.pdf", "z.pdf"]


def unwritable(tmp_path: Path) -> Path:
    """A folder where nothing can be made: file modes do not stop root, sysfs does."""
    if os.geteuid() != 0:
        path = tmp_path / "locked"
        path.mkdir()
        (path / "report.pdf").write_bytes(b"%PDF-")
        path.chmod(0o555)
        return path
    path = Path("/sys/kernel")
    try:
        (path / "ocrd-probe").touch()
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            return path
    pytest.skip("no folder here is closed to root")


def test_read_only_folders_get_theirs_in_the_library(folder: Folder, tmp_path: Path) -> None:
    closed = unwritable(tmp_path)
    written = folder.write(os.fsencode(closed / "report.pdf"))
    assert written.markdown_path == f"{folder.library}{closed}/report.pdf.md"
    assert load(written)["pages"]
    assert written.note and str(closed) in written.note and str(folder.library) in written.note


def test_an_out_dir_that_cannot_be_written_to_is_an_error(folder: Folder, tmp_path: Path) -> None:
    closed = unwritable(tmp_path)
    with pytest.raises(AccessError, match="--out") as caught:
        folder.write(folder.source(), out=closed)
    assert str(closed) in str(caught.value)
    assert not folder.library.exists()


def test_a_vanished_folder_says_so(folder: Folder) -> None:
    with pytest.raises(VanishedError):
        folder.write(os.fsencode(folder.path / "gone" / "report.pdf"))


@pytest.mark.parametrize("users", ["report.pdf.md", "report.pdf.json"])
def test_a_file_the_user_made_is_left_alone(folder: Folder, users: str) -> None:
    theirs = folder.path / users
    theirs.write_text("my notes")
    written = folder.write(folder.source())
    assert theirs.read_text() == "my notes"
    assert written.markdown_path == str(folder.path / "report.pdf.ocrd.md")
    assert written.json_path == str(folder.path / "report.pdf.ocrd.json")
    assert written.note and str(theirs) in written.note
    again = folder.write(folder.source(), reading(1, "New"))  # ours are replaced
    assert again == written
    assert "New" in Path(again.markdown_path).read_text()
    assert len(folder.names()) == 4


@pytest.mark.parametrize("kind", ["empty", "link", "folder", "dangling"])
def test_what_else_stands_at_the_name_is_left_alone(folder: Folder, kind: str, tmp_path: Path) -> None:
    place = folder.path / "report.pdf.md"
    elsewhere = tmp_path / "elsewhere.md"
    if kind == "empty":
        place.touch()
    elif kind == "folder":
        place.mkdir()
    else:
        place.symlink_to(elsewhere)
        if kind == "link":
            elsewhere.write_text(f"<!-- ocrd/1 source-sha256={SHA} -->\n")
    written = folder.write(folder.source())
    assert written.markdown_path.endswith("report.pdf.ocrd.md")
    assert place.is_symlink() or place.exists()
    assert not elsewhere.exists() or "page" not in elsewhere.read_text()


def test_when_all_names_are_taken_it_is_an_error(folder: Folder) -> None:
    for variant in ("", ".ocrd", *(f".ocrd-{i}" for i in range(2, 10))):
        (folder.path / f"report.pdf{variant}.md").write_text("mine")
    with pytest.raises(StorageError, match="taken"):
        folder.write(folder.source())
    assert not [name for name in folder.names() if name.endswith(b".tmp")]


@pytest.mark.parametrize(
    "name",
    [
        "ä" * 125 + "x.pdf",
        "x" * 251 + ".pdf",
        "x" * 255,
        unicodedata.normalize("NFC", "über café.pdf"),
        unicodedata.normalize("NFD", "über café.pdf"),
        b"latin1-\xe9.pdf",
        "new\nline.pdf",
        "[link](x) *md*.pdf",
        "-rf.pdf",
        " .pdf",
        "rtl \u202egpj.pdf",
    ],
)
def test_any_name_has_sidecars(folder: Folder, name: str | bytes) -> None:
    try:
        source = folder.source(name)
    except OSError as error:
        pytest.skip(f"this file system has no such name: {error.strerror}")
    written = folder.write(source)
    made = [found for found in folder.names() if found != os.path.basename(source)]
    assert len(made) == 2
    assert sorted(sidecar_names(source)) == made
    assert all(len(found) <= 255 for found in made)
    if len(os.fsencode(name)) < 200:
        assert made == [os.fsencode(name) + b".json", os.fsencode(name) + b".md"]
    assert all(is_sidecar(os.path.join(os.fsencode(folder.path), found)) for found in made)
    written.markdown_path.encode("utf-8")
    assert folder.write(source) == written


def test_long_names_that_begin_alike_stay_apart() -> None:
    first, second = (sidecar_names(b"/a/" + b"x" * 245 + ending) for ending in (b"1.pdf", b"2.pdf"))
    assert not set(first) & set(second)
    assert first == sidecar_names(b"/b/" + b"x" * 245 + b"1.pdf")


@given(st.binary(min_size=1, max_size=255).filter(lambda name: b"/" not in name and b"\0" not in name))
def test_names_are_never_too_long_nor_cut_within_a_character(name: bytes) -> None:
    for found in sidecar_names(name):
        assert len(found) <= 255
    text = name.decode("utf-8", "ignore") + "é" * 120
    if text.encode().isascii() is False and len(text.encode()) <= 255:
        sidecar_names(text.encode())[0].decode("utf-8")


def test_private_sources_have_private_sidecars(folder: Folder) -> None:
    source = folder.source()
    os.chmod(source, 0o600)
    written = folder.write(source)
    assert Path(written.json_path).stat().st_mode & 0o777 == 0o600
    os.chmod(source, 0o444)
    written = folder.write(source)
    assert Path(written.json_path).stat().st_mode & 0o777 == 0o644


# --- whole or not at all -----------------------------------------------------------------------------------


@pytest.mark.parametrize("step", ["open", "fsync", "replace", "flush"])
@pytest.mark.parametrize(
    ("number", "kind"),
    [(errno.ENOSPC, DiskFullError), (errno.EDQUOT, DiskFullError), (errno.EIO, StorageError)],
)
def test_a_write_that_fails_leaves_nothing_behind(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, step: str, number: int, kind: type[StorageError]
) -> None:
    source = folder.source()
    old = folder.write(source)
    before = Path(old.json_path).read_bytes(), Path(old.markdown_path).read_bytes()

    def fail(*_: object, **__: object) -> int:
        raise OSError(number, os.strerror(number))

    def failing() -> Iterator[PageReading]:
        yield reading(1, "new text")
        fail()

    with monkeypatch.context() as patch:
        if step != "flush":
            patch.setattr(os, step, fail)
        pages = failing() if step == "flush" else iter((reading(1, "new text"),))
        with pytest.raises(kind):
            sidecars.write(source, document(count=1, pages=pages), None, None, PROVENANCE, folder.library)
    assert folder.names() == [b"report.pdf", b"report.pdf.json", b"report.pdf.md"]
    assert (Path(old.json_path).read_bytes(), Path(old.markdown_path).read_bytes()) == before


SCRIPT = """
import resource, signal, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_sidecars import *
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
pages = [reading(n, "word " * 500) for n in range(1, 99)]
try:
    sidecars.write({source!r}, document(*pages), None, None, PROVENANCE, Path("x"))
except StorageError as error:
    print(type(error).__name__)
"""


def test_a_real_write_that_stops_half_way_leaves_nothing_behind(folder: Folder) -> None:
    script = SCRIPT.format(tests=str(Path(__file__).parent), source=folder.source())
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=Path(__file__).parents[2]
    )
    assert done.stdout == "StorageError\n", done.stderr
    assert folder.names() == [b"report.pdf"]
    assert resource.getrlimit(resource.RLIMIT_FSIZE)  # this process keeps its own


def test_what_a_killed_writer_left_is_swept(folder: Folder) -> None:
    source = folder.source()
    pid = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True
    )
    with sidecars.Staging(os.fsencode(folder.path), 0o600) as stage:
        stage.open()
        (mine,) = [name for name in folder.names() if name.endswith(b".tmp")]
        dead = os.fsdecode(mine).replace(f"-{os.getpid()}-", f"-{int(pid.stdout)}-")
        foreign = ".ocrd-00000000-1-0123456789ab.tmp"
        for name in (dead, foreign, "x.tmp", ".ocrd-notes.tmp"):
            (folder.path / name).write_text("half")
        now = (folder.path / foreign).stat().st_mtime
        assert sidecars.sweep(os.fsencode(folder.path), now) == 1
        left = {os.fsdecode(name) for name in folder.names()}
        assert left == {"report.pdf", os.fsdecode(mine), foreign, "x.tmp", ".ocrd-notes.tmp"}
        assert sidecars.sweep(os.fsencode(folder.path), now + 100_000) == 2
    assert sidecars.sweep(b"/nonexistent", 0.0) == 0
    (folder.path / dead).write_text("half")
    folder.write(source)  # sweeps the folder the first time it writes there
    assert not (folder.path / dead).exists()


# --- whose file is it? -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("report.pdf.md", None, True),
        ("REPORT.PDF.MD", None, True),
        ("report.pdf.ocrd.json", None, True),
        ("report.pdf.ocrd-2.json", None, True),
        ("photo.JPEG.json", None, True),
        (".ocrd-0123abcd-12-0123456789ab.tmp", None, True),
        ("report.pdf", None, False),
        ("notes.md", "# Notes", False),
        ("data.json", "{}", False),
        ("noextension.md", f"<!-- ocrd/1 source-sha256={SHA} -->\n", True),
        ("noextension.json", '{"schema": "ocrd/1",\n', True),
        ("empty.md", "", False),
        ("gone.md", None, False),
        ("report.pdf.md.pdf", None, False),
    ],
)
def test_own_outputs_are_known(tmp_path: Path, name: str, content: str | None, expected: bool) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_text(content)
    assert is_sidecar(os.fsencode(path)) is expected
