"""Fill the PyTorch tower with a checkpoint's weights, tensor by tensor. Needs torch (extra `convert`)."""

from __future__ import annotations

import torch

from pipeline.convert.names import Part
from pipeline.convert.plan import Plan
from pipeline.convert.tower import VisionTower
from pipeline.convert.tower_config import TowerConfig, of

_PREFIX = "vision_tower."  # the tower's own names follow it in checkpoints


def empty_tower(config: TowerConfig) -> VisionTower:
    """A tower without memory for its weights; each is put in its place once."""
    with torch.device("meta"):
        tower = VisionTower(config)
    tower.eval()
    return tower


def load_tower(plan: Plan, *, half: bool = False) -> VisionTower:
    """The tower with the checkpoint's weights as float32 or float16, whatever they are stored as.

    Raises: `ModelError` where a weight file was cut since it was examined.
    """
    tower = empty_tower(of(plan.sizes))
    state = {}
    for entry in plan.of(Part.VISION, Part.PROJECTOR):
        name = entry.expected.source.removeprefix(_PREFIX)
        state[name] = torch.from_numpy(entry.read()).to(_dtype(name, half))
    tower.load_state_dict(state, assign=True)
    return tower


def _dtype(name: str, half: bool) -> torch.dtype:
    """LayerNorm stays float32: see `Merger.forward`."""
    return torch.float16 if half and "ln_q" not in name else torch.float32
