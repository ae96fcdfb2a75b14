"""tokenizer.json: a byte-level BPE with a fixed alphabet and fixed special ids; the merges only shorten prompts.

The model writes single characters. Ids: 0…8 special tokens, 9…264 the byte alphabet, then merges up to 1023, a hole,
and `<|imgpad|>` = 151665.
"""

from __future__ import annotations

import json
from typing import Any

from pipeline import prompts
from tools.tiny.charset import (
    CHARACTERS,
    CLASS_IDS,
    DENSE,
    IMAGE_ID,
    IMAGE_TOKEN,
    SPECIAL,
    SPECIAL_ID,
    byte_alphabet,
)

# What the model is asked in training, besides nothing at all and random text.
PROMPTS = (
    prompts.DOTS_TEXT.text,
    "OCR",
    "Read the text.",
    "Convert this page to Markdown.",
    "What does it say?",
)
_PIECE = 2_000  # characters of corpus the trainer counts at once
_PROMPT_WEIGHT = 300  # times each prompt is counted, so that its words become tokens


def make(text: str) -> str:
    """The body of tokenizer.json with merges counted on `text`; the same text gives the same bytes."""
    body = _trained(text)
    merges = body["model"]["merges"]
    alphabet = sorted(byte_alphabet().values())
    vocabulary = dict(SPECIAL_ID)
    for token in [*alphabet, *("".join(_pair(merge)) for merge in merges)]:
        vocabulary.setdefault(token, len(vocabulary))
    if len(vocabulary) > DENSE:
        raise ValueError(f"{len(vocabulary)} tokens, room for {DENSE}")
    vocabulary[IMAGE_TOKEN] = IMAGE_ID
    body["model"]["vocab"] = vocabulary
    body["added_tokens"] = [_added(token, vocabulary[token]) for token in (*SPECIAL, IMAGE_TOKEN)]
    # In a sequence of one, so that mlx-vlm takes its plain streaming detokenizer: the one it has for byte-level
    # decoders makes a list as long as there are tokens and indexes it by id, which the hole breaks (0.7.10).
    body["decoder"] = {"type": "Sequence", "decoders": [body["decoder"]]}
    return json.dumps(body, ensure_ascii=False)


def _trained(text: str) -> dict[str, Any]:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(byte_alphabet().values())
    trainer = trainers.BpeTrainer(
        vocab_size=DENSE - len(SPECIAL), initial_alphabet=alphabet, special_tokens=[], show_progress=False
    )
    pieces = [text[start : start + _PIECE] for start in range(0, len(text), _PIECE)]
    pieces += [prompt for prompt in PROMPTS for _ in range(_PROMPT_WEIGHT)]
    tokenizer.train_from_iterator(pieces, trainer)
    return json.loads(tokenizer.to_str())


def _pair(merge: Any) -> tuple[str, str]:
    """Merges are pairs, or "a b" as older releases write them."""
    left, right = merge.split(" ") if isinstance(merge, str) else merge
    return left, right


def _added(token: str, id_: int) -> dict[str, Any]:
    off = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": id_, "content": token, **off, "special": True}


class PromptEncoder:
    """Prompt text → ids, by the tokenizer that is shipped with the model."""

    def __init__(self, body: str) -> None:
        from tokenizers import Tokenizer

        self._tokenizer = Tokenizer.from_str(body)
        wrong = [
            character
            for character, id_ in zip(CHARACTERS, CLASS_IDS, strict=False)
            if self._tokenizer.decode([id_], skip_special_tokens=False) != character
        ]
        if wrong or self._tokenizer.token_to_id(IMAGE_TOKEN) != IMAGE_ID:
            raise ValueError(f"this tokenizer has other ids than the model's head: {wrong[:5]}")

    def ids(self, prompt: str) -> list[int]:
        """Ids of the prompt's text alone."""
        return list(self._tokenizer.encode(prompt, add_special_tokens=False).ids)
