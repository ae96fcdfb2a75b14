"""Draft with a small network that looks at the model's hidden states: dflash, dspark, eagle3, mtp.

Sources: DFlash (z-lab), DSpark (arXiv 2607.05147), EAGLE-3 (arXiv 2503.01840), multi-token prediction (DeepSeek-V3).
Their modules are mlx-vlm's, behind `pipeline.adapter.drafters`; this is the loop's side and knows no MLX.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pipeline.proposers.base import NOTHING, Draft
from pipeline.target import Decision

if TYPE_CHECKING:
    from pipeline.adapter.drafting import DrafterPage

# Mode → what it is, as shown to people.
NEURAL: dict[str, str] = {
    "dflash": "a block-diffusion drafter over the model's hidden states (set `drafter`)",
    "dspark": "the same with a head for what follows what (set `drafter`)",
    "eagle3": "a small autoregressive drafter over three layers' states (set `drafter`)",
    "mtp": "a layer that predicts tokens ahead: GLM-OCR's own, or a drafter's (set `drafter`)",
}


class NeuralProposer:
    """Asks a drafter, and tells it what was written with the model's hidden states, which come with each decision."""

    def __init__(self, name: str, page: DrafterPage) -> None:
        self.name = name
        self._page = page
        self._first: Decision | None = None

    def begin(self, prompt: Sequence[int], first: Decision) -> None:
        """Hand over the prompt's hidden states. Raises: `ValueError` where the session captured none."""
        if first.hidden is None:
            raise ValueError(f"{self.name} needs a session with taps")
        self._first = first
        self._page.begin(first.hidden, first.ids[-1])

    def propose(self, limit: int) -> Draft:
        """The drafter's guess, with its own chances."""
        if limit <= 0:
            return NOTHING
        ids, survival = self._page.propose(limit)
        return Draft(ids, self.name, survival=survival) if ids else NOTHING

    def observe(self, ids: Sequence[int], draft: Draft, accepted: int, decision: Decision) -> None:
        """Row i of a decision belongs to the token before `ids[i]`: rows of rejected tokens come last and are left."""
        if decision is not self._first:  # the first id went in with the prompt
            self._page.observe(ids, decision.hidden)
