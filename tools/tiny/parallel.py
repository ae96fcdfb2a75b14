"""A run in several processes: each computes some of a step's batches, the gradients are added up.

With two processes and two batches a step the sums have the same two terms as in one process, so the weights are the
same bit by bit; beyond that the order of the terms differs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from tools.tiny.batches import Renderer
from tools.tiny.checkpoints import State
from tools.tiny.training import Check, Options, Trainer


def run(renderer: Renderer, options: Options, *, resume: bool, check: Check | None = None) -> State:
    """Do a run; the calling process is the first of `options.processes`, and the one that writes."""
    torch.set_num_threads(options.threads)
    if options.processes == 1:
        return _one(renderer, options, 0, None, resume, check)
    if renderer.recipe.batches % options.processes:
        raise ValueError(
            f"{renderer.recipe.batches} batches a step cannot be shared by {options.processes} processes"
        )
    if options.device != "cpu":
        raise ValueError("several processes are for CPUs")
    with tempfile.TemporaryDirectory() as folder:
        meeting = Path(folder) / "meeting"
        context = torch.multiprocessing.get_context("spawn")
        others = [
            context.Process(target=_other, args=(renderer, options, rank, meeting, resume))
            for rank in range(1, options.processes)
        ]
        for process in others:
            process.start()
        try:
            return _one(renderer, options, 0, _meet(meeting, 0, options.processes), resume, check)
        finally:
            torch.distributed.destroy_process_group()
            for process in others:
                process.join(timeout=60)
                process.terminate()


def _other(renderer: Renderer, options: Options, rank: int, meeting: Path, resume: bool) -> None:
    torch.set_num_threads(options.threads)
    _one(renderer, options, rank, _meet(meeting, rank, options.processes), resume, None)
    torch.distributed.destroy_process_group()


def _one(
    renderer: Renderer,
    options: Options,
    rank: int,
    add_up: Callable[[list[Tensor]], None] | None,
    resume: bool,
    check: Check | None,
) -> State:
    trainer = Trainer(renderer, options, rank=rank, add_up=add_up)
    if resume:
        trainer.state.load(options.out)
    elif rank == 0:
        trainer.record()
    return trainer.run(check=check)


def _meet(meeting: Path, rank: int, processes: int) -> Callable[[list[Tensor]], None]:
    """Join the group; returns what adds tensors up over it, in place."""
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=processes
    )

    def add_up(tensors: list[Tensor]) -> None:
        flat = torch.cat([tensor.flatten() for tensor in tensors])
        torch.distributed.all_reduce(flat)
        for tensor, part in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(part.view_as(tensor))

    return add_up
