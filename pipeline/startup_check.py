"""Before drafts are used: a built-in picture is read without and with them. What is written must be equal, and sooner.

Once per model, proposer and machine; where it fails, nothing is drafted, and the reason is told.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pipeline import calibration
from storage import staging
from storage.errors import OcrdError

if TYPE_CHECKING:
    from PIL import Image

log = logging.getLogger(__name__)

FORMAT = 1
MAX_TOKENS = 64
LINES = (
    "Receipt No. 20718",
    "Coffee, large 3.40",
    "Coffee, small 2.60",
    "Total of all items 6.00",
)
ROUNDS = 3
# Drafts that save nothing on so small a picture are no harm: they must cost more than noise to be switched off.
SLOWER = 1.25


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the check found. `reason`: why drafts are off; empty where they are on."""

    proposer: str
    reason: str = ""
    single_s: float = 0.0  # decoding without drafts
    drafted_s: float = 0.0
    tokens: int = 0
    passes: int = 0  # with drafts

    @property
    def ok(self) -> bool:
        """Whether to draft."""
        return not self.reason


class Outcome(Protocol):
    """What reading the picture once gave."""

    @property
    def ids(self) -> Sequence[int]:
        """The token ids written."""
        ...

    @property
    def passes(self) -> int:
        """Passes of the model."""
        ...


Read = Callable[[], tuple[Outcome, float]]  # one reading of the picture: outcome, seconds of decoding


def picture(text_height_px: int | None, width_px: int | None = None) -> Image.Image:
    """A few printed lines in Pillow's own font, capitals about `text_height_px` high (32 where None)."""
    from PIL import Image, ImageDraw, ImageFont

    height = text_height_px or 32
    font = ImageFont.load_default(size=height * 1.1)
    width = min(width_px or 28 * 24, 28 * height)
    image = Image.new("RGB", (width // 28 * 28, (len(LINES) * height * 2 // 28 + 1) * 28), "white")
    draw = ImageDraw.Draw(image)
    for row, line in enumerate(LINES):
        draw.text((height // 2, height // 2 + row * height * 2), line, font=font, fill="black")
    return image


def check(proposer: str, alone: Read, drafted: Read) -> Verdict:
    """Read by turns without and with drafts. Errors of the drafting are a verdict, those of the model are raised.

    Raises: `EngineError`, `OutOfMemoryError`.
    """
    truth, single_s = alone()
    best: float | None = None
    outcome: Outcome | None = None
    for _ in range(ROUNDS):
        try:
            outcome, seconds = drafted()
        except OcrdError as error:
            return Verdict(proposer, f"drafting fails ({error.message})", single_s)
        except Exception as error:  # a proposer's bug must not keep the model from reading
            log.warning("the proposer %s fails", proposer, exc_info=True)
            return Verdict(proposer, f"drafting fails ({type(error).__name__}: {error})", single_s)
        best = seconds if best is None else min(best, seconds)
        if list(outcome.ids) != list(truth.ids):
            return Verdict(proposer, _differs(truth.ids, outcome.ids), single_s, best)
        if best <= single_s * SLOWER:
            break
        single_s = min(single_s, alone()[1])
    assert best is not None and outcome is not None
    reason = (
        f"drafts do not pay here: {best:.2f} s against {single_s:.2f} s without"
        if best > single_s * SLOWER
        else ""
    )
    return Verdict(proposer, reason, single_s, best, len(outcome.ids), outcome.passes)


def _differs(truth: Sequence[int], found: Sequence[int]) -> str:
    at = next((i for i, (a, b) in enumerate(zip(truth, found, strict=False)) if int(a) != int(b)), None)
    where = f"token {at + 1}" if at is not None else f"the length, {len(found)} for {len(truth)}"
    return f"with drafts the check picture reads otherwise, from {where} on"


def load_or_check(path: Path, take: Callable[[], Verdict], *, again: bool = False) -> Verdict:
    """The verdict kept at `path`, else `take`'s, then kept.

    One process times at once, as in `pipeline.calibration`: workers that start together would time each other.
    """
    kept = None if again else _read(path)
    if kept is not None:
        return kept
    with calibration.locked(path.parent):
        kept = None if again else _read(path)  # another process may have found out while we waited
        if kept is not None:
            return kept
        verdict = take()
        staging.write_file(path, json.dumps(asdict(verdict) | {"format": FORMAT, "at": time.time()}).encode())
    return verdict


def _read(path: Path) -> Verdict | None:
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
        if body.pop("format") != FORMAT:
            return None
        body.pop("at", None)
        return Verdict(**body)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
