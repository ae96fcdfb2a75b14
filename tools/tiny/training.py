"""The training loop: batches in, averaged weights out; on one thread equal seeds give equal weights."""

from __future__ import annotations

import copy
import json
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tools.tiny import prefetch
from tools.tiny.batches import Batch, Renderer
from tools.tiny.checkpoints import State, origin, write_json
from tools.tiny.model import TinyModel
from tools.tiny.objectives import losses
from tools.tiny.recipe import Recipe

log = logging.getLogger(__name__)

Check = Callable[
    [TinyModel], Mapping[str, float]
]  # error rates of the averaged weights, for the learning curve


@dataclass(frozen=True, slots=True)
class Options:
    """How a run is done, as opposed to what is learned."""

    out: Path
    processes: int = 1  # that compute; a step's batches are shared out among them
    renderers: int = 1  # that draw ahead, for each of those; 0: draw when needed
    threads: int = 1  # of torch, in each process
    device: str = "cpu"
    precision: str = "bf16"
    save_every: int = 500  # steps
    show_every: int = 100
    check_every: int = 1_500

    @property
    def settings(self) -> dict[str, Any]:
        """Those that decide how sums are rounded, and with that the weights."""
        return {"threads": self.threads, "device": self.device, "precision": self.precision}


def begin(recipe: Recipe, seed: int, device: str) -> State:
    """Fresh weights from a seed."""
    torch.manual_seed(seed)
    model = TinyModel(recipe.shape).to(device)
    return State(model, copy.deepcopy(model).requires_grad_(False), _optimiser(model, recipe))


def _optimiser(model: TinyModel, recipe: Recipe) -> torch.optim.Optimizer:
    """AdamW; matrices decay, norms, biases and the embedding do not."""
    matrices, others = [], []
    for name, parameter in model.named_parameters():
        is_matrix = parameter.ndim == 2 and name != "model.embed_tokens.weight"
        (matrices if is_matrix else others).append(parameter)
    groups = [
        {"params": matrices, "weight_decay": recipe.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=recipe.learning_rate, betas=recipe.betas, fused=True)


class Trainer:
    """A run in one process. `rank` of `processes` computes every `processes`-th batch of a step; `average` adds up."""

    def __init__(
        self,
        renderer: Renderer,
        options: Options,
        *,
        rank: int = 0,
        add_up: Callable[[list[Tensor]], None] | None = None,
    ) -> None:
        self.renderer, self.options, self.rank, self._add_up = renderer, options, rank, add_up
        self.recipe = renderer.recipe
        self.device = torch.device(options.device)
        self.state = begin(self.recipe, renderer.seed, options.device)
        self._shown: defaultdict[str, list[float]] = defaultdict(list)
        self._since = time.monotonic()

    def run(self, until: int | None = None, check: Check | None = None) -> State:
        """Do the steps that are left, or as far as step `until`; saves at the end and every `save_every`."""
        state, options = self.state, self.options
        last = min(until or self.renderer.steps, self.renderer.steps)
        for step, parts in self._steps(range(state.step, last)):
            self._step(step, parts)
            state.step = step + 1
            ends = state.step == last
            if self.rank:
                continue
            if ends or state.step % options.show_every == 0:
                self._show(state.step)
            if check and (ends or state.step % options.check_every == 0):
                self._note({"step": state.step, "error_rates": dict(check(state.averaged))})
            if ends or state.step % options.save_every == 0:
                state.save(options.out)
        return state

    def _steps(self, steps: range) -> Iterator[tuple[int, list[Batch]]]:
        """Each step with this process's batches."""
        mine = range(self.rank, self.recipe.batches, self.options.processes)
        stream = prefetch.batches(self.renderer, steps, mine, self.options.renderers)
        for step in steps:
            yield step, [next(stream) for _ in mine]
        stream.close()

    def _step(self, step: int, parts: list[Batch]) -> None:
        state, recipe = self.state, self.recipe
        phase = recipe.phase(step, self.renderer.steps)
        for group in state.optimiser.param_groups:
            group["lr"] = recipe.rate(step, self.renderer.steps)
        for batch in parts:
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.options.precision == "bf16"):
                found = losses(state.model, batch, phase, self.device)
            found.total.backward()
            state.characters += int((batch.classes >= 0).sum())
            for name, value in found.shown.items():
                self._shown[f"{batch.kind}_{name}"].append(value)
        parameters = list(state.model.parameters())
        self._average_gradients(parameters)
        norm = torch.nn.utils.clip_grad_norm_(parameters, recipe.clip)
        if torch.isfinite(norm):
            state.optimiser.step()
        else:
            log.warning("step %s: gradients are not finite, nothing learned", step)
        state.optimiser.zero_grad(set_to_none=True)
        _blend(state.averaged, state.model, recipe.decay(step))

    def _average_gradients(self, parameters: list[Tensor]) -> None:
        """Over all batches of the step, in this process and in others."""
        for parameter in parameters:
            if parameter.grad is None:  # no loss asked for it in this phase
                parameter.grad = torch.zeros_like(parameter)
        gradients = [parameter.grad for parameter in parameters]
        if self._add_up:
            self._add_up(gradients)
        torch._foreach_mul_(gradients, 1 / self.recipe.batches)

    def _show(self, step: int) -> None:
        seconds, self._since = time.monotonic() - self._since, time.monotonic()
        means = {name: round(sum(values) / len(values), 4) for name, values in sorted(self._shown.items())}
        self._shown.clear()
        rate = self.recipe.rate(step - 1, self.renderer.steps)
        self._note(
            {
                "step": step,
                "rate": round(rate, 6),
                "characters": self.state.characters,
                "seconds": round(seconds, 1),
            }
            | means
        )

    def _note(self, entry: dict[str, Any]) -> None:
        """A line of log.jsonl, and the same on the terminal."""
        log.info("%s", json.dumps(entry))
        with (self.options.out / "log.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")

    def record(self) -> None:
        """Write run.json: what this run is made from."""
        write_json(self.options.out / "run.json", origin(self.renderer, self.options.settings))


@torch.no_grad()
def _blend(averaged: TinyModel, model: TinyModel, decay: float) -> None:
    """averaged ← decay * averaged + (1 - decay) * model."""
    torch._foreach_lerp_(list(averaged.parameters()), list(model.parameters()), 1 - decay)


def seconds_per_step(renderer: Renderer, options: Options, samples: int = 2) -> float:
    """About how long a step takes on average over the curriculum; tried on weights that are thrown away.

    The only use is to turn minutes into a number of steps before a run: that number is recorded and decides
    everything, so that a run of so many minutes can be repeated as one of so many steps.
    """
    recipe, device = renderer.recipe, torch.device(options.device)
    model = TinyModel(recipe.shape).to(device)
    total = since = 0.0
    for number, phase in enumerate(recipe.phases):
        drawing = computing = 0.0
        for sample in range(samples + 1):  # the first warms up
            began = time.monotonic()
            batch = renderer.batch_of(phase, f"pace/{renderer.seed}/{number}/{sample}")
            drawn = time.monotonic()
            with torch.autocast(device.type, torch.bfloat16, enabled=options.precision == "bf16"):
                losses(model, batch, phase, device).total.backward()
            if sample:
                drawing += drawn - began
                computing += time.monotonic() - drawn
        per_batch = max(computing, drawing / options.renderers) if options.renderers else computing + drawing
        total += per_batch / samples * (phase.until - since)
        since = phase.until
    return total * recipe.batches / options.processes
