"""HTML tables as models write them: Markdown where a pipe table can hold them, else cleaned HTML; and their text."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser

_SPACE = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class Table:
    """A table as Markdown (or HTML, where cells span) and as tab-separated text."""

    markdown: str
    text: str


@dataclass(slots=True)
class _Cell:
    text: str = ""
    spans: dict[str, int] = field(default_factory=dict)
    header: bool = False


class _Reader(HTMLParser):
    """Collects rows of cells; tolerant of missing end tags, as answers are cut short."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.rows: list[list[_Cell]] = []
        self.depth = 0
        self.nested = False
        self._open = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self.depth += 1
            self.nested |= self.depth > 1
        elif tag == "tr":
            self.rows.append([])
            self._open = False
        elif tag in ("td", "th"):
            if not self.rows:
                self.rows.append([])
            spans = {
                name: int(value)
                for name, value in attrs
                if name in ("rowspan", "colspan") and value and value.isdigit() and 1 < int(value) < 1000
            }
            self.rows[-1].append(_Cell(spans=spans, header=tag == "th"))
            self._open = True
        elif tag == "br" and self._open:
            self.rows[-1][-1].text += " "

    def handle_endtag(self, tag: str) -> None:
        if tag == "table":
            self.depth -= 1
        elif tag in ("td", "th", "tr"):
            self._open = False

    def handle_data(self, data: str) -> None:
        if self._open:
            self.rows[-1][-1].text += data


def convert(source: str) -> Table:
    """The table in `source`, HTML or already Markdown."""
    if "<" not in source or not re.search(r"<t[drh]\b", source, re.IGNORECASE):
        return Table(source, _pipes_to_text(source))
    reader = _Reader()
    reader.feed(source)
    reader.close()
    rows = [row for row in reader.rows if row]
    for cell in (cell for row in rows for cell in row):
        cell.text = _SPACE.sub(" ", cell.text).strip()
    text = "\n".join("\t".join(cell.text for cell in row) for row in rows)
    if not rows:
        return Table("", "")
    simple = not reader.nested and not any(cell.spans for row in rows for cell in row)
    return Table(_pipe_table(rows) if simple else _clean_html(rows), text)


def _pipe_table(rows: list[list[_Cell]]) -> str:
    width = max(len(row) for row in rows)
    lines = []
    for at, row in enumerate(rows):
        cells = [cell.text.replace("\\", "\\\\").replace("|", "\\|") for cell in row]
        lines.append("| " + " | ".join(cells + [""] * (width - len(cells))) + " |")
        if at == 0:
            lines.append("|" + " --- |" * width)
    return "\n".join(lines)


def _clean_html(rows: list[list[_Cell]]) -> str:
    """The table again, with nothing in it but rows, cells, spans and escaped text."""
    lines = ["<table>"]
    for row in rows:
        cells = []
        for cell in row:
            tag = "th" if cell.header else "td"
            spans = "".join(f' {name}="{count}"' for name, count in sorted(cell.spans.items()))
            cells.append(f"<{tag}{spans}>{html.escape(cell.text, quote=False)}</{tag}>")
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return "\n".join([*lines, "</table>"])


def _pipes_to_text(source: str) -> str:
    rows = []
    for line in source.splitlines():
        stripped = line.strip().strip("|")
        if stripped and not re.fullmatch(r"[\s|:-]+", stripped):
            rows.append("\t".join(cell.strip() for cell in re.split(r"(?<!\\)\|", stripped)))
    return "\n".join(rows)
