"""What `ocrd batch` shows: how far it is while it runs, then what became of every file."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from daemon import console

if TYPE_CHECKING:
    from collections.abc import Callable

    from daemon.batch import Outcome, Progress, Summary

PLAIN_PROGRESS_S = 5.0  # where no bar can be drawn, one line at most this often
FILES_LISTED = 20  # a longer batch lists its failures only
FAILED = ("failed", "needs_password")

# --- progress ----------------------------------------------------------------------------------------------


@contextmanager
def batch_progress(quiet: bool = False) -> Iterator[Callable[[Progress], None]]:
    """Something to call with each `Progress`: a bar on a terminal, a line now and then elsewhere."""
    if quiet:
        yield lambda progress: None
    elif console.is_terminal(sys.stderr):
        with _bar() as show:
            yield show
    else:
        yield _Lines()


class _Lines:
    """Progress as plain lines, for logs: `12 of 40 pages, 3 of 9 files, 31 pages/min, …`."""

    def __init__(self) -> None:
        self._last = 0.0

    def __call__(self, progress: Progress) -> None:
        if progress.message:
            print(console.escape_name(progress.message), file=sys.stderr, flush=True)
        if progress.seconds - self._last >= PLAIN_PROGRESS_S:
            self._last = progress.seconds
            print(progress_line(progress), file=sys.stderr, flush=True)


def progress_line(progress: Progress) -> str:
    """Pages done, files done, rate and time left, in one line."""
    parts = [
        f"{progress.pages_done:,} of {console.plural(progress.pages, 'page')}",
        f"{progress.files_done:,} of {console.plural(progress.files, 'file')}",
    ]
    read_now = max(0, progress.pages_done - progress.pages_before)
    rate = read_now / progress.seconds if progress.seconds > 0 else 0.0
    if rate > 0:
        parts.append(f"{console.pace(rate * 60)} pages/min")
        left = progress.pages - progress.pages_done
        if left > 0:
            parts.append(f"about {console.duration(left / rate)} left")
    if progress.path is not None and progress.files_done < progress.files:
        name = console.shorten(console.escape_name(Path(os.fsdecode(progress.path)).name), 40)
        parts.append(name + (f" page {progress.page}" if progress.page else ""))
    return ", ".join(parts)


@contextmanager
def _bar() -> Iterator[Callable[[Progress], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, SpinnerColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = (SpinnerColumn(), BarColumn(bar_width=24), TextColumn("{task.fields[line]}", markup=False))
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None, line="looking for files")

        def show(progress: Progress) -> None:
            bar.update(
                task,
                total=progress.pages or None,
                completed=progress.pages_done,
                line=progress_line(progress),
            )
            if progress.message:
                bar.console.print(console.escape_name(progress.message), markup=False, highlight=False)

        yield show


# --- the summary of a batch --------------------------------------------------------------------------------


def show_summary(
    summary: Summary, *, as_json: bool = False, quiet: bool = False, home: Path | None = None
) -> None:
    """What became of every file (of the failed ones only, where there are many), the sums, what to type next.

    `home`: the library, where it was named on the command line, for what to type next.
    """
    documents = summary.documents
    if as_json:
        console.write_json(summary_object(summary))
        return
    if not quiet:
        few = len(documents) <= FILES_LISTED
        rows = [_file_row(outcome) for outcome in documents if few or not is_fine(outcome)]
        if rows:
            console.print_table(("File", "Pages", "Result"), rows, numbers=(1,))
        sums = summary_row(summary)
        console.print_table(tuple(sums), [tuple(sums.values())], numbers=tuple(range(len(sums))))
    for outcome in documents:
        if not is_fine(outcome):
            print(failure_line(outcome), file=sys.stderr if quiet else sys.stdout)
    if not quiet and (before := summary.counts["read_before"]):
        console.say(
            f"{console.plural(before, 'file')} read before and unchanged; `ocrd retry FILE` reads one again"
        )
    if not quiet and summary.counts["waiting"]:
        console.say(
            f"{console.plural(summary.counts['waiting'], 'file')} not finished; the same command goes on with them"
        )
    if not quiet and any(outcome.pages_done for outcome in documents):
        console.say(written_line(documents))
        where = f" --home {shlex.quote(str(home))}" if home else ""
        console.say(f'next: ocrd search "words you remember"{where}')


def written_line(documents: Sequence[Outcome]) -> str:
    """Where the Markdown and JSON files are."""
    folders = {Path(outcome.markdown_path).parent for outcome in documents if outcome.markdown_path}
    if not folders:
        return "no Markdown or JSON was written"
    sources = {Path(os.fsdecode(outcome.path)).parent for outcome in documents}
    if folders <= sources:
        return "each FILE has FILE.md and FILE.json beside it"
    return f"FILE.md and FILE.json of each FILE are below {console.escape_name(os.path.commonpath(folders))}"


def summary_object(summary: Summary) -> dict[str, object]:
    """The summary as JSON: documents, counts, seconds, exit_code."""
    return {
        "documents": [
            {
                "path": os.fsdecode(outcome.path),
                "state": str(outcome.state),
                "pages": outcome.pages,
                "pages_done": outcome.pages_done,
                "error": None
                if outcome.error_code is None
                else {"code": outcome.error_code, "message": outcome.error_message, "remedy": outcome.remedy},
                "markdown": None if outcome.markdown_path is None else str(outcome.markdown_path),
                "exit_code": int(outcome.exit_code),
            }
            for outcome in summary.documents
        ],
        "counts": dict(summary.counts),
        "seconds": round(summary.seconds, 3),
        "exit_code": int(summary.exit_code),
    }


def summary_row(summary: Summary) -> dict[str, str]:
    """Column title → value of the line of sums. Files = done + failed + locked + missing + waiting."""
    counts = summary.counts
    pages = counts["pages_done"]
    row = {
        "Files": counts["total"],
        "Done": counts["done"],
        "Failed": counts["failed"],
        "Locked": counts["needs_password"],
        "Missing": counts["missing"],
        "Waiting": counts["waiting"],
        "Pages read": pages,
        "Blank": counts["pages_blank"],
        "Pages failed": counts["pages_failed"],
    }
    always = ("Files", "Done", "Failed", "Pages read")
    shown = {title: f"{number:,}" for title, number in row.items() if number or title in always}
    read_now = pages + counts["pages_failed"] - counts["pages_before"]
    per_minute = read_now / summary.seconds * 60 if summary.seconds > 0 else 0.0
    return shown | {
        "Seconds": f"{summary.seconds:.1f}",
        "Pages/min": console.pace(per_minute) if read_now > 0 else "–",
    }


def is_fine(outcome: Outcome) -> bool:
    """Whether every page of the file was read."""
    return outcome.error_code is None and outcome.state not in FAILED


def _file_row(outcome: Outcome) -> tuple[str, str, str]:
    name = console.escape_name(Path(os.fsdecode(outcome.path)).name)
    pages = "–" if outcome.pages is None else str(outcome.pages)
    if outcome.state == "done" and outcome.error_code is not None:
        return name, pages, f"{outcome.pages_done} of {outcome.pages} pages read"
    return name, pages, (outcome.error_code or outcome.state).replace("_", " ")


def failure_line(outcome: Outcome) -> str:
    """`FILE: cause. Remedy` of a file that was not read as a whole."""
    message = outcome.error_message or (outcome.error_code or outcome.state).replace("_", " ")
    return console.failure(os.fsdecode(outcome.path), message, outcome.remedy)
