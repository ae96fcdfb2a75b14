"""A converted checkpoint's weight files: which tensors go where, written module by module, resumed."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from pipeline.convert.manifest import FileHash
from storage import staging
from storage.errors import BusyError, ModelError
from storage.staging import Staging

SHARD_BYTES = 1 << 30  # an interrupted conversion loses at most this much
MODE = 0o666  # less the umask: a model is no secret
_STATE = "state.json"
_LOCK = ".lock"


class Piece(Protocol):
    """A tensor to be written."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def dtype(self) -> str: ...  # noqa: D102
    @property
    def shape(self) -> tuple[int, ...]: ...  # noqa: D102
    @property
    def size_bytes(self) -> int: ...  # noqa: D102


class Source(Protocol):
    """Where the bytes come from (`pipeline.adapter.converting.LazyConversion`)."""

    def take(self, module: str) -> Iterator[memoryview]:
        """The bytes of a module's pieces, in order."""
        ...


@dataclass(frozen=True, slots=True)
class Shard:
    """A weight file to be: its name, and its modules with their pieces."""

    name: str
    modules: Mapping[str, Sequence[Piece]]

    @property
    def pieces(self) -> list[Piece]:
        """All tensors of the file, in order."""
        return [piece for pieces in self.modules.values() for piece in pieces]

    @property
    def size_bytes(self) -> int:
        """Bytes of the tensors."""
        return sum(piece.size_bytes for piece in self.pieces)


def lay_out(modules: Mapping[str, Sequence[Piece]], shard_bytes: int = SHARD_BYTES) -> list[Shard]:
    """Modules in order, distributed over files of at most `shard_bytes` (or one module)."""
    files: list[dict[str, Sequence[Piece]]] = [{}]
    filled = 0
    for module, pieces in modules.items():
        size = sum(piece.size_bytes for piece in pieces)
        if files[-1] and filled + size > shard_bytes:
            files.append({})
            filled = 0
        files[-1][module] = pieces
        filled += size
    count = len(files)
    named = (
        ["model.safetensors"]
        if count == 1
        else [f"model-{n:05d}-of-{count:05d}.safetensors" for n in range(1, count + 1)]
    )
    return [Shard(name, content) for name, content in zip(named, files, strict=True)]


def index(shards: Sequence[Shard]) -> dict[str, Any]:
    """`model.safetensors.index.json`: which file each tensor is in."""
    places = {piece.name: shard.name for shard in shards for piece in shard.pieces}
    total = sum(shard.size_bytes for shard in shards)
    return {"metadata": {"total_size": total}, "weight_map": dict(sorted(places.items()))}


class Workshop:
    """The folder beside the destination in which a conversion grows; kept between runs, renamed at the end.

    It belongs to one conversion at a time (`opened`), and to one `fingerprint`: what is in it of another is removed.
    """

    def __init__(self, folder: Path, fingerprint: str) -> None:
        self.folder = folder
        self._fingerprint = fingerprint
        self.done: dict[str, FileHash] = {}

    @contextmanager
    def opened(self, now: float) -> Iterator[Workshop]:
        """Hold the folder while working. Raises: `BusyError` where another process does, OSError."""
        self.folder.mkdir(exist_ok=True)
        with (self.folder / _LOCK).open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise BusyError(
                    "another process converts to the same destination", file=self.folder,
                    remedy="wait for it to end",
                ) from None  # fmt: skip
            try:
                self._take_over(now)
                yield self
            except ModelError:
                self.done.clear()  # no later run can go on with a checkpoint that is not sound
                raise
            finally:
                if not self.done:
                    shutil.rmtree(self.folder, ignore_errors=True)

    def _take_over(self, now: float) -> None:
        """Keep what an earlier run of the same conversion finished; remove all else."""
        staging.sweep(os.fsencode(self.folder), now)
        state = _read_json(self.folder / _STATE)
        if state.get("fingerprint") == self._fingerprint:
            for name, entry in dict(state.get("done", {})).items():
                path = self.folder / name
                if path.is_file() and path.stat().st_size == entry["bytes"]:
                    self.done[name] = FileHash(**entry)
        for path in self.folder.iterdir():
            if path.name not in {_LOCK, _STATE, *self.done}:
                path.unlink()

    def write(self, shard: Shard, source: Source) -> None:
        """Write a shard whole or not at all, and note that it is done. Raises: OSError, and what `source` does."""
        digest = hashlib.sha256()
        target = self.folder / shard.name
        with Staging(os.fsencode(self.folder), MODE) as stage:
            file = stage.open()
            for part in _contents(shard, source):
                file.write(part)
                digest.update(part)
            stage.publish(os.fsencode(target))
        done = self.done | {shard.name: FileHash(digest.hexdigest(), target.stat().st_size)}
        notes = {name: asdict(entry) for name, entry in done.items()}
        self.put(_STATE, json_bytes({"fingerprint": self._fingerprint, "done": notes}))
        self.done = done  # only what is noted is found again

    def put(self, name: str, body: bytes) -> None:
        """Write a small file. Raises: OSError."""
        staging.write_file(self.folder / name, body, MODE)

    def publish(self, target: Path) -> None:
        """Become `target`, which is not there or an empty folder. Raises: OSError."""
        for name in (_STATE, _LOCK):
            (self.folder / name).unlink(missing_ok=True)
        self.folder.rename(target)


def _contents(shard: Shard, source: Source) -> Iterator[bytes | memoryview]:
    """The bytes of a safetensors file (huggingface/safetensors, format description)."""
    header: dict[str, Any] = {"__metadata__": {"format": "mlx"}}
    end = 0
    for piece in shard.pieces:
        header[piece.name] = {
            "dtype": piece.dtype, "shape": list(piece.shape), "data_offsets": [end, end + piece.size_bytes],
        }  # fmt: skip
        end += piece.size_bytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the tensors begin at a multiple of eight
    yield struct.pack("<Q", len(text))
    yield text
    for module in shard.modules:
        yield from source.take(module)


def json_bytes(body: object) -> bytes:
    """A JSON file's bytes."""
    return json.dumps(body, indent=1, ensure_ascii=False).encode()


def _read_json(path: Path) -> dict[str, Any]:
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return body if isinstance(body, dict) else {}


def total_bytes(shards: Iterable[Shard]) -> int:
    """Bytes of all tensors of the shards."""
    return sum(shard.size_bytes for shard in shards)
