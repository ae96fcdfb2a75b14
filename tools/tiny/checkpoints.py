"""A run on disk: what it was made from (run.json), its log (log.jsonl), and the state to go on from (state.pt)."""

from __future__ import annotations

import json
import os
import platform
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tools.tiny.batches import Renderer
from tools.tiny.model import TinyModel


@dataclass(slots=True)
class State:
    """Everything that changes in a run. `step`: how many are done."""

    model: TinyModel
    averaged: TinyModel
    optimiser: torch.optim.Optimizer
    step: int = 0
    characters: int = 0

    def save(self, folder: Path) -> None:
        """Write `state.pt`, whole or not at all."""
        body = {
            "step": self.step,
            "characters": self.characters,
            "model": self.model.state_dict(),
            "averaged": self.averaged.state_dict(),
            "optimiser": self.optimiser.state_dict(),
        }
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
            torch.save(body, file)
            file.flush()
            os.fsync(file.fileno())
        Path(file.name).rename(folder / "state.pt")

    def load(self, folder: Path) -> None:
        """Take over what `save` wrote. Raises: `FileNotFoundError`."""
        body = torch.load(folder / "state.pt", map_location=self.model.head.device, weights_only=True)
        self.model.load_state_dict(body["model"])
        self.averaged.load_state_dict(body["averaged"])
        self.optimiser.load_state_dict(body["optimiser"])
        self.step, self.characters = body["step"], body["characters"]


def origin(renderer: Renderer, settings: Mapping[str, Any]) -> dict[str, Any]:
    """What decides the weights bit by bit; a run goes on only where all of it is the same."""
    import PIL
    from PIL import features

    corpus, fonts = renderer.sources.corpus, renderer.sources.fonts
    decided = {
        "recipe": renderer.recipe.as_dict(),
        "seed": renderer.seed,
        "steps": renderer.steps,
        "corpus": {
            "source": corpus.source,
            "fingerprint": corpus.fingerprint,
            "characters": len(corpus.train),
        },
        "fonts": {"regular": len(fonts.regular), "held": len(fonts.held), "fingerprint": fonts.fingerprint},
        **settings,
        "torch": torch.__version__,
        "pillow": PIL.__version__,
        "freetype": features.version("freetype2"),
        "machine": platform.machine(),
    }
    return json.loads(json.dumps(decided))


def differences(folder: Path, now: Mapping[str, Any]) -> list[str]:
    """Names of what run.json records otherwise than `now` has it."""
    then = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    return sorted(name for name in {*then, *now} if then.get(name) != now.get(name))


def write_json(path: Path, body: Any) -> None:
    """Indented JSON, whole or not at all."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
        json.dump(body, file, indent=1)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    Path(file.name).rename(path)
