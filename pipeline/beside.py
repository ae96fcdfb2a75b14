"""What is at hand beside a picture that a model reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pipeline.proposers.lookup import NGramTable
from pipeline.reference.source import Reference


@dataclass(frozen=True, slots=True)
class Beside:
    """None of it is needed, and none but the table outlasts the picture."""

    table: NGramTable | None = None  # token history of the document, extended by what is read
    # Another reading of the picture, for the guard: what repeats there may repeat here. Called where something does.
    independent: Callable[[], str] | None = None
    # A reading of the picture as a draft to write on, made for the size of the model's input.
    reference: Reference | None = None


ALONE = Beside()
