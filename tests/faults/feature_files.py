"""Feature files cut, flipped, exchanged and foreign; writers killed at every step of storing and evicting."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from storage.features import SUFFIX, Features, FeatureStore
from tests.faults.house import require
from tests.faults.scenario import Ground

BUDGET = 400_000
WRITER = """
import random, sys
from pathlib import Path
from storage.features import Features, FeatureStore
store = FeatureStore(Path(sys.argv[1]), int(sys.argv[3]))
rng = random.Random(int(sys.argv[2]))
for number in range(60):
    key = f"{rng.randrange(256):02x}{rng.randrange(10**9)}"
    store.put(key, Features("F16", (64, 64), rng.randbytes(8192)), model="m", now=float(number))
    store.save_counters()
"""


def damaged_files(ground: Ground) -> None:
    """Cut, bit-flipped, exchanged and foreign files are misses, deleted and counted; all others are hits."""
    rng, store = ground.random, FeatureStore(ground.folder / "features", 1 << 30)
    wanted = 200 if ground.small else 3000
    held = {}
    for number in range(wanted):
        key = f"{rng.randrange(256):02x}{number:012d}"
        held[key] = Features("F16", (8, 16), rng.randbytes(256))
        require(store.put(key, held[key], model="m", now=1.0), "it stores")
    spoilt = dict.fromkeys(rng.sample(sorted(held), wanted // 2), "")
    for key in spoilt:
        spoilt[key] = _spoil(store.folder / key[:2] / f"{key}{SUFFIX}", rng, held, store)
    outcomes = {key: store.get(key, 2.0) for key in held}
    for key, features in held.items():
        if key in spoilt:
            require(outcomes[key] is None, f"a {spoilt[key]} file was taken for good")
            require(
                not (store.folder / key[:2] / f"{key}{SUFFIX}").exists(), f"a {spoilt[key]} file was left"
            )
        else:
            require(outcomes[key] == features, "an untouched file is no hit")
    counted = store.counters
    require(counted.misses == len(spoilt), f"{counted.misses} misses for {len(spoilt)} damaged files")
    require(counted.torn + counted.foreign == len(spoilt), f"not counted: {counted}")
    require(counted.hits == wanted - len(spoilt), f"{counted.hits} hits")
    ground.note(f"{len(spoilt)} of {wanted} files damaged: {counted.torn} torn, {counted.foreign} foreign")


def _spoil(path: Path, rng: random.Random, held: dict[str, Features], store: FeatureStore) -> str:
    data = bytearray(path.read_bytes())
    how = rng.choice(("cut", "flipped", "empty", "exchanged", "foreign", "appended"))
    if how == "cut":
        data = data[: rng.randrange(len(data))]
    elif how == "flipped":
        # Spaces that pad the header mean nothing: a flip there may change nothing, so the data is hit.
        at = rng.randrange(len(data) - 256, len(data))
        data[at] ^= 1 << rng.randrange(8)
    elif how == "empty":
        data.clear()
    elif how == "exchanged":
        other = FeatureStore(store.folder.with_name("other"), 1 << 30)
        other.put("ff00", next(iter(held.values())), model="m", now=1.0)
        data = bytearray((other.folder / "ff" / f"ff00{SUFFIX}").read_bytes())
    elif how == "foreign":
        data = bytearray(
            rng.choice((b"%PDF-1.7 ", b"\x89PNG\r\n\x1a\n", b"{}", b"\xff" * 8)) + rng.randbytes(300)
        )
    else:
        data += rng.randbytes(rng.randrange(1, 50))
    path.write_bytes(data)
    return how


def killed_writers(ground: Ground) -> None:
    """Writers killed at every step, by name and by chance: only whole files have names, and nothing is left over."""
    rng, folder = ground.random, ground.folder / "features"
    places = ("features.write", "features.stored", "features.evict", "features.counters", "")
    killed = 0
    for number in ground.times(60, 5):
        place = places[number % len(places)]
        points = f"{place}=kill@{rng.randint(1, 20)}" if place else ""
        words = [sys.executable, "-c", WRITER, str(folder), str(rng.randrange(10**6)), str(BUDGET)]
        writer = subprocess.Popen(
            words, env=os.environ | {"OCRD_FAILPOINTS": points}, cwd=Path(__file__).parent.parent.parent
        )
        if not place:
            time.sleep(rng.uniform(0.1, 0.6))
            writer.kill()
        killed += writer.wait(60) == -signal.SIGKILL
    require(killed > number // 2, f"only {killed} of {number + 1} writers were killed")
    store = FeatureStore(folder, BUDGET)
    store.put("00last", Features("F16", (1,), b"\0\0"), model="m", now=1e9)
    left = [path.name for path in folder.rglob(".writing-*")]
    require(not left, f"left by the dead: {left}")
    for path in folder.glob(f"*/*{SUFFIX}"):
        require(store.get(path.name.removesuffix(SUFFIX), 1.0) is not None, f"{path.name} is not whole")
    held = sum(path.stat().st_size for path in folder.glob(f"*/*{SUFFIX}"))
    require(held <= BUDGET, f"{held} bytes are held with a budget of {BUDGET}")
    ground.note(f"{killed} writers killed")
