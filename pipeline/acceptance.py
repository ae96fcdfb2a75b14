"""Pure arithmetic of verification: how much of a draft the model agrees with, and what follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Accepted:
    """What a block gave: `count` draft tokens agreed, and whether the row after them is too close to call."""

    count: int
    redecide: bool  # the choice of row `count` has a margin under tau: take the single-row pass's word for it


def accept(
    draft: Sequence[int],
    choices: Sequence[int],
    *,
    margins: Sequence[float] | None = None,
    tau: float = 0.0,
) -> Accepted:
    """The longest prefix of `draft` that equals the model's `choices` (Leviathan et al. 2023, greedy case).

    `choices[i]` is the model's id after row i, `len(choices) == len(draft) + 1`. With `tau` > 0 the prefix also ends
    at the first row whose top-two margin is under `tau`: a block and a single row may round differently there.
    A block of one row was decided by the single-row pass already and is never re-decided.
    """
    if len(choices) != len(draft) + 1:
        raise ValueError(f"{len(choices)} choices for a draft of {len(draft)}: expected one more")
    close = [margin < tau for margin in margins] if margins is not None and tau > 0 and draft else None
    for count, (drafted, chosen) in enumerate(zip(draft, choices, strict=False)):
        if close and close[count]:
            return Accepted(count, True)
        if drafted != chosen:
            return Accepted(count, False)
    return Accepted(len(draft), bool(close and close[len(draft)]))
