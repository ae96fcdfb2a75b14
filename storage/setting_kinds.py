"""Kinds of values of settings: each takes what a flag, TOML or a variable gave, and returns the typed value.

A parser raises `ValueError` saying what is allowed; its second argument is the folder where relative paths start.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

Parser = Callable[[object, Path], object]
_WORDS = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}


def integer(low: int, high: int) -> Parser:
    """A whole number from `low` to `high`."""

    def parse(value: object, _base: Path) -> object:
        number = _to_int(value)
        if number is None or not low <= number <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return number

    return parse


def _to_int(value: object) -> int | None:
    if isinstance(value, str):
        try:
            return int(value)
        except ValueError:
            return None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def seconds(low: float, high: float) -> Parser:
    """A number of seconds from `low` to `high`."""
    return _number("seconds", low, high)


def gigabytes(low: float, high: float) -> Parser:
    """A number of gigabytes from `low` to `high`."""
    return _number("gigabytes", low, high)


def _number(unit: str, low: float, high: float) -> Parser:
    def parse(value: object, _base: Path) -> object:
        number = _to_float(value)
        if number is None or not low <= number <= high:  # NaN fails the comparison
            raise ValueError(f"{unit} from {low:g} to {high:g}")
        return number

    return parse


def _to_float(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        return float(value)
    except ValueError:
        return None


def one_of(*choices: str, upper: bool = False) -> Parser:
    """One of the words, whatever its case; `upper`: they are written in capitals."""

    def parse(value: object, _base: Path) -> object:
        text = (value.upper() if upper else value.lower()) if isinstance(value, str) else None
        if text not in choices:
            raise ValueError("one of " + ", ".join(choices))
        return text

    return parse


def boolean(value: object, _base: Path) -> object:
    """True or false, as TOML has them or in the words people use."""
    if isinstance(value, str):
        value = _WORDS.get(value.strip().lower())
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def path(value: object, base: Path) -> object:
    """An absolute path; relative ones start at `base`, `~` is the home folder."""
    if not isinstance(value, str | os.PathLike) or not os.fspath(value) or "\0" in os.fsdecode(value):
        raise ValueError("a path")
    return base / Path(os.fsdecode(value)).expanduser()


def model(value: object, base: Path) -> object:
    """A model's name as it is; what has a slash or begins with `.` or `~` is a folder, made absolute from `base`."""
    text = value.strip() if isinstance(value, str) else ""
    if not text or "\0" in text:
        raise ValueError("a model's name or folder")
    if "/" in text or text.startswith((".", "~")):
        return str((base / Path(text).expanduser()).resolve())
    return text


def paths(value: object, base: Path) -> object:
    """Absolute paths; a text has colons between them, as PATH has."""
    if isinstance(value, str):
        value = [part for part in value.split(os.pathsep) if part]
    if not isinstance(value, Sequence):
        raise ValueError("a list of paths")
    return tuple(path(part, base) for part in value)


def texts(what: str, *, separators: str = ",", pattern: str | None = None) -> Parser:
    """Texts that match `pattern`, as a list or with `separators` between them; `what` they are, for the message."""

    def parse(value: object, _base: Path) -> object:
        if isinstance(value, str):
            value = [part.strip() for part in re.split(f"[{re.escape(separators)}]", value) if part.strip()]
        if not isinstance(value, Sequence) or not all(isinstance(part, str) and part for part in value):
            raise ValueError(what)
        if pattern and (not value or not all(re.fullmatch(pattern, part) for part in value)):
            raise ValueError(what)
        return tuple(value)

    return parse
