"""How the command line writes: escaped names, error messages, numbers for people, tables.

Names and page text come from strangers. A name is always shown on one line, with everything a terminal would
obey or a reader be fooled by (control characters, escape sequences, direction overrides) written as an escape.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from storage.errors import OcrdError

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
    """Indented JSON on standard output: readable, and the same value where a terminal would obey a character of it."""
    import json

    text = json.dumps(value, ensure_ascii=False, indent=2)
    print("".join(f"\\u{ord(c):04x}" if _is_unsafe(ord(c)) and c != "\n" else c for c in text))


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


def pace(per_minute: float) -> str:
    """Pages a minute, with a digit after the point where that says something: `1,204`, `31`, `0.4`."""
    return f"{per_minute:,.0f}" if per_minute >= 9.95 else f"{per_minute:.1f}"


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


def failure(path: str, message: str, remedy: str | None) -> str:
    """`PATH: cause. Remedy`, safe to show; a command in the remedy names the file, ready to be copied."""
    import shlex

    end = (remedy or "").replace("FILE", shlex.quote(path))
    return escape_name(f"{path}: {message.rstrip('.')}. {end[:1].upper()}{end[1:]}".rstrip())


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
