"""The commands that convert a checkpoint of dots.ocr: `ocrd convert …`."""

from __future__ import annotations

import typer


def add_to(app: typer.Typer) -> None:
    """Add `convert` with its commands."""
    group = typer.Typer(
        help="A dots.ocr checkpoint to MLX or Core ML, and proof that nothing changed.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    app.add_typer(group, name="convert")
