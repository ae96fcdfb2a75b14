"""What the decode loop needs of a model: one page's session that prefills, runs blocks and rolls back.

Knows nothing of MLX: `pipeline.adapter` implements it over mlx-vlm, the tests implement it in plain Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Banned = Sequence[Sequence[int]]  # per row, the ids that may not be chosen there


@dataclass(frozen=True, slots=True)
class Decision:
    """The model's own choice after each row of one forward pass.

    `ids[i]` is the greedy id that follows row i; `margins[i]` its logit minus the runner-up's, or None where
    margins were not asked for. Argmax runs on the device: no logits come back. `hidden` is whatever the session
    captured for a neural proposer (rows in the order of the block), opaque to the loop.
    """

    ids: tuple[int, ...]
    margins: tuple[float, ...] | None = None
    hidden: Any = None


class Session(Protocol):
    """One page in the model: its prompt, image features and KV cache."""

    @property
    def length(self) -> int:
        """Tokens held by the KV cache, the prompt's included."""
        ...

    def start(self, *, banned: Sequence[int] = (), margins: bool = False) -> Decision:
        """Prefill the prompt; one row: what follows it. Called once, first."""
        ...

    def forward(self, tokens: Sequence[int], *, banned: Banned = (), margins: bool = False) -> Decision:
        """One pass over `tokens` (at least one, at most `room()`), appended to the cache; a row for each.

        Every forward is followed by exactly one `trim`, also of 0.
        """
        ...

    def trim(self, count: int) -> None:
        """Take back the last `count` tokens of the latest forward and commit the rest."""
        ...

    def room(self) -> int:
        """The most tokens the next forward may take."""
        ...
