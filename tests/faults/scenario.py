"""What a scenario is given and what it answers; the list of all of them."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from storage.database import open_database
from tests.faults import inputs
from tests.faults.house import House, reference_of


class Skipped(Exception):
    """A scenario cannot run here; says what is missing."""


@dataclass
class Common:
    """What scenarios share; made when first asked for."""

    folder: Path
    few: bool = False

    @cached_property
    def inputs(self) -> Path:
        """The thirty documents, or ten of them."""
        folder = self.folder / "in"
        inputs.make(folder, few=self.few)
        return folder

    @cached_property
    def empty_database(self) -> Path:
        """A migrated database without content."""
        path = self.folder / "empty" / "ocrd.db"
        conn = open_database(path)
        conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        conn.close()
        return path

    @cached_property
    def reference(self) -> dict[str, bytes]:
        """Their sidecars after an undisturbed run."""
        house = House(self.folder / "reference", self.inputs)
        house.give_database(self.empty_database)
        return reference_of(house)


@dataclass
class Ground:
    """A folder to work in, a generator, a budget, and what scenarios share."""

    folder: Path
    seed: int
    budget_s: float
    common: Common
    small: bool = False  # a few trials of each kind, for the test suite
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.random = random.Random(self.seed)
        self.until = time.monotonic() + self.budget_s
        self._count = 0

    @property
    def inputs(self) -> Path:
        """The documents."""
        return self.common.inputs

    @property
    def empty_database(self) -> Path:
        """A migrated database without content."""
        return self.common.empty_database

    @property
    def reference(self) -> dict[str, bytes]:
        """The documents' sidecars after an undisturbed run."""
        return self.common.reference

    @property
    def has_time(self) -> bool:
        """Whether the budget is not spent."""
        return time.monotonic() < self.until

    def house(self, name: str = "", *, fresh: bool = False, **fields: object) -> House:
        """A new library over the thirty documents; `fresh`: its database has yet to be made."""
        self._count += 1
        house = House(self.folder / (name or f"house-{self._count}"), self.inputs, **fields)  # type: ignore[arg-type]
        if not fresh:
            house.give_database(self.empty_database)
        return house

    def times(self, wanted: int, few: int) -> Iterator[int]:
        """0, 1, … up to `wanted` (`few` for the test suite), as long as there is time."""
        for number in range(few if self.small else wanted):
            if not self.has_time:
                self.note(f"{number} of {wanted}: out of time")
                return
            yield number

    def note(self, line: str) -> None:
        """Something for the report."""
        self.notes.append(line)

    def drop(self, house: House) -> None:
        """Remove a library that held: the disk is not endless."""
        house.close()
        shutil.rmtree(house.place, ignore_errors=True)


Scenario = Callable[[Ground], None]
