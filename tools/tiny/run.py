"""From sources to an evaluated checkpoint: the order of the steps, and how a try differs from a run in earnest."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tools.tiny import evaluation, exporting, parallel, tokenizer, training
from tools.tiny.batches import Renderer
from tools.tiny.checkpoints import differences, origin, write_json
from tools.tiny.model import TinyModel
from tools.tiny.pictures import Sources
from tools.tiny.recipe import RECIPES, Recipe
from tools.tiny.training import Options

log = logging.getLogger(__name__)

TRY = 100  # steps up to which a run is a try: small batches, few pictures to evaluate
_TRY_PATCHES = 240
_EARNEST = 2_000  # steps from which all pictures are read: a model that knows no end reads for minutes


@dataclass(frozen=True, slots=True)
class Plan:
    """A run that is ready to start."""

    renderer: Renderer
    options: Options

    @property
    def is_try(self) -> bool:
        """Too short to learn anything."""
        return self.renderer.steps <= TRY


def plan(
    recipe: Recipe,
    sources: Sources,
    *,
    out: Path,
    seed: int,
    steps: int | None,
    minutes: float | None,
    resume: bool,
    **how: Any,
) -> Plan:
    """Make the tokenizer, settle the number of steps. `how`: fields of `training.Options`.

    Raises: `ValueError` where a run is to go on that was made from something else.
    """
    out.mkdir(parents=True, exist_ok=True)
    options = Options(out, **how)
    body = tokenizer.make(sources.corpus.train)
    renderer = Renderer(recipe, steps or recipe.steps, seed, sources, body)
    if resume and not steps:
        renderer = replace(renderer, steps=_recorded(out)["steps"])
    elif minutes:
        pace = training.seconds_per_step(renderer, options)
        renderer = replace(renderer, steps=max(1, round(minutes * 60 / pace)))
        log.info("%s steps at about %.2f s", renderer.steps, pace)
    if renderer.steps <= TRY:
        renderer = replace(renderer, recipe=replace(recipe, patches=_TRY_PATCHES))
    if resume:
        changed = differences(out, origin(renderer, options.settings))
        if changed:
            raise ValueError(f"{out} was made from something else: {', '.join(changed)}")
    (out / "tokenizer.json").write_text(body, encoding="utf-8")
    return Plan(renderer, options)


def carry_out(plan: Plan, *, resume: bool, half: bool = False) -> dict[str, Any]:
    """Train, export to OUT/model, evaluate into OUT/evaluation.json; returns what that says."""
    renderer, options = plan.renderer, plan.options
    encoder = tokenizer.PromptEncoder(renderer.tokenizer)
    prompt = encoder.ids("")

    def check(model: TinyModel) -> dict[str, float]:
        return evaluation.curve_point(model, renderer.sources, prompt)

    state = parallel.run(renderer, options, resume=resume, check=None if plan.is_try else check)
    folder = exporting.export(state.averaged, renderer.tokenizer, options.out / "model", half=half)
    sizes = evaluation.SMOKE if plan.is_try else evaluation.FULL
    if not plan.is_try and renderer.steps < _EARNEST:
        sizes = evaluation.SMALL
    rates = evaluation.table(exporting.load(folder), renderer.sources, prompt, sizes)
    report = {
        "model": str(folder),
        "parameters": state.model.parameter_count,
        "bytes": sum(path.stat().st_size for path in folder.iterdir()),
        "steps": state.step,
        "characters": state.characters,
        "rates": {name: rate.as_dict() for name, rate in rates.items()},
    }
    write_json(options.out / "evaluation.json", report)
    return report


def export(out: Path, folder: Path, *, half: bool) -> Path:
    """The averaged weights of a run that is under way or done, as a checkpoint."""
    recipe = RECIPES[_recorded(out)["recipe"]["name"]]
    state = training.begin(recipe, 0, "cpu")
    state.load(out)
    body = (out / "tokenizer.json").read_text(encoding="utf-8")
    return exporting.export(state.averaged, body, folder, half=half)


def _recorded(out: Path) -> dict[str, Any]:
    return json.loads((out / "run.json").read_text(encoding="utf-8"))
