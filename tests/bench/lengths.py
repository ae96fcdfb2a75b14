"""The schedule told a model's measured costs, against drafts of one fixed length: `ocrd bench lengths`.

The model is of dots.ocr's build, WIDTH x LAYERS with random weights (made here, 0.3 GB), so what it writes is
arbitrary; drafts are that text with errors put in, each at a place of its own, as a cheap reading of a page has them:

    N            an error every N tokens, at random
    turned       right for 48 tokens, then wrong for as long, by turns: a table read in another order
    none         every token is wrong

What a pass of k rows costs is measured first, on this machine. "cost" is the sum of what the passes cost, in passes of
one row, a token: what the schedule means to make small. It is counted on texts of --replayed tokens without running the
model. Then the model writes --tokens tokens for some kinds: seconds are of the processor, the least of the rounds, in
which lengths take turns, and ids must be the model's own.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[2]))  # for `tools`, which makes the model
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # a second thread would spin where others work, too

from pipeline import calibration
from pipeline.adapter import loading
from pipeline.adapter.loading import LoadedModel
from pipeline.adapter.measuring import text_session
from pipeline.bench_draft import ReplayTarget
from pipeline.decode import DecodeOptions, decode
from pipeline.engines.base import to_end
from pipeline.proposers.base import NOTHING, Draft, NoProposer, Proposer
from pipeline.schedule import CostCurve, CostSchedule, FixedSchedule, Schedule
from pipeline.target import Decision
from tools import full_size

FIXED = (4, 8, 16, 32)
ERRORS = ("64", "24", "10", "5", "3", "turned", "none")
TIMED = ("24", "turned")
TURN = 48
PROMPT = 400


class Told:
    """The text itself with errors at given places; `chances` are those of the errors' making, or none."""

    name = "told"

    def __init__(self, truth: Sequence[int], wrong: frozenset[int], chance: float | None) -> None:
        self._truth = truth
        self._wrong = wrong
        self._chance = chance
        self._at = 0

    def begin(self, prompt: Sequence[int], first: Decision) -> None:
        """Nothing to do."""

    def observe(self, ids: Sequence[int], draft: Draft, accepted: int, decision: Decision) -> None:
        """How far the text is."""
        self._at += len(ids)

    def propose(self, limit: int) -> Draft:
        """The next `limit` ids, some of them wrong."""
        places = range(self._at, min(self._at + limit, len(self._truth)))
        if not places:
            return NOTHING
        ids = tuple(self._truth[at] ^ (at in self._wrong) for at in places)
        chances = () if self._chance is None else tuple(self._chance**n for n in range(1, len(ids) + 1))
        return Draft(ids, self.name, "", chances)


def wrong_places(kind: str, count: int, rng: Random) -> tuple[frozenset[int], float]:
    """Where the draft errs, and the chance of an id to be right."""
    if kind == "turned":
        return frozenset(at for at in range(count) if at // TURN % 2), 0.5
    every = 1 if kind == "none" else int(kind)
    return frozenset(at for at in range(count) if rng.random() * every < 1), 1 - 1 / every


def measured_costs(loaded: LoadedModel) -> dict[int, float]:
    """As `pipeline.calibration` measures, in seconds of the processor: others' work hardly changes them."""
    prompt = [1000 + 7 * at % 500 for at in range(PROMPT)]
    session = text_session(loaded, prompt)
    session.start()
    sizes = [size for size in calibration.SIZES if calibration.make_room(session, size, prompt[:1])]
    times = calibration.time_passes(
        session, sizes, lambda count: prompt[:count], budget_s=calibration.BUDGET_S, clock=time.process_time
    )
    return calibration.conclude(times, {}, context=session.length, now=0.0, seconds=0.0).costs


class Counting:
    """A schedule, and what the passes cost."""

    def __init__(self, inner: Schedule, curve: CostCurve) -> None:
        self._inner, self._curve, self.cost, self.passes = inner, curve, 0.0, 0
        self.limit, self.choose = inner.limit, inner.choose

    def observe(self, drafted: int, accepted: int) -> None:
        """A pass of the draft's rows and one more."""
        self.cost += self._curve(drafted + 1)
        self.passes += 1
        self._inner.observe(drafted, accepted)


def schedules(curve: CostCurve) -> dict[str, Callable[[], Schedule]]:
    """By name: the fixed lengths, and the one told the curve."""
    made: dict[str, Callable[[], Schedule]] = {str(n): partial(FixedSchedule, n) for n in FIXED}
    return made | {"schedule": partial(CostSchedule, curve)}


def replayed(curve: CostCurve, count: int, *, honest: bool) -> dict[str, dict[str, float]]:
    """Kind of error → schedule → cost a token, over a text of `count` ids."""
    truth = [Random("text").randrange(1000) for _ in range(count)] + [-1]
    costs: dict[str, dict[str, float]] = {}
    for kind in ERRORS:
        wrong, chance = wrong_places(kind, count, Random(f"{kind} errors"))
        costs[kind] = {}
        for name, make in schedules(curve).items():
            schedule, proposer = Counting(make(), curve), Told(truth, wrong, chance if honest else None)
            options = DecodeOptions(count + 1, frozenset({-1}))
            ids = to_end(decode(ReplayTarget(truth), proposer, options, schedule)).ids
            if ids != truth[:-1]:
                raise SystemExit(f"{kind}, {name}: the drafts changed what was written")
            costs[kind][name] = schedule.cost / count
    return costs


def run(loaded: LoadedModel, proposer: Proposer, schedule: Schedule, tokens: int) -> tuple[list[int], float]:
    """The ids, and the processor's seconds of decoding."""
    prompt = [1000 + 7 * at % 500 for at in range(PROMPT)]
    loop = decode(text_session(loaded, prompt), proposer, DecodeOptions(tokens, tau=1e-3), schedule)
    next(loop)  # the prefill's
    started = time.process_time()
    return to_end(loop).ids, time.process_time() - started


def timed(
    loaded: LoadedModel, curve: CostCurve, tokens: int, rounds: int, *, honest: bool
) -> dict[str, dict[str, float]]:
    """Kind of error → schedule → seconds a token."""
    truth, alone = run(loaded, NoProposer(), FixedSchedule(0), tokens)
    found: dict[str, dict[str, float]] = {}
    for kind in TIMED:
        wrong, chance = wrong_places(kind, tokens, Random(f"{kind} errors"))
        seconds = {"0": alone / tokens}
        for name, make in [*schedules(curve).items()] * rounds:
            ids, taken = run(loaded, Told(truth, wrong, chance if honest else None), make(), tokens)
            if ids != truth:
                raise SystemExit(f"{kind}, {name}: the drafts changed what was written")
            seconds[name] = min(taken / tokens, seconds.get(name, inf))
        found[kind] = seconds
        print(kind, seconds, file=sys.stderr)
    return found


def as_table(found: dict[str, dict[str, float]], shown: str) -> str:
    """Rows of Markdown, and the means."""
    names = list(next(iter(found.values())))
    mean = {name: sum(row[name] for row in found.values()) / len(found) for name in names}
    rows = [f"| an error every | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for kind, row in [*found.items(), ("mean", mean)]:
        rows.append(f"| {kind} | " + " | ".join(shown.format(row[name]) for name in names) + " |")
    return "\n".join(rows)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--replayed", type=int, default=4000)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--honest", action="store_true", help="drafts that tell the chance of an error")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    given = parser.parse_args()
    shape = full_size.config(given.layers, 1) | {
        "hidden_size": given.width, "intermediate_size": 4 * given.width, "num_attention_heads": given.width // 64,
    }  # fmt: skip
    shape["vision_config"] |= {
        "hidden_size": given.width, "embed_dim": 128, "intermediate_size": 256, "num_attention_heads": 2,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        loaded = loading.load(full_size.make(Path(folder) / "model", shape))
        costs = measured_costs(loaded)
        curve = CostCurve(costs)
        print("c(k):", ", ".join(f"{k}: {cost:.2f}" for k, cost in sorted(costs.items())))
        paid = replayed(curve, given.replayed, honest=given.honest)
        print(as_table(paid, "{:.2f}"), flush=True)
        seconds = timed(loaded, curve, given.tokens, given.rounds, honest=given.honest)
        print(as_table({k: {n: 1000 * s for n, s in row.items()} for k, row in seconds.items()}, "{:.0f} ms"))
    if given.json:
        given.json.write_text(json.dumps({"costs": costs, "cost": paid, "seconds": seconds}, indent=1) + "\n")


if __name__ == "__main__":
    main()
