"""Acceptance rates to begin a page with."""

from __future__ import annotations

from pipeline.reference.confidence import Rates

RATES: dict[str, Rates] = {}
