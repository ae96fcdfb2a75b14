"""The three losses: next character, character centres seen by each image token, and where the guided heads look."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from tools.tiny.batches import IGNORED, Batch
from tools.tiny.layers import Guide
from tools.tiny.model import IMAGE_AT, UNUSED_LOGIT, TinyModel
from tools.tiny.recipe import Phase


@dataclass(frozen=True, slots=True)
class Losses:
    """The sum to minimise, and what to show: losses and accuracies by name."""

    total: Tensor
    shown: Mapping[str, float]


def losses(model: TinyModel, batch: Batch, phase: Phase, device: torch.device) -> Losses:
    """All losses of a batch, weighted as the phase says."""
    patches, slots, classes, tokens = (
        torch.from_numpy(array).to(device)
        for array in (batch.patches, batch.slots, batch.classes, batch.tokens)
    )
    features = model.vision_tower(patches, batch.rows, batch.columns)  # (B, N, D)
    question = model.question(features, batch.prompt)
    answer = model.embed(model.class_ids[classes[:, :-1].clamp_min(0)])  # (B, T-1, D)
    start = question.shape[1] - 1  # the prompt's last token predicts the first character
    guide = Guide(start, (IMAGE_AT, features.shape[1]), tokens)
    hidden, guided = model.read(torch.cat((question, answer), 1), guide=guide if phase.guidance else None)
    logits = model.logits(hidden[:, start:])  # (B, T, 97)
    total = next_character(logits, classes)
    shown = {"text": total.item(), "right": _share_right(logits, classes, classes >= 0)}
    if phase.auxiliary:
        predicted = model.aux(features).float().view(*slots.shape, -1)
        centres = character_centres(predicted, slots)
        total = total + phase.auxiliary * centres
        shown |= {"centres": centres.item(), "centres_right": _share_right(predicted, slots, slots > 0)}
    if guided:
        guidance = torch.stack(guided).mean()
        total = total + phase.guidance * guidance
        shown["guidance"] = guidance.item()
    return Losses(total, shown)


def next_character(logits: Tensor, classes: Tensor) -> Tensor:
    """Cross entropy of (B, T, 97) logits over the classes and one more logit for all unused rows together."""
    unused = logits.new_full((*logits.shape[:2], 1), UNUSED_LOGIT)
    extended = torch.cat((logits, unused), -1)
    return F.cross_entropy(extended.flatten(0, 1), classes.flatten(), ignore_index=IGNORED)


def character_centres(predicted: Tensor, slots: Tensor) -> Tensor:
    """Cross entropy of (B, N, S, 97) over slots with a character, plus that over empty ones: both count the same."""
    each = F.cross_entropy(predicted.flatten(0, 2), slots.flatten(), reduction="none").view_as(slots)
    inked = slots > 0
    return each[inked].sum() / inked.sum().clamp_min(1) + each[~inked].sum() / (~inked).sum().clamp_min(1)


@torch.no_grad()
def _share_right(logits: Tensor, targets: Tensor, counted: Tensor) -> float:
    right = (logits.argmax(-1) == targets) & counted
    return (right.sum() / counted.sum().clamp_min(1)).item()
