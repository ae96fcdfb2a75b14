"""What `ocrd bench decode` shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from daemon import console


def show(figures: Mapping[str, Any], *, as_json: bool) -> None:
    """What `ocrd bench decode` measured, mode by mode."""
    if as_json:
        console.write_json(figures)
        return
    console.say(f"{figures['model']} on {figures['device']}")
    titles = (
        "Mode", "Tokens", "Tokens/s", "Tokens/pass", "Accepted/pass", "First token ms", "From store ms", "Vision ms",
        "Peak MB", "Same tokens",
    )  # fmt: skip
    rows = [
        (
            row["mode"], str(row["tokens"]), f"{row['tokens_per_s']:.1f}", f"{row['tokens_per_pass']:.2f}",
            f"{row['mean_accept_len']:.2f}", f"{row['ttft_ms']:.0f}", f"{row['ttft_hit_ms']:.0f}",
            f"{row['vision_ms']:.0f}", f"{row['peak_mb']:.0f}", "yes" if row["identical"] else "NO",
        )
        for row in figures["modes"]
    ]  # fmt: skip
    console.print_table(titles, rows, numbers=tuple(range(1, 9)))
