"""Text to ids in the place where it stands: a tokenizer joins what follows to what is already written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

# Ids encoded again with the draft: more where these begin inside a character, fewer where they do not reproduce.
_CONTEXT = (4, 6, 8, 2, 1)
_UNFINISHED = "\ufffd"


class Codec:
    """A Hugging Face tokenizer (of `transformers` or `tokenizers`) reduced to what drafting needs."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = getattr(tokenizer, "backend_tokenizer", tokenizer)

    def encode(self, text: str) -> tuple[list[int], list[int]]:
        """Ids of `text`, and for each where in `text` it ends."""
        encoded = self._tokenizer.encode(text, add_special_tokens=False)
        if isinstance(encoded, list):  # a tokenizer written in Python: it does not tell where an id ends
            share = len(text) / max(1, len(encoded))
            return encoded, [round(share * (i + 1)) for i in range(len(encoded))]
        return encoded.ids, [end for _, end in encoded.offsets]

    def decode(self, ids: Sequence[int], **_: object) -> str:
        """Text of `ids`, special tokens included; signature of what `pipeline.text_stream` calls."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=False))

    def following(self, written: Sequence[int], text: str) -> tuple[list[int], list[int]]:
        """Ids of `text` after the ids `written`, and where each ends in `text`.

        Nothing where the tokenizer would have written the last ids otherwise: then the model, whose ids these are,
        will not write `text` next.
        """
        if not written:
            return self.encode(text)
        whole = False
        for size in _CONTEXT:
            tail = list(written[-size:])
            if len(tail) < size and size != _CONTEXT[0]:
                continue
            if size > _CONTEXT[0] and whole:
                continue
            before = self.decode(tail).rstrip(_UNFINISHED)
            if before.startswith(_UNFINISHED):
                continue  # begins inside a character
            whole = True
            ids, ends = self.encode(before + text)
            if ids[: len(tail)] == tail:
                shift = len(before)
                return ids[len(tail) :], [end - shift for end in ends[len(tail) :]]
        return [], []


class CharacterCodec(Codec):
    """For models that write one id a character, whatever their tokenizer would join (the tiny model)."""

    def encode(self, text: str) -> tuple[list[int], list[int]]:
        """The id of each character up to the first that has none of its own, and where it ends."""
        ids: list[int] = []
        for char in text:
            own = super().encode(char)[0]
            if len(own) != 1:
                break
            ids += own
        return ids, list(range(1, len(ids) + 1))

    def following(self, written: Sequence[int], text: str) -> tuple[list[int], list[int]]:
        """As `encode`: what stands before joins nothing."""
        return self.encode(text)
