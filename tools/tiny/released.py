"""The JSON files beside the weights, as dots.ocr's release has them (config, processor, tokenizer, chat template).

Their keys are those of `rednote-hilab/dots.ocr` as mlx-vlm 0.7.10 and transformers read them; the values are ours.
"""

from __future__ import annotations

from typing import Any

from tools.tiny.charset import IMAGE_ID, IMAGE_TOKEN, SPECIAL, SPECIAL_ID, STOP_IDS, VOCABULARY
from tools.tiny.packing import BITS
from tools.tiny.recipe import PATCH_PX, Shape

LONGEST = 8_192  # positions
_PAD = SPECIAL_ID["<|endoftext|>"]
_LEAST_PIXELS, _MOST_PIXELS = 784, 1_204_224

# User turns: images where they stand, text as it is; assistant turns end with a stop token.
CHAT_TEMPLATE = (
    "{%- for m in messages -%}"
    "{%- if m.role == 'user' -%}{{ '<|user|>' }}"
    "{%- if m.content is string -%}{{ m.content }}{%- else -%}{%- for c in m.content -%}"
    "{%- if c.type == 'image' or c.type == 'image_url' -%}{{ '<|img|><|imgpad|><|endofimg|>' }}"
    "{%- elif c.type == 'text' -%}{{ c.text }}{%- endif -%}{%- endfor -%}{%- endif -%}"
    "{{ '<|endofuser|>' }}"
    "{%- elif m.role == 'assistant' -%}{{ '<|assistant|>' }}"
    "{%- if m.content is string -%}{{ m.content }}{%- else -%}{%- for c in m.content -%}"
    "{%- if c.type == 'text' -%}{{ c.text }}{%- endif -%}{%- endfor -%}{%- endif -%}"
    "{{ '<|endofassistant|>' }}{%- endif -%}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|assistant|>' }}{%- endif -%}"
)


def files_for(shape: Shape, dtype: str) -> dict[str, dict[str, Any]]:
    """File name → body, for weights of that shape and dtype."""
    return {
        "config.json": _config(shape, dtype),
        "generation_config.json": {
            "eos_token_id": list(STOP_IDS), "pad_token_id": _PAD, "do_sample": False, "max_new_tokens": 1500,
        },
        "preprocessor_config.json": _preprocessor(),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endofassistant|>",
            "pad_token": "<|endoftext|>", "additional_special_tokens": [*SPECIAL, IMAGE_TOKEN],
            "clean_up_tokenization_spaces": False, "model_max_length": LONGEST, "chat_template": CHAT_TEMPLATE,
        },
        "chat_template.json": {"chat_template": CHAT_TEMPLATE},
        "ocrd.json": {"preset": "tiny"},  # how ocrd reads with it
    }  # fmt: skip


def _config(shape: Shape, dtype: str) -> dict[str, Any]:
    quantisation = {"group_size": shape.dim, "bits": BITS, "mode": "affine"}
    return {
        "architectures": ["DotsOCRForCausalLM"],
        "model_type": "dots_ocr",
        "hidden_size": shape.dim,
        "intermediate_size": shape.inner,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.heads,
        "max_position_embeddings": LONGEST,
        "rms_norm_eps": shape.epsilon,
        "rope_theta": shape.rope_theta,
        "rope_scaling": None,
        "attention_bias": True,
        "attention_dropout": 0.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "use_cache": True,
        "vocab_size": VOCABULARY,
        "image_token_id": IMAGE_ID,
        "video_token_id": 151_656,
        "eos_token_id": list(STOP_IDS),
        "pad_token_id": _PAD,
        "torch_dtype": dtype,
        "quantization": quantisation,
        "quantization_config": quantisation,
        "vision_config": _vision(shape),
    }


def _vision(shape: Shape) -> dict[str, Any]:
    return {
        "model_type": "dots_vit",
        "embed_dim": shape.vision_dim,
        "hidden_size": shape.dim,
        "intermediate_size": shape.vision_inner,
        "num_hidden_layers": shape.vision_layers,
        "num_attention_heads": shape.vision_heads,
        "num_channels": 3,
        "patch_size": PATCH_PX,
        "post_norm": True,
        "rms_norm_eps": shape.vision_epsilon,
        "spatial_merge_size": 2,
        "temporal_patch_size": 1,
        "use_bias": False,
        "is_causal": False,
    }


def _preprocessor() -> dict[str, Any]:
    """Grey 0…255 to -1…1, sizes rounded to whole image tokens."""
    return {
        "image_processor_type": "Qwen2VLImageProcessor",
        "min_pixels": _LEAST_PIXELS,
        "max_pixels": _MOST_PIXELS,
        "size": {"shortest_edge": _LEAST_PIXELS, "longest_edge": _MOST_PIXELS},
        "patch_size": PATCH_PX,
        "temporal_patch_size": 1,
        "merge_size": 2,
        "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3,
        "do_convert_rgb": True,
        "do_normalize": True,
        "do_rescale": True,
        "do_resize": True,
        "resample": 3,
        "rescale_factor": 1 / 255,
        "processor_class": "DotsVLProcessor",
    }
