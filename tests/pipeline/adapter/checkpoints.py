"""Tiny random-weight checkpoints of all five architectures, laid out as the released ones are.

Text models have hidden size 64 and 2 layers wherever mlx-vlm allows it. Fixed in mlx-vlm 0.7.10: PaddleOCR-VL's
projector gives 1024 columns; DeepSeek-OCR-2 and Unlimited-OCR build SAM ViT-B (and a 24-layer Qwen2 encoder) whatever
config.json says, so `shrink_towers` replaces those two configurations while the tests run.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

ARCHITECTURES = ("dots_ocr", "glm_ocr", "paddleocr_vl", "unlimited_ocr", "deepseekocr_2")
RING_WINDOW = 32  # of Unlimited-OCR; released: 128. Small, so that tests get into the ring

_DEEPSEEK_SPECIAL = (
    "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>", "<image>", "<|ref|>", "<|/ref|>", "<|det|>",
    "<|/det|>", "<|grounding|>", "<|User|>", "<|Assistant|>",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """Special tokens in id order and the roles of some."""

    special: tuple[str, ...]
    eos: str
    pad: str
    bos: str | None = None
    template: str | None = None


def _template(image: str, before: str, after: str, start: str = "", end: str = "") -> str:
    """A chat template: `before` user content `after`, the image as `image`, `end` where an answer is asked for."""
    return (
        start + "{%- for m in messages -%}{%- if m.role == 'user' -%}{{ '" + before + "' }}"
        "{%- if m.content is string -%}{{ m.content }}{%- else -%}{%- for c in m.content -%}"
        "{%- if c.type == 'image' -%}{{ '"
        + image
        + "' }}{%- elif c.type == 'text' -%}{{ c.text or c.content }}"
        "{%- endif -%}{%- endfor -%}{%- endif -%}{{ '" + after + "' }}{%- endif -%}{%- endfor -%}"
        "{%- if add_generation_prompt -%}{{ '" + end + "' }}{%- endif -%}"
    )


VOCABULARIES = {
    "dots_ocr": Vocabulary(
        ("<|endoftext|>", "<|img|>", "<|imgpad|>", "<|endofimg|>", "<|video_pad|>", "<|user|>", "<|endofuser|>",
         "<|assistant|>", "<|endofassistant|>", "<|system|>", "<|endofsystem|>", "[PAD]"),
        "<|endofassistant|>", "[PAD]",
        template=_template("<|img|><|imgpad|><|endofimg|>", "<|user|>", "<|endofuser|>", end="<|assistant|>"),
    ),
    "glm_ocr": Vocabulary(
        ("<|endoftext|>", "[MASK]", "[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>",
         "<|begin_of_image|>", "<|end_of_image|>", "<|begin_of_video|>", "<|end_of_video|>", "<|image|>",
         "<|video|>"),
        "<|endoftext|>", "<|endoftext|>",
        template=_template("<|begin_of_image|><|image|><|end_of_image|>", "<|user|>", "", "[gMASK]<sop>",
                           "<|assistant|>"),
    ),
    "paddleocr_vl": Vocabulary(
        ("<unk>", "<s>", "</s>", "<|begin_of_sentence|>", "<|end_of_sentence|>", "<|IMAGE_PLACEHOLDER|>",
         "<|video_pad|>", "<|IMAGE_START|>", "<|IMAGE_END|>"),
        "</s>", "<unk>", "<s>",
        template=_template("<|IMAGE_START|><|IMAGE_PLACEHOLDER|><|IMAGE_END|>", "User: ", " ",
        "<|begin_of_sentence|>",
                           "Assistant: "),
    ),
    "unlimited_ocr": Vocabulary(_DEEPSEEK_SPECIAL, _DEEPSEEK_SPECIAL[1], _DEEPSEEK_SPECIAL[2], _DEEPSEEK_SPECIAL[0]),
    "deepseekocr_2": Vocabulary(_DEEPSEEK_SPECIAL, _DEEPSEEK_SPECIAL[1], _DEEPSEEK_SPECIAL[2], _DEEPSEEK_SPECIAL[0]),
}  # fmt: skip

# The processor of dots.ocr compares ids with the released ones, so the special tokens must sit where they do there.
_DOTS_IDS = {
    "<|endoftext|>": 151643, "<|video_pad|>": 151656, "<|img|>": 151664, "<|imgpad|>": 151665, "<|endofimg|>": 151666,
    "<|user|>": 151670, "<|endofuser|>": 151671, "<|assistant|>": 151672, "<|endofassistant|>": 151673,
    "<|system|>": 151674, "<|endofsystem|>": 151675, "[PAD]": 151676,
}  # fmt: skip

_SEED_TEXT = [
    "The harbour lights went out one by one. Order 7731, paid 1,208.40 on 3 March.",
    "## Part two\n\n| year | sum |\n|---|---|\n| 1901 | 12 |\n\n<table><tr><td>a</td></tr></table> $x_1 + y^2$",
    "Free OCR. document parsing. OCR: Text Recognition: Convert the document to markdown.",
] * 4


@contextmanager
def shrink_towers() -> Iterator[None]:
    """Small SAM and Qwen2 encoders in the two DeepSeek models: while checkpoints are made and while they are used."""
    import mlx_vlm.models.deepseekocr.deepseekocr as first
    import mlx_vlm.models.deepseekocr_2.deepseekocr_2 as second
    import mlx_vlm.models.deepseekocr_2.vision as second_vision
    from mlx_vlm.models.deepseekocr_2.config import Qwen2EncoderConfig

    sam = first.SAMViTConfig

    def small_sam() -> Any:
        return dataclasses.replace(sam(), width=32, layers=2, heads=2, global_attn_indexes=(1,))

    def small_encoder(**arguments: Any) -> Any:
        return Qwen2EncoderConfig(**{**arguments, "layers": 1, "intermediate_size": 64})

    with (
        mock.patch.object(first, "SAMViTConfig", small_sam),
        mock.patch.object(second, "SAMViTConfig", small_sam),
        mock.patch.object(second_vision, "Qwen2EncoderConfig", small_encoder),
    ):
        yield


def make(architecture: str, root: Path, seed: int = 0, *, mtp: bool = False) -> Path:
    """Write the checkpoint into `root`/`architecture` and return that folder. Call inside `shrink_towers()`.

    `mtp`: GLM-OCR with the layer that predicts tokens ahead, after 16 layers as released: mlx-vlm drops "layers.16".
    """
    import mlx.core as mx

    folder = root / architecture
    folder.mkdir(parents=True)
    vocabulary = _write_tokenizer(architecture, folder)
    config, extra = _config(architecture, vocabulary)
    if mtp:
        config["text_config"]["num_hidden_layers"] = 16
    for name, body in {"config.json": config, **extra}.items():
        (folder / name).write_text(json.dumps(body, ensure_ascii=False), encoding="utf-8")
    weights: dict[str, Any] = {}
    for name, array in _random_weights(architecture, config, vocabulary, seed):
        weights.update(_as_released(architecture, name, array))
    if mtp:
        weights.update(list(_mtp_layer(weights, seed)))
    mx.save_safetensors(
        str(folder / "model.safetensors"),
        {k: mx.array(v) for k, v in weights.items()},
        metadata={"format": "pt"},
    )
    return folder


# --- tokenizer -------------------------------------------------------------------------------------------


def _write_tokenizer(architecture: str, folder: Path) -> dict[str, int]:
    """A byte-level BPE of 500 entries; its vocabulary."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    words = VOCABULARIES[architecture]
    tokenizer = Tokenizer(models.BPE(unk_token=None))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        _SEED_TEXT,
        trainers.BpeTrainer(
            vocab_size=500, special_tokens=list(words.special), show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        ),
    )  # fmt: skip
    path = folder / "tokenizer.json"
    tokenizer.save(str(path))
    if architecture == "dots_ocr":
        _move_special_tokens(path)
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": words.eos, "pad_token": words.pad,
        "clean_up_tokenization_spaces": False, "model_max_length": 131072,
        "additional_special_tokens": list(words.special),
    }  # fmt: skip
    if words.bos:
        settings["bos_token"] = words.bos
    if architecture == "paddleocr_vl":
        settings["unk_token"] = "<unk>"
    if architecture == "dots_ocr":
        settings["image_token"], settings["video_token"] = "<|imgpad|>", "<|video_pad|>"
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, ensure_ascii=False), encoding="utf-8")
    if words.template:
        (folder / "chat_template.jinja").write_text(words.template, encoding="utf-8")
    return dict(Tokenizer.from_file(str(path)).get_vocab())


def _move_special_tokens(path: Path) -> None:
    body = json.loads(path.read_text(encoding="utf-8"))
    vocabulary = body["model"]["vocab"]
    vocabulary.update(_DOTS_IDS)
    used = set(vocabulary.values())  # mlx-vlm's streaming detokenizer wants contiguous ids: fill the gap
    vocabulary.update({f"<|unused_{n}|>": n for n in range(max(used)) if n not in used})
    for token in body["added_tokens"]:
        token["id"] = _DOTS_IDS[token["content"]]
    body["added_tokens"].sort(key=lambda token: token["id"])
    path.write_text(json.dumps(body, ensure_ascii=False), encoding="utf-8")


# --- configuration ---------------------------------------------------------------------------------------

_CLIP = {
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}


def _config(architecture: str, vocabulary: dict[str, int]) -> tuple[dict[str, Any], dict[str, Any]]:
    """config.json, and the other JSON files by name."""
    size = max(vocabulary.values()) + 1
    makers = {"dots_ocr": _dots, "glm_ocr": _glm, "paddleocr_vl": _paddle}
    if architecture in makers:
        return makers[architecture](vocabulary, size)
    return _deepseek(architecture, vocabulary, size)


def _dots(ids: dict[str, int], size: int) -> tuple[dict[str, Any], dict[str, Any]]:
    config = {
        "architectures": ["DotsOCRForCausalLM"], "model_type": "dots_ocr", "vocab_size": size, "hidden_size": 64,
        "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "max_position_embeddings": 131072, "rms_norm_eps": 1e-6, "rope_theta": 1e6, "rope_scaling": None,
        "attention_bias": True, "tie_word_embeddings": False, "use_cache": True, "torch_dtype": "float32",
        "image_token_id": ids["<|imgpad|>"], "video_token_id": ids["<|video_pad|>"],
        "eos_token_id": ids["<|endofassistant|>"], "pad_token_id": ids["[PAD]"],
        "vision_config": {
            "model_type": "dots_vit", "embed_dim": 64, "hidden_size": 64, "intermediate_size": 96,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_channels": 3, "patch_size": 14, "post_norm": True,
            "rms_norm_eps": 1e-5, "spatial_merge_size": 2, "temporal_patch_size": 1, "use_bias": False,
            "is_causal": False,
        },
    }  # fmt: skip
    processor = {
        "image_processor_type": "Qwen2VLImageProcessor", "processor_class": "DotsVLProcessor", "min_pixels": 3136,
        "max_pixels": 11289600, "patch_size": 14, "temporal_patch_size": 1, "merge_size": 2, **_CLIP,
    }  # fmt: skip
    return config, {"preprocessor_config.json": processor}


def _glm(ids: dict[str, int], size: int) -> tuple[dict[str, Any], dict[str, Any]]:
    stop = [ids["<|endoftext|>"], ids["<|user|>"]]
    config = {
        "architectures": ["GlmOcrForConditionalGeneration"], "model_type": "glm_ocr",
        "image_token_id": ids["<|image|>"], "video_token_id": ids["<|video|>"],
        "image_start_token_id": ids["<|begin_of_image|>"], "image_end_token_id": ids["<|end_of_image|>"],
        "video_start_token_id": ids["<|begin_of_video|>"], "video_end_token_id": ids["<|end_of_video|>"],
        "tie_word_embeddings": False,
        "text_config": {  # an unknown key here is a TypeError in mlx-vlm
            "model_type": "glm_ocr_text", "vocab_size": size, "hidden_size": 64, "eos_token_id": stop,
            "intermediate_size": 128, "max_position_embeddings": 131072, "num_attention_heads": 4,
            "num_hidden_layers": 2, "num_key_value_heads": 2, "head_dim": 16, "rms_norm_eps": 1e-5,
            "attention_bias": False, "attention_dropout": 0.0, "hidden_act": "silu", "pad_token_id": stop[0],
            "use_cache": True, "tie_word_embeddings": False, "num_nextn_predict_layers": 1, "dtype": "float32",
            "rope_parameters": {
                "rope_type": "default", "mrope_section": [2, 3, 3], "partial_rotary_factor": 1.0, "rope_theta": 10000,
            },
        },
        "vision_config": {
            "model_type": "glm_ocr_vision", "depth": 2, "hidden_size": 32, "intermediate_size": 64, "num_heads": 4,
            "patch_size": 14, "image_size": 336, "in_channels": 3, "rms_norm_eps": 1e-5, "attention_bias": True,
            "hidden_act": "silu", "out_hidden_size": 64, "spatial_merge_size": 2, "temporal_patch_size": 2,
        },
    }  # fmt: skip
    processor = {
        "image_processor_type": "Glm46VImageProcessor", "processor_class": "Glm46VProcessor", "do_rescale": True,
        "do_normalize": True, "patch_size": 14, "temporal_patch_size": 2, "merge_size": 2,
        "size": {"shortest_edge": 12544, "longest_edge": 9633792}, **_CLIP,
    }  # fmt: skip
    generation = {"do_sample": False, "eos_token_id": stop, "pad_token_id": stop[0]}
    return config, {"preprocessor_config.json": processor, "generation_config.json": generation}


def _paddle(ids: dict[str, int], size: int) -> tuple[dict[str, Any], dict[str, Any]]:
    config = {
        "architectures": ["PaddleOCRVLForConditionalGeneration"], "model_type": "paddleocr_vl", "vocab_size": size,
        "hidden_size": 1024, "num_hidden_layers": 2, "intermediate_size": 128, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 32, "rms_norm_eps": 1e-5, "max_position_embeddings": 131072,
        "rope_theta": 500000, "rope_scaling": {"rope_type": "default", "type": "default", "mrope_section": [4, 6, 6]},
        "use_bias": False, "hidden_act": "silu", "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
        "tie_word_embeddings": False, "use_cache": True, "image_token_id": ids["<|IMAGE_PLACEHOLDER|>"],
        "video_token_id": ids["<|video_pad|>"], "vision_start_token_id": ids["<|IMAGE_START|>"],
        "vision_end_token_id": ids["<|IMAGE_END|>"],
        "vision_config": {
            "model_type": "paddleocr_vl", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_channels": 3, "image_size": 384, "patch_size": 14,
            "hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6, "spatial_merge_size": 2,
        },
    }  # fmt: skip
    processor = {
        "image_processor_type": "SiglipImageProcessor", "processor_class": "PaddleOCRVLProcessor",
        "do_convert_rgb": True, "do_normalize": True, "do_rescale": True, "do_resize": True, "min_pixels": 147384,
        "max_pixels": 2822400, "patch_size": 14, "temporal_patch_size": 1, "merge_size": 2, "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3,
    }  # fmt: skip
    return config, {"preprocessor_config.json": processor}


def _deepseek(architecture: str, ids: dict[str, int], size: int) -> tuple[dict[str, Any], dict[str, Any]]:
    language: dict[str, Any] = {
        "model_type": "deepseek_v2", "vocab_size": size, "hidden_size": 64, "intermediate_size": 96,
        "moe_intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4,
        "n_shared_experts": 2, "n_routed_experts": 8, "num_experts_per_tok": 2, "kv_lora_rank": None,
        "q_lora_rank": None, "qk_nope_head_dim": 0, "qk_rope_head_dim": 0, "v_head_dim": 0, "use_mla": False,
        "topk_method": "greedy", "n_group": 1, "topk_group": 1, "moe_layer_freq": 1, "first_k_dense_replace": 1,
        "max_position_embeddings": 8192, "rms_norm_eps": 1e-6, "rope_theta": 10000, "attention_bias": False,
        "scoring_func": "softmax", "bos_token_id": 0, "eos_token_id": 1,
    }  # fmt: skip
    second = architecture == "deepseekocr_2"
    vision: dict[str, Any]
    if second:
        vision = {
            "model_type": "vision", "image_size": 1024, "mlp_ratio": 3.7362,
            "width": {"qwen2-0-5b": {"dim": 896}, "sam_vit_b": {"layers": 12, "width": 768, "heads": 12}},
        }  # fmt: skip
    else:
        language["sliding_window_size"] = RING_WINDOW
        vision = {
            "model_type": "vision", "layers": 1, "width": 1024, "hidden_size": 1024, "intermediate_size": 256,
            "num_attention_heads": 16, "image_size": 224, "patch_size": 14, "num_channels": 3,
        }  # fmt: skip
    config = {
        "architectures": ["DeepseekOCR2ForCausalLM" if second else "UnlimitedOCRForCausalLM"],
        # The released DeepSeek-OCR-2 says deepseek_vl_v2, which mlx-vlm maps elsewhere: conversions rewrite it.
        "model_type": "deepseekocr_2" if second else "unlimited-ocr",
        "image_token_index": ids["<image>"], "vocab_size": size, "bos_token_id": 0, "eos_token_id": 1, "pad_id": 2,
        "tile_tag": "2D", "global_view_pos": "head", "candidate_resolutions": [[1024, 1024]],
        "language_config": language, "vision_config": vision,
        "projector_config": {"projector_type": "linear", "input_dim": 896 if second else 2048, "n_embed": 64},
    }  # fmt: skip
    processor = {
        "processor_class": "DeepseekOCR2Processor" if second else "UnlimitedOCRProcessor",
        "candidate_resolutions": [[1024, 1024]], "patch_size": 16, "downsample_ratio": 4, "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3, "normalize": True, "image_token": "<image>", "pad_token": "<｜▁pad▁｜>",
        "add_special_token": False, "sft_format": "deepseek", "mask_prompt": False, "ignore_id": -100,
    }  # fmt: skip
    return config, {"processor_config.json": processor}


# --- weights ---------------------------------------------------------------------------------------------


def _random_weights(
    architecture: str, config: dict[str, Any], vocabulary: dict[str, int], seed: int
) -> Iterator[tuple[str, np.ndarray]]:
    """(module path, float32 array) of every parameter, scaled so that logits spread and no layer dies."""
    rng = np.random.default_rng(seed)
    unused = [n for token, n in vocabulary.items() if token.startswith("<|unused_")]
    for name, shape in _parameter_shapes(config):
        if name.endswith("ln_q.weight") or ("norm" in name and name.endswith(".weight")):
            array = np.ones(shape)
        elif name.endswith("bias"):
            array = rng.normal(0, 0.02, shape)
        elif "embed_tokens" in name:
            array = rng.normal(0, 1.0, shape)
        elif "lm_head" in name:
            array = rng.normal(0, 0.5, shape)
            array[unused] = 0  # ids without a token must not win
        else:
            fan_in = int(np.prod(shape[1:])) if len(shape) > 1 else shape[0]
            array = rng.normal(0, 1.4 / np.sqrt(max(fan_in, 1)), shape)
        yield name, array.astype(np.float32)


def _parameter_shapes(config: dict[str, Any]) -> list[tuple[str, tuple[int, ...]]]:
    from mlx.utils import tree_flatten
    from mlx_vlm.utils import get_model_and_args, update_module_configs

    body = json.loads(json.dumps(config))
    module, _ = get_model_and_args(json.loads(json.dumps(config)))
    body.setdefault("text_config", {})
    body.setdefault("vision_config", {})
    body.setdefault("audio_config", {})
    parsed = module.ModelConfig.from_dict(body)
    parsed = update_module_configs(
        parsed, module, body, ["text", "vision", "perceiver", "projector", "audio"]
    )
    return [(name, tuple(array.shape)) for name, array in tree_flatten(module.Model(parsed).parameters())]


def _mtp_layer(weights: dict[str, Any], seed: int) -> Iterator[tuple[str, np.ndarray]]:
    """The tensors of layer 16: one like the others, and what joins embedding and hidden state before it."""
    rng, own, last = (
        np.random.default_rng(seed),
        "model.language_model.layers.16.",
        "model.language_model.layers.15.",
    )
    for name, array in weights.items():
        if name.startswith(last):
            drawn = array if "norm" in name else rng.permutation(array.ravel()).reshape(array.shape)
            yield own + name[len(last) :], drawn
    embedded = weights["model.language_model.embed_tokens.weight"]
    width = embedded.shape[1]
    for name in ("enorm", "hnorm", "shared_head.norm"):
        yield f"{own}{name}.weight", np.ones(width, np.float32)
    yield f"{own}eh_proj.weight", rng.normal(0, 1.0 / np.sqrt(width), (width, 2 * width)).astype(np.float32)
    yield f"{own}embed_tokens.weight", embedded
    yield f"{own}shared_head.head.weight", weights["lm_head.weight"]


_CONVOLUTIONS = (
    "patchifier.proj.weight", "patch_embed.proj.weight", "downsample.weight", "patch_embedding.weight",
    "neck.0.weight",
    "neck.2.weight", "net_2.weight", "net_3.weight",
)  # fmt: skip


def _as_released(architecture: str, name: str, array: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """(name, array) as the released checkpoint has them: the inverse of the model's `sanitize`."""
    if name.endswith(_CONVOLUTIONS) and array.ndim >= 4:  # MLX (O, *kernel, I) → PyTorch (O, I, *kernel)
        array = np.ascontiguousarray(np.moveaxis(array, -1, 1))
    if ".switch_mlp." in name:  # released: one tensor per expert
        for expert in range(array.shape[0]):
            yield _released_name(architecture, name.replace("switch_mlp", f"experts.{expert}")), array[expert]
    elif architecture == "paddleocr_vl" and ".self_attn.qkv." in name:  # released: q, k and v apart
        for part, piece in zip("qkv", np.split(array, 3, axis=0), strict=True):
            yield _released_name(architecture, name.replace(".qkv.", f".{part}_proj.")), piece
    else:
        yield _released_name(architecture, name), array


_RENAMES: dict[str, tuple[tuple[str, str], ...]] = {  # first prefix that fits wins
    "dots_ocr": (("language_model.model.lm_head.", "lm_head."), ("language_model.model.", "model.")),
    "glm_ocr": (
        ("vision_tower.", "model.visual."), ("language_model.lm_head.", "lm_head."),
        ("language_model.model.", "model.language_model."),
    ),
    "paddleocr_vl": (
        ("language_model.", ""), ("visual.projector.", "mlp_AR."),
        ("visual.layers.", "visual.vision_model.encoder.layers."), ("visual.", "visual.vision_model."),
    ),
    "deepseek": (
        ("language_model.lm_head.", "lm_head."), ("language_model.model.", "model."),
        ("vision_model.qwen2_encoder.query", "model.qwen2_model.query"),
        ("vision_model.qwen2_encoder.", "model.qwen2_model.model.model."), ("", "model."),
    ),
}  # fmt: skip


def _released_name(architecture: str, name: str) -> str:
    for prefix, released in _RENAMES.get(architecture, _RENAMES["deepseek"]):
        if name.startswith(prefix):
            renamed = released + name[len(prefix) :]
            if renamed.startswith("model.qwen2_model.query"):
                renamed += ".weight"
            return renamed.replace("view_separator", "view_seperator")  # sic
    return name
