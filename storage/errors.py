"""Every failure ocrd can report: its code, exit code, remedy, and whether trying again can help."""

from __future__ import annotations

from enum import IntEnum, StrEnum
from pathlib import Path
from typing import ClassVar


class Fault(StrEnum):
    """What follows from a failure; decided where the failure is known."""

    TRANSIENT = "transient"  # the world is at fault (disk full, share away): wait, count nothing
    FINAL = "final"  # the input is at fault (password, not a PDF): no retry helps
    BUG = "bug"  # we or a library are at fault: counted, quarantined once attempts are spent


class ExitCode(IntEnum):
    """Exit status per kind of failure (the table in docs/reference.md is made from this)."""

    OK = 0
    NO_MATCH = 1  # nothing found, as grep says it; doctor, verify: not all is well; service: not running
    USAGE = 2  # wrong command line (typer's own)
    SETTINGS = 3  # a settings file, variable or flag is wrong
    PASSWORD = 4  # an input needs a password
    BAD_INPUT = 5  # an input is damaged, empty or not a document
    TOO_LARGE = 6  # an input exceeds the pixel budget
    UNSUPPORTED = 7  # an input uses something we cannot read
    STORAGE = 8  # disk full, permission denied, file or share away
    ENGINE = 9  # an engine or a model is missing or failed
    BUSY = 10  # another daemon works on this home
    DATABASE = 11  # the database is damaged or of another version
    MIXED = 12  # inputs failed for several of these reasons
    SERVICE = 13  # launchd or systemd refuses
    INTERNAL = 70  # a fault of ocrd itself
    INTERRUPTED = 130  # Ctrl-C


class OcrdError(Exception):
    """Base of all our errors: what failed, on which file and page, why, and what to do.

    `str()` gives one line `FILE, page N: message. Remedy`; the parts stay available for the database.
    """

    code: ClassVar[str] = "internal"
    exit_code: ClassVar[ExitCode] = ExitCode.INTERNAL
    fault: ClassVar[Fault] = Fault.BUG
    default_remedy: ClassVar[str] = "run again with -v and report what it prints"

    def __init__(
        self,
        message: str,
        *,
        file: Path | str | None = None,
        page: int | None = None,
        remedy: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.file = file
        self.page = page  # from 1
        self.remedy = remedy or self.default_remedy

    def __str__(self) -> str:
        where = "" if self.file is None else str(self.file)
        if self.page is not None:
            where += f"{', ' if where else ''}page {self.page}"
        return f"{where + ': ' if where else ''}{self.message}. {self.remedy[:1].upper()}{self.remedy[1:]}"

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process borders; the default pickles positional arguments only.
        return (_rebuild, (type(self), self.message, self.file, self.page, self.remedy))


def _rebuild(
    kind: type[OcrdError], message: str, file: Path | str | None, page: int | None, remedy: str
) -> OcrdError:
    return kind(message, file=file, page=page, remedy=remedy)


# --- the input is at fault -------------------------------------------------------------------------------


class InputError(OcrdError):
    """The input cannot be read whatever we do."""

    code = "corrupt"
    exit_code = ExitCode.BAD_INPUT
    fault = Fault.FINAL
    default_remedy = "open it in a viewer and save it again, or get another copy"


class CorruptError(InputError):
    """Damaged beyond what the reader can repair."""


class EmptyFileError(InputError):
    """Zero bytes, after it had time to grow."""

    code = "empty_file"
    default_remedy = "copy the file again"


class NotADocumentError(InputError):
    """The content is no kind we read, whatever the name says."""

    code = "not_a_document"
    default_remedy = "check what it is; its name says otherwise than its content"


class NoPagesError(InputError):
    """A valid file without any page."""

    code = "no_pages"
    default_remedy = "nothing to read; `ocrd forget` removes it from the list"


class PasswordError(InputError):
    """Encrypted, and no known password opens it."""

    code = "password"
    exit_code = ExitCode.PASSWORD
    default_remedy = "run `ocrd retry FILE --password …`"


class UnsupportedEncryptionError(InputError):
    """Encrypted by something a password does not open (a certificate, say)."""

    code = "unsupported_encryption"
    exit_code = ExitCode.UNSUPPORTED
    default_remedy = "save an unencrypted copy from the program that can open it"


class UnsupportedError(InputError):
    """A format or feature we do not read."""

    code = "unsupported"
    exit_code = ExitCode.UNSUPPORTED
    default_remedy = "convert it to PDF, PNG, JPEG, TIFF, WebP or HEIC"


class NoTextLayerError(InputError):
    """`--text-layer require`, and the page has none worth using."""

    code = "no_text_layer"
    default_remedy = "use `--text-layer auto` to have it read by OCR"


class TooLargeError(InputError):
    """More pixels than the budget, before any is decoded."""

    code = "too_large"
    exit_code = ExitCode.TOO_LARGE
    default_remedy = "scale it down, or raise max_image_pixels in the settings"


class TooManyPagesError(InputError):
    """More pages than one request to the server may ask for."""

    code = "too_many_pages"
    exit_code = ExitCode.TOO_LARGE
    default_remedy = "ask for fewer at once, or have `ocrd batch` read the file"


# --- the world is at fault -------------------------------------------------------------------------------


class StorageError(OcrdError):
    """Reading or writing failed for a reason that may pass."""

    code = "io"
    exit_code = ExitCode.STORAGE
    fault = Fault.TRANSIENT
    default_remedy = "it is tried again by itself"


class DiskFullError(StorageError):
    """No space where something must be written."""

    code = "disk_full"
    default_remedy = "free some space; the queue goes on by itself"


class AccessError(StorageError):
    """The operating system denies reading or writing."""

    code = "permission"
    default_remedy = "allow this user to read the file; it is tried again by itself"


class VanishedError(StorageError):
    """The file or its folder is not there any more."""

    code = "vanished"
    default_remedy = "nothing to do, unless it should be there: then put it back"


class ChangedError(StorageError):
    """The file holds other content than what was taken in."""

    code = "changed"
    default_remedy = "it is taken in again by itself"


# --- the set-up is at fault ------------------------------------------------------------------------------


class SettingsError(OcrdError):
    """A setting is unknown, malformed or out of range."""

    code = "settings"
    exit_code = ExitCode.SETTINGS
    fault = Fault.FINAL
    default_remedy = "see `ocrd config`"


class ExistsError(OcrdError):
    """Where something is to be written lies something else."""

    code = "exists"
    exit_code = ExitCode.USAGE
    fault = Fault.FINAL
    default_remedy = "choose another destination, or remove it first"


class EngineUnavailableError(OcrdError):
    """An engine's library, language data or model is not installed."""

    code = "engine_unavailable"
    exit_code = ExitCode.ENGINE
    fault = Fault.FINAL
    default_remedy = "choose another with --engine"


class EngineError(OcrdError):
    """An engine failed on a page."""

    code = "engine"
    exit_code = ExitCode.ENGINE
    fault = Fault.BUG
    default_remedy = "try another engine: `ocrd retry FILE --engine …`"


class ModelError(OcrdError):
    """A model's folder cannot be used: missing or misshapen weights, unknown architecture, tokenizer that disagrees."""

    code = "model"
    exit_code = ExitCode.ENGINE
    fault = Fault.FINAL
    default_remedy = "fetch it again with `ocrd models pull`, or choose another with --model"


class UntrustedModelError(ModelError):
    """A model's folder asks to run code of its own."""

    code = "untrusted_model"
    default_remedy = "if you trust whoever made it, name the folder in `trusted_models` of the settings"


class ModelMissingError(ModelError):
    """A model is not on this machine."""

    code = "model_missing"
    default_remedy = "fetch it with `ocrd models pull NAME`, or name a folder with --model FOLDER"


class HubError(ModelError):
    """The model hub cannot be reached or does not give the model."""

    code = "model_hub"
    default_remedy = (
        "try again (what came so far is kept), or copy the model's folder from elsewhere and name it with "
        "--model FOLDER"
    )


class ImageRefusedError(EngineError):
    """A model's own image processor refuses a page (too narrow, say)."""

    code = "image_refused"
    fault = Fault.FINAL
    default_remedy = "read it with another engine: `ocrd retry FILE --engine classic`"


class OutOfMemoryError(EngineError):
    """A model or page does not fit into memory."""

    code = "out_of_memory"
    default_remedy = "choose a smaller or more quantised model, fewer workers, or a lower dpi"


class WorkerLostError(OcrdError):
    """The process reading a page died or hung, as often as it was tried."""

    code = "crash"
    exit_code = ExitCode.INTERNAL
    fault = Fault.BUG
    default_remedy = "the page is set aside; `ocrd retry FILE` tries it again"


class BusyError(OcrdError):
    """Another daemon works on this home."""

    code = "busy"
    exit_code = ExitCode.BUSY
    fault = Fault.FINAL
    default_remedy = "stop it first, or set OCRD_HOME to another folder"


class ServiceError(OcrdError):
    """The service manager refuses, or is not there."""

    code = "service"
    exit_code = ExitCode.SERVICE
    fault = Fault.FINAL
    default_remedy = "run `ocrd watch` in a terminal instead, and report what the service manager said"


class DatabaseError(OcrdError):
    """The database is damaged or belongs to another version of ocrd."""

    code = "database"
    exit_code = ExitCode.DATABASE
    fault = Fault.FINAL
    default_remedy = "restore a backup of ocrd.db, or move it away to start anew"


class DamagedError(DatabaseError):
    """The database file is damaged."""

    code = "database_damaged"
    default_remedy = "run `ocrd batch` or `ocrd watch`: the last backup is put in its place"


class UnknownReferenceError(OcrdError):
    """A reference to a page leads to nothing that was read."""

    code = "unknown_reference"
    exit_code = ExitCode.NO_MATCH
    fault = Fault.FINAL
    default_remedy = "take a reference from `search` or `list_documents`"


def error_classes() -> list[type[OcrdError]]:
    """All error classes, base first; what the reference table is made from."""
    found: list[type[OcrdError]] = [OcrdError]
    for kind in found:
        found.extend(kind.__subclasses__())
    return found


def class_of(code: str) -> type[OcrdError] | None:
    """The error class with that code."""
    return next((kind for kind in error_classes() if kind.code == code), None)


def first_line(error: BaseException) -> str:
    """What a library's error says, as a part of our own message: its first line, or its type where it says nothing."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:300]


def from_os_error(error: OSError, *, file: Path | str | None = None, page: int | None = None) -> StorageError:
    """The matching `StorageError` for an `OSError`; errno decides, text never."""
    import errno

    kinds: dict[int, type[StorageError]] = {
        errno.ENOSPC: DiskFullError,
        errno.EDQUOT: DiskFullError,
        errno.EACCES: AccessError,
        errno.EPERM: AccessError,
        errno.EROFS: AccessError,
        errno.ENOENT: VanishedError,
        errno.ENOTDIR: VanishedError,
        errno.ESTALE: VanishedError,
    }
    kind = kinds.get(error.errno or 0, StorageError)
    return kind(error.strerror or str(error), file=file or error.filename, page=page)
