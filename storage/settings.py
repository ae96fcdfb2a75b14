"""One frozen `Settings`: flag over environment over file over default; each value knows its origin."""

# ruff: noqa: RUF009 - `_setting` returns a dataclass field, made once per declaration as `field` itself

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, cast, get_args

from storage import setting_kinds as kinds
from storage.errors import SettingsError

PREFIX = "OCRD_"
FILE_NAME = "ocrd.toml"
MASK = "***"
# Variables with our prefix that are no settings: test switches, read where they are used.
_FOREIGN = re.compile(r"OCRD_(?:CHROMIUM|CORPUS|FAILPOINTS|SPEC_PAGES)\Z|OCRD_FAKE_")
_NO_PASSWORD_MASK = stat.S_IRWXG | stat.S_IRWXO


class Source(StrEnum):
    """Which layer a setting's value comes from; later ones win."""

    DEFAULT = "default"
    FILE = "file"
    VARIABLE = "variable"
    FLAG = "flag"


@dataclass(frozen=True, slots=True)
class Origin:
    """A setting's effective value and where it came from; passwords are masked."""

    name: str
    value: object
    origin: Source
    where: str  # the file with line, the variable, the flag; "" for a default
    about: str = ""


def _setting(default: Any, parse: kinds.Parser, about: str, *, secret: bool = False) -> Any:
    return field(
        default=default, repr=not secret, metadata={"parse": parse, "about": about, "secret": secret}
    )


ENGINES = ("auto", "classic", "tesseract", "rapidocr", "vision", "vlm", "fake")
Mode = Literal["auto", "none", "lookup", "reference", "dflash", "dspark", "eagle3", "mtp"]
MODES: tuple[Mode, ...] = get_args(Mode)
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that can be set. Made by `load`; the constructor itself checks nothing."""

    home: Path = field(metadata={"parse": kinds.path, "about": "folder of database, settings and logs"})
    out: Path | None = _setting(
        None, kinds.path, "mirror sidecars below this folder; unset: beside the source"
    )
    engine: str = _setting("auto", kinds.one_of(*ENGINES), "what reads page images")
    model: str | None = _setting(None, kinds.model, "preset or folder of a vision-language model")
    trusted_models: tuple[Path, ...] = _setting(
        (), kinds.paths, "model folders that may run Python code of their own"
    )
    mode: Mode = _setting("auto", kinds.one_of(*MODES), "what drafts the text that a model then verifies")
    drafter: Path | None = _setting(
        None, kinds.path, "folder of a neural drafter, for the modes that need one"
    )
    max_draft: int = _setting(0, kinds.integer(0, 128), "tokens drafted at once at most; 0: as it pays off")
    max_tokens: int = _setting(
        0, kinds.integer(0, 10**6), "tokens a page or region may have; 0: the preset's"
    )
    verify: Literal["exact", "fast"] = _setting(
        "exact",
        kinds.one_of("exact", "fast"),
        "whether near ties in a drafted block are decided again singly",
    )
    calibrate: bool = _setting(
        True,
        kinds.boolean,
        "at a model's first load, measure its passes and check what is drafted (about 15 s)",
    )
    vision_backend: Literal["mlx", "coreml"] = _setting(
        "mlx", kinds.one_of("mlx", "coreml"), "what encodes pages for dots.ocr; coreml: macOS only"
    )
    vision_package: Path | None = _setting(
        None, kinds.path, "the .mlpackage that `ocrd convert coreml` made, for vision_backend = coreml"
    )
    features_gb: float = _setting(
        10.0, kinds.gigabytes(0, 100_000), "disk for pages' vision features; 0: none are kept"
    )
    languages: tuple[str, ...] = _setting(
        ("eng",),
        kinds.texts(
            "Tesseract language codes such as eng, deu", separators=",+", pattern=r"[A-Za-z0-9_/\-]+"
        ),
        "languages of the pages",
    )
    tessdata: Path | None = _setting(None, kinds.path, "folder with more Tesseract language data")
    dpi: int = _setting(200, kinds.integer(36, 1200), "resolution pages are rasterised at")
    max_pixels: int = _setting(
        16_000_000, kinds.integer(10_000, 10**9), "pixels a page is rasterised to at most"
    )
    max_image_pixels: int = _setting(
        178_956_970, kinds.integer(10_000, 10**11), "image files with more are refused"
    )
    text_layer: Literal["auto", "ignore", "require"] = _setting(
        "auto", kinds.one_of("auto", "ignore", "require"), "whether a PDF's own text is used"
    )
    passwords: tuple[str, ...] = _setting(
        (), kinds.texts("a list of texts"), "tried on encrypted PDFs", secret=True
    )
    workers: int = _setting(0, kinds.integer(0, 256), "worker processes; 0: one per core, as memory allows")
    settle_s: float = _setting(
        2.0, kinds.seconds(0, 3600), "a file must be unchanged this long before it is read"
    )
    rescan_s: float = _setting(
        300.0, kinds.seconds(0.1, 86400 * 7), "watched folders are rescanned this often"
    )
    poll_s: float = _setting(
        10.0, kinds.seconds(0.05, 3600), "the same, where no events arrive (network shares)"
    )
    ignore: tuple[str, ...] = _setting(
        (), kinds.texts("a list of glob patterns"), "more file patterns to leave alone"
    )
    follow_symlinks: bool = _setting(False, kinds.boolean, "enter symbolic links to folders")
    page_timeout_s: float = _setting(
        600.0, kinds.seconds(0.1, 86400), "a page that takes longer counts as hung"
    )
    max_attempts: int = _setting(3, kinds.integer(1, 100), "tries before a page is set aside as failed")
    lease_s: float = _setting(
        60.0, kinds.seconds(0.1, 3600), "a silent worker loses its pages after this long"
    )
    worker_memory_mb: int = _setting(2048, kinds.integer(64, 10**7), "a worker that needs more is replaced")
    words: bool = _setting(True, kinds.boolean, "keep boxes and confidences of words")
    log_level: str = _setting("INFO", kinds.one_of(*LOG_LEVELS, upper=True), "least severity that is logged")
    log_format: Literal["text", "json"] = _setting(
        "text", kinds.one_of("text", "json"), "how a line of the log looks"
    )
    backups: int = _setting(
        7, kinds.integer(0, 1000), "daily copies of the database that are kept; 0: none are made"
    )
    notify: Literal["never", "failures", "always"] = _setting(
        "never",
        kinds.one_of("never", "failures", "always"),
        "desktop notifications when files are done or failed",
    )
    on_battery: Literal["run", "pause"] = _setting(
        "run",
        kinds.one_of("run", "pause"),
        "whether `ocrd watch` reads on battery, in low power mode, or too hot",
    )

    @property
    def database_path(self) -> Path:
        """The database: queue, pages and index."""
        return self.home / "ocrd.db"

    @property
    def settings_path(self) -> Path:
        """The settings file, which need not exist."""
        return self.home / FILE_NAME

    @property
    def models_path(self) -> Path:
        """Where pulled models lie."""
        return self.home / "models"

    @property
    def features_path(self) -> Path:
        """Where vision features are kept."""
        return self.home / "features"

    @property
    def calibration_path(self) -> Path:
        """Where measurements of models on this machine are kept."""
        return self.home / "calibration"

    @property
    def compiled_path(self) -> Path:
        """Where Core ML's compiled packages are kept."""
        return self.home / "coreml"

    @property
    def features_bytes(self) -> int:
        """`features_gb` in bytes."""
        return round(self.features_gb * 1e9)

    @property
    def backups_path(self) -> Path:
        """Where copies of the database are kept."""
        return self.home / "backups"

    @property
    def library_out(self) -> Path:
        """Where sidecars of files in folders we cannot write to go."""
        return self.home / "sidecars"


_FIELDS: dict[str, Field[Any]] = {entry.name: entry for entry in fields(Settings)}
_Layer = dict[str, tuple[object, str]]  # name → (value as given, where)


def load(flags: Mapping[str, object] | None = None, env: Mapping[str, str] | None = None) -> Settings:
    """The effective settings.

    `flags`: setting names to values (None: not given). `env`: the environment; None is the process's own.

    Raises: `SettingsError` naming place, key, value and what is allowed (or the nearest known key).
    """
    resolved = _resolve(flags or {}, os.environ if env is None else env)
    return Settings(**cast("dict[str, Any]", {name: value for name, (value, _, _) in resolved.items()}))


def explain(flags: Mapping[str, object] | None = None, env: Mapping[str, str] | None = None) -> list[Origin]:
    """Every setting in order of declaration, with its value and origin. Raises: as `load`."""
    resolved = _resolve(flags or {}, os.environ if env is None else env)
    found = []
    for name, (value, source, where) in resolved.items():
        metadata = _FIELDS[name].metadata
        shown = tuple(MASK for _ in cast("tuple[str, ...]", value)) if metadata.get("secret") else value
        found.append(Origin(name, shown, source, where, metadata["about"]))
    return found


def default_home() -> Path:
    """The platform's data folder for ocrd."""
    import platformdirs

    return platformdirs.user_data_path("ocrd", appauthor=False)


def _resolve(flags: Mapping[str, object], env: Mapping[str, str]) -> dict[str, tuple[object, Source, str]]:
    given_flags = _flag_layer(flags)
    given_env = _env_layer(env)
    resolved: dict[str, tuple[object, Source, str]] = {}
    here = Path.cwd()
    for source, layer in ((Source.VARIABLE, given_env), (Source.FLAG, given_flags)):
        _apply(resolved, layer, source, here)
    home, source, where = resolved.get("home") or (default_home(), Source.DEFAULT, "")
    from_file: dict[str, tuple[object, Source, str]] = {}
    _apply(from_file, _file_layer(cast("Path", home) / FILE_NAME), Source.FILE, cast("Path", home))
    resolved = {"home": (home, source, where)} | from_file | resolved
    return {
        name: resolved.get(name, (None if entry.default is MISSING else entry.default, Source.DEFAULT, ""))
        for name, entry in _FIELDS.items()
    }


def _apply(into: dict[str, tuple[object, Source, str]], layer: _Layer, source: Source, base: Path) -> None:
    for name, (given, where) in layer.items():
        metadata = _FIELDS[name].metadata
        try:
            into[name] = (metadata["parse"](given, base), source, where)
        except ValueError as error:
            shown = "that value" if metadata.get("secret") else repr(given)
            raise SettingsError(
                f"setting {name!r} cannot be {shown}", file=where, remedy=f"give {error}"
            ) from None


def _flag_layer(flags: Mapping[str, object]) -> _Layer:
    layer: _Layer = {}
    for name, value in flags.items():
        where = "--" + name.replace("_", "-")
        if name not in _FIELDS:
            raise _unknown(name, where, list(_FIELDS), str)
        if value is not None:
            layer[name] = (value, where)
    return layer


def _env_layer(env: Mapping[str, str]) -> _Layer:
    layer: _Layer = {}
    for variable, value in env.items():
        if not variable.startswith(PREFIX) or _FOREIGN.match(variable):
            continue
        name = variable.removeprefix(PREFIX).lower()
        if name not in _FIELDS or not variable.isupper():
            raise _unknown(name, f"environment variable {variable}", list(_FIELDS), _variable)
        if value != "":  # VAR= in a service file or shell line means: not set
            layer[name] = (value, f"environment variable {variable}")
    return layer


def _variable(name: str) -> str:
    return PREFIX + name.upper()


def _file_layer(path: Path) -> _Layer:
    import tomllib

    try:
        data = path.read_bytes()
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise SettingsError(
            f"the settings file cannot be read: {error.strerror}",
            file=path,
            remedy="allow this user to read it",
        ) from None
    try:
        text = data.decode("utf-8-sig")
        values = tomllib.loads(text)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"not valid TOML: {error}", file=path, remedy="correct that line") from None
    known = [name for name in _FIELDS if name != "home"]  # the file lies in home: it cannot move it
    layer: _Layer = {}
    for name, value in values.items():
        where = f"{path}{_line_of(name, text)}"
        if name not in known:
            raise _unknown(name, where, known, str)
        layer[name] = (value, where)
    if values.get("passwords") and mode & _NO_PASSWORD_MASK:
        raise SettingsError(
            f"holds passwords, but others may read it (mode {stat.S_IMODE(mode):04o})",
            file=path,
            remedy=f"run: chmod 600 '{path}'",
        )
    return layer


def _line_of(name: str, text: str) -> str:
    """`, line N` of a top-level key or table in TOML text; empty where it is written in an unusual way."""
    pattern = re.compile(rf"""^\s*\[*\s*["']?{re.escape(name)}["']?\s*(?:[=.\]])""", re.MULTILINE)
    match = pattern.search(text)
    if match is None:
        return ""
    start = match.start() + len(match[0]) - len(match[0].lstrip())
    return f", line {text.count(chr(10), 0, start) + 1}"


def _unknown(name: str, where: str, known: list[str], spell: Callable[[str], str]) -> SettingsError:
    import difflib

    if name == "home":
        return SettingsError(
            "'home' cannot be set in the file that lies there", file=where, remedy="use OCRD_HOME"
        )
    near = difflib.get_close_matches(name.lower().replace("-", "_"), known, n=1, cutoff=0.0)
    return SettingsError(
        f"unknown setting {name!r}", file=where, remedy=f"the nearest known is {spell(near[0])}"
    )
