"""Neural drafters: loaded with mlx-vlm's loader, their modules run over a page by `pipeline.proposers.neural`.

mlx-vlm's own rounds cannot be used: they want hooks that none of the five models has. Here a drafter gets hidden
states through a session's taps. What is relied on is held by tests/pipeline/adapter/test_drafters.py.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

import mlx.core as mx

from pipeline import checkpoint
from pipeline.adapter import glm_mtp
from pipeline.adapter.loading import LoadedModel, _embedding_rows, _to_float32
from pipeline.adapter.session import MlxSession
from pipeline.adapter.taps import layer_count
from storage.errors import ModelError, SettingsError

log = logging.getLogger(__name__)

KINDS = ("dflash", "dspark", "eagle3", "mtp")
_CHAIN_STATE = ("_cache", "_seed_token", "_seed_hidden", "_next_position", "_round_appended", "_prompt")


@dataclass(frozen=True, slots=True)
class Drafter:
    """A drafter in memory, fitted to a model. `taps`: what sessions must capture for it; `width`: ids it drafts."""

    kind: str
    name: str
    model: Any
    taps: tuple[int, ...]
    width: int
    target: Any  # what its module binds to

    def page(self, session: MlxSession) -> DrafterPage:
        """Its state for one page; any number of pages may be drafted by turns."""
        return (_Context if self.kind in ("dflash", "dspark") else _Chain)(self, session)


class DrafterPage(Protocol):
    """What a drafter knows of the page being written."""

    def begin(self, hidden: Any, first: int) -> None:
        """`hidden`: (1, N, taps · D) of the prompt; `first`: the id that follows it."""
        ...

    def propose(self, limit: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """Up to `limit` ids (at least 1), and for each the drafter's own chance that it and all before it are right."""
        ...

    def observe(self, ids: Sequence[int], hidden: Any) -> None:
        """`ids` were written; `ids[i]` follows the token whose hidden state is row i of `hidden`."""
        ...


# --- loading -----------------------------------------------------------------------------------------------


def load(loaded: LoadedModel, kind: str, folder: Path | None, *, trusted: Iterable[Path] = ()) -> Drafter:
    """The drafter in `folder` for `loaded`; without a folder the one that the model's own checkpoint carries.

    Raises: `SettingsError` where a folder must be named, `ModelError` where it cannot be loaded or does not fit,
    `UntrustedModelError` where it brings code.
    """
    if folder is None:
        model, name = _bundled(loaded, kind), loaded.checkpoint.folder.name
    else:
        model, name = _from_folder(kind, folder, trusted), folder.name
    place = folder or loaded.checkpoint.folder
    taps = _taps(kind, model, loaded)
    if misfits := _misfits(kind, model, taps, loaded):
        raise ModelError(
            f"the {kind} drafter {name} does not fit the model {loaded.checkpoint.folder.name}: " + "; ".join(misfits),
            file=place, remedy="take a drafter that was trained for this very model",
        )  # fmt: skip
    if loaded.device == "cpu":
        _to_float32(model, None)
    target = _target(loaded)
    model.bind(target)
    mx.eval(model.parameters())
    return Drafter(kind, name, model, taps, _width(model), target)


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
        said = (str(error).strip() or type(error).__name__).splitlines()[0][:300].rstrip(".")
        raise ModelError(f"mlx-vlm cannot load the drafter: {said}", file=folder) from error
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
    rows = _embedding_rows(loaded.model) or int(text.vocab_size)
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
            hidden_size=text.hidden_size, vocab_size=_embedding_rows(loaded.model) or text.vocab_size
        ),
        rollback_speculative_cache=None,  # that it is there is all that is asked: our sessions roll back themselves
    )  # fmt: skip
    target.language_model = target
    return target


# --- drafting ----------------------------------------------------------------------------------------------


class _Sampler:
    """Takes the likeliest id, and keeps how likely it was."""

    def __init__(self) -> None:
        self.chances: list[Any] = []

    def __call__(self, logits: Any) -> Any:
        logits = logits.astype(mx.float32)
        self.chances.append(mx.exp(logits.max(axis=-1) - mx.logsumexp(logits, axis=-1)).reshape(-1))
        return mx.argmax(logits, axis=-1)

    def survival(self, count: int) -> tuple[float, ...]:
        """Chances of the first `count` ids, each with all before it."""
        alive, survival = 1.0, []
        for chance in mx.concatenate(self.chances)[:count].tolist():
            alive *= float(chance)
            survival.append(alive)
        return tuple(survival)


class _Context:
    """dflash and dspark: one pass over a block of masks, attending to the hidden states of all that was written.

    Only those states are kept in its cache, never drafts, so that there is nothing to take back.
    """

    def __init__(self, drafter: Drafter, session: MlxSession) -> None:
        self._drafter = drafter
        self._session = session
        self._cache = drafter.model.make_cache()
        self._pending: list[Any] = []
        self._last = 0

    def begin(self, hidden: Any, first: int) -> None:
        self._session.prompt_context()  # not needed: lets go of the embeddings
        self._pending, self._last = [hidden], first

    def observe(self, ids: Sequence[int], hidden: Any) -> None:
        self._pending.append(hidden[:, : len(ids)])
        self._last = int(ids[-1])

    def propose(self, limit: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
        count = min(limit, self._drafter.width)
        hidden = mx.concatenate(self._pending, axis=1) if self._pending else None
        if hidden is None:
            return (), ()
        self._pending = []
        sampler = _Sampler()
        model = self._drafter.model
        drafted = model.draft_block(self._last, hidden, self._cache, count + 1, sampler, mx.int32)
        ids = tuple(int(i) for i in drafted.reshape(-1).tolist())[:count]
        return ids, sampler.survival(len(ids))


class _Chain:
    """eagle3 and mtp: one id after another, each from the hidden state that the one before left.

    The module's own cache runs ahead while drafting. Whatever became of the draft, it is taken back, and the tokens
    written go in with the model's true hidden states. The module keeps its state in itself: pages swap it.
    """

    def __init__(self, drafter: Drafter, session: MlxSession) -> None:
        self._drafter = drafter
        self._session = session
        self._sampler = _Sampler()
        drafter.model.reset(drafter.target)
        self._state = _state_of(drafter.model)

    def begin(self, hidden: Any, first: int) -> None:
        prompt = self._session.prompt_context()
        self._sampler = _Sampler()
        with self._own() as model:
            model._prompt = prompt
            model.prefill_from_target_hidden(prompt.ids, hidden, first, self._sampler, mx.int32)

    def observe(self, ids: Sequence[int], hidden: Any) -> None:
        self._sampler = _Sampler()
        with self._own() as model:
            _take_back(model)
            tokens = mx.array([[int(i) for i in ids]], dtype=mx.int32)
            model.accept_verified_tokens(
                hidden[:, : len(ids)], tokens[:, :-1], len(ids) - 1, [int(ids[-1])], self._sampler, mx.int32
            )

    def propose(self, limit: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
        count = min(limit, self._drafter.width)
        with self._own() as model:
            if model._seed_token is None:
                return (), ()
            drafted = model.draft_block(0, None, self._state["_cache"], count + 1, self._sampler, mx.int32)
            ids = tuple(int(i) for i in drafted.reshape(-1).tolist())
        return ids, self._sampler.survival(len(ids))

    @contextmanager
    def _own(self) -> Iterator[Any]:
        """The module with this page's state."""
        model = self._drafter.model
        for name, value in self._state.items():
            setattr(model, name, value)
        try:
            yield model
        finally:
            self._state = _state_of(model)


def _state_of(model: Any) -> dict[str, Any]:
    return {name: getattr(model, name, None) for name in _CHAIN_STATE}


def _take_back(model: Any) -> None:
    """Drop what was appended while drafting."""
    if model._round_appended:
        for cache in model._cache:
            cache.trim(model._round_appended)
        model._next_position -= model._round_appended
        model._round_appended = 0
