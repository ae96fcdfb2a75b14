"""What `ocrd bench decode` and `ocrd bench vision` show."""

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


def show_vision(figures: Mapping[str, Any], *, as_json: bool) -> None:
    """What `ocrd bench vision` measured, row by row."""
    if as_json:
        console.write_json(figures)
        return
    console.say(f"vision tower of {figures['model']}")
    titles = ("Page", "Encoder", "On", "Patches", "Padded to", "Multiply-adds, 10⁹", "Seconds", "")
    rows = [
        (
            row["paper"], row["encoder"], row["unit"], str(row["patches"]), str(row["length"]),
            f"{row['multiply_adds'] / 1e9:.1f}", "" if row["seconds"] is None else f"{row['seconds']:.3f}",
            row["note"],
        )
        for row in figures["rows"]
    ]  # fmt: skip
    console.print_table(titles, rows, numbers=(3, 4, 5, 6))
