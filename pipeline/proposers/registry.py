"""Proposer names: what each one is, and how to make it for a page."""

from __future__ import annotations

import difflib
import os

from pipeline.proposers.base import NoProposer, Proposer
from pipeline.proposers.corrupt import CORRUPT, VARIABLE, CorruptProposer
from pipeline.proposers.lookup import LookupProposer, NGramTable
from storage.errors import SettingsError

AUTO = "auto"
# Name → what it is, as shown to people.
PROPOSERS: dict[str, str] = {
    "none": "nothing is drafted: the model alone, the baseline",
    "lookup": "n-grams of the output and of the document's earlier pages",
}


def resolve(name: str) -> str:
    """The proposer that `name` stands for. Raises: `SettingsError` naming the nearest."""
    if name != "none" and os.environ.get(VARIABLE) == CORRUPT:
        return CORRUPT
    if name == AUTO:
        return "lookup"
    if name not in PROPOSERS:
        near = difflib.get_close_matches(name, [AUTO, *PROPOSERS], n=1)
        hint = f"did you mean `{near[0]}`?" if near else f"choose one of: {', '.join([AUTO, *PROPOSERS])}"
        raise SettingsError(f"there is no proposer called {name!r}", remedy=hint)
    return name


def create(name: str, table: NGramTable) -> Proposer:
    """A proposer for one page; `table` holds what the document's earlier pages said."""
    match resolve(name):
        case "none":
            return NoProposer()
        case "corrupt":
            return CorruptProposer()
    return LookupProposer(table)
