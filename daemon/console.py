"""What the command line writes: escaped names, error messages, progress, the summary of a batch.

Names and page text come from strangers. A name is always shown on one line, with everything a terminal would
obey or a reader be fooled by (control characters, escape sequences, direction overrides) written as an escape.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable

    from daemon.batch import Outcome, Progress, Summary
    from storage.errors import OcrdError

PLAIN_PROGRESS_S = 5.0  # where no bar can be drawn, one line at most this often
FILES_LISTED = 20  # a longer batch lists its failures only
BOLD, RESET = "\x1b[1m", "\x1b[0m"
_NEW_LINES = {"\n": r"\n", "\t": r"\t", "\r": r"\r"}


def _is_unsafe(code: int) -> bool:
    return (
        code < 0x20
        or 0x7F <= code <= 0x9F
        or code in (0x2028, 0x2029)
        or 0x202A <= code <= 0x202E  # direction embeddings and overrides
        or 0x2066 <= code <= 0x2069  # direction isolates
        or 0xD800 <= code <= 0xDFFF
    )


def _escaped(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # a byte of a name that is no UTF-8
        return f"\\x{code - 0xDC00:02x}"
    return _NEW_LINES.get(character) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


def escape_name(name: str | bytes | os.PathLike[str]) -> str:
    """A path or name on one line, safe to show."""
    text = os.fsdecode(name)
    return "".join(_escaped(c) if _is_unsafe(ord(c)) else c for c in text)


def escape_text(text: str) -> str:
    """Page text, safe to show; its line ends and tabs stay."""
    return "".join(_escaped(c) if _is_unsafe(ord(c)) and c not in "\n\t" else c for c in text)


def is_terminal(stream: TextIO) -> bool:
    """Whether a person sees what is written there, with colours and all."""
    return stream.isatty() and os.environ.get("TERM", "") != "dumb"


def has_colour(stream: TextIO) -> bool:
    """Whether bold and colours are wanted (https://no-color.org)."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR")


def say(line: str = "") -> None:
    """One line on standard output."""
    print(line)


def say_event(line: str) -> None:
    """One happening of the daemon, at once, on standard output."""
    print(escape_name(line), flush=True)


def write_text(text: str) -> None:
    """Page text to standard output: escaped for a terminal, byte for byte for a file or a pipe."""
    shown = escape_text(text) if is_terminal(sys.stdout) else text
    sys.stdout.write(shown if shown.endswith("\n") or not shown else shown + "\n")


def write_piece(text: str) -> None:
    """A piece of page text as it comes, escaped for a terminal, on the same line and at once."""
    sys.stdout.write(escape_text(text) if is_terminal(sys.stdout) else text)
    sys.stdout.flush()


def remark(line: str) -> None:
    """One line beside the output proper, on standard error."""
    print(escape_name(line), file=sys.stderr)


def write_json(value: object) -> None:
    """Indented JSON on standard output."""
    import json

    print(json.dumps(value, ensure_ascii=False, indent=2))


def complain(error: OcrdError) -> None:
    """An error's one message on standard error: file, page, cause, remedy."""
    print(f"ocrd: {describe(error)}", file=sys.stderr)


def describe(error: OcrdError) -> str:
    """`FILE, page N: cause. Remedy`, safe to show."""
    return escape_name(str(error))


def plural(count: int, one: str, many: str | None = None) -> str:
    """`1 page`, `2 pages`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def size(count_bytes: float) -> str:
    """`0 bytes`, `12.3 MB`, `4.0 GB`."""
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count_bytes >= unit:
            return f"{count_bytes / unit:.1f} {name}"
    return plural(int(count_bytes), "byte")


def duration(seconds: float) -> str:
    """`8 s`, `3 min 20 s`, `2 h 5 min`, `4 d 3 h`."""
    left = round(seconds)
    if left < 60:
        return f"{left} s"
    for size, unit, small, small_unit in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if left >= size:
            rest = left % size // small
            return f"{left // size} {unit}" + (f" {rest} {small_unit}" if rest else "")
    return f"{left} s"


def shorten(name: str, width: int) -> str:
    """The name, its middle left out where it is longer than `width`."""
    if len(name) <= width:
        return name
    head = (width - 1) // 3
    return f"{name[:head]}…{name[len(name) - (width - 1 - head) :]}"


# --- progress ----------------------------------------------------------------------------------------------


@contextmanager
def batch_progress(quiet: bool = False) -> Iterator[Callable[[Progress], None]]:
    """Something to call with each `Progress`: a bar on a terminal, a line now and then elsewhere."""
    if quiet:
        yield lambda progress: None
    elif is_terminal(sys.stderr):
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
            print(escape_name(progress.message), file=sys.stderr, flush=True)
        if progress.seconds - self._last >= PLAIN_PROGRESS_S:
            self._last = progress.seconds
            print(progress_line(progress), file=sys.stderr, flush=True)


def progress_line(progress: Progress) -> str:
    """Pages done, files done, rate and time left, in one line."""
    parts = [
        f"{progress.pages_done:,} of {plural(progress.pages, 'page')}",
        f"{progress.files_done:,} of {plural(progress.files, 'file')}",
    ]
    rate = progress.pages_done / progress.seconds if progress.seconds > 0 else 0.0
    if rate > 0:
        parts.append(f"{rate * 60:.0f} pages/min")
        left = progress.pages - progress.pages_done
        if left > 0:
            parts.append(f"about {duration(left / rate)} left")
    if progress.path is not None and progress.files_done < progress.files:
        name = shorten(escape_name(Path(os.fsdecode(progress.path)).name), 40)
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
                bar.console.print(escape_name(progress.message), markup=False, highlight=False)

        yield show


# --- the summary of a batch --------------------------------------------------------------------------------


def show_summary(summary: Summary, *, as_json: bool = False, quiet: bool = False) -> None:
    """What became of every file (of the failed ones only, where there are many), the sums, what to type next."""
    documents = summary.documents
    if as_json:
        write_json(summary_object(summary))
        return
    if not quiet:
        few = len(documents) <= FILES_LISTED
        rows = [_file_row(outcome) for outcome in documents if few or not is_fine(outcome)]
        if rows:
            print_table(("File", "Pages", "Result"), rows, numbers=(1,))
        sums = summary_row(summary)
        print_table(tuple(sums), [tuple(sums.values())], numbers=tuple(range(len(sums))))
    for outcome in documents:
        if not is_fine(outcome):
            print(failure_line(outcome), file=sys.stderr if quiet else sys.stdout)
    if not quiet and summary.counts["waiting"]:
        say(f"{plural(summary.counts['waiting'], 'file')} not finished; the same command goes on with them")
    if not quiet and any(outcome.pages_done for outcome in documents):
        say(written_line(documents))
        say('next: ocrd search "words you remember"')


def written_line(documents: Sequence[Outcome]) -> str:
    """Where the Markdown and JSON files are."""
    folders = {Path(outcome.markdown_path).parent for outcome in documents if outcome.markdown_path}
    if not folders:
        return "no Markdown or JSON was written"
    sources = {Path(os.fsdecode(outcome.path)).parent for outcome in documents}
    if folders <= sources:
        return "each FILE has FILE.md and FILE.json beside it"
    return f"FILE.md and FILE.json of each FILE are below {escape_name(os.path.commonpath(folders))}"


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
    per_minute = pages / summary.seconds * 60 if summary.seconds > 0 else 0.0
    return shown | {"Seconds": f"{summary.seconds:.1f}", "Pages/min": f"{per_minute:,.0f}"}


FAILED = ("failed", "needs_password")


def is_fine(outcome: Outcome) -> bool:
    """Whether every page of the file was read."""
    return outcome.error_code is None and outcome.state not in FAILED


def _file_row(outcome: Outcome) -> tuple[str, str, str]:
    name = escape_name(Path(os.fsdecode(outcome.path)).name)
    pages = "–" if outcome.pages is None else str(outcome.pages)
    if outcome.state == "done" and outcome.error_code is not None:
        return name, pages, f"{outcome.pages_done} of {outcome.pages} pages read"
    return name, pages, (outcome.error_code or outcome.state).replace("_", " ")


def failure_line(outcome: Outcome) -> str:
    """`FILE: cause. Remedy` of a file that was not read as a whole."""
    message = outcome.error_message or (outcome.error_code or outcome.state).replace("_", " ")
    return failure(os.fsdecode(outcome.path), message, outcome.remedy)


def failure(path: str, message: str, remedy: str | None) -> str:
    """`PATH: cause. Remedy`, safe to show; a command in the remedy names the file, ready to be copied."""
    import shlex

    end = (remedy or "").replace("FILE", shlex.quote(path))
    return escape_name(f"{path}: {message.rstrip('.')}. {end[:1].upper()}{end[1:]}".rstrip())


def show_decode_bench(figures: Mapping[str, Any], *, as_json: bool) -> None:
    """What `ocrd bench decode` measured, mode by mode."""
    if as_json:
        write_json(figures)
        return
    say(f"{figures['model']} on {figures['device']}")
    titles = (
        "Mode", "Tokens", "Tokens/s", "Tokens/pass", "Accepted/pass", "First token ms", "From store ms", "Vision ms",
        "Peak MB", "Same tokens",
    )  # fmt: skip
    rows = [
        (
            row["mode"], str(row["tokens"]), f"{row['tokens_per_s']:.1f}", f"{row['tokens_per_pass']:.2f}",
            f"{row['mean_accept_len']:.2f}", f"{row['ttft_ms']:.0f}", f"{row['ttft_hit_ms']:.0f}",
            f"{row['vision_ms']:.0f}", f"{row['peak_mb']:.0f}", "yes" if row["identical"] else "NO",
        )
        for row in figures["modes"]
    ]  # fmt: skip
    print_table(titles, rows, numbers=tuple(range(1, 9)))


def print_table(
    titles: tuple[str, ...], rows: Sequence[tuple[str, ...]], *, numbers: tuple[int, ...] = ()
) -> None:
    """A table and an empty line; `numbers`: the columns that are set to the right."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for position, title in enumerate(titles):
        table.add_column(title, justify="right" if position in numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))  # Text: names are no markup
    Console(width=None if is_terminal(sys.stdout) else 160, highlight=False).print(table)
    say()
