"""What a model folder is, without loading it: architecture, trust, weights, hash. Standard library only."""

from __future__ import annotations

import hashlib
import json
import logging
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from storage import staging
from storage.errors import ModelError, UntrustedModelError

log = logging.getLogger(__name__)

# config.json's model_type → our name of the architecture (mlx-vlm's package name).
ARCHITECTURES = {
    "dots_ocr": "dots_ocr",
    "glm_ocr": "glm_ocr",
    "deepseekocr_2": "deepseekocr_2",
    "unlimited-ocr": "unlimited_ocr",
    "unlimited_ocr": "unlimited_ocr",
    "paddleocr_vl": "paddleocr_vl",
}
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json")
_WITH_AUTO_MAP = (
    "config.json", "tokenizer_config.json", "preprocessor_config.json", "processor_config.json",
    "video_preprocessor_config.json",
)  # fmt: skip
_MAX_HEADER = 100 << 20  # bytes; the limit of the safetensors library itself
CODE_FILES_REMEDY = "if you trust whoever made it, name the folder in `trusted_models` of the settings"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model folder on disk, checked but not loaded."""

    folder: Path
    architecture: str
    config: dict[str, Any]
    weights: tuple[Path, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes of all weight files."""
        return sum(path.stat().st_size for path in self.weights)


def inspect(folder: Path, *, trusted: Iterable[Path] = ()) -> Checkpoint:
    """Check that `folder` holds a checkpoint we can read and may load.

    Raises: `ModelError` naming what is missing, cut short or unknown; `UntrustedModelError` where the folder brings
    Python code that loading could run and is not among `trusted`.
    """
    config = _read_config(folder)
    is_trusted = any(folder.resolve() == other.resolve() for other in trusted)
    if not is_trusted:
        _refuse_code(folder, config)
    architecture = _architecture(folder, config)
    if not any((folder / name).is_file() for name in _TOKENIZERS):
        raise ModelError(f"no tokenizer ({' or '.join(_TOKENIZERS)})", file=folder)
    weights = _weights(folder)
    for path in weights:
        _check_whole(path)
    return Checkpoint(folder, architecture, config, weights)


def inspect_drafter(folder: Path, *, trusted: Iterable[Path] = ()) -> dict[str, Any]:
    """The configuration of a drafter's folder: as `inspect`, but of any architecture and without a tokenizer.

    Raises: as `inspect`.
    """
    config = _read_config(folder)
    if not any(folder.resolve() == other.resolve() for other in trusted):
        _refuse_code(folder, config)
    for path in _weights(folder):
        _check_whole(path)
    return config


def _architecture(folder: Path, config: dict[str, Any]) -> str:
    kind = str(config.get("model_type", "")).lower()
    if kind in ARCHITECTURES:
        return ARCHITECTURES[kind]
    known = ", ".join(sorted(set(ARCHITECTURES)))
    remedy = "choose a checkpoint of one of these"
    if (
        kind == "deepseek_vl_v2"
    ):  # what the authors' release of DeepSeek-OCR-2 calls itself; mlx-vlm means another model
        remedy = "of DeepSeek-OCR-2 take a conversion for MLX: `ocrd models pull deepseek-ocr-2`"
    raise ModelError(
        f"unknown architecture {kind or '(no model_type)'!r}; known are {known}", file=folder, remedy=remedy
    )


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelError("no config.json: this is no model folder", file=folder) from None
    except (OSError, ValueError) as error:
        raise ModelError(f"config.json cannot be read ({error})", file=folder) from error
    if not isinstance(config, dict):
        raise ModelError("config.json is no JSON object", file=folder)
    return config


def _refuse_code(folder: Path, config: dict[str, Any]) -> None:
    """mlx-vlm executes `model_file` from the folder without any trust flag; transformers `auto_map`, if allowed to.

    We never allow it to, and an `auto_map` whose file is not there cannot run: so it is in most conversions for MLX,
    pulled without their Python files. It is refused where the code lies in the folder, or on the hub (`repo--file`).
    """
    found = ["model_file"] if config.get("model_file") else []
    for name, body in ((name, _read_json(folder / name)) for name in _WITH_AUTO_MAP):
        for target in _auto_map_targets(body.get("auto_map")):
            file = target.split("--")[-1].split(".")[0] + ".py"
            if "--" in target or (folder / file).exists():
                found.append(f"auto_map in {name}: {target}")
    if found:
        raise UntrustedModelError(
            f"the folder asks to run its own Python code ({', '.join(found)})", file=folder,
            remedy=CODE_FILES_REMEDY,
        )  # fmt: skip


def _auto_map_targets(auto_map: object) -> Iterator[str]:
    """`file.Class` of every entry; an entry may be a list with nulls (slow and fast tokenizer)."""
    for value in auto_map.values() if isinstance(auto_map, dict) else ():
        yield from (str(target) for target in (value if isinstance(value, list) else [value]) if target)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return body if isinstance(body, dict) else {}


def _weights(folder: Path) -> tuple[Path, ...]:
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        try:
            names = sorted({str(n) for n in json.loads(index.read_text("utf-8"))["weight_map"].values()})
        except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
            raise ModelError(f"{index.name} cannot be read ({error})", file=folder) from error
        if outside := [name for name in names if Path(name).name != name]:
            raise ModelError(f"{index.name} names files outside the folder: {outside[0]}", file=folder)
        missing = [name for name in names if not (folder / name).is_file()]
        if missing:
            raise ModelError(f"weight files are missing: {', '.join(missing)}", file=folder)
        return tuple(folder / name for name in names)
    files = tuple(sorted(p for p in folder.glob("*.safetensors") if "consolidated" not in p.name))
    if not files:
        raise ModelError("no *.safetensors weights", file=folder)
    return files


def _check_whole(path: Path) -> None:
    """A safetensors file's header says how long the file is (huggingface/safetensors, format description).

    Raises: `ModelError` for a file cut short (an interrupted copy, a pointer instead of the content) or damaged.
    """
    size = path.stat().st_size
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > min(size - 8, _MAX_HEADER):
                raise ValueError("no safetensors header")
            header = json.loads(file.read(length))
        ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
        expected = 8 + length + max(ends, default=0)
    except OSError as error:
        raise ModelError(f"{path.name} cannot be read ({error.strerror})", file=path.parent) from error
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, struct.error) as error:
        raise ModelError(f"{path.name} is damaged or no safetensors file", file=path.parent) from error
    if size < expected:
        raise ModelError(f"{path.name} is cut short: {size} of {expected} bytes", file=path.parent)


def weights_hash(checkpoint: Checkpoint, memo: Path | None = None) -> str:
    """SHA-256 over the weight files' contents; `memo`: as of `files_hash`."""
    return files_hash(checkpoint.weights, memo)


def files_hash(files: Iterable[Path], memo: Path | None = None) -> str:
    """SHA-256 over the names and contents of files.

    `memo`: a JSON file that remembers hashes by path, size and mtime, since reading gigabytes at each start costs.
    """
    kept = _read_memo(memo)
    known = dict(kept)
    digest = hashlib.sha256()
    for path in files:
        stat = path.stat()
        key = f"{path.resolve()}|{stat.st_size}|{stat.st_mtime_ns}"
        if key not in known:
            with path.open("rb") as file:
                known[key] = hashlib.file_digest(file, "sha256").hexdigest()
        digest.update(f"{path.name}:{known[key]}\n".encode())
    if memo is not None and known != kept:
        _write_memo(memo, known)
    return digest.hexdigest()


def _read_memo(memo: Path | None) -> dict[str, str]:
    if memo is None:
        return {}
    try:
        known = json.loads(memo.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}  # a lost memo costs a second hashing, nothing else
    return known if isinstance(known, dict) else {}


def _write_memo(memo: Path, known: dict[str, str]) -> None:
    try:
        staging.write_file(memo, json.dumps(known, indent=0, sort_keys=True).encode())
    except OSError as error:  # as in `_read_memo`
        log.warning("the hashes of weights are not kept: %s", error.strerror)
