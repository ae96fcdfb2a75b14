"""What the extra `convert` brings, what is said where it is missing, and quiet while coremltools works."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import logging
import warnings
from collections.abc import Iterator
from typing import Any

from storage.errors import EngineUnavailableError


def missing(*modules: str) -> list[str]:
    """Those of the modules that are not installed."""
    return [name for name in modules if importlib.util.find_spec(name) is None]


def require(*modules: str) -> None:
    """Raises: `EngineUnavailableError` naming those of the modules that are not installed."""
    if absent := missing(*modules):
        raise EngineUnavailableError(
            f"this needs {' and '.join(absent)}, which {'is' if len(absent) == 1 else 'are'} not installed",
            remedy="install ocrd with the extra: uv tool install '.[convert]'",
        )


def coremltools() -> Any:
    """The module. Its import tells standard error of every part that only a Mac has, and of PyTorch's version."""
    with quiet():
        return importlib.import_module("coremltools")


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """coremltools draws bars on standard error, logs what it lacks on Linux, and warns of versions."""
    logger = logging.getLogger("coremltools")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)
