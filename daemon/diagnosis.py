"""What a check of `ocrd doctor` found."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARNING = "warning"  # works, but not as well as it could
    FAULT = "fault"  # does not work


@dataclass(frozen=True, slots=True)
class Result:
    """What a check found."""

    check: str
    level: Level
    message: str
    remedy: str = ""
