"""What `ocrd convert coreml` shows: size, page sizes, proof."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from daemon import console

if TYPE_CHECKING:
    from pipeline.convert.coreml import Options, Report
    from pipeline.convert.mil_proof import Proof


def as_json(made: Report, options: Options, proof: Proof | None) -> dict[str, Any]:
    """What `ocrd convert coreml --json` prints."""
    return {
        **asdict(made),
        "package": str(made.package),
        "options": {name: None if value is None else str(value) for name, value in asdict(options).items()},
        "proof": None if proof is None else asdict(proof) | {"holds": proof.holds},
    }


def show(made: Report, options: Options, proof: Proof | None) -> None:
    """What became of `ocrd convert coreml`: size, page sizes, proof."""
    console.say(
        f"{console.escape_name(made.package)} was written: {console.size(made.size_bytes)} for "
        f"{made.parameters / 1e6:.1f} M parameters, {made.seconds:.0f} s"
    )
    rows = [
        (
            page.paper, f"{page.width_px} x {page.height_px}", str(page.patches),
            "too large" if page.length is None else str(page.length), f"{page.multiply_adds / 1e9:.1f}",
        )
        for page in made.pages
    ]  # fmt: skip
    console.print_table(
        ("Page at 200 dpi", "Pixels", "Patches", "Padded to", "Multiply-adds, 10⁹"), rows, numbers=(2, 3, 4)
    )
    if proof is not None:
        _say_proof(proof, options)
    console.say("next, on a Mac, in the settings file:")
    console.say('      vision_backend = "coreml"')
    console.say(f'      vision_package = "{console.escape_name(made.package.absolute())}"')


def _say_proof(proof: Proof, options: Options) -> None:
    console.say(
        f"the saved program differs from PyTorch by {proof.largest:.1e} at most, {proof.mean:.1e} in the mean "
        f"(features spread by {proof.spread:.2f}; {proof.patches} patches padded to {proof.length})"
    )
    if options.is_exact:
        console.say("proved" if proof.holds else "NOT proved: float32 should not differ so much")
