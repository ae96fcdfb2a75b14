"""Inject faults into ocrd, and see that what must hold does: `python -m tests.faults --seed 1 --minutes 30`."""

from __future__ import annotations

import argparse
import logging
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.faults.catalogue import SCENARIOS
from tests.faults.scenario import Common, Ground, Skipped


def main() -> int:
    """Run the scenarios, one after the other; the exit status is how many did not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the same seed injects the same faults")
    parser.add_argument("--minutes", type=float, default=30.0, help="together, at most")
    parser.add_argument("--only", action="append", metavar="NAME", help="this scenario; may be given again")
    parser.add_argument("--small", action="store_true", help="a few trials of each kind")
    parser.add_argument("--keep", action="store_true", help="leave the folder for a look")
    parser.add_argument("--list", action="store_true", help="name the scenarios")
    given = parser.parse_args()
    logging.disable()  # what is rejected is told by thousands of warnings
    if given.list:
        for name, (scenario, _) in SCENARIOS.items():
            print(f"{name:20} {(scenario.__doc__ or '').splitlines()[0]}")
        return 0
    chosen = given.only or list(SCENARIOS)
    if unknown := set(chosen) - set(SCENARIOS):
        parser.error(f"there is no scenario {sorted(unknown)}")
    return run(chosen, given.seed, given.minutes * 60, small=given.small, keep=given.keep)


def run(chosen: list[str], seed: int, budget_s: float, *, small: bool, keep: bool) -> int:
    """Run scenarios by name, the time shared out by weight; returns how many did not hold."""
    folder = Path(tempfile.mkdtemp(prefix="ocrd-faults-"))
    ends, broken = time.monotonic() + budget_s, 0
    common = Common(folder / "common")
    try:
        for position, name in enumerate(chosen):
            scenario, weight = SCENARIOS[name]
            rest = sum(SCENARIOS[other][1] for other in chosen[position:])
            share = max(0.0, ends - time.monotonic()) * weight / rest
            ground = Ground(folder / name, seed, share, common, small=small)
            began, outcome = time.monotonic(), "held"
            try:
                scenario(ground)
            except Skipped as reason:
                outcome = f"skipped: {reason}"
            except Exception as error:
                broken += 1
                outcome = f"BROKEN: {error}"
                if not isinstance(error, AssertionError):
                    traceback.print_exc()
            print(f"{name:20} {time.monotonic() - began:7.1f} s  {outcome}", flush=True)
            for note in ground.notes:
                print(f"{'':20}            {note}", flush=True)
            if not keep and not outcome.startswith("BROKEN"):
                shutil.rmtree(folder / name, ignore_errors=True)
    finally:
        if keep or broken:
            print(f"left for a look: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return broken


if __name__ == "__main__":
    sys.exit(main())
