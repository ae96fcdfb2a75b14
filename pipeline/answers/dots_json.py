"""dots.ocr's layout answer: a JSON array of {bbox, category, text}, read cell by cell so that no good cell is lost.

The public cleaner of such answers edits the raw string before parsing and loses cells of answers that are cut
short, followed by words, fenced, or hold LaTeX with `}{` (see the tests). Here each object is scanned where it
stands; only what is incomplete is salvaged, and an empty array is a blank page.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from pipeline.answers.cells import Answer, AnswerSpace, Cell, to_block
from storage.records import Category

CATEGORIES = {
    "Caption": Category.CAPTION,
    "Footnote": Category.FOOTNOTE,
    "Formula": Category.FORMULA,
    "List-item": Category.LIST_ITEM,
    "Page-footer": Category.PAGE_FOOTER,
    "Page-header": Category.PAGE_HEADER,
    "Picture": Category.PICTURE,
    "Section-header": Category.SECTION_HEADER,
    "Table": Category.TABLE,
    "Text": Category.TEXT,
    "Title": Category.TITLE,
}
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_EMPTY = re.compile(r"\s*(?:```(?:json)?\s*)?\[\s*\]\s*(?:```)?\s*\Z")


class CellScanner:
    """Takes the answer in pieces and gives each cell as soon as it is complete."""

    def __init__(self) -> None:
        self.text = ""
        self._at = 0  # everything before is consumed

    def feed(self, piece: str) -> Iterator[Cell]:
        """The cells that `piece` completes, in order."""
        self.text += piece
        while True:
            start = self.text.find("{", self._at)
            if start < 0:
                return
            end = _object_end(self.text, start)
            if end is None:
                return
            self._at = end
            cell = _parse(self.text[start:end])
            if cell is not None:
                yield cell

    def rest(self) -> Cell | None:
        """What can be salvaged of a last cell that was cut short."""
        start = self.text.find("{", self._at)
        return None if start < 0 else _salvage(self.text[start:])


def parse(text: str, space: AnswerSpace) -> Answer:
    """The blocks of a whole answer; see `Answer`."""
    if _EMPTY.match(text):
        return Answer((), blank=True)
    scanner = CellScanner()
    cells = list(scanner.feed(text))
    last = scanner.rest()
    if last is not None:
        cells.append(last)
    kept, dropped = _without_repeats(cells)
    blocks = tuple(to_block(cell, CATEGORIES.get(cell.label, Category.TEXT), space) for cell in kept)
    whole = last is None and (not cells or text.rstrip().rstrip("`").rstrip().endswith("]"))
    return Answer(blocks, whole=whole and bool(cells), dropped=dropped)


def _without_repeats(cells: list[Cell]) -> tuple[list[Cell], tuple[str, ...]]:
    """A cell said twice, box and all, is a loop's doing; equal text in another place is not."""
    seen: set[tuple[object, ...]] = set()
    kept: list[Cell] = []
    for cell in cells:
        mark = (cell.box, cell.label, cell.text)
        if cell.box is None or mark not in seen:
            kept.append(cell)
        seen.add(mark)
    count = len(cells) - len(kept)
    return kept, (f"{count} repeated cells",) if count else ()


def _object_end(text: str, start: int) -> int | None:
    """Just past the brace that closes the object at `start`; braces in strings do not count. None: not there yet."""
    depth, at, in_string = 0, start, False
    while at < len(text):
        char = text[at]
        if in_string:
            if char == "\\":
                at += 1
            elif char == '"':
                in_string = False
        elif char == '"':
            in_string = True
        elif char == "{":
            depth += 1
        elif char == "}":
            depth -= 1
            if depth == 0:
                return at + 1
        at += 1
    return None


def _parse(source: str) -> Cell | None:
    """The cell of a complete object, strict JSON first, then as near to it as models come."""
    try:
        body = json.loads(source, strict=False)
    except ValueError:
        return _salvage(source, whole=True)
    if not isinstance(body, dict):
        return None
    box = _box(body.get("bbox"))
    label, text = body.get("category"), body.get("text")
    if box is None and label is None and text is None:
        return None
    return Cell(box, str(label or "Text"), None if text is None else str(text))


def _box(value: object) -> tuple[float, ...] | None:
    if not isinstance(value, list) or len(value) != 4:
        return None
    if not all(isinstance(n, int | float) and not isinstance(n, bool) for n in value):
        return None
    return tuple(float(n) for n in value)


def _salvage(source: str, whole: bool = False) -> Cell | None:
    """Box, category and text so far of an object that is no JSON (cut short, bad escapes)."""
    numbers = re.search(r'"bbox"\s*:\s*\[([^\]]*)\]', source)
    label = re.search(r'"category"\s*:\s*"([^"]*)"', source)
    start = re.search(r'"text"\s*:\s*"', source)
    text = _string_from(source, start.end()) if start else None
    if label is None and not text:
        return None  # nothing a reader would miss
    values = tuple(float(n) for n in _NUMBER.findall(numbers.group(1))) if numbers else ()
    return Cell(values if len(values) == 4 else None, label.group(1) if label else "Text", text, whole)


def _string_from(source: str, at: int) -> str:
    """The string that starts at `at`, to its closing quote or the end; unknown escapes (`\\alpha`) stay as they are."""
    out: list[str] = []
    while at < len(source):
        char = source[at]
        if char == '"':
            break
        if char != "\\":
            out.append(char)
            at += 1
            continue
        following = source[at + 1 : at + 2]
        if following == "u" and re.fullmatch(r"[0-9a-fA-F]{4}", source[at + 2 : at + 6]):
            out.append(chr(int(source[at + 2 : at + 6], 16)))
            at += 6
            continue
        if following:
            out.append(_ESCAPES.get(following, "\\" + following))
        at += 2
    return "".join(out)
