"""Token ids to text as they come, without decoding the whole page again at each pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_UNFINISHED = "\ufffd"  # what a decoder gives for the first bytes of a character
_KEEP = 24  # ids decoded again with each addition: joints between tokens depend on few before them


def text_of(tokenizer: Any, ids: Sequence[int]) -> str:
    """The text of `ids`. Special tokens are kept: DeepSeek's and Unlimited-OCR's boxes are made of them."""
    return str(tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))


class TextStream:
    """Feeds ids to a Hugging Face tokenizer's `decode` and hands out the text that is certain."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._start = 0  # first id of the window that is decoded
        self._given = 0  # characters of the window's text handed out

    def push(self, ids: Sequence[int]) -> str:
        """The text that `ids` add; an unfinished character waits for its other bytes."""
        self._ids += ids
        window = self._decode(self._ids[self._start :])
        if window.endswith(_UNFINISHED):
            return ""
        new = window[self._given :]
        self._given = len(window)
        if len(self._ids) - self._start > 2 * _KEEP:
            self._start = len(self._ids) - _KEEP
            self._given = len(self._decode(self._ids[self._start :]))
        return new

    def flush(self) -> str:
        """What is left at the end, replacement characters included."""
        window = self._decode(self._ids[self._start :])
        new, self._given = window[self._given :], len(window)
        return new

    def _decode(self, ids: Sequence[int]) -> str:
        return text_of(self._tokenizer, ids)
