"""Neural drafters: loaded with mlx-vlm's loader, their modules run over a page by `pipeline.proposers.neural`.

mlx-vlm's own rounds cannot be used: they want hooks that none of the five models has. Here a drafter gets hidden
states through a session's taps. What is relied on is held by tests/pipeline/adapter/test_drafters.py.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlx.core as mx

from pipeline import checkpoint
from pipeline.adapter import glm_mtp
from pipeline.adapter.drafting import ChainPage, ContextPage, DrafterPage
from pipeline.adapter.loading import LoadedModel, embedding_rows, to_float32
from pipeline.adapter.session import MlxSession
from pipeline.adapter.taps import layer_count
from storage.errors import ModelError, SettingsError, first_line

log = logging.getLogger(__name__)

KINDS = ("dflash", "dspark", "eagle3", "mtp")


@dataclass(frozen=True, slots=True)
class Drafter:
    """A drafter in memory, fitted to a model. `taps`: what sessions must capture for it; `width`: ids it drafts."""

    kind: str
    folder: Path
    model: Any
    taps: tuple[int, ...]
    width: int
    target: Any  # what its module binds to

    def page(self, session: MlxSession) -> DrafterPage:
        """Its state for one page; any number of pages may be drafted by turns."""
        made = ContextPage if self.kind in ("dflash", "dspark") else ChainPage
        return made(self.model, self.width, self.target, session)


# --- loading -----------------------------------------------------------------------------------------------


def load(loaded: LoadedModel, kind: str, folder: Path | None, *, trusted: Iterable[Path] = ()) -> Drafter:
    """The drafter in `folder` for `loaded`; without a folder the one that the model's own checkpoint carries.

    Raises: `SettingsError` where a folder must be named, `ModelError` where it cannot be loaded or does not fit,
    `UntrustedModelError` where it brings code.
    """
    model = _bundled(loaded, kind) if folder is None else _from_folder(kind, folder, trusted)
    place = folder or loaded.checkpoint.folder
    taps = _taps(kind, model, loaded)
    if misfits := _misfits(kind, model, taps, loaded):
        raise ModelError(
            f"the {kind} drafter {place.name} does not fit the model {loaded.checkpoint.folder.name}: "
            + "; ".join(misfits), file=place, remedy="take a drafter that was trained for this very model",
        )  # fmt: skip
    if loaded.device == "cpu":
        to_float32(model, None)
    target = _target(loaded)
    model.bind(target)
    mx.eval(model.parameters())
    return Drafter(kind, place, model, taps, _width(model), target)


def _bundled(loaded: LoadedModel, kind: str) -> Any:
    if kind == "mtp" and loaded.architecture == "glm_ocr":
        found = loaded.checkpoint
        return glm_mtp.load(loaded.model.language_model, found.folder, found.weights)
    raise SettingsError(
        f"mode {kind!r} needs a drafter, and the model brings none",
        remedy='name its folder: `drafter = "/path/to/drafter"` in ocrd.toml, or OCRD_DRAFTER',
    )


def _from_folder(kind: str, folder: Path, trusted: Iterable[Path]) -> Any:
    from mlx_vlm.speculative import load_drafter

    if not folder.is_dir():
        raise ModelError("there is no such drafter folder", file=folder, remedy="check the path")
    checkpoint.inspect_drafter(folder, trusted=trusted)
    try:
        model, found = load_drafter(str(folder), None)
    except Exception as error:  # mlx-vlm raises anything
        raise ModelError(
            f"mlx-vlm cannot load the drafter: {first_line(error).rstrip('.')}", file=folder
        ) from error
    found = "dspark" if hasattr(model, "markov_head") else found
    if found != kind:
        raise ModelError(
            f"this is a drafter for mode {found!r}, not {kind!r}", file=folder, remedy=f"set mode = {found!r}"
        )
    if kind in ("mtp", "eagle3") and not _is_chain(model):
        raise ModelError(
            f"drafters of type {model.config.model_type!r} share their model's cache, which is not supported here",
            file=folder, remedy="choose another drafter or mode",
        )  # fmt: skip
    return model


def _is_chain(model: Any) -> bool:
    wanted = ("prefill_from_target_hidden", "accept_verified_tokens", "draft_block")
    return all(callable(getattr(model, name, None)) for name in wanted)


def _taps(kind: str, model: Any, loaded: LoadedModel) -> tuple[int, ...]:
    if kind == "mtp":  # what the output matrix sees
        return (layer_count(loaded.model.language_model),)
    config = model.config
    return tuple(int(i) for i in (config.capture_layer_ids if kind == "eagle3" else config.target_layer_ids))


def _misfits(kind: str, model: Any, taps: Sequence[int], loaded: LoadedModel) -> list[str]:
    """What the drafter was made for and the model has not, in words that name both."""
    text = _text_config(loaded.model.language_model)
    layers, width = layer_count(loaded.model.language_model), int(text.hidden_size)
    rows = embedding_rows(loaded.model) or int(text.vocab_size)
    made = _made_for(kind, model)
    found = []
    if made.width != width:
        found.append(f"it is made for hidden states {made.width} wide, the model's are {width}")
    if made.vocabulary != rows:
        found.append(f"it is made for a vocabulary of {made.vocabulary}, the model's has {rows}")
    if made.layers is not None and made.layers != layers:
        found.append(f"it is made for {made.layers} layers, the model has {layers}")
    if outside := [tap for tap in taps if kind != "mtp" and not 0 <= tap < layers]:
        found.append(f"it looks at layer {outside[0]}, the model has layers 0 to {layers - 1}")
    if made.taps is not None and made.taps != len(taps):
        found.append(f"it names {len(taps)} layers to look at and has weights for {made.taps}")
    mask = getattr(model.config, "mask_token_id", None)
    if kind in ("dflash", "dspark") and mask is not None and not 0 <= int(mask) < rows:
        found.append(f"its mask token is {mask}, the model's vocabulary has {rows}")
    return found


def _made_for(kind: str, model: Any) -> Any:
    config = model.config
    if kind == "eagle3":
        text = config.transformer_layer_config
        return SimpleNamespace(
            width=model.target_hidden_size, vocabulary=text.vocab_size, layers=None, taps=3
        )
    if kind == "mtp":
        text = getattr(config, "text_config", None) or config
        return SimpleNamespace(width=text.hidden_size, vocabulary=text.vocab_size, layers=None, taps=None)
    return SimpleNamespace(
        width=config.hidden_size, vocabulary=config.vocab_size, layers=config.num_target_layers, taps=None
    )


def _width(model: Any) -> int:
    """Ids drafted at once at most: what it was trained to, or what its makers run it with."""
    config = model.config
    block = getattr(config, "runtime_block_size", None) or getattr(config, "block_size", None) or 2
    return max(1, int(block) - 1)


def _text_config(language_model: Any) -> Any:
    return getattr(language_model, "args", None) or language_model.config


def _target(loaded: LoadedModel) -> Any:
    """What drafters' modules look for in a model. dots.ocr has its output matrix where they would not find it."""
    language_model = loaded.model.language_model
    inner, text = language_model.model, _text_config(language_model)
    head = (
        getattr(language_model, "lm_head", None)
        or getattr(inner, "lm_head", None)
        or inner.embed_tokens.as_linear
    )
    target = SimpleNamespace(
        model=SimpleNamespace(embed_tokens=inner.embed_tokens, layers=inner.layers),
        lm_head=head,
        config=SimpleNamespace(
            hidden_size=text.hidden_size, vocab_size=embedding_rows(loaded.model) or text.vocab_size
        ),
        rollback_speculative_cache=None,  # that it is there is all that is asked: our sessions roll back themselves
    )  # fmt: skip
    target.language_model = target
    return target
