"""The command line: what is accepted, what is printed, which exit code follows."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from daemon import processes
from daemon.cli import app, as_ocrd_error
from daemon.commands import flags
from storage import content, jobs, library, results, workers
from storage.database import open_database
from storage.errors import DatabaseError, ExitCode, OcrdError, PasswordError, StorageError
from storage.records import Block, Category, DocumentInfo, LayerVerdict, PageReading, StopReason

SAMPLES = Path(__file__).parents[2] / "samples"
NOW = 1_800_000_000.0
TEXT = "The ledgers show water damage along the lower edge. 40 \x1b[2J boxes."


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    monkeypatch.setenv("OCRD_HOME", str(folder))
    return folder


@pytest.fixture
def scans(home: Path, tmp_path: Path) -> Path:
    """A library that holds `letter.pdf` (two pages, read) and `locked.pdf` (refused)."""
    folder = tmp_path / "scans"
    folder.mkdir()
    conn = open_database(home / "ocrd.db")
    for name in ("letter.pdf", "locked.pdf"):
        (folder / name).write_bytes(name.encode())
        stat = (folder / name).stat()
        seen = library.SeenFile(os.fsencode(folder / name), stat.st_size, stat.st_mtime_ns)
        library.register(conn, [seen], NOW)
    for job in jobs.claim_intake(conn, "me", NOW, 60):
        if job.path.endswith(b"locked.pdf"):
            locked = PasswordError("is encrypted", file=os.fsdecode(job.path))
            content.link(conn, job, "b" * 64, job.size, None, locked, NOW)
        else:
            content.link(conn, job, "a" * 64, job.size, DocumentInfo("application/pdf", 2), None, NOW)
    for page in jobs.claim_pages(conn, "me", NOW, 60):
        results.save(conn, "me", page, reading(page.page), NOW)
    publish = jobs.claim_publish(conn, "me", NOW, 60)
    assert publish is not None
    jobs.finish_publish(conn, "me", publish, None, None, None)
    conn.close()
    return folder


def reading(page: int) -> PageReading:
    block = Block(Category.TEXT, (10.0, 20.0, 300.0, 40.0), TEXT, TEXT)
    return PageReading(
        page=page,
        label="iv" if page == 2 else None,
        width_pt=595.0,
        height_pt=842.0,
        blocks=(block,) if page == 2 else (),
        text=TEXT if page == 2 else "Nothing much.",
        markdown=TEXT if page == 2 else "Nothing much.",
        stop_reason=StopReason.COMPLETE,
        source="text-layer",
        layer=LayerVerdict.GOOD,
    )


def run(*words: object, answer: str | None = None) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words], input=answer, prog_name="ocrd")


def test_without_a_command_it_explains_itself() -> None:
    result = run()
    assert "ocrd batch FOLDER" in result.output


def test_version_is_the_distribution_s() -> None:
    assert run("--version").output.startswith("ocrd 0.")


@pytest.mark.parametrize(
    "words", [["frobnicate"], ["batch"], ["search", "--limit", "0", "x"], ["status", "--no-such-option"]]
)
def test_wrong_command_line_exits_with_usage(home: Path, words: list[str]) -> None:
    assert run(*words).exit_code == ExitCode.USAGE


def test_error_is_one_message_without_traceback(home: Path) -> None:
    result = run("batch", "--dpi", "7", "x.pdf")
    assert result.exit_code == ExitCode.SETTINGS
    assert result.stderr.startswith("ocrd: --dpi: setting 'dpi' cannot be 7. Give")
    assert result.stderr.count("\n") == 1


def test_verbose_error_comes_with_its_traceback(home: Path) -> None:
    result = run("batch", "-v", "--dpi", "7", "x.pdf")
    assert result.exit_code == ExitCode.SETTINGS
    assert "Traceback" in result.stderr


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (PasswordError("x"), PasswordError),
        (PermissionError(13, "Permission denied"), StorageError),
        (ValueError("x"), OcrdError),
        (BrokenPipeError(), None),
    ],
)
def test_every_exception_becomes_a_kind_of_failure(error: Exception, kind: type[OcrdError] | None) -> None:
    found = as_ocrd_error(error)
    assert found is None if kind is None else isinstance(found, kind)


@pytest.mark.parametrize(
    "words",
    [
        ["status"],
        ["search", "x"],
        ["show", "x"],
        ["retry", "--failed"],
        ["retry", "x"],
        ["forget", "x"],
        ["pause"],
        ["resume"],
        ["export", "x"],
        ["verify"],
    ],
)
def test_a_home_without_a_library_is_told_and_not_made(home: Path, words: list[str]) -> None:
    result = run(*words)
    assert result.exit_code == ExitCode.DATABASE
    assert "ocrd batch" in result.stderr
    assert not home.exists()


def test_status_of_a_library(scans: Path) -> None:
    text = run("status").output
    assert "1 done" in text and "1 locked" in text
    assert f"locked.pdf: is encrypted. Run `ocrd retry {scans / 'locked.pdf'} --password …`" in text


def test_status_json_counts_every_file(scans: Path) -> None:
    counts = json.loads(run("status", "--json").output)["counts"]
    assert (counts["done"], counts["needs_password"], counts["pages_done"]) == (1, 1, 2)


def test_search_shows_path_page_label_and_marked_snippet(scans: Path) -> None:
    result = run("search", "water damage")
    assert result.exit_code == 0
    assert result.output.splitlines()[0] == f"{scans / 'letter.pdf'}, page 2 (printed iv)"
    assert "[water] [damage]" in result.output or "[water damage]" in result.output
    assert "\x1b" not in result.output


def test_search_tells_of_copies(scans: Path, home: Path) -> None:
    copy = scans / "copy.pdf"
    copy.write_bytes(b"letter.pdf")
    conn = open_database(home / "ocrd.db")
    library.register(conn, [library.SeenFile(os.fsencode(copy), 10, 1)], NOW)
    [job] = jobs.claim_intake(conn, "me", NOW, 60)
    content.link(conn, job, "a" * 64, 10, None, None, NOW)
    conn.close()
    assert run("search", "ledgers").output.splitlines()[0].endswith("page 2 (printed iv) [and 1 copy]")


def test_search_words_need_no_quotes(scans: Path) -> None:
    assert run("search", "lower", "edge").output == run("search", "lower edge").output != ""


def test_search_json_has_boxes(scans: Path) -> None:
    (hit,) = json.loads(run("search", "--json", "ledgers").output)
    assert (hit["page"], hit["label"], hit["state"]) == (2, "iv", "current")
    assert hit["boxes"] == [[10.0, 20.0, 300.0, 40.0]]
    assert hit["path"] == str(scans / "letter.pdf")


def test_search_without_a_hit_exits_as_grep_does(scans: Path) -> None:
    result = run("search", "unicorn")
    assert (result.exit_code, result.stdout) == (ExitCode.NO_MATCH, "")
    assert run("search", "--json", "unicorn").stdout == "[]\n"


@pytest.mark.parametrize(
    "query",
    [
        "",
        "-40",
        "--",
        '"',
        "'",
        "C++",
        "50%",
        "a AND",
        "NEAR(",
        "*",
        "state-of-the-art",
        "x:y",
        "(",
        "é",
        "日",
        "\x00",
    ],
)
def test_any_string_is_a_safe_query(scans: Path, query: str) -> None:
    assert run("search", "--", query).exit_code in (0, 1)


def test_query_with_a_dash_works_behind_two_dashes(scans: Path) -> None:
    assert run("search", "--", "-40").exit_code == 0


def test_search_by_name_needs_no_query(scans: Path) -> None:
    assert str(scans / "letter.pdf") in run("search", "--name", "LETTER").output


def test_show_prints_pages_behind_their_marks(scans: Path) -> None:
    result = run("show", "letter.pdf")
    assert result.output.startswith("<!-- page 1 -->")
    assert '<!-- page 2 label="iv" -->' in result.output
    assert run("show", scans / "letter.pdf", "--page", "1", "--format", "text").output == "Nothing much.\n"


def test_show_json_is_a_sidecar(scans: Path) -> None:
    found = json.loads(run("show", "letter.pdf", "--page", "2", "--format", "json").output)
    assert found["schema"] == "ocrd/1"
    assert [page["page"] for page in found["pages"]] == [2]


def test_show_of_an_unknown_file_says_so(scans: Path) -> None:
    result = run("show", "other.pdf")
    assert result.exit_code == ExitCode.NO_MATCH
    assert "other.pdf" in result.stderr


@pytest.mark.parametrize("page", [None, "1"])
def test_show_of_what_could_not_be_opened_says_why(scans: Path, page: str | None) -> None:
    result = run("show", "locked.pdf", *(["--page", page] if page else []))
    assert (result.exit_code, result.stdout) == (ExitCode.NO_MATCH, "")
    assert f"locked.pdf: is encrypted. Run `ocrd retry {scans / 'locked.pdf'}" in result.stderr


def test_show_of_what_waits_says_so(scans: Path) -> None:
    run("retry", scans / "letter.pdf", "--dpi", "300")
    result = run("show", "letter.pdf")
    assert (result.exit_code, result.stdout) == (ExitCode.NO_MATCH, "")
    assert "(queued)" in result.stderr


@pytest.mark.parametrize("page", ["0", "3", "2-1", "x", "1-9"])
def test_page_that_is_none_is_a_usage_error(scans: Path, page: str) -> None:
    assert run("show", "letter.pdf", "--page", page).exit_code == ExitCode.USAGE


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        (None, [1, 2, 3, 4, 5]),
        ("3", [3]),
        ("2-4", [2, 3, 4]),
        ("4-", [4, 5]),
        ("-2", [1, 2]),
        ("5,1", [5, 1]),
    ],
)
def test_page_numbers(text: str | None, numbers: Sequence[int]) -> None:
    assert flags.page_numbers(text, 5) == numbers


def test_since_takes_dates_and_ages(home: Path) -> None:
    assert flags.moment(None, NOW) is None
    assert flags.moment("7d", NOW) == NOW - 7 * 86400
    assert flags.moment("2026-01-31T00:00:00+00:00", NOW) == 1769817600.0
    assert run("search", "x", "--since", "yesterday").exit_code == ExitCode.USAGE


def test_pause_and_resume_show_in_status(scans: Path, home: Path) -> None:
    run("pause", "--reason", "on battery")
    assert "on battery" in run("status").output
    run("resume")
    assert "on battery" not in run("status").output


def test_retry_needs_files_or_failed(scans: Path) -> None:
    assert run("retry").exit_code == ExitCode.USAGE
    assert run("retry", "--failed", "x.pdf").exit_code == ExitCode.USAGE


def test_retry_queues_with_the_password_typed(scans: Path, home: Path) -> None:
    result = run("retry", scans / "locked.pdf", "--password", "-", answer="s3cret\n")
    assert (result.exit_code, result.stdout.strip()) == (0, "1 file will be read again")
    conn = open_database(home / "ocrd.db")
    (job,) = jobs.claim_intake(conn, "me", NOW + 1, 60)
    assert job.options["password"] == "s3cret"


def test_retry_refuses_what_cannot_be(scans: Path) -> None:
    assert run("retry", "--failed", "--engine", "tesserac").exit_code == ExitCode.SETTINGS
    result = run("retry", scans / "unknown.pdf")
    assert result.exit_code == ExitCode.NO_MATCH


@pytest.mark.parametrize("command", ["retry", "forget"])
def test_what_the_library_does_not_hold_is_told_with_a_way_to_find_it(scans: Path, command: str) -> None:
    result = run(command, "letter.pdf")
    assert result.exit_code == ExitCode.NO_MATCH
    assert "ocrd search --name" in result.stderr


@pytest.mark.parametrize("command", ["retry", "forget"])
def test_paths_that_are_unknown_are_named_beside_those_that_are_not(scans: Path, command: str) -> None:
    result = run(command, scans / "letter.pdf", *(scans / f"{n}.pdf" for n in range(4)))
    assert result.stdout.startswith("1 file ")
    assert f"no file at {scans / '0.pdf'}, {scans / '1.pdf'}, {scans / '2.pdf'} and 1 more;" in result.stderr
    assert result.exit_code == ExitCode.NO_MATCH


def test_retry_tells_when_nobody_is_there_to_read(scans: Path, home: Path) -> None:
    assert "nothing works on this library" in run("retry", "--failed").stderr
    with open_database(home / "ocrd.db") as conn:
        workers.record(
            conn, processes.owner_id(), pid=os.getpid(), host="here", role="supervisor", now=time.time()
        )
    assert run("retry", "--failed").stderr == ""


def test_forget_removes_from_the_library_only(scans: Path) -> None:
    assert "1 file forgotten" in run("forget", scans / "letter.pdf").output
    assert run("search", "ledgers").exit_code == ExitCode.NO_MATCH
    assert (scans / "letter.pdf").exists()


def test_config_tells_where_a_value_comes_from(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home.mkdir()
    (home / "ocrd.toml").write_text('passwords = ["hunter2"]\ndpi = 300\n', encoding="utf-8")
    (home / "ocrd.toml").chmod(0o600)
    monkeypatch.setenv("OCRD_WORKERS", "3")
    origins = {o["name"]: o for o in json.loads(run("config", "--json", "--languages", "eng+deu").output)}
    assert (origins["dpi"]["value"], origins["dpi"]["where"]) == (300, f"{home / 'ocrd.toml'}, line 2")
    assert origins["workers"]["where"] == "environment variable OCRD_WORKERS"
    assert (origins["languages"]["value"], origins["languages"]["where"]) == (["eng", "deu"], "--languages")
    text = run("config").output
    assert "hunter2" not in text and "dpi = 300" in text


def test_unknown_setting_names_the_nearest(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCRD_LANGUAGE", "deu")
    result = run("config")
    assert result.exit_code == ExitCode.SETTINGS
    assert "OCRD_LANGUAGES" in result.stderr


def test_read_prints_a_born_digital_page_and_stores_nothing(home: Path) -> None:
    result = run("read", SAMPLES / "paper.pdf", "--page", "2", "--format", "text")
    assert result.exit_code == 0, result.stderr
    assert "Queues that serve in order of arrival look fair and feel slow." in " ".join(result.output.split())
    assert not home.exists()


def test_read_json_has_the_pages_asked_for(home: Path) -> None:
    found = json.loads(run("read", SAMPLES / "paper.pdf", "--page", "2", "--format", "json").output)
    assert [(page["page"], page["label"]) for page in found["pages"]] == [(2, "42")]


def test_read_of_a_folder_says_what_reads_folders(home: Path, tmp_path: Path) -> None:
    result = run("read", tmp_path)
    assert result.exit_code == ExitCode.BAD_INPUT
    assert "it is a folder. `ocrd batch`" in result.stderr


def test_an_output_of_an_export_that_is_no_folder_is_told(scans: Path) -> None:
    result = run("export", scans, "--out", scans / "letter.pdf")
    assert result.exit_code == ExitCode.STORAGE
    assert "Choose another --out" in result.stderr


def test_read_of_rubbish_says_what_it_is(home: Path, tmp_path: Path) -> None:
    rubbish = tmp_path / "-rf.pdf"
    rubbish.write_text("<html>", encoding="utf-8")
    result = run("read", "--", rubbish)
    assert result.exit_code == ExitCode.BAD_INPUT
    assert result.stderr.startswith(f"ocrd: {rubbish}: ")


def test_interrupt_has_its_exit_code(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    def interrupt(*_arguments: object, **_named: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("storage.settings.explain", interrupt)
    assert run("config").exit_code == ExitCode.INTERRUPTED


def test_names_that_no_terminal_can_show_end_in_no_traceback(home: Path) -> None:
    env = os.environ | {"PYTHONIOENCODING": "ascii", "OCRD_HOME": str(home)}
    call = [Path(sys.executable).parent / "ocrd", "read", "über \udcff.pdf"]
    done = subprocess.run(call, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == ExitCode.STORAGE
    assert "Traceback" not in done.stderr
    assert "\\xfcber \\xff.pdf" in done.stderr


def test_damaged_database_is_told_as_such(home: Path) -> None:
    home.mkdir()
    (home / "ocrd.db").write_bytes(b"SQLite format 3\x00" + b"\xff" * 5000)
    result = run("status")
    assert result.exit_code == DatabaseError.exit_code
    assert "Traceback" not in result.stderr


def test_status_waits_for_no_writer(home: Path, scans: Path) -> None:
    writer = open_database(home / "ocrd.db")
    writer.execute("BEGIN IMMEDIATE")
    writer.execute("DELETE FROM files")
    assert json.loads(run("status", "--json").stdout)["counts"]["done"] == 1
    writer.execute("ROLLBACK")
    writer.close()
