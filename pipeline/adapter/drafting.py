"""A neural drafter at work on one page: given hidden states and what was written, it drafts what follows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import mlx.core as mx

from pipeline.adapter.session import MlxSession

# What modules of mlx-vlm that draft one id after another keep in themselves, and GLM-OCR's prompt.
_CHAIN_STATE = ("_cache", "_seed_token", "_seed_hidden", "_next_position", "_round_appended", "_prompt")


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


class ContextPage:
    """dflash and dspark: one pass over a block of masks, attending to the hidden states of all that was written.

    Only those states are kept in its cache, never drafts, so that there is nothing to take back.
    """

    def __init__(self, model: Any, width: int, target: Any, session: MlxSession) -> None:
        self._model, self._width, self._session = model, width, session
        self._cache = model.make_cache()
        self._pending: list[Any] = []
        self._last = 0

    def begin(self, hidden: Any, first: int) -> None:
        """See `DrafterPage.begin`."""
        self._session.prompt_context()  # not needed: lets go of the embeddings
        self._pending, self._last = [hidden], first

    def observe(self, ids: Sequence[int], hidden: Any) -> None:
        """See `DrafterPage.observe`."""
        self._pending.append(hidden[:, : len(ids)])
        self._last = int(ids[-1])

    def propose(self, limit: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """See `DrafterPage.propose`."""
        count = min(limit, self._width)
        hidden = mx.concatenate(self._pending, axis=1) if self._pending else None
        if hidden is None:
            return (), ()
        self._pending = []
        sampler = _Sampler()
        drafted = self._model.draft_block(self._last, hidden, self._cache, count + 1, sampler, mx.int32)
        ids = tuple(int(i) for i in drafted.reshape(-1).tolist())[:count]
        return ids, sampler.survival(len(ids))


class ChainPage:
    """eagle3 and mtp: one id after another, each from the hidden state that the one before left.

    The module's own cache runs ahead while drafting. Whatever became of the draft, it is taken back, and the tokens
    written go in with the model's true hidden states, all at once when the next draft is wanted. The module keeps its
    state in itself: pages swap it.
    """

    def __init__(self, model: Any, width: int, target: Any, session: MlxSession) -> None:
        self._model, self._width, self._session = model, width, session
        self._sampler = _Sampler()
        self._prompt: tuple[Any, int] | None = None  # until the first draft is wanted
        self._ids: list[int] = []  # written since the latest draft, with the states of the tokens before them
        self._hidden: list[Any] = []
        model.reset(target)
        self._state = _state_of(model)

    def begin(self, hidden: Any, first: int) -> None:
        """See `DrafterPage.begin`."""
        self._prompt = hidden, first

    def observe(self, ids: Sequence[int], hidden: Any) -> None:
        """See `DrafterPage.observe`."""
        self._ids += ids
        self._hidden.append(hidden[:, : len(ids)])

    def propose(self, limit: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """See `DrafterPage.propose`."""
        count = min(limit, self._width)
        with self._own() as model:
            self._catch_up(model)
            if model._seed_token is None:
                return (), ()
            drafted = model.draft_block(0, None, model._cache, count + 1, self._sampler, mx.int32)
            ids = tuple(int(i) for i in drafted.reshape(-1).tolist())
        return ids, self._sampler.survival(len(ids))

    def _catch_up(self, model: Any) -> None:
        """Let the module see the prompt and what was written."""
        if self._prompt is not None:
            hidden, first = self._prompt
            self._prompt, self._sampler = None, _Sampler()
            prompt = model._prompt = self._session.prompt_context()
            model.prefill_from_target_hidden(prompt.ids, hidden, first, self._sampler, mx.int32)
        if self._ids:
            self._sampler = _Sampler()
            _take_back(model)
            tokens, hidden = mx.array([self._ids], dtype=mx.int32), mx.concatenate(self._hidden, axis=1)
            last = len(self._ids) - 1
            model.accept_verified_tokens(
                hidden, tokens[:, :-1], last, [self._ids[-1]], self._sampler, mx.int32
            )
            self._ids, self._hidden = [], []

    @contextmanager
    def _own(self) -> Iterator[Any]:
        """The module with this page's state."""
        model = self._model
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
