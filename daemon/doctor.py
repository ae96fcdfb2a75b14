"""What `ocrd doctor` looks at: an installation and its home, fault by fault, each with what to do.

A check never ends the others: what goes wrong inside one is its fault. Nothing is changed, but for a file made and
removed in the home to see that it can be written and what its clock says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from daemon import home_checks, setup_checks
from daemon.diagnosis import Level, Result
from storage.errors import OcrdError

if TYPE_CHECKING:
    from storage.settings import Settings

Check = Callable[["Settings"], Iterable[Result]]
CHECKS: dict[str, Check] = {
    "versions": setup_checks.versions,
    "engine": setup_checks.engine,
    "model": setup_checks.model,
    "permissions": home_checks.permissions,
    "disk": home_checks.disk,
    "inotify": home_checks.inotify,
    "clock": home_checks.clock,
    "database": home_checks.database,
    "service": home_checks.service,
}


def examine(settings: Settings, checks: dict[str, Check] = CHECKS) -> Iterator[Result]:
    """All checks, one after the other."""
    for name, check in checks.items():
        try:
            yield from check(settings)
        except OcrdError as error:
            about = error.message if error.file is None else f"{error.file}: {error.message}"
            yield Result(name, Level.FAULT, about, error.remedy)
        except Exception as error:
            yield Result(name, Level.FAULT, f"{type(error).__name__}: {error}", "report this")
