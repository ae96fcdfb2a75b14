"""`ocrd config`: every setting, its value, and where that came from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

from daemon import console

if TYPE_CHECKING:
    from storage.settings import Origin


def show(origins: Sequence[Origin], *, as_json: bool = False) -> None:
    """Print the settings: TOML with a comment on each origin, or JSON."""
    if as_json:
        console.write_json(
            [
                {
                    "name": o.name,
                    "value": plain(o.value),
                    "origin": str(o.origin),
                    "where": o.where,
                    "about": o.about,
                }
                for o in origins
            ]
        )
        return
    for origin in origins:
        console.say(
            console.escape_name(
                f"{origin.name} = {as_toml(origin.value)}".ljust(44) + f"  # {came_from(origin)}"
            )
        )


def came_from(origin: Origin) -> str:
    """`default`, or the flag, variable or file."""
    return origin.where or str(origin.origin)


def plain(value: object) -> object:
    """The value as JSON has it."""
    if isinstance(value, PurePath):
        return str(value)
    return [plain(part) for part in value] if isinstance(value, tuple) else value


def as_toml(value: object) -> str:
    """The value as one writes it in `ocrd.toml`; unset values, which TOML lacks, as an empty comment."""
    import json

    if value is None:
        return "(unset)"
    return json.dumps(plain(value), ensure_ascii=False)
