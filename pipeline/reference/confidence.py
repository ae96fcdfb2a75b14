"""How likely a draft is to be accepted, by what it rests on: measured beforehand, then counted as the page is written.

The hazard is on the first id: once it is accepted, the next is likely to be, and the ones after it more so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Rates = tuple[float, float, float]  # chance of the first id, of the second after it, of each later one
_WEIGHTS = (4.0, 6.0, 12.0)  # how many observations the prior counts for
_FALLBACK: Rates = (0.5, 0.7, 0.8)


class Confidence:
    """Acceptance rates by situation; `priors` by the situation's name."""

    def __init__(self, priors: Mapping[str, Rates]) -> None:
        self._priors = priors
        self._counts: dict[str, list[list[float]]] = {}

    def rates(self, situation: str) -> Rates:
        """The present estimate."""
        prior = self._priors.get(situation, _FALLBACK)
        counts = self._counts.get(situation)
        if counts is None:
            return prior
        first, second, later = (
            (p * w + hits) / (w + tries) for p, w, (tries, hits) in zip(prior, _WEIGHTS, counts, strict=True)
        )
        return first, second, later

    def observe(self, situation: str, drafted: int, accepted: int) -> None:
        """`accepted` of `drafted` ids were right; what came after the first wrong one says nothing."""
        counts = self._counts.setdefault(situation, [[0.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
        for at in range(min(drafted, accepted + 1)):
            place = counts[min(at, 2)]
            place[0] += 1
            place[1] += at < accepted

    def survival(
        self, situation: str, ends: Sequence[int], risks: Sequence[tuple[int, float]] = ()
    ) -> tuple[float, ...]:
        """Per id, the chance that it and all before it are accepted.

        `ends`: where each id ends in the text; `risks`: (place in the text, chance of what begins there).
        """
        first, second, later = self.rates(situation)
        chance, at, found = 1.0, 0, []
        for index, end in enumerate(ends):
            chance *= first if index == 0 else second if index == 1 else later
            while at < len(risks) and risks[at][0] < end:
                if index:  # the first id's chance knows of the border it begins with
                    chance *= min(1.0, risks[at][1] + 0.05)
                at += 1
            found.append(chance)
        return tuple(found)
