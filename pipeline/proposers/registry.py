"""Proposer names: what each one is, and how to make it for a page."""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass

from pipeline.proposers.base import NoProposer, Proposer
from pipeline.proposers.chained import ChainedProposer
from pipeline.proposers.corrupt import CORRUPT, VARIABLE, CorruptProposer
from pipeline.proposers.lookup import LookupProposer, NGramTable
from pipeline.proposers.neural import NEURAL, NeuralProposer
from pipeline.reference.codec import Codec
from pipeline.reference.source import DraftSource
from storage.errors import SettingsError

AUTO = "auto"
# Name → what it is, as shown to people.
PROPOSERS: dict[str, str] = {
    "none": "nothing is drafted: the model alone, the baseline",
    "lookup": "n-grams of the output and of the document's earlier pages",
    "reference": "a cheap reading of the same page (text layer or classic OCR), beside n-grams",
    **NEURAL,
}


def resolve(name: str) -> str:
    """The proposer that `name` stands for. Raises: `SettingsError` naming the nearest."""
    if name != "none" and os.environ.get(VARIABLE) == CORRUPT:
        return CORRUPT
    if name == AUTO:
        return "reference"
    if name not in PROPOSERS:
        near = difflib.get_close_matches(name, [AUTO, *PROPOSERS], n=1)
        hint = f"did you mean `{near[0]}`?" if near else f"choose one of: {', '.join([AUTO, *PROPOSERS])}"
        raise SettingsError(f"there is no proposer called {name!r}", remedy=hint)
    return name


@dataclass(frozen=True, slots=True)
class PageDraft:
    """A draft at hand for the picture that is read, and what it takes to write it on."""

    source: DraftSource
    codec: Codec
    json: bool = False  # the model answers with dots.ocr's array
    stop: int | None = None  # the id that ends the text


def create(
    name: str, table: NGramTable, draft: PageDraft | None = None, neural: NeuralProposer | None = None
) -> Proposer:
    """A proposer for one picture; `table` holds what the document's earlier pages said.

    Without a draft, `reference` can only look up, or ask `neural`; with both it asks that where the draft is lost.
    """
    match resolve(name):
        case "none":
            return NoProposer()
        case "corrupt":
            return CorruptProposer()
        case "reference" if draft is not None:
            from pipeline.proposers.reference import ReferenceProposer

            reference = ReferenceProposer(draft.codec, draft.source, table, json=draft.json, stop=draft.stop)
            return reference if neural is None else ChainedProposer(reference, neural)
    return LookupProposer(table) if neural is None else neural
