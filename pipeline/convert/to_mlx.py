"""A checkpoint of dots.ocr to a folder that MLX reads: streamed, resumable, atomic, with a manifest."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.convert import manifest
from pipeline.convert.plan import Plan
from pipeline.convert.shards import SHARD_BYTES, Shard, Workshop, index, json_bytes, lay_out, total_bytes
from storage.errors import DiskFullError, ExistsError, OcrdError, from_os_error
from storage.staging import require_space

if TYPE_CHECKING:
    from pipeline.adapter.converting import LazyConversion

DTYPES = ("bfloat16", "float16")
BITS = (4, 8)
_SPARE_BYTES = 64 << 20  # for tokenizer and other files beside the weights


@dataclass(frozen=True, slots=True)
class Options:
    """What is wanted. `dtype` None: as stored. `quantize`: bits, of the language model alone unless `vision`."""

    dtype: str | None = None
    quantize: int | None = None
    vision: bool = False
    revision: str | None = None


@dataclass(frozen=True, slots=True)
class Converted:
    """What was made. `resumed`: files that an earlier run had finished; `existed`: all was there already."""

    folder: Path
    files: int
    size_bytes: int
    quantised: int
    resumed: int
    existed: bool = False


def convert(
    plan: Plan,
    target: Path,
    options: Options,
    *,
    now: float,
    on_file: Callable[[int, int, str], None] | None = None,
    shard_bytes: int = SHARD_BYTES,
) -> Converted:
    """Convert the checkpoint of `plan` to the folder `target`, which appears whole or not at all.

    What an interrupted run finished stays in a hidden folder beside `target`, and the same call goes on with it.
    `on_file` is told which of how many files is done. Raises: `ExistsError` where `target` holds something else;
    `ModelError`, `DiskFullError` and other `StorageError`.
    """
    from pipeline.adapter import converting

    target = target.absolute()
    try:
        origin = _origin(plan, options, converting.GROUP_SIZE)
        if (made := _already(target, origin)) is not None:
            return made
        conversion = converting.begin(
            plan.checkpoint.folder, dtype=options.dtype, bits=options.quantize, quantise_vision=options.vision
        )
        shards = lay_out(conversion.modules, shard_bytes)
        workshop = Workshop(workshop_folder(target), manifest.fingerprint(origin))
        with workshop.opened(now):
            return _fill(workshop, shards, conversion, plan, origin, target, on_file)
    except OSError as error:
        raise from_os_error(error, file=target) from error


def workshop_folder(target: Path) -> Path:
    """Where a conversion to `target` grows: beside it, so that the last step is a rename."""
    return target.with_name(f".{target.name}.ocrd-converting")


def _origin(plan: Plan, options: Options, group_size: int) -> dict[str, Any]:
    """The manifest as far as it is known beforehand; it decides whether two conversions are the same."""
    source = plan.checkpoint
    return {
        "schema": manifest.SCHEMA,
        "source": {
            "name": source.folder.resolve().name,
            "revision": options.revision or manifest.revision_of(source.folder),
            "files": {name: asdict(entry) for name, entry in manifest.source_files(source).items()},
        },
        "settings": {
            "dtype": options.dtype or "as stored",
            "quantize": options.quantize,
            "group_size": group_size if options.quantize else None,
            "quantize_vision": options.vision,
        },
        "versions": manifest.versions(),
        "tensors": {"read": len(plan.entries), "left_out": list(plan.left_out)},
    }


def _already(target: Path, origin: dict[str, Any]) -> Converted | None:
    """The finished conversion that `target` holds, if it is the one that is wanted. Raises: `ExistsError`."""
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return None
    body = manifest.read(target) if target.is_dir() else None
    if body is None or manifest.fingerprint(body) != manifest.fingerprint(origin):
        what = "a conversion of other weights or settings" if body else "something else"
        raise ExistsError(f"the destination is there already and holds {what}", file=target)
    files = body["files"]
    size = sum(entry["bytes"] for entry in files.values())
    return Converted(target, len(files), size, body["tensors"]["quantised_layers"], len(files), existed=True)


def _fill(
    workshop: Workshop,
    shards: Sequence[Shard],
    conversion: LazyConversion,
    plan: Plan,
    origin: dict[str, Any],
    target: Path,
    on_file: Callable[[int, int, str], None] | None,
) -> Converted:
    resumed = len(workshop.done)
    missing = [shard for shard in shards if shard.name not in workshop.done]
    try:
        needed = total_bytes(missing) + _SPARE_BYTES
        require_space(target.parent, needed, remedy="free some space, or write to another disk")
        for number, shard in enumerate(shards, 1):
            if shard in missing:
                workshop.write(shard, conversion)
            if on_file is not None:
                on_file(number, len(shards), shard.name)
        _put_companions(workshop, plan, conversion.config, shards)
    except OSError as error:
        raise _broken_off(from_os_error(error, file=target), workshop, len(shards)) from error
    body = origin | {
        "tensors": origin["tensors"]
        | {"written": sum(len(s.pieces) for s in shards), "quantised_layers": conversion.quantised},
        "files": {shard.name: asdict(workshop.done[shard.name]) for shard in shards},
    }
    workshop.put(manifest.NAME, json_bytes(body))
    workshop.publish(target)
    return Converted(target, len(shards), total_bytes(shards), conversion.quantised, resumed)


def _broken_off(failure: OcrdError, workshop: Workshop, count: int) -> OcrdError:
    """The failure, with what is kept and how to go on."""
    if workshop.done:
        first = "free some space and run" if isinstance(failure, DiskFullError) else "run"
        failure.remedy = (
            f"{first} the same command again: it goes on after {len(workshop.done)} of {count} files, kept in "
            f"{workshop.folder}; or delete that folder"
        )
    else:
        failure.remedy = "nothing was written; free some space, or write to another disk"
    return failure


def _put_companions(workshop: Workshop, plan: Plan, config: dict[str, Any], shards: Sequence[Shard]) -> None:
    """Configuration, index and what else belongs to the checkpoint; none of it asks for code any more."""
    for path in manifest.companions(plan.checkpoint.folder):
        workshop.put(
            path.name, _without_code(path.read_bytes()) if path.suffix == ".json" else path.read_bytes()
        )
    config.pop("auto_map", None)
    workshop.put("config.json", json_bytes(config))
    if len(shards) > 1:
        workshop.put("model.safetensors.index.json", json_bytes(index(shards)))


def _without_code(body: bytes) -> bytes:
    """A JSON file without the entry that names Python files; any other byte for byte."""
    if b'"auto_map"' not in body:
        return body
    try:
        content = json.loads(body)
    except ValueError:
        return body
    if not isinstance(content, dict) or content.pop("auto_map", None) is None:
        return body
    return json_bytes(content)
