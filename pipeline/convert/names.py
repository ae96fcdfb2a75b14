"""Names and shapes of dots.ocr's tensors: one table, of the checkpoint's own names and stable ones.

Three spellings of one tensor: the checkpoint's own (`vision_tower.blocks.0.norm1.weight`), which conversions for MLX
spell partly otherwise (`language_model.model.layers…` for `model.layers…`), and for the vision tower a stable one
(`vision.blocks.0.norm1.weight`) that what is built on exported weights can rely on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from itertools import groupby
from pathlib import Path
from typing import Any

from storage.errors import ModelError


class Part(StrEnum):
    """What a tensor belongs to."""

    VISION = "vision tower"
    PROJECTOR = "projector"
    LANGUAGE = "language model"


@dataclass(frozen=True, slots=True)
class Dimensions:
    """The sizes in config.json that shapes follow from."""

    vision_layers: int
    embed: int  # width of the vision tower
    vision_heads: int
    vision_inner: int
    patch: int
    channels: int
    merge: int
    projected: int  # width the projector gives
    vision_eps: float
    vision_bias: bool
    post_norm: bool
    layers: int
    hidden: int  # width of the language model
    heads: int
    kv_heads: int
    inner: int
    vocabulary: int
    eps: float
    rope_theta: float
    attention_bias: bool
    tied: bool

    @property
    def sizes(self) -> dict[str, int]:
        """What the letters of the table's shapes stand for."""
        head = self.hidden // self.heads
        return {
            "embed": self.embed, "qkv": 3 * self.embed, "vinner": self.vision_inner, "patch": self.patch,
            "channels": self.channels, "merged": self.embed * self.merge**2, "projected": self.projected,
            "hidden": self.hidden, "kv": self.kv_heads * head, "inner": self.inner, "vocab": self.vocabulary,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """A kind of tensor: `{n}` is the block's number, `shape` in the letters of `Dimensions.sizes`.

    `only_if`: the flag of `Dimensions` that must hold for the tensor to exist (`!flag`: must not).
    """

    source: str
    stable: str | None
    shape: str
    part: Part
    only_if: str | None = None


def _vision(source: str, stable: str, shape: str, only_if: str | None = None) -> Row:
    return Row(f"vision_tower.{source}", f"vision.{stable}", shape, Part.VISION, only_if)


def _projector(source: str, stable: str, shape: str) -> Row:
    return Row(f"vision_tower.merger.{source}", f"projector.{stable}", shape, Part.PROJECTOR)


def _layer(source: str, shape: str, only_if: str | None = None) -> Row:
    return Row(f"model.layers.{{n}}.{source}", None, shape, Part.LANGUAGE, only_if)


TABLE: tuple[Row, ...] = (
    _vision("patch_embed.patchifier.proj.weight", "patch_embed.proj.weight", "embed channels patch patch"),
    _vision("patch_embed.patchifier.proj.bias", "patch_embed.proj.bias", "embed"),
    _vision("patch_embed.patchifier.norm.weight", "patch_embed.norm.weight", "embed"),
    _vision("blocks.{n}.norm1.weight", "blocks.{n}.norm1.weight", "embed"),
    _vision("blocks.{n}.attn.qkv.weight", "blocks.{n}.attn.qkv.weight", "qkv embed"),
    _vision("blocks.{n}.attn.qkv.bias", "blocks.{n}.attn.qkv.bias", "qkv", "vision_bias"),
    _vision("blocks.{n}.attn.proj.weight", "blocks.{n}.attn.proj.weight", "embed embed"),
    _vision("blocks.{n}.attn.proj.bias", "blocks.{n}.attn.proj.bias", "embed", "vision_bias"),
    _vision("blocks.{n}.norm2.weight", "blocks.{n}.norm2.weight", "embed"),
    _vision("blocks.{n}.mlp.fc1.weight", "blocks.{n}.mlp.fc1.weight", "vinner embed"),
    _vision("blocks.{n}.mlp.fc1.bias", "blocks.{n}.mlp.fc1.bias", "vinner", "vision_bias"),
    _vision("blocks.{n}.mlp.fc2.weight", "blocks.{n}.mlp.fc2.weight", "embed vinner"),
    _vision("blocks.{n}.mlp.fc2.bias", "blocks.{n}.mlp.fc2.bias", "embed", "vision_bias"),
    _vision("blocks.{n}.mlp.fc3.weight", "blocks.{n}.mlp.fc3.weight", "vinner embed"),
    _vision("blocks.{n}.mlp.fc3.bias", "blocks.{n}.mlp.fc3.bias", "vinner", "vision_bias"),
    _vision("post_trunk_norm.weight", "post_trunk_norm.weight", "embed", "post_norm"),
    # The merger: LayerNorm, then two linear layers over 2x2 patches; the last one is what is called the projector.
    _projector("ln_q.weight", "norm.weight", "embed"),
    _projector("ln_q.bias", "norm.bias", "embed"),
    _projector("mlp.0.weight", "fc1.weight", "merged merged"),
    _projector("mlp.0.bias", "fc1.bias", "merged"),
    _projector("mlp.2.weight", "weight", "projected merged"),
    _projector("mlp.2.bias", "bias", "projected"),
    Row("model.embed_tokens.weight", None, "vocab hidden", Part.LANGUAGE),
    _layer("input_layernorm.weight", "hidden"),
    _layer("self_attn.q_proj.weight", "hidden hidden"),
    _layer("self_attn.q_proj.bias", "hidden", "attention_bias"),
    _layer("self_attn.k_proj.weight", "kv hidden"),
    _layer("self_attn.k_proj.bias", "kv", "attention_bias"),
    _layer("self_attn.v_proj.weight", "kv hidden"),
    _layer("self_attn.v_proj.bias", "kv", "attention_bias"),
    _layer("self_attn.o_proj.weight", "hidden hidden"),
    _layer("post_attention_layernorm.weight", "hidden"),
    _layer("mlp.gate_proj.weight", "inner hidden"),
    _layer("mlp.up_proj.weight", "inner hidden"),
    _layer("mlp.down_proj.weight", "hidden inner"),
    Row("model.norm.weight", None, "hidden", Part.LANGUAGE),
    Row("lm_head.weight", None, "vocab hidden", Part.LANGUAGE, "!tied"),
)  # fmt: skip
PATCH_WEIGHT = TABLE[0].source  # the one tensor that MLX lays out otherwise: channels last

# Spellings of conversions and wrappers → the checkpoint's own; first match wins (mlx-vlm 0.7.10, dots_ocr.sanitize).
_PREFIXES = (
    ("language_model.model.lm_head.", "lm_head."),
    ("language_model.lm_head.", "lm_head."),
    ("language_model.model.", "model."),
    ("model.vision_tower.", "vision_tower."),
)
# Buffers that follow from config.json and that some releases store all the same.
BALLAST = re.compile(r"(\.rotary_emb\.inv_freq|\.rotary_pos_emb\.inv_freq|\.position_ids)\Z")


@dataclass(frozen=True, slots=True)
class Expected:
    """A tensor that the configuration asks for, in the checkpoint's own spelling."""

    source: str
    stable: str | None
    shape: tuple[int, ...]
    part: Part


def canonical(name: str) -> str:
    """A tensor's name in the checkpoint's own spelling, whatever it is spelt like."""
    for prefix, own in _PREFIXES:
        if name.startswith(prefix):
            return own + name[len(prefix) :]
    return name


def expected(sizes: Dimensions) -> Iterator[Expected]:
    """Every tensor that a checkpoint of these dimensions has, block by block."""
    rows = [row for row in TABLE if _exists(row, sizes)]
    for is_repeated, section in groupby(rows, key=lambda row: "{n}" in row.source):
        section_rows = list(section)
        blocks = sizes.layers if section_rows[0].part is Part.LANGUAGE else sizes.vision_layers
        for n in range(blocks) if is_repeated else (0,):
            yield from (_expected(row, str(n), sizes.sizes) for row in section_rows)


def _exists(row: Row, sizes: Dimensions) -> bool:
    flag = row.only_if or ""
    return not flag or bool(getattr(sizes, flag.lstrip("!"))) is not flag.startswith("!")


def _expected(row: Row, number: str, letters: Mapping[str, int]) -> Expected:
    shape = tuple(letters[letter] for letter in row.shape.split())
    stable = None if row.stable is None else row.stable.replace("{n}", number)
    return Expected(row.source.replace("{n}", number), stable, shape, row.part)


# --- config.json -----------------------------------------------------------------------------------------

_VISION_KEYS = {
    "vision_layers": "num_hidden_layers", "embed": "embed_dim", "vision_heads": "num_attention_heads",
    "vision_inner": "intermediate_size", "patch": "patch_size", "channels": "num_channels",
    "merge": "spatial_merge_size", "projected": "hidden_size", "vision_eps": "rms_norm_eps",
}  # fmt: skip
_TEXT_KEYS = {
    "layers": "num_hidden_layers", "hidden": "hidden_size", "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads", "inner": "intermediate_size", "vocabulary": "vocab_size",
    "eps": "rms_norm_eps", "rope_theta": "rope_theta",
}  # fmt: skip
_REAL = frozenset({"vision_eps", "eps", "rope_theta"})


def dimensions(config: Mapping[str, Any], folder: Path) -> Dimensions:
    """What config.json says of sizes. Raises: `ModelError` naming what it lacks or what does not fit together."""
    vision = config.get("vision_config") or {}
    text = config.get("text_config") or config
    values: dict[str, Any] = {
        "vision_bias": vision.get("use_bias", False), "post_norm": vision.get("post_norm", True),
        "attention_bias": text.get("attention_bias", True), "tied": text.get("tie_word_embeddings", False),
    }  # fmt: skip
    for keys, section, where in ((_VISION_KEYS, vision, "vision_config."), (_TEXT_KEYS, text, "")):
        for field, key in keys.items():
            values[field] = _positive(section.get(key), field in _REAL, f"{where}{key}", folder)
    found = Dimensions(**{field.name: values[field.name] for field in fields(Dimensions)})
    _check_fit(found, text, folder)
    return found


def _positive(value: Any, real: bool, key: str, folder: Path) -> int | float:
    kinds = (int, float) if real else int
    if isinstance(value, bool) or not isinstance(value, kinds) or value <= 0:
        said = "lacks" if value is None else f"has {value!r} for"
        raise ModelError(f"config.json {said} {key}", file=folder)
    return float(value) if real else int(value)


def _check_fit(found: Dimensions, text: Mapping[str, Any], folder: Path) -> None:
    wrong = None
    if found.embed % (4 * found.vision_heads):
        wrong = f"{found.vision_heads} heads do not divide the vision tower's width {found.embed} into fours"
    elif found.hidden % (2 * found.heads) or found.heads % found.kv_heads:
        wrong = f"{found.heads} heads, {found.kv_heads} of keys, do not divide the width {found.hidden}"
    elif text.get("rope_scaling"):
        wrong = "rope_scaling, which dots.ocr does not have"
    elif found.projected != found.hidden:
        wrong = f"the projector gives {found.projected} columns, the language model takes {found.hidden}"
    if wrong:
        raise ModelError(f"config.json does not fit together: {wrong}", file=folder)
