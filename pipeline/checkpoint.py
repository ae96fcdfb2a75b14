"""What a model folder is, without loading it: architecture, trust, weights, hash. Standard library only."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from storage.errors import ModelError, UntrustedModelError

# config.json's model_type → our name of the architecture (mlx-vlm's package name).
ARCHITECTURES = {
    "dots_ocr": "dots_ocr",
    "glm_ocr": "glm_ocr",
    "deepseekocr_2": "deepseekocr_2",
    "unlimited-ocr": "unlimited_ocr",
    "unlimited_ocr": "unlimited_ocr",
    "paddleocr_vl": "paddleocr_vl",
}
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

    Raises: `ModelError` naming what is missing or unknown; `UntrustedModelError` where loading would run Python
    from the
    folder (`model_file` or `auto_map` in config.json) and the folder is not among `trusted`.
    """
    config = _read_config(folder)
    is_trusted = any(folder.resolve() == other.resolve() for other in trusted)
    if not is_trusted:
        _refuse_code(folder, config)
    kind = str(config.get("model_type", "")).lower()
    if kind not in ARCHITECTURES:
        known = ", ".join(sorted(set(ARCHITECTURES)))
        raise ModelError(
            f"unknown architecture {kind or '(no model_type)'!r}; known are {known}", file=folder,
            remedy="choose a checkpoint of one of these",
        )  # fmt: skip
    return Checkpoint(folder, ARCHITECTURES[kind], config, _weights(folder))


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
    """mlx-vlm executes `model_file` from the folder without any trust flag; transformers executes `auto_map`."""
    found = [key for key in ("model_file", "auto_map") if config.get(key)]
    for name in ("tokenizer_config.json", "preprocessor_config.json", "processor_config.json"):
        try:
            extra = json.loads((folder / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(extra, dict) and extra.get("auto_map"):
            found.append(f"auto_map in {name}")
    if found:
        raise UntrustedModelError(
            f"the folder asks to run its own Python code ({', '.join(found)})", file=folder,
            remedy=CODE_FILES_REMEDY,
        )  # fmt: skip


def _weights(folder: Path) -> tuple[Path, ...]:
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        try:
            names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        except (OSError, ValueError, KeyError, AttributeError) as error:
            raise ModelError(f"{index.name} cannot be read ({error})", file=folder) from error
        missing = [name for name in names if not (folder / name).is_file()]
        if missing:
            raise ModelError(f"weight files are missing: {', '.join(missing)}", file=folder)
        return tuple(folder / name for name in names)
    files = tuple(sorted(p for p in folder.glob("*.safetensors") if "consolidated" not in p.name))
    if not files:
        raise ModelError("no *.safetensors weights", file=folder)
    return files


def weights_hash(checkpoint: Checkpoint, memo: Path | None = None) -> str:
    """SHA-256 over the weight files' contents.

    `memo`: a JSON file that remembers hashes by name, size and mtime, since reading gigabytes at each start is not
    free.
    """
    known = _read_memo(memo)
    digest = hashlib.sha256()
    for path in checkpoint.weights:
        stat = path.stat()
        key = f"{path.resolve()}|{stat.st_size}|{stat.st_mtime_ns}"
        if key not in known:
            with path.open("rb") as file:
                known[key] = hashlib.file_digest(file, "sha256").hexdigest()
        digest.update(f"{path.name}:{known[key]}\n".encode())
    if memo is not None:
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
    temp = memo.with_name(f".{memo.name}.tmp")
    temp.write_text(json.dumps(known, indent=0, sort_keys=True), encoding="utf-8")
    temp.replace(memo)
