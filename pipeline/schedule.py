"""How long the next draft may be: always the same, as drafts have done, or what a measured cost curve pays for."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import replace
from itertools import accumulate
from math import inf
from typing import Protocol

from pipeline.proposers.base import NOTHING, Draft

MOST = 63  # drafted ids: curves are known up to a pass of 64 rows


class Schedule(Protocol):
    """Decides how much of a draft is verified."""

    def limit(self) -> int:
        """The most tokens worth drafting now; 0 = none."""
        ...

    def choose(self, draft: Draft) -> Draft:
        """The part of `draft`, or of one of its rivals, that is worth a pass; `NOTHING` = a pass of one row."""
        ...

    def observe(self, drafted: int, accepted: int) -> None:
        """What became of a draft."""
        ...


class FixedSchedule:
    """Always the same length."""

    def __init__(self, length: int) -> None:
        self.length = length

    def limit(self) -> int:
        """The length given."""
        return self.length

    def choose(self, draft: Draft) -> Draft:
        """The draft as it is."""
        return draft

    def observe(self, drafted: int, accepted: int) -> None:
        """Learns nothing."""


class AdaptiveSchedule:
    """Longer after drafts accepted whole, shorter after early rejections; bounds as a cost curve's plateau has them."""

    def __init__(self, start: int = 8, least: int = 2, most: int = 32) -> None:
        self.length = start
        self.least = least
        self.most = most

    def limit(self) -> int:
        """The present length."""
        return self.length

    def choose(self, draft: Draft) -> Draft:
        """The draft as it is."""
        return draft

    def observe(self, drafted: int, accepted: int) -> None:
        """Double after a full acceptance, halve when less than a quarter was."""
        if drafted and accepted == drafted >= self.length:
            self.length = min(self.most, self.length * 2)
        elif drafted and accepted * 4 < drafted:
            self.length = max(self.least, self.length // 2)


class CostCurve:
    """c(k): what a pass of k rows costs against a pass of one. Between the points given it is straight."""

    def __init__(self, points: Mapping[int, float]) -> None:
        """`points`: rows → cost, 1 → 1 understood; beyond the last point cost grows with the rows."""
        known = {1: 1.0, **points}
        rows = sorted(known)
        if rows[0] != 1 or any(not known[k] > 0 for k in rows):
            raise ValueError("a cost curve needs rows from 1 and costs above 0")
        self._table = [0.0] + [_between(known, rows, k) for k in range(1, MOST + 2)]

    def __call__(self, rows: int) -> float:
        """The cost of a pass of `rows` rows."""
        last = len(self._table) - 1
        return self._table[rows] if rows <= last else self._table[last] * rows / last


def _between(known: Mapping[int, float], rows: list[int], k: int) -> float:
    if k >= rows[-1]:
        return known[rows[-1]] * max(1.0, k / max(rows[-1], MOST + 1))
    at = bisect_left(rows, k)
    if rows[at] == k:
        return known[k]
    low, high = rows[at - 1], rows[at]
    return known[low] + (known[high] - known[low]) * (k - low) / (high - low)


def linear(slope: float) -> CostCurve:
    """Each further row costs `slope` of a pass."""
    return CostCurve({k: 1 + slope * (k - 1) for k in range(1, MOST + 2)})


# Published measurements, by name; those past 32 rows (M4 Pro) and 16 rows (M3 Ultra) are extrapolated.
# M4 Pro, 4-bit weights: ml-explore/mlx#3852; M3 Ultra: ml-explore/mlx#4265. Linear 0.02 to 0.05: data-centre GPUs.
CURVES: dict[str, CostCurve] = {
    "a0.02": linear(0.02),
    "a0.05": linear(0.05),
    "a0.1": linear(0.1),
    "m4pro-4bit": CostCurve({2: 1.0, 3: 1.13, 4: 1.43, 5: 1.75, 8: 2.84, 10: 4.5, 32: 4.5, 64: 6.0}),
    "m3ultra-4bit": CostCurve({2: 1.83, 4: 3.26, 7: 5.28, 8: 6.12, 16: 6.32, 32: 6.5, 64: 7.5}),
    "m3ultra-bf16": CostCurve({2: 1.99, 16: 2.0, 32: 2.1, 64: 2.6}),
}

_BEGIN = 8.0  # cost that the rate a page begins with, 2 tokens, counts for
_FADE = 0.98  # of the running totals of tokens and cost, a pass
# Acceptance of drafts that come without chances, before any was seen.
_UNKNOWN_FIRST, _UNKNOWN_LATER = 0.5, 0.8
_UNKNOWN_WEIGHT = 6.0
# What later passes gain where a draft holds counts for half: one that fails is mostly found again, and gains as well.
_HELD = 0.5
_AHEAD = 12  # ids of a draft after which a later pass over the rest of it is counted; all would take 3 times as long


class CostSchedule:
    """As many tokens as maximise expected accepted tokens minus λ · cost, later passes over the same draft included.

    λ is the rate of tokens per cost that decoding has had of late: a pass is worth its cost only where it does better.
    A plateau in the curve (a whole tile for the price of part of it) is used to its end, or not at all. Where the next
    token is doubtful and many sure ones follow, a cheap pass settles it first: the rest of the draft does not go away.
    """

    def __init__(self, curve: CostCurve, most: int = MOST) -> None:
        self.curve = curve
        self.most = most
        self._costs = [curve(rows) for rows in range(1, most + 2)]
        self._tokens, self._cost = 2.0 * _BEGIN, _BEGIN
        # Hits and tries of drafts that came without chances: of the first id, and of later ones.
        self._seen = [[_UNKNOWN_WEIGHT * rate, _UNKNOWN_WEIGHT] for rate in (_UNKNOWN_FIRST, _UNKNOWN_LATER)]

    def limit(self) -> int:
        """The longest draft the curve is known for."""
        return self.most

    @property
    def rate(self) -> float:
        """λ: tokens per cost of a one-row pass, never under the 1 that the model alone has."""
        return max(1.0, self._tokens / self._cost)

    def choose(self, draft: Draft) -> Draft:
        """The guess and length of the largest expected gain."""
        best, best_gain = NOTHING, -inf
        for guess in (draft, *draft.rivals):
            length, gain = self._gain(guess)
            if gain > best_gain:
                ids, survival = guess.ids[:length], guess.survival[:length]
                best_gain, best = gain, replace(guess, ids=ids, survival=survival, rivals=())
        return best if best.ids else NOTHING

    def _gain(self, guess: Draft) -> tuple[int, float]:
        """How much of the guess to verify now, and what it gains over decoding at the rate λ until it fails or ends.

        With S(i) the chance that i ids hold, P(i) = S(1) + … + S(i), and U(i) what is gained from there on, times S(i):
        U(i) = max over k of S(i) + P(i + k) - P(i) - λ c(k + 1) S(i) + U(i + k + 1) / 2, as the model's own id after k
        accepted ones may be the draft's next. Where a draft fails or ends, decoding goes on at the rate λ: a gain of 0,
        which is also the least that one is worth of which so much held, and taken for U beyond `_AHEAD`. On stored
        pages this is worth 1 to 2 %, the half included: counted in full, layout JSON and tables lose 5 to 9 %.
        """
        survival = [1.0, *(guess.survival or self._unknown(len(guess.ids)))]
        last, rate = len(survival) - 1, self.rate
        costs = [rate * cost for cost in self._costs[: last + 1]]
        sums = list(accumulate(survival))
        ahead = sums.copy()  # 1 + P(i) + U(i + 1), where that is looked at
        gain, length = 0.0, 0
        for at in range(min(last, _AHEAD), -1, -1):
            here = survival[at]
            ahead[at] += _HELD * max(gain, 0.0)
            gains = [so_far - here * cost for so_far, cost in zip(ahead[at:], costs, strict=False)]
            most = max(gains)
            gain = here - sums[at] + most
            if not at:
                length = gains.index(most)
        return length, gain

    def _unknown(self, count: int) -> list[float]:
        first, later = (hits / tries for hits, tries in self._seen)
        return [first * later**at for at in range(count)]

    def observe(self, drafted: int, accepted: int) -> None:
        """Keep the running rate, and how drafts without chances of their own do."""
        self._tokens = _FADE * self._tokens + accepted + 1
        self._cost = _FADE * self._cost + self.curve(drafted + 1)
        for at in range(min(drafted, accepted + 1)):
            place = self._seen[min(at, 1)]
            place[0] += at < accepted
            place[1] += 1
