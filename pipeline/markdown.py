"""Writes text and blocks as CommonMark and as plain text; whatever would be markup by accident is escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from storage.records import FURNITURE, Block, Category

_INLINE = re.compile(
    r"[\\`|]"
    r"|(?<![^\W_])_|_(?![^\W_])"  # an underscore inside a word is none
    r"|\*"
    r"|\](?=[(\[:])"  # links and link definitions
    r"|<(?=[A-Za-z/!?])"
    r"|&(?=#?\w{1,32};)"
    r"|~(?=.*~)|(?<=~)~"
)
_LINE_START = re.compile(r"(?:#{1,6}(?=\s|$)|[-+](?=\s|$)|>|=+\s*$|-+\s*$|(?=\d{1,9}[.)](?:\s|$)))")
_NUMBER = re.compile(r"(\d{1,9})([.)])")
_CLOSING = re.compile(r"(^|\s)(#+)$")


def escape(text: str) -> str:
    """One line of plain text as Markdown that reads the same."""
    text = _INLINE.sub(lambda match: "\\" + match.group(), text.strip())
    match = _LINE_START.match(text)
    if match is None:
        return text
    if match.group():
        return "\\" + text
    return _NUMBER.sub(r"\1\\\2", text, count=1)


def paragraph(lines: Sequence[str]) -> str:
    """A paragraph; more than one line means the breaks are kept (two spaces: what every renderer knows)."""
    return "  \n".join(escape(line) for line in lines)


def heading(text: str, level: int) -> str:
    """An ATX heading of `level` 1…6."""
    return f"{'#' * level} {_CLOSING.sub(_escape_closing, escape(text))}"


def _escape_closing(match: re.Match[str]) -> str:
    return f"{match.group(1)}\\{match.group(2)}"


def code(text: str) -> str:
    """A fenced code block whose fence is longer than any in `text`."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"


def list_item(marker: str, text: str, indent: int) -> str:
    """A list item, `indent` spaces in. Marks that CommonMark does not know stay in the text of a bullet."""
    pad = " " * indent
    if re.fullmatch(r"\d{1,9}[.)]", marker):
        return f"{pad}{marker} {escape(text)}"
    if marker and any(char.isalnum() for char in marker):
        return f"{pad}- {escape(f'{marker} {text}')}"
    return f"{pad}- {escape(text)}"


def table(rows: Sequence[Sequence[str]]) -> str:
    """A pipe table; the first row is its header. All rows have the same number of cells."""
    if not rows:
        return ""
    written = ["| " + " | ".join(_cell(cell) for cell in row) + " |" for row in rows]
    written.insert(1, "|" + "---|" * len(rows[0]))
    return "\n".join(written)


def _cell(text: str) -> str:
    # A cell holds inline markup only, so nothing at its start needs escaping.
    return _INLINE.sub(lambda match: "\\" + match.group(), " ".join(text.split()))


def render_markdown(blocks: Iterable[Block]) -> str:
    """The running text of a page as Markdown: blocks in order, furniture left out."""
    return _render((block, block.markdown) for block in blocks)


def render_text(blocks: Iterable[Block]) -> str:
    """The running text of a page as plain text: blank lines between blocks, tabs between table cells."""
    return _render((block, block.text) for block in blocks)


def _render(parts: Iterable[tuple[Block, str]]) -> str:
    out: list[str] = []
    before: Category | None = None
    for block, written in parts:
        if block.category in FURNITURE or not written.strip():
            continue
        if before is not None:
            tight = before is Category.LIST_ITEM and block.category is Category.LIST_ITEM
            out.append("\n" if tight else "\n\n")
        out.append(written)
        before = block.category
    return "".join(out)
