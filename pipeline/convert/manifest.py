"""What a converted folder says of where it comes from: hashes of the source, revision, settings, versions."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from pipeline import presets
from pipeline.checkpoint import Checkpoint

NAME = "ocrd-conversion.json"
SCHEMA = "ocrd-conversion/1"
# Files beside the weights that go along as they are: tokenizer, processor, templates, licence, model card.
_SUFFIXES = frozenset({".json", ".jinja", ".txt", ".model", ".md"})
_NOTICES = ("LICENSE", "LICENCE", "NOTICE", "COPYING")
_MADE_ANEW = frozenset({"config.json", "model.safetensors.index.json", NAME})
_COMMIT = re.compile(r"[0-9a-f]{40}")
_PACKAGES = ("ocrd-mlx", "mlx", "mlx-vlm", "numpy")


@dataclass(frozen=True, slots=True)
class FileHash:
    """A file's SHA-256 and size."""

    sha256: str
    bytes: int


def hash_file(path: Path) -> FileHash:
    """The hash of a whole file. Raises: OSError."""
    with path.open("rb") as file:
        return FileHash(hashlib.file_digest(file, "sha256").hexdigest(), path.stat().st_size)


def companions(folder: Path) -> list[Path]:
    """The files of a checkpoint that a conversion takes along; no code, no folders, no weights."""
    return sorted(
        path
        for path in folder.iterdir()
        if path.is_file() and not path.name.startswith(".") and path.name not in _MADE_ANEW
        and (path.suffix in _SUFFIXES or path.name.upper().startswith(_NOTICES))
    )  # fmt: skip


def source_files(source: Checkpoint) -> dict[str, FileHash]:
    """Hashes of all files that a conversion is made from. Raises: OSError."""
    files = [source.folder / "config.json", *source.weights, *companions(source.folder)]
    return {path.name: hash_file(path) for path in files}


def versions() -> dict[str, str]:
    """Versions of what converts."""
    return {name: metadata.version(name) for name in _PACKAGES}


def revision_of(folder: Path) -> str | None:
    """The commit a folder was fetched at, where something in or around it says so.

    That is ocrd's label, the hub's cache (`snapshots/COMMIT`) or its notes in a folder it fetched to.
    """
    note = folder / ".cache" / "huggingface" / "download" / "config.json.metadata"
    label = presets.read_label(folder).get("revision")
    noted = note.read_text(encoding="utf-8", errors="replace").split("\n")[0] if note.is_file() else ""
    for candidate in (label, folder.resolve().name, noted.strip()):
        if isinstance(candidate, str) and _COMMIT.fullmatch(candidate):
            return candidate
    return None


def fingerprint(body: Mapping[str, Any]) -> str:
    """A hash over what a conversion's result follows from: source, settings, versions."""
    decisive = {key: body[key] for key in ("source", "settings", "versions")}
    return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()


def read(folder: Path) -> dict[str, Any] | None:
    """A folder's manifest; None where there is none that can be read."""
    try:
        body = json.loads((folder / NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return body if isinstance(body, dict) and body.get("schema") == SCHEMA else None
