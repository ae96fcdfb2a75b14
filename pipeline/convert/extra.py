"""What the extra `convert` brings, and what is said where it is missing."""

from __future__ import annotations

import importlib.util

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
