"""What was read hour by hour, by whom, and what models' passes brought: sums kept as pages are read."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

HOUR_S = 3600


@dataclass(frozen=True, slots=True)
class Tally:
    """Readings counted; a page read again counts again."""

    pages: int = 0
    tokens: int = 0  # written by models
    target_passes: int = 0
    drafted: int = 0
    accepted: int = 0

    @property
    def tokens_per_pass(self) -> float | None:
        """Tokens that a pass of a model brought; None where none read."""
        return self.tokens / self.target_passes if self.target_passes else None


_SUMS = "sum(pages), sum(tokens), sum(target_passes), sum(drafted), sum(accepted)"


def by_hour(conn: sqlite3.Connection, *, hours: int, now: float) -> list[tuple[int, Tally]]:
    """(start in seconds since 1970, tally) of the last `hours` hours, the oldest first; hours without any too."""
    last = int(now // HOUR_S) * HOUR_S
    first = last - (hours - 1) * HOUR_S
    rows = conn.execute(
        f"SELECT hour, {_SUMS} FROM reading_hours WHERE hour BETWEEN ? AND ? GROUP BY hour", (first, last)
    )
    found = {row[0]: Tally(*row[1:]) for row in rows}
    return [(hour, found.get(hour, Tally())) for hour in range(first, last + 1, HOUR_S)]


def by_reader(conn: sqlite3.Connection) -> dict[str, Tally]:
    """The sums of all time by who read: an engine's name, `text-layer` or `blank`."""
    rows = conn.execute(f"SELECT read_by, {_SUMS} FROM reading_hours GROUP BY read_by ORDER BY read_by")
    return {row[0]: Tally(*row[1:]) for row in rows}
