"""Drafts of the part of an answer between two texts: box and label, filled in from the draft's own geometry.

The form is learned from the latest one written: dots.ocr's JSON keys, or the special tokens of DeepSeek-OCR and
Unlimited-OCR.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from statistics import median
from typing import NamedTuple

from pipeline.reference.draft import Break, DraftText
from storage.records import Box

_N = r"(-?\d+)"
_BOX = rf"\[\s*{_N}(,\s*){_N}(,\s*){_N}(,\s*){_N}\s*\]"
_NUMBERS = re.compile(_BOX)
_LABELS = (
    re.compile(r'"category":\s*"([^"]*)"'),
    re.compile(r"<\|ref\|>([^<]*)<\|/ref\|>"),
    re.compile(r"<\|det\|>([^\[<]*?)\s*\["),
)
_TEXT_START = re.compile(r'"text":\s*"|<\|/det\|>')
_FIRST = '[{"bbox": [0, 0, 0, 0], "category": "Text", "text": "'
_ERRORS = 8  # latest cells whose boxes correct the next

NUMBER, LABEL = 0, 1  # kinds of slot
_CAPTION = re.compile(r"(?:figure|fig\.|table|tab\.|abb\.|图|表)\s*\w", re.IGNORECASE)


class Slot(NamedTuple):
    """A place in the form that is filled in: a coordinate (0…3) or the label."""

    kind: int
    coordinate: int = 0


class Head(NamedTuple):
    """What was filled in, and what stood before the text's first character (`## `)."""

    box: tuple[int, ...]
    label: str
    lead: str


class BoxHeads:
    """The heads of one page's cells. `json`: the answer is dots.ocr's array, so that the first one is known too."""

    def __init__(self, draft: DraftText, json: bool) -> None:
        self._draft = draft
        self._form: list[str | Slot] = _form_of(_FIRST) if json else []
        self._first = json
        self._leads: dict[str, str] = {}
        self._labels: dict[str, str] = {}
        self._usual: deque[str] = deque(maxlen=_ERRORS)
        self._last: tuple[int, ...] = (0, 0, 0, 0)
        self._errors: dict[int, deque[int]] = defaultdict(lambda: deque(maxlen=_ERRORS))

    @property
    def known(self) -> bool:
        """Whether the form of a head is known."""
        return bool(self._form)

    def learn(self, run: str, line: int | None) -> bool:
        """Take in what stood before the text that begins draft line `line` (None: unknown). False: that was no head."""
        head = _parse(run)
        if head is None:
            return False
        form = _form_of(_last_head(run[: len(run) - len(head.lead)]))
        self._form, self._first = form, False
        self._leads[head.label] = head.lead
        if line is None:
            return True
        self._labels[self._look(line)] = head.label
        self._usual.append(head.label)
        self._last = head.box
        expected = self._numbers(line, corrected=False)
        for index, (actual, guess) in enumerate(zip(head.box, expected or (), strict=False)):
            self._errors[index].append(actual - guess)
        return True

    def close(self) -> str:
        """What ends a text and opens the next head, up to its first slot."""
        first = self._form[0] if self._form else ""
        return first if isinstance(first, str) else ""

    def draft(self, begun: str, line: int | None) -> str | None:
        """The rest of the head before draft line `line`, `begun` being written of it; None where it cannot be told.

        Without a line the box is guessed from the latest: the same column, further down.
        """
        if not self._form:
            return None
        usual = max(set(self._usual), key=list(self._usual).count) if self._usual else "Text"
        values, label = None, usual
        if line is not None:
            values, label = self._numbers(line), self._labels.get(self._look(line), usual)
        if values is None and any(self._last):
            left, top, right, bottom = self._last
            values = [left, bottom + 10, right, 2 * bottom - top + 10]
        return _fill(
            self._form,
            begun if self._first else _last_head(begun),
            values,
            label,
            self._leads,
        )

    def _look(self, line: int) -> str:
        """What tells a label: how the line begins, whether it reads as a caption, whether it is short and alone."""
        draft = self._draft
        text = draft.lines[line].text
        alone = line + 1 >= len(draft.lines) or draft.lines[line + 1].before != Break.WRAP
        kind = draft.kinds[line].split()[1] if draft.kinds[line] else ""
        titled = alone and len(text) < 70 and not text.rstrip().endswith((".", ",", ";"))
        label = draft.lines[line].label
        return f"{label} {kind} {bool(_CAPTION.match(text))} {titled} {draft.lines[line].furniture}"

    def _numbers(self, line: int, corrected: bool = True) -> list[int] | None:
        """The hull of the block that begins with `line`."""
        lines = self._draft.lines
        boxes: list[Box] = []
        for at in range(line, len(lines)):
            if at > line and lines[at].before != Break.WRAP and lines[at].before != Break.CELL:
                break
            box = lines[at].box
            if box is None:
                return None
            boxes.append(box)
        hull = (
            min(b[0] for b in boxes), min(b[1] for b in boxes), max(b[2] for b in boxes), max(b[3] for b in boxes),
        )  # fmt: skip
        shifts = [median(self._errors[i]) if corrected and self._errors[i] else 0 for i in range(4)]
        return [max(0, round(value + shift)) for value, shift in zip(hull, shifts, strict=True)]


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    found = None
    for found in pattern.finditer(text):  # noqa: B007 - the last one is wanted
        pass
    return found


def _parse(run: str) -> Head | None:
    """The last head in `run`."""
    start, numbers = _last(_TEXT_START, run), _last(_NUMBERS, run)
    if start is None or numbers is None:
        return None
    label = ""
    for pattern in _LABELS:
        for match in pattern.finditer(run):
            label = match.group(1)
    box = tuple(int(numbers.group(i)) for i in (1, 3, 5, 7))
    return Head(box, label, run[start.end() :])


def _last_head(run: str) -> str:
    """`run` without heads of cells that have no text (pictures), closed as a cell with text is."""
    start = run.rfind("{")
    if start < 0:
        return run
    comma = re.search(r"(,\s*)\Z", run[:start])
    return '"}' + (comma.group(1) if comma else ", ") + run[start:]


def _form_of(head: str) -> list[str | Slot]:
    """`head` with slots for its last box and label."""
    cuts: list[tuple[int, int, Slot]] = []
    numbers = _last(_NUMBERS, head)
    if numbers is not None:
        cuts += [(numbers.start(i), numbers.end(i), Slot(NUMBER, n)) for n, i in enumerate((1, 3, 5, 7))]
    for pattern in _LABELS:
        match = _last(pattern, head)
        if match is not None:
            cuts.append((match.start(1), match.end(1), Slot(LABEL)))
            break
    form: list[str | Slot] = []
    at = 0
    for begin, end, slot in sorted(cuts, key=lambda cut: cut[0]):
        form += [head[at:begin], slot]
        at = end
    return [*form, head[at:]]


def _fill(
    form: Sequence[str | Slot],
    begun: str,
    values: Sequence[int] | None,
    label: str,
    leads: dict[str, str],
) -> str | None:
    """What is missing of the form once `begun` is written."""
    rest: list[str] = []
    at = 0  # in `begun`
    for part in form:
        left = begun[at:]
        if isinstance(part, str):
            if part.startswith(left):
                rest.append(part[len(left) :])
                at = len(begun)
            elif left.startswith(part):
                at += len(part)
            else:
                return None
        elif part.kind == NUMBER:
            written = re.match(r"-?\d*", left).group()  # type: ignore[union-attr]  # matches the empty string
            at += len(written)
            if at < len(begun):
                continue
            if values is None:
                break
            rest.append(_digits(written, values[part.coordinate]))
        else:
            written = re.match(r'[^"<\[]*', left).group()  # type: ignore[union-attr]
            at += len(written)
            if at < len(begun):
                label = written
                continue
            if not label.startswith(written):
                label = next((known for known in leads if known.startswith(written)), written)
            rest.append(label[len(written) :])
    else:
        left = begun[at:]
        lead = leads.get(label, _blank_start(leads.values()))
        if left and not lead.startswith(left):
            return "".join(rest) or None
        rest.append(lead[len(left) :])
    return "".join(rest) or None


def _blank_start(leads: Iterable[str]) -> str:
    """The white space that texts of other labels begin with."""
    return next((lead[: len(lead) - len(lead.lstrip())] for lead in leads), "")


def _digits(written: str, value: int) -> str:
    """The rest of a number begun with `written` that is as near to `value` as it can be."""
    wanted = str(value)
    if wanted.startswith(written):
        return wanted[len(written) :]
    best = ""
    for missing in range(max(0, len(wanted) + 2 - len(written))):
        for digit in "09":
            rest = digit * missing
            if abs(int(written + rest) - value) < abs(int(written + best) - value):
                best = rest
    return best
