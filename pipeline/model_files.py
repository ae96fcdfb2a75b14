"""Where models lie on this machine, and how they get there: `models/NAME/COMMIT` in the home folder.

A folder with a commit's name is whole: it is fetched beside (`.pulling-COMMIT`, where a second try goes on), checked,
then renamed. Only data is fetched, never Python files; nothing here asks the hub but `pull`.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline import checkpoint, presets
from pipeline.presets import Preset
from storage.errors import (
    BusyError,
    HubError,
    ModelError,
    ModelMissingError,
    OcrdError,
    SettingsError,
    from_os_error,
)
from storage.staging import require_space

if TYPE_CHECKING:
    from storage.settings import Settings

PULLING = ".pulling-"
REMOVING = ".removing"
# What a checkpoint is made of. No *.py: a model's own code never gets here.
DATA_FILES = (
    "*.json", "*.safetensors", "*.jinja", "*.model", "merges.txt", "README.md", "LICENSE*", "NOTICE*", "*AGREEMENT*",
)  # fmt: skip
_SPARE_BYTES = 1 << 30  # a disk is not filled to the brim


@dataclass(frozen=True, slots=True)
class ModelLocation:
    """A model on this machine. `revision`: the commit it was pulled at; None for what was not pulled."""

    preset: Preset
    folder: Path
    revision: str | None

    @property
    def size_bytes(self) -> int:
        """Bytes of all its files."""
        return sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())


def locate(name_or_folder: str, settings: Settings) -> ModelLocation:
    """The model of a preset's name or in a folder; the hub is not asked.

    Raises: `SettingsError` for an unknown name; `ModelMissingError` where it is not on disk; `ModelError`,
    `UntrustedModelError` for a folder that cannot be used.
    """
    if name_or_folder in presets.PRESETS or not is_folder_name(name_or_folder):
        return _locate_preset(presets.find(name_or_folder), settings)
    folder = Path(name_or_folder).expanduser().absolute()
    if not folder.is_dir():
        raise ModelMissingError("there is no such model folder", file=folder, remedy="check the path")
    return ModelLocation(presets.for_folder(folder, trusted=settings.trusted_models), folder, None)


def is_folder_name(text: str) -> bool:
    """Whether `--model` means a folder: it has a slash, or begins with `.` or `~`."""
    return "/" in text or text.startswith((".", "~"))


def _locate_preset(preset: Preset, settings: Settings) -> ModelLocation:
    if preset.repository is None:
        return ModelLocation(preset, presets.TINY_FOLDER, None)
    for folder in _pulled(settings.models_path / preset.name):
        label = presets.read_label(folder)
        repository = str(label.get("repository", preset.repository))
        return ModelLocation(
            replace(preset, repository=repository, revision=folder.name), folder, folder.name
        )
    raise ModelMissingError(
        f"the model {preset.name} is not on disk",
        remedy=f"fetch it with `ocrd models pull {preset.name}`, or name a folder with --model FOLDER",
    )


def _pulled(parent: Path) -> list[Path]:
    """The whole revisions of a model, newest first; there is one, but for the moment of a change."""
    try:
        found = [path for path in parent.iterdir() if path.is_dir() and not path.name.startswith(".")]
    except OSError:
        return []
    return sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)


def is_partly_pulled(preset: Preset, settings: Settings) -> bool:
    """Whether an interrupted pull left something to go on with."""
    return any((settings.models_path / preset.name).glob(f"{PULLING}*"))


def remove(name: str, settings: Settings) -> int:
    """Delete a pulled model, whole or in part; the bytes freed.

    Raises: `SettingsError` for a model that ships with ocrd, `ModelMissingError` where there is nothing.
    """
    preset = presets.find(name)
    if preset.repository is None:
        raise SettingsError(f"{name} ships with ocrd", remedy="there is nothing to remove")
    parent = settings.models_path / name
    if not parent.is_dir():
        raise ModelMissingError(f"the model {name} is not on disk", remedy="nothing to remove")
    freed = sum(path.stat().st_size for path in parent.rglob("*") if path.is_file())
    doomed = parent.with_name(f"{REMOVING}-{name}")
    try:
        shutil.rmtree(doomed, ignore_errors=True)  # of an earlier removal that was interrupted
        parent.rename(doomed)  # in one step: no process finds half a model
        shutil.rmtree(doomed)
    except OSError as error:
        raise from_os_error(error, file=parent) from error
    return freed


# --- fetching ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Source:
    """What the hub has: the commit, and size and SHA-256 (where known) of each file of data."""

    repository: str
    revision: str
    files: Mapping[str, tuple[int, str | None]]

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(size for size, _ in self.files.values())


def pull(
    preset: Preset,
    settings: Settings,
    *,
    repository: str | None = None,
    revision: str | None = None,
    endpoint: str | None = None,
    on_source: Callable[[Source], None] | None = None,
    show_progress: bool = False,
) -> ModelLocation:
    """Fetch a model (or go on fetching it), check it, and put it in the place of an earlier revision.

    `repository`, `revision`: other than the preset's. `endpoint`: of the hub, by default huggingface_hub's own
    (HF_ENDPOINT). `on_source` is told what will be fetched. Nothing is fetched where the commit is on disk already.
    Raises: `HubError`, `DiskFullError`, `ModelError` when what came is no usable checkpoint, `BusyError`.
    """
    repository = repository or preset.repository
    if repository is None:
        return ModelLocation(preset, presets.TINY_FOLDER, None)
    parent = settings.models_path / preset.name
    with _owned(parent), _hub_errors(repository):
        source = _look_up(repository, revision or preset.revision or presets.UNPINNED, endpoint)
        folder = parent / source.revision
        if not folder.is_dir():
            if on_source is not None:
                on_source(source)
            staging = parent / f"{PULLING}{source.revision}"
            _check_space(source, staging)
            _fetch(source, staging, endpoint, show_progress)
            _check(source, staging, preset, settings)
            _label(staging, preset, source)
            staging.rename(folder)
        for other in parent.iterdir():
            if other != folder and other.is_dir():
                shutil.rmtree(other, ignore_errors=True)
    return ModelLocation(
        replace(preset, repository=repository, revision=source.revision), folder, source.revision
    )


@contextlib.contextmanager
def _owned(parent: Path) -> Iterator[None]:
    """One pull of a model at a time."""
    try:
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (parent / ".lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise BusyError(
                    f"{parent.name} is being fetched by another process", remedy="wait for it to end"
                ) from None
            yield
    except PermissionError as error:
        raise from_os_error(error, file=parent) from error


def _look_up(repository: str, revision: str, endpoint: str | None) -> Source:
    from fnmatch import fnmatch

    from huggingface_hub import HfApi

    info = HfApi(endpoint=endpoint).model_info(repository, revision=revision, files_metadata=True)
    if not info.sha or Path(info.sha).name != info.sha or info.sha.startswith("."):
        raise HubError(f"the hub names no commit for {repository} at {revision}")
    files = {
        sibling.rfilename: (sibling.size or 0, sibling.lfs.sha256 if sibling.lfs else None)
        for sibling in info.siblings or ()
        if any(fnmatch(sibling.rfilename, pattern) for pattern in DATA_FILES)
    }
    return Source(repository, info.sha, files)


def _check_space(source: Source, staging: Path) -> None:
    held = sum(path.stat().st_size for path in staging.rglob("*") if path.is_file())
    needed = max(0, source.size_bytes - held) + _SPARE_BYTES
    require_space(staging.parent, needed, remedy="free some space, or let OCRD_HOME lie on a larger disk")


def _fetch(source: Source, staging: Path, endpoint: str | None, show_progress: bool) -> None:
    from huggingface_hub import HfApi
    from huggingface_hub.utils.tqdm import disable_progress_bars

    if not show_progress:
        disable_progress_bars()  # for the whole process, which does nothing else
    HfApi(endpoint=endpoint).snapshot_download(
        source.repository, revision=source.revision, local_dir=staging, allow_patterns=list(source.files),
        max_workers=4,
    )  # fmt: skip


def _check(source: Source, staging: Path, preset: Preset, settings: Settings) -> None:
    """What came is what the hub has, and a checkpoint of the right kind. A file that is not is deleted."""
    for name, (size, sha256) in source.files.items():
        path = staging / name
        whole = path.is_file() and path.stat().st_size == size
        if whole and sha256 is not None:
            with path.open("rb") as file:
                whole = hashlib.file_digest(file, "sha256").hexdigest() == sha256
        if not whole:
            path.unlink(missing_ok=True)
            raise HubError(f"{name} of {source.repository} came damaged and was deleted")
    found = checkpoint.inspect(staging, trusted=settings.trusted_models)
    if found.architecture != preset.architecture:
        raise ModelError(
            f"{source.repository} is a {found.architecture}, and {preset.name} reads {preset.architecture}",
            remedy="name another --repository, or choose the preset of its kind",
        )


def _label(staging: Path, preset: Preset, source: Source) -> None:
    label = {"preset": preset.name, "repository": source.repository, "revision": source.revision}
    (staging / presets.LABEL).write_text(json.dumps(label, indent=2) + "\n", encoding="utf-8")
    shutil.rmtree(staging / ".cache", ignore_errors=True)  # huggingface_hub's notes for going on


@contextlib.contextmanager
def _hub_errors(repository: str) -> Iterator[None]:
    """Turns what huggingface_hub raises into our errors, each with what to do."""
    try:
        yield
    except OcrdError:
        raise
    except Exception as error:
        failure = _explain(error, repository)
        if failure is None:
            raise
        raise failure from error


def _explain(error: Exception, repository: str) -> OcrdError | None:
    from huggingface_hub import errors

    if isinstance(error, errors.OfflineModeIsEnabled):
        return HubError("HF_HUB_OFFLINE forbids to ask the model hub", remedy="unset it to fetch a model")
    if isinstance(error, errors.GatedRepoError):
        return HubError(
            f"{repository} asks for consent to its terms first",
            remedy="give it on the repository's page, then set HF_TOKEN",
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        return HubError(f"the hub has no model {repository}", remedy="name another with --repository")
    if isinstance(error, errors.RevisionNotFoundError):
        return HubError(f"{repository} has no such revision", remedy="name another with --revision")
    if isinstance(error, errors.HFValidationError):
        return HubError(f"{repository!r} is no repository's name", remedy="it has the form OWNER/NAME")
    if isinstance(error, errors.HfHubHTTPError) and error.response is not None:
        return HubError(f"the model hub answers {error.response.status_code} for {repository}")
    if isinstance(error, OSError) and error.errno is not None and not isinstance(error, ConnectionError):
        return from_os_error(error)  # a full disk, a folder that cannot be written
    module = type(error).__module__.split(".")[0]
    if isinstance(error, OSError) or module in ("httpx", "httpx2", "huggingface_hub", "hf_xet"):
        return HubError(f"the model hub cannot be reached for {repository} ({_first_line(error)})")
    return None


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__
