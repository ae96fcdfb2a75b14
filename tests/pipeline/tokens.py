"""Small tokenizers of our own for tests: one id a letter, and byte pairs learned from a text."""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from pipeline.reference.codec import Codec


def letters(alphabet: str) -> Codec:
    """Character i of `alphabet` is id i."""
    made = Tokenizer(models.BPE({char: i for i, char in enumerate(alphabet)}, []))
    made.decoder = decoders.Fuse()
    return Codec(made)


def byte_pairs(texts: Iterable[str], size: int = 700) -> tuple[Codec, int]:
    """Byte-level pairs trained on `texts`, and the id of the end of a text."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=size, special_tokens=["<end>"], initial_alphabet=alphabet, show_progress=False
        ),
    )
    return Codec(made), made.token_to_id("<end>")
