"""What `ocrd convert check` shows: a row per stage, and what follows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon import console

if TYPE_CHECKING:
    from pipeline.convert.check import Checked, StageDifference


def show(result: Checked) -> None:
    """The table, and the verdict in words."""
    console.print_table(
        ("Stage", "Shape", "Max difference", "Mean", "Largest value", "Relative", ""),
        [_row(stage) for stage in result.stages],
        numbers=(2, 3, 4, 5),
    )
    console.say(f"features: {result.output_shape}, {result.placeholders} placeholders in the prompt")
    given = result.output_shape[-1]
    console.say(f"the projector gives {given} columns, the language model takes {result.hidden}")
    console.say(f"first choices: {result.same_choices} of {result.logit_rows} the same")
    for part, kept in result.weights.items():
        console.say(f"weights of the {part}: {kept.replace('as stored', 'as in the source')}")
    console.say(_provenance(result))
    bad = [stage.name for stage in result.stages if not stage.is_good]
    if bad:
        console.say(f"DIFFERS from {bad[0]} on, by more than its weights explain")
    elif result.is_good:
        console.say("nothing changed but what was meant to")


def _row(stage: StageDifference) -> tuple[str, ...]:
    shape = " x ".join(f"{n:,}" for n in stage.shape)
    figures = (stage.max_abs, stage.mean_abs, stage.largest, stage.relative)
    return stage.name, shape, *(f"{figure:.2g}" for figure in figures), "" if stage.is_good else "too far off"


def _provenance(result: Checked) -> str:
    if result.differing_files:
        return f"NOT as it was written: {', '.join(result.differing_files)}"
    if result.made_of_source is None:
        return "no manifest: it was not converted by ocrd"
    return "manifest: made of these weights" if result.made_of_source else "manifest: made of OTHER weights"
