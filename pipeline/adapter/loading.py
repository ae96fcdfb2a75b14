"""Load a checkpoint with mlx-vlm: on the GPU as it is, on a CPU in float32 and dequantised where memory allows."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from pipeline import blas, checkpoint
from pipeline.checkpoint import Checkpoint
from storage.errors import ModelError, OutOfMemoryError, first_line

log = logging.getLogger(__name__)

# Part of the encoder fingerprint: raise it when features of old versions must not be used.
ADAPTER_VERSION = 1
# Where the image goes is found by its token's id; the other two get a mask from their processors.
_FINDS_IMAGE_BY_ID = frozenset({"dots_ocr", "glm_ocr", "paddleocr_vl"})
CACHE_LIMIT_BYTES = 1 << 30  # MLX keeps freed buffers for reuse without bound unless told otherwise


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A checkpoint in memory, with what goes with it. `model` and `processor` are mlx-vlm's objects."""

    checkpoint: Checkpoint
    model: Any
    processor: Any
    device: str  # "gpu" or "cpu"
    dtype: str  # of the language model's activations, "float32" or the checkpoint's own

    @property
    def architecture(self) -> str:
        """Our name of the architecture."""
        return self.checkpoint.architecture

    @property
    def tokenizer(self) -> Any:
        """The Hugging Face tokenizer."""
        return getattr(self.processor, "tokenizer", self.processor)

    @property
    def stop_ids(self) -> frozenset[int]:
        """The ids that end a text, from config.json and generation_config.json."""
        value = getattr(self.model.config, "eos_token_id", None)
        if value is None:
            value = self.tokenizer.eos_token_id
        ids = value if isinstance(value, list | tuple) else [value]
        return frozenset(int(i) for i in ids if i is not None)


def load(folder: Path, *, trusted: Iterable[Path] = (), memory_bytes: int | None = None) -> LoadedModel:
    """Load the checkpoint in `folder`; nothing is fetched, no code of the folder runs unless it is `trusted`.

    `memory_bytes`: what dequantising may use, by default most of what is free. Raises: `ModelError`,
    `OutOfMemoryError`.
    """
    found = checkpoint.inspect(folder, trusted=trusted)
    blas.preload()
    import mlx.core as mx

    mx.set_cache_limit(CACHE_LIMIT_BYTES)
    model, processor = _load(found)
    device = "cpu" if mx.default_device() == mx.Device(mx.cpu) else "gpu"
    dtype = "as stored"
    if device == "cpu":
        # MLX's bf16 and fp16 never reach the BLAS, and its quantised matmul costs linearly in rows, which would eat up
        # all that verifying blocks gains (3 M parameter model: 16 rows cost 15 single ones, dequantised 1.85).
        dtype = to_float32(model, memory_bytes)
    _evaluate(model, found)
    loaded = LoadedModel(found, model, processor, device, dtype)
    _check_vocabulary(loaded)
    return loaded


def _load(found: Checkpoint) -> tuple[Any, Any]:
    import mlx_vlm

    said = io.StringIO()  # some processors print as they are made; standard output is for pages
    try:
        with contextlib.redirect_stdout(said), warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            model, processor = mlx_vlm.load(str(found.folder), trust_remote_code=False)
    except MemoryError as error:
        raise OutOfMemoryError("the model does not fit into memory", file=found.folder) from error
    except Exception as error:  # of mlx-vlm, transformers and tokenizers, which raise anything
        raise _failure(error, "mlx-vlm cannot load it", found) from error
    log.debug("mlx-vlm says: %s", said.getvalue())
    # mlx-vlm swallows what fails in its own processor and takes whatever transformers makes of the folder instead.
    if not type(processor).__module__.startswith("mlx_vlm.") or not hasattr(processor, "tokenizer"):
        raise ModelError("its tokenizer or image processor cannot be made", file=found.folder)
    return model, processor


def _failure(error: Exception, what: str, found: Checkpoint) -> ModelError | OutOfMemoryError:
    text = first_line(error).rstrip(".")
    kind = OutOfMemoryError if isinstance(error, RuntimeError) and is_allocation(text) else ModelError
    return kind(f"{what}: {text}", file=found.folder)


def is_allocation(text: str) -> bool:
    """Whether the text of one of MLX's errors, which all are of one kind, tells of a failed allocation."""
    return "alloc" in text.lower() or "memory" in text.lower()


def _evaluate(model: Any, found: Checkpoint) -> None:
    import mlx.core as mx

    try:
        mx.eval(model.parameters())
    except RuntimeError as error:
        raise _failure(error, "its weights cannot be read", found) from error


def to_float32(model: Any, memory_bytes: int | None) -> str:
    """Dequantise what is quantised, cast the rest; leave quantised layers alone where memory is short."""
    import mlx.core as mx
    from mlx.utils import tree_map

    budget = memory_bytes if memory_bytes is not None else int(psutil.virtual_memory().available * 0.8)
    layers = list(_quantised(model))
    needed = sum(layer.weight.size * (32 // layer.bits) * 4 for _, _, layer in layers)
    fits = needed <= budget
    if fits:
        for parent, name, layer in layers:
            _put(parent, name, _dense(layer))
    else:
        log.warning(
            "dequantising needs %.1f GB and %.1f GB are free: quantised layers stay, which makes blocks slow",
            needed / 1e9, budget / 1e9,
        )  # fmt: skip

    def cast(array: Any) -> Any:
        return array.astype(mx.float32) if mx.issubdtype(array.dtype, mx.floating) else array

    model.update(tree_map(cast, model.parameters()))
    return "float32" if fits or not layers else "float32, layers quantised"


def _quantised(model: Any) -> Iterable[tuple[Any, Any, Any]]:
    """(parent, key, layer) of every affine-quantised layer."""
    for _, module in list(model.named_modules()):
        for key, child in list(module.items()):
            children = enumerate(child) if isinstance(child, list) else [(None, child)]
            for index, layer in children:
                if getattr(layer, "scales", None) is not None and hasattr(layer, "bits"):
                    yield module, key if index is None else (key, index), layer


def _put(parent: Any, key: Any, layer: Any) -> None:
    if isinstance(key, tuple):
        parent[key[0]][key[1]] = layer
    else:
        setattr(parent, key, layer)


def _dense(layer: Any) -> Any:
    """The float32 layer equal to a quantised one; its kind follows from the quantised one's name."""
    import mlx.core as mx
    import mlx.nn as nn
    from mlx_vlm.models.switch_layers import SwitchLinear

    mode = getattr(layer, "mode", "affine")
    weight = mx.dequantize(
        layer.weight, layer.scales, layer.get("biases"), layer.group_size, layer.bits, mode=mode
    ).astype(mx.float32)
    makers: dict[str, Callable[[], Any]] = {
        "QuantizedEmbedding": lambda: nn.Embedding(1, 1),
        "QuantizedLinear": lambda: nn.Linear(1, 1, bias="bias" in layer),
        "QuantizedSwitchLinear": lambda: SwitchLinear(1, 1, 1, bias="bias" in layer),
    }
    kind = type(layer).__name__
    if kind not in makers:
        raise ModelError(f"quantised layer of unknown kind {kind}")
    dense = makers[kind]()
    dense.weight = weight
    if "bias" in layer:
        dense.bias = layer.bias.astype(mx.float32)
    return dense


def _check_vocabulary(loaded: LoadedModel) -> None:
    """An id beyond the embedding table is an unchecked read out of bounds in MLX; a text needs an id to end with."""
    rows = embedding_rows(loaded.model)
    ids = set(loaded.tokenizer.get_vocab().values())
    largest = max(ids, default=-1)
    disagree = None
    if rows is not None and largest >= rows:
        disagree = f"the tokenizer has id {largest}, the embedding {rows} rows"
    elif rows is not None and all(stop >= rows for stop in loaded.stop_ids):
        disagree = f"of the stop ids {sorted(loaded.stop_ids)} none is among the embedding's {rows} rows"
    elif loaded.architecture in _FINDS_IMAGE_BY_ID and loaded.model.config.image_token_id not in ids:
        disagree = f"the tokenizer lacks the image token {loaded.model.config.image_token_id}"
    if disagree:
        raise ModelError(f"tokenizer and weights disagree: {disagree}", file=loaded.checkpoint.folder)


def embedding_rows(model: Any) -> int | None:
    """Rows of the embedding table: ids the model takes; None where it has none to be found."""
    inner = getattr(model.language_model, "model", None)
    table = getattr(inner, "embed_tokens", None)
    weight = getattr(table, "weight", None)
    return None if weight is None else int(weight.shape[0])
