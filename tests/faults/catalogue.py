"""All scenarios by name, with their weight in sharing out the time."""

from __future__ import annotations

from tests.faults import databases, feature_files, full_disk, hostile, kills, places, reading, workers
from tests.faults.scenario import Scenario

SCENARIOS: dict[str, tuple[Scenario, float]] = {
    "random-instants": (kills.random_instants, 20.0),
    "named-places": (kills.named_places, 6.0),
    "full-home": (full_disk.disk_of_the_home, 2.0),
    "full-output": (full_disk.disk_of_the_output, 2.0),
    "full-features": (full_disk.disk_of_the_features, 0.2),
    "read-only-output": (places.read_only_output, 1.0),
    "output-vanishes": (places.output_that_vanishes, 1.0),
    "share-goes": (places.share_that_goes_away, 2.0),
    "clock-jumps": (places.clock_that_jumps, 2.0),
    "slow-disk": (places.slow_disk, 2.0),
    "worker-ends": (workers.worker_that_ends_once, 3.0),
    "page-kills": (workers.page_that_always_ends_it, 2.0),
    "page-takes-years": (workers.page_that_takes_years, 1.0),
    "worker-leaks": (workers.worker_that_leaks, 2.0),
    "orphan-hangs": (workers.orphan_that_hangs, 1.0),
    "orphan-beats": (workers.orphan_that_beats, 1.0),
    "locked": (databases.locked_for_minutes, 1.0),
    "long-reader": (databases.held_by_a_reader, 1.0),
    "damaged": (databases.damaged, 5.0),
    "killed-restoring": (databases.killed_while_copied_or_restored, 2.0),
    "versions": (databases.other_versions, 3.0),
    "feature-damage": (feature_files.damaged_files, 0.5),
    "feature-kills": (feature_files.killed_writers, 1.0),
    "hostile": (hostile.terminal, 2.0),
    "mutations": (reading.mutations, 10.0),
    "bombs": (reading.decompression_bombs, 4.0),
}
# A minute's worth, for the test suite.
IN_TESTS = (
    "random-instants", "named-places", "full-output", "clock-jumps", "worker-ends", "orphan-beats", "damaged",
    "versions", "feature-damage", "feature-kills", "hostile", "mutations", "bombs",
)  # fmt: skip
