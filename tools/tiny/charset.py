"""The characters the tiny model writes, and the token ids they and the special tokens have.

A character is one token. `class` below is its number in the model's head (0…96), `id` its number in tokenizer.json.
"""

from __future__ import annotations

CHARACTERS = (*map(chr, range(32, 127)), "\n")  # printable ASCII and the line end
CLASS_OF = {character: index for index, character in enumerate(CHARACTERS)}
END = len(CHARACTERS)  # class of "the text ends here"
CLASSES = END + 1

SPECIAL = (
    "<|endoftext|>", "<|user|>", "<|endofuser|>", "<|assistant|>", "<|endofassistant|>", "<|img|>", "<|endofimg|>",
    "<|system|>", "<|endofsystem|>",
)  # fmt: skip
SPECIAL_ID = {token: index for index, token in enumerate(SPECIAL)}
IMAGE_TOKEN = "<|imgpad|>"
# mlx-vlm 0.7.10's `DotsVLProcessor` has this id in its code, whatever the tokenizer says, and transformers compares
# the count of it with the count of the token's text: it cannot be a smaller one.
IMAGE_ID = 151_665
VOCABULARY = IMAGE_ID + 1  # rows of the stored tables; an id beyond them would be read out of bounds
DENSE = 1024  # ids in use, from 0; between them and `IMAGE_ID` there is a hole
STOP_IDS = (SPECIAL_ID["<|endofassistant|>"], SPECIAL_ID["<|endoftext|>"])


def byte_alphabet() -> dict[int, str]:
    """byte → the character that stands for it in a byte-level BPE vocabulary.

    GPT-2's mapping (Radford et al. 2019, `encoder.py`): printable Latin-1 as itself, the rest moved to U+0100 on.
    """
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    moved = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {b: chr(256 + n) for n, b in enumerate(moved)}


def _class_ids() -> tuple[int, ...]:
    """id of each class: the alphabet follows the special tokens in order of code points."""
    alphabet = byte_alphabet()
    order = {symbol: index for index, symbol in enumerate(sorted(alphabet.values()))}
    ids = [len(SPECIAL) + order[alphabet[ord(character)]] for character in CHARACTERS]
    return (*ids, SPECIAL_ID["<|endofassistant|>"])


CLASS_IDS = _class_ids()


def to_ascii(text: str) -> str:
    """`text` with typographic quotes and dashes as ASCII; anything else outside of it becomes a space."""
    plain = text.translate(_TYPOGRAPHIC)
    return "".join(character if character in CLASS_OF else " " for character in plain)


_TYPOGRAPHIC = str.maketrans({"‘": "'", "’": "'", "“": '"', "”": '"', "–": "-", "—": "--", "…": "..."})
