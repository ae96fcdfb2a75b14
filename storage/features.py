"""Vision features on disk: one checked safetensors file per (page pixels, encoder), bounded, shared by processes.

The folder is the whole truth: a file's mtime is its last use, its size its cost, its metadata its key. There is no
second record (a database table, say) that a crash could leave in disagreement with the files. A file that is torn,
foreign or stale is a miss: deleted and counted. Knows bytes only; `pipeline.vision` makes arrays of them.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import secrets
import shutil
import struct
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from storage.failpoints import reach
from storage.staging import is_running

log = logging.getLogger(__name__)

SUFFIX = ".safetensors"
TEMP_PREFIX = ".writing-"
TENSOR = "features"
FORMAT = "ocrd-features/1"
FREE_SHARE = 0.1  # never more than this part of the disk's free space
LOW_WATER = 0.95  # eviction goes down to this part of the budget, so that it does not run at every put
# Looking at every file costs 0.3 s with 20,000 of them: a process looks again once it has written this part of what
# was free, so that as many processes writing at once stay within the budget together.
WRITERS = 16
_MAX_HEADER = 1 << 16
_WIDTHS = {"F32": 4, "F16": 2, "BF16": 2}


@dataclass(frozen=True, slots=True)
class Features:
    """An array as bytes: row-major, little-endian; `dtype` F32, F16 or BF16 (safetensors' names)."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    def __post_init__(self) -> None:
        cells = 1
        for size in self.shape:
            cells *= size
        if self.dtype not in _WIDTHS or cells * _WIDTHS[self.dtype] != len(self.data):
            raise ValueError(f"{len(self.data)} bytes are no {self.dtype} array of shape {self.shape}")


@dataclass(slots=True)
class Counters:
    """What happened to lookups and files."""

    hits: int = 0
    misses: int = 0
    stored: int = 0
    evicted: int = 0
    torn: int = 0  # damaged: bad header, length or checksum
    foreign: int = 0  # intact, but of another key or format

    def __add__(self, other: Counters) -> Counters:
        return Counters(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


@dataclass(frozen=True, slots=True)
class CacheStats:
    """What the store holds now, and what it has done since it was made."""

    files: int
    bytes: int
    budget_bytes: int
    models: Mapping[str, int]  # model → bytes
    counters: Counters = field(default_factory=Counters)


class FeatureStore:
    """A folder of features; any number of processes may use it at once. Reads take no lock: names only ever
    appear whole (temp, fsync, rename) and vanish whole (unlink)."""

    def __init__(self, folder: Path, budget_bytes: int) -> None:
        self.folder = folder
        self.budget_bytes = budget_bytes
        self.counters = Counters()
        self._room = 0  # bytes to write before the folder is looked at again
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def get(self, key: str, now: float) -> Features | None:
        """The features stored under `key`, marked as used `now`; None on a miss."""
        path = self._path(key)
        try:
            raw = path.read_bytes()
        except OSError:
            self.counters.misses += 1
            return None
        try:
            features, metadata = _parse(raw)
        except ValueError as error:
            self._reject(path, "torn", error)
            return None
        if metadata.get("key") != key or metadata.get("format") != FORMAT:
            self._reject(path, "foreign", ValueError("another key or format"))
            return None
        with contextlib.suppress(OSError):  # evicted meanwhile: what was read is whole all the same
            os.utime(path, (now, now))
        self.counters.hits += 1
        return features

    def put(self, key: str, features: Features, *, model: str, now: float) -> bool:
        """Store under `key`, then evict what exceeds the budget. False where the disk or the budget has no room.

        The store is a cache: a full disk costs the page its caching, never its reading.
        """
        blob = _serialise(features, {"key": key, "format": FORMAT, "model": model})
        must_look = len(blob) > self._room
        if must_look and len(blob) > self._budget(self._held()):
            return False
        path = self._path(key)
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            self._write(path, blob, now)
        except OSError as error:
            log.warning("vision features are not kept: %s", error.strerror)
            return False
        self.counters.stored += 1
        reach("features.stored")
        if must_look:
            self.evict()
        else:
            self._room -= len(blob)
        return True

    def _write(self, path: Path, blob: bytes, now: float) -> None:
        temp = path.with_name(f"{TEMP_PREFIX}{os.getpid()}-{secrets.token_hex(4)}")
        try:
            descriptor = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(blob)
                file.flush()
                os.fsync(file.fileno())
            os.utime(temp, (now, now))
            reach("features.write")
            temp.replace(path)
        except BaseException:
            temp.unlink(missing_ok=True)
            raise

    def evict(self) -> int:
        """Delete least recently used files until the budget holds; the number deleted."""
        with self._lock():
            self._sweep()
            entries = sorted(self._entries(), key=lambda entry: entry[1:])
            total = sum(size for _, _, size in entries)
            budget = self._budget(total)
            low = budget * LOW_WATER if total > budget else budget
            deleted = 0
            for path, _, size in entries:
                if total <= low:
                    break
                reach("features.evict")
                path.unlink(missing_ok=True)
                total -= size
                deleted += 1
            self.counters.evicted += deleted
            self._room = max(0, budget - total) // WRITERS
            return deleted

    def prune(self, older_than: float) -> int:
        """Delete what was last used before `older_than` (epoch seconds), and what writers that died left behind."""
        with self._lock():
            deleted = 0
            for path, used, _ in list(self._entries()):
                if used < older_than:
                    path.unlink(missing_ok=True)
                    deleted += 1
            self._sweep(older_than)
            self.counters.evicted += deleted
            return deleted

    def clear(self) -> int:
        """Delete everything; the number of files deleted."""
        return self.prune(float("inf"))

    def _sweep(self, older_than: float = float("-inf")) -> None:
        """Remove what dead writers left; from living ones, what is older than that."""
        for pattern in (f"{TEMP_PREFIX}*", f"*/{TEMP_PREFIX}*"):
            for temp in self.folder.glob(pattern):
                with contextlib.suppress(OSError):
                    if temp.stat().st_mtime < older_than or not _is_alive(temp.name):
                        temp.unlink()

    def stats(self) -> CacheStats:
        """Files, bytes, budget, bytes per model, and the counters of all processes so far."""
        models: dict[str, int] = {}
        files = total = 0
        for path, _, size in self._entries():
            files += 1
            total += size
            model = _model_of(path)
            models[model] = models.get(model, 0) + size
        return CacheStats(
            files, total, self._budget(total), models, saved_counters(self.folder) + self.counters
        )

    def close(self) -> None:
        """`save_counters`; there is nothing else to let go of."""
        self.save_counters()

    def save_counters(self) -> None:
        """Add this process's counters to those on disk. Cheap: after every page, as workers end without a word."""
        if self.counters == Counters():
            return
        with contextlib.suppress(OSError), self._lock():  # the folder may be gone: no page fails for that
            total = saved_counters(self.folder) + self.counters
            temp = self.folder / f"{TEMP_PREFIX}{os.getpid()}-counters"
            try:
                temp.write_text(json.dumps(asdict(total)), encoding="utf-8")
                reach("features.counters")
                temp.replace(self.folder / "counters.json")
            except OSError:
                temp.unlink(missing_ok=True)
                raise
            self.counters = Counters()

    def _path(self, key: str) -> Path:
        if not key.isalnum():
            raise ValueError(f"a key is letters and digits, not {key!r}")
        return self.folder / key[:2] / f"{key}{SUFFIX}"

    def _entries(self) -> Iterator[tuple[Path, float, int]]:
        for path in self.folder.glob(f"*/*{SUFFIX}"):
            with contextlib.suppress(OSError):  # deleted by another process
                stat = path.stat()
                yield path, stat.st_mtime, stat.st_size

    def _held(self) -> int:
        return sum(size for _, _, size in self._entries())

    def _budget(self, held: int) -> int:
        """Bytes the files may take, who take `held` now."""
        try:
            free = shutil.disk_usage(self.folder).free
        except OSError:
            return self.budget_bytes
        return min(self.budget_bytes, held + int(free * FREE_SHARE))

    def _reject(self, path: Path, kind: str, error: ValueError) -> None:
        log.warning("a stored feature file is %s and was deleted: %s (%s)", kind, path.name, error)
        path.unlink(missing_ok=True)
        setattr(self.counters, kind, getattr(self.counters, kind) + 1)
        self.counters.misses += 1

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        with (self.folder / "lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def saved_counters(folder: Path) -> Counters:
    """The counters of all processes that have used the store in `folder`; zeros where there is none."""
    try:
        saved = json.loads((folder / "counters.json").read_text(encoding="utf-8"))
        return Counters(**{f.name: int(saved.get(f.name, 0)) for f in fields(Counters)})
    except (OSError, ValueError, AttributeError, TypeError):
        return Counters()


def _serialise(features: Features, metadata: dict[str, str]) -> bytes:
    """A safetensors file: u64 header length, JSON header, data (huggingface/safetensors, format description)."""
    checked = {**metadata, "sha256": _checksum(features)}
    header = {
        "__metadata__": checked,
        TENSOR: {
            "dtype": features.dtype,
            "shape": list(features.shape),
            "data_offsets": [0, len(features.data)],
        },
    }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + features.data


def _parse(raw: bytes) -> tuple[Features, dict[str, str]]:
    """The inverse of `_serialise`. Raises `ValueError` on anything that is not whole."""
    if len(raw) < 8:
        raise ValueError("shorter than a header")
    (length,) = struct.unpack_from("<Q", raw)
    if length > min(_MAX_HEADER, len(raw) - 8):
        raise ValueError("header longer than the file")
    header = json.loads(raw[8 : 8 + length])
    try:
        entry, metadata = header[TENSOR], header["__metadata__"]
        start, end = entry["data_offsets"]
        if [start, end] != [0, len(raw) - 8 - length]:
            raise ValueError("data shorter or longer than announced")
        features = Features(entry["dtype"], tuple(int(n) for n in entry["shape"]), raw[8 + length :])
        if metadata["sha256"] != _checksum(features):
            raise ValueError("checksum differs")
    except (KeyError, TypeError) as error:
        raise ValueError(f"no feature file ({error})") from error
    return features, metadata


def _checksum(features: Features) -> str:
    digest = hashlib.sha256(f"{features.dtype}{features.shape}".encode())
    digest.update(features.data)
    return digest.hexdigest()


def _model_of(path: Path) -> str:
    """The model named in a file's header; the header alone is read."""
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(min(length, _MAX_HEADER)))
        return str(header["__metadata__"]["model"])
    except (OSError, ValueError, KeyError, TypeError, struct.error):
        return "(unreadable)"


def _is_alive(temp_name: str) -> bool:
    """Whether the process that is writing a temporary file still lives."""
    pid = temp_name.removeprefix(TEMP_PREFIX).split("-")[0]
    return pid.isdecimal() and is_running(int(pid))
