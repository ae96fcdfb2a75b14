"""A prompt and an image as the model wants them, and the rows of vision features that go in between."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pipeline.adapter.loading import LoadedModel, is_allocation
from storage.errors import EngineError, ImageRefusedError, OutOfMemoryError, first_line

if TYPE_CHECKING:
    from PIL import Image

# Arguments of the language model that `prepare_inputs` returns beside ids, pixels and mask.
_NOT_EXTRA = frozenset({"input_ids", "pixel_values", "attention_mask", "labels"})


@dataclass(frozen=True, slots=True)
class PageInputs:
    """One page's prompt ids with image placeholders, and its pixels as the processor made them.

    `ids` (1, N) int32; `positions`: where in 0…N-1 the image tokens stand; `pixels`: mlx array(s), model-specific.
    """

    ids: Any
    positions: tuple[int, ...]
    pixels: Any
    mask: Any
    extra: Mapping[str, Any]

    @property
    def length(self) -> int:
        """Tokens of the prompt, image tokens included."""
        return int(self.ids.shape[1])

    @property
    def grid(self) -> Any:
        """(1, 3) patches in time, height and width; None for models without."""
        return self.extra.get("image_grid_thw")


def prepare(
    loaded: LoadedModel, prompt: str, image: Image.Image, options: Mapping[str, Any] | None = None
) -> PageInputs:
    """Template, tokenise and preprocess. `options`: the processor's own arguments (`cropping`, `max_patches`…).

    Raises: `ImageRefusedError` when the processor refuses the image (an aspect ratio beyond its bounds, say).
    """
    from mlx_vlm.prompt_utils import apply_chat_template
    from mlx_vlm.utils import prepare_inputs, should_add_special_tokens

    config = loaded.model.config
    text = apply_chat_template(loaded.processor, config, prompt, num_images=1)
    try:
        data = prepare_inputs(
            loaded.processor,
            images=[image],
            prompts=text,
            image_token_index=getattr(config, "image_token_index", None),
            add_special_tokens=should_add_special_tokens(config.model_type, loaded.processor),
            **(options or {}),
        )
    except (ValueError, TypeError, IndexError, ZeroDivisionError) as error:
        raise ImageRefusedError(
            f"the model's processor refuses the image of {image.width}x{image.height} pixels ({error})"
        ) from error
    values = dict(data)
    extra = {key: value for key, value in values.items() if key not in _NOT_EXTRA and value is not None}
    positions = _image_positions(loaded, values)
    if not positions:
        raise EngineError("the prompt has no place for the image: the chat template dropped it")
    return PageInputs(
        values["input_ids"], positions, values.get("pixel_values"), values.get("attention_mask"), extra
    )


def _image_positions(loaded: LoadedModel, values: Mapping[str, Any]) -> tuple[int, ...]:
    """Where the image tokens stand: a mask (DeepSeek-OCR-2, Unlimited-OCR), else the token id (dots, GLM, Paddle)."""
    mask = values.get("images_seq_mask")
    flags = mask[0] if mask is not None else values["input_ids"][0] == loaded.model.config.image_token_id
    return tuple(i for i, flag in enumerate(flags.tolist()) if flag)


def grid_of(inputs: PageInputs) -> tuple[int, int]:
    """Rows and columns of patches, for models that have a patch grid."""
    _, rows, columns = (int(n) for n in inputs.grid.reshape(-1).tolist())
    return rows, columns


def input_size(loaded: LoadedModel, inputs: PageInputs) -> tuple[int, int] | None:
    """Width and height in pixels of the image as the processor resized it; None for models without a patch grid."""
    if inputs.grid is None:
        return None
    rows, columns = grid_of(inputs)
    patch = int(getattr(loaded.model.config.vision_config, "patch_size", 14))
    return columns * patch, rows * patch


def encode(loaded: LoadedModel, inputs: PageInputs) -> Any:
    """Run the vision tower: the embedded image tokens, (image tokens, D) in the model's dtype.

    One rule for every model: the rows of the merged embeddings at the image tokens. They are what the tower and the
    projector made of the pixels, whatever the model calls them, so that splicing them back is exact.
    """
    import mlx.core as mx

    try:
        merged = loaded.model.get_input_embeddings(
            inputs.ids, inputs.pixels, mask=inputs.mask, **inputs.extra
        ).inputs_embeds
        features = merged[0, mx.array(inputs.positions)]
        mx.eval(features)
    except RuntimeError as error:
        raise device_error(error, "the vision encoder") from error
    return features


def as_float32(array: Any) -> NDArray[np.float32]:
    """An mlx array's values for what is not MLX, as float32 (numpy knows no bfloat16)."""
    import mlx.core as mx

    return np.array(array.astype(mx.float32))


def as_features(loaded: LoadedModel, values: NDArray[np.float32]) -> Any:
    """Features that were not made by MLX, as an mlx array of the type that the model's own tower gives."""
    import mlx.core as mx

    own = loaded.model.vision_tower.patch_embed.patchifier.proj.weight.dtype
    return mx.array(values).astype(own)


def embed(loaded: LoadedModel, inputs: PageInputs, features: Any) -> Any:
    """The prompt's embeddings (1, N, D) with `features` spliced in at the image tokens; the tower does not run.

    Raises: `EngineError` naming both numbers where features and placeholders do not match.
    """
    import mlx.core as mx

    if features.ndim != 2 or features.shape[0] != len(inputs.positions):
        raise EngineError(
            f"{features.shape[0]} vision features for {len(inputs.positions)} image placeholders in the prompt"
        )
    embedded = loaded.model.get_input_embeddings(inputs.ids, None).inputs_embeds
    if embedded.shape[-1] != features.shape[-1]:
        raise EngineError(f"vision features are {features.shape[-1]} wide, the model {embedded.shape[-1]}")
    embedded = embedded.astype(features.dtype)
    embedded[0, mx.array(inputs.positions)] = features
    mx.eval(embedded)
    return embedded


def device_error(error: RuntimeError, what: str) -> EngineError:
    """MLX reports everything as RuntimeError; the text tells a failed allocation from the rest."""
    text = first_line(error)
    if is_allocation(text):
        return OutOfMemoryError(f"{what} ran out of memory ({text})")
    return EngineError(f"{what} failed ({text})")
