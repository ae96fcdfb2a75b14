"""All scenarios by name, with their weight in sharing out the time."""

from __future__ import annotations

from tests.faults import kills
from tests.faults.scenario import Scenario

SCENARIOS: dict[str, tuple[Scenario, float]] = {
    "random-instants": (kills.random_instants, 10.0),
    "named-places": (kills.named_places, 4.0),
}
