"""Options that several commands share, and what their texts mean."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from daemon.scanner import WatchRoot
    from storage.settings import Settings

VERBOSE = "ocrd.verbose"  # in the command's context: an error then comes with its traceback
FORMATS = ("md", "text", "json")


def _remember(ctx: typer.Context, verbose: bool) -> bool:
    ctx.meta[VERBOSE] = verbose
    return verbose


Home = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Folder of database and settings (else OCRD_HOME, else the platform's data folder).",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="Write sidecars below this folder, as a mirrored tree, not beside the files."
    ),
]
EngineName = Annotated[
    str | None,
    typer.Option(
        "--engine", metavar="NAME", help="What reads page images: auto, classic, tesseract, rapidocr, vlm."
    ),
]
ModelName = Annotated[
    str | None,
    typer.Option(
        "--model", metavar="NAME", help="Read with this model: a name of `ocrd models list`, or a folder."
    ),
]
Languages = Annotated[
    str | None, typer.Option(metavar="CODES", help="Languages of the pages, as in eng+deu+fra.")
]
TextLayer = Annotated[
    str | None, typer.Option(metavar="MODE", help="A PDF's own text: auto (if good), ignore or require.")
]
Workers = Annotated[
    int | None, typer.Option(metavar="N", help="Worker processes; 0: one per core, as memory allows.")
]
Dpi = Annotated[int | None, typer.Option(metavar="N", help="Resolution that pages are rasterised at.")]
Mode = Annotated[
    str | None,
    typer.Option("--mode", metavar="NAME", help="Who drafts for the model: auto, none, lookup, reference."),
]
MaxDraft = Annotated[
    str | None,
    typer.Option(metavar="N|auto", help="Longest draft in tokens; auto: as acceptance and cost say."),
]
MaxTokens = Annotated[
    int | None, typer.Option(metavar="N", help="Most tokens a model may write for a page or region.")
]
Verify = Annotated[
    str | None,
    typer.Option(metavar="exact|fast", help="Decide near ties of a block again by single steps, or do not."),
]
Verbose = Annotated[
    bool,
    typer.Option("--verbose", "-v", callback=_remember, help="Say more; show a traceback with an error."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but errors.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
Format = Annotated[str, typer.Option("--format", metavar="md|text|json", help="What to print.")]


def settings(**flags: object) -> Settings:
    """The effective settings; None is a flag that was not given. Raises: `SettingsError`."""
    from storage.settings import load

    return load(implied(flags))


def require_library(settings: Settings) -> None:
    """Raises: `DatabaseError` where the home holds no library: one is not made where its name was misspelt."""
    from storage.database import open_readonly

    if not settings.database_path.is_file():
        open_readonly(settings.database_path).close()


def implied(flags: dict[str, object]) -> dict[str, object]:
    """The flags, and what follows from them: who names a model wants to read with it and nothing else."""
    if flags.get("model") is not None and flags.get("engine") is None:
        return flags | {"engine": "vlm"}
    return flags


def max_draft(text: str | None) -> int | None:
    """The number, 0 for `auto`. Raises: a usage error."""
    if text is None:
        return None
    if text == "auto":
        return 0
    if not text.isdigit():
        raise typer.BadParameter(f"{text!r} is neither a number nor auto", param_hint="--max-draft")
    return int(text)


def check_format(name: str) -> str:
    """The name, if it is a format's. Raises: a usage error."""
    require_one_of(name, FORMATS, "--format")
    return name


def log_level(verbose: bool, quiet: bool) -> str:
    """The least severity that the console shows."""
    return "DEBUG" if verbose else "ERROR" if quiet else "WARNING"


def page_numbers(text: str | None, pages: int) -> list[int]:
    """`2-4,7` as page numbers from 1, in the order given; all pages for None. Raises: a usage error."""
    if text is None:
        return list(range(1, pages + 1))
    numbers: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        try:
            start = int(first) if first or not dash else 1
            end = (int(last) if last else pages) if dash else start
        except ValueError:
            raise typer.BadParameter(
                f"{part!r} is no page or range such as 2-4", param_hint="--page"
            ) from None
        if not 1 <= start <= end <= pages:
            raise typer.BadParameter(f"{part!r}: there are pages 1 to {pages}", param_hint="--page")
        numbers.extend(range(start, end + 1))
    return numbers


def moment(text: str | None, now: float, option: str = "--since") -> float | None:
    """A date (2026-01-31), a date with time, or an age (12h, 7d, 3w) as epoch seconds. Raises: a usage error."""
    if text is None:
        return None
    import datetime

    unit_s = {"m": 60, "h": 3600, "d": 86400, "w": 604800}.get(text[-1:].lower())
    if unit_s is not None and text[:-1].isdecimal():
        return now - int(text[:-1]) * unit_s
    try:
        return datetime.datetime.fromisoformat(text).timestamp()  # without a zone: local time
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is neither a date such as 2026-01-31 nor an age such as 7d", param_hint=option
        ) from None


def secret(text: str | None) -> str | None:
    """The password; `-` asks for it, so that it is in no shell history. Without a terminal: one line of input."""
    if text != "-":
        return text
    import getpass
    import sys

    return getpass.getpass("Password: ") if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")


def names(text: str, known: Iterable[str], option: str) -> list[str]:
    """The names in a text with commas between them. Raises: a usage error for one that is not among `known`."""
    allowed = [str(name) for name in known]
    given = [name.strip() for name in text.split(",") if name.strip()]
    for name in given:
        require_one_of(name, allowed, option)
    return given


def require_one_of(value: int | str | None, known: Collection[int | str], option: str) -> None:
    """Raises: a usage error for a value that is given and not among `known`."""
    if value is not None and value not in known:
        raise typer.BadParameter(f"{value!r} is none of {', '.join(map(str, known))}", param_hint=option)


def absolute(files: Sequence[Path]) -> list[bytes]:
    """The paths as the library knows them: absolute, links in them unresolved."""
    return [os.path.abspath(os.fsencode(file.expanduser())) for file in files]  # noqa: PTH100 - resolve() follows links


def watch_roots(folders: Sequence[Path], out: Path | None) -> list[WatchRoot]:
    """The folders to watch; with `out`, several of them are mirrored from their common parent on."""
    from daemon.scanner import WatchRoot

    paths = absolute(folders)
    if out is None:
        return [WatchRoot(path) for path in paths]
    base = os.path.commonpath(paths)
    return [WatchRoot(path, out_dir=os.fsencode(out), base=base) for path in paths]
