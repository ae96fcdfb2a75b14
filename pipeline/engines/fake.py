"""An engine that does as it is told: what tests use to make loops, crashes and delays happen.

The script comes from `OCRD_FAKE_SCRIPT`: one command, or several joined by `;;` (a delay, then a crash).

    (nothing)              one line naming the page and its pixels, the same every time
    text:TEXT              TEXT, one line per line (`\\n` works)
    empty                  no lines
    loop:TEXT              TEXT for ever; the guard of models ends it: stop reason repetition, good prefix kept
    truncate               half a page, stop reason length
    error[:PAGE]           EngineError
    crash[:PAGE]           the process dies at once, as by a segmentation fault
    crash_once:FILE        dies unless FILE exists, which it makes first: the second attempt succeeds
    hang[:PAGE]            never returns
    delay:50ms             waits, then reads
    delay_random:0-50ms    waits a time drawn from a generator seeded with the page number, then reads
"""

from __future__ import annotations

import hashlib
import os
import random
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.engines.base import EngineReading, PageImage
from pipeline.engines.stops import stop_warning
from storage.errors import EngineError, SettingsError
from storage.records import Line, PageText, PageWarning, StopReason, Word

SCRIPT_VARIABLE = "OCRD_FAKE_SCRIPT"
_COMMANDS = frozenset(
    ("text", "empty", "loop", "truncate", "error", "crash", "crash_once", "hang", "delay", "delay_random")
)
_RUNAWAY = 16_384  # words, after which the guard ends a loop that it does not see
_LINE_PT = 14.0
_SIZE_PT = 11.0


@dataclass(frozen=True, slots=True)
class Step:
    """One command of a script."""

    command: str
    argument: str = ""


def parse(script: str) -> tuple[Step, ...]:
    """The steps of a script. Raises: `SettingsError` for a command there is not."""
    steps = []
    for part in filter(None, (part.strip() for part in script.split(";;"))):
        command, _, argument = part.partition(":")
        if command not in _COMMANDS:
            raise SettingsError(
                f"{SCRIPT_VARIABLE} has no command {command!r}", remedy=f"use one of {sorted(_COMMANDS)}"
            )
        steps.append(Step(command, argument))
    return tuple(steps)


class FakeEngine:
    """Does what its script says; without one, reads each page as a line that names it."""

    name = "fake"

    def __init__(
        self,
        script: str = "",
        *,
        sleep: Callable[[float], None] = time.sleep,
        die: Callable[[], None] | None = None,
    ) -> None:
        """`sleep` takes seconds, `die` ends the process; tests that cannot afford the real ones give theirs."""
        self._steps = parse(script)
        self._sleep = sleep
        self._die = die or os.abort

    @classmethod
    def from_environment(cls) -> FakeEngine:
        """An engine scripted by the environment."""
        return cls(os.environ.get(SCRIPT_VARIABLE, ""))

    def version(self) -> str:
        """Name and version, for the provenance."""
        return "fake 1"

    def read(self, page: PageImage, *, hint: Sequence[Line] = ()) -> EngineReading:
        """What the script says about this page. Raises: `EngineError` where it says so."""
        reading: EngineReading | None = None
        for step in self._steps:
            if self._act(step, page):
                continue
            reading = _scripted(step, page)
        return reading or _reading(page, [_default_text(page)])

    def close(self) -> None:
        """Nothing is held."""

    def _act(self, step: Step, page: PageImage) -> bool:
        """Carry out a step that has an effect; whether it was one."""
        match step.command:
            case "delay" | "delay_random":
                self._sleep(_seconds(step, page.page))
            case "error" if _meant(step, page):
                raise EngineError("the script asked for this failure", page=page.page)
            case "crash" if _meant(step, page):
                self._die()
            case "crash_once":
                marker = Path(step.argument)
                if not marker.exists():
                    marker.touch()
                    self._die()
            case "hang" if _meant(step, page):
                while True:
                    self._sleep(3600.0)
            case "error" | "crash" | "hang":
                pass
            case _:
                return False
        return True


def _meant(step: Step, page: PageImage) -> bool:
    return not step.argument or int(step.argument) == page.page


def _seconds(step: Step, page: int) -> float:
    numbers = [float(number) for number in re.findall(r"\d+(?:\.\d+)?", step.argument)]
    if not numbers:
        raise SettingsError(f"{SCRIPT_VARIABLE}: {step.command} needs a time", remedy="write `delay:50ms`")
    unit = 1.0 if step.argument.rstrip().endswith("s") and "ms" not in step.argument else 1e-3
    return random.Random(page).uniform(numbers[0], numbers[-1]) * unit


def _scripted(step: Step, page: PageImage) -> EngineReading:
    match step.command:
        case "empty":
            return _reading(page, [])
        case "text":
            return _reading(page, step.argument.replace("\\n", "\n").splitlines())
        case "loop":
            return _looped(page, step.argument)
        case _:
            text = _default_text(page)
            return _reading(
                page,
                [text, text[: len(text) // 2]],
                StopReason.LENGTH,
                stop_warning(StopReason.LENGTH),
            )


def _looped(page: PageImage, text: str) -> EngineReading:
    kept, reason, note = _guarded(text)
    return _reading(page, kept.splitlines(), reason, stop_warning(reason, note))


def _guarded(text: str) -> tuple[str, StopReason, str]:
    """The good part of `text` written line after line for ever, why the guard ended it, and what it says of it."""
    from pipeline.guard import Guard  # needs NumPy

    tokens = _Tokens(text.replace("\\n", "\n") + "\n")
    guard = Guard(tokens, budget=_RUNAWAY)
    reason = None
    while reason is None:
        reason = guard(len(guard.ids) % len(tokens.texts))
    return tokens.decode(guard.ids[: guard.keep]), reason, guard.verdict.note if guard.verdict else ""


class _Tokens:
    """The words of a text as a vocabulary, for the guard."""

    def __init__(self, text: str) -> None:
        self.texts = re.findall(r"\S+|\s+", text)

    def decode(self, ids: Sequence[int], **_: object) -> str:
        return "".join(self.texts[i] for i in ids)


def _default_text(page: PageImage) -> str:
    pixels = hashlib.sha256(page.image.tobytes()).hexdigest()[:12]
    return f"Page {page.page} of pixels {pixels}"


def _reading(
    page: PageImage,
    texts: Sequence[str],
    stop_reason: StopReason = StopReason.COMPLETE,
    warnings: tuple[PageWarning, ...] = (),
) -> EngineReading:
    lines = tuple(_line(page, number, text) for number, text in enumerate(texts) if text.strip())
    return EngineReading(
        lines=PageText(page.width_pt, page.height_pt, lines),
        confidence=1.0 if lines else None,
        stop_reason=stop_reason,
        warnings=warnings,
    )


def _line(page: PageImage, number: int, text: str) -> Line:
    """A line on an imagined grid; more lines than fit on the page share its last row."""
    left, top = page.width_pt * 0.1, min((number + 1) * _LINE_PT, page.height_pt - _LINE_PT)
    words, step = text.split(), page.width_pt * 0.8 / max(1, len(text.split()))
    boxes = [(left + i * step, top, left + (i + 0.9) * step, top + _SIZE_PT) for i in range(len(words))]
    return Line(
        text=" ".join(words),
        box=(boxes[0][0], top, boxes[-1][2], top + _SIZE_PT),
        words=tuple(Word(word, box, 1.0) for word, box in zip(words, boxes, strict=True)),
        size_pt=_SIZE_PT,
        confidence=1.0,
        region=0,
    )
