"""Pages in, structured text out. Knows nothing of folders, queues or retries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipeline.api import OcrResult, ocr, stream

__all__ = ["OcrResult", "ocr", "stream"]


def __getattr__(name: str) -> Any:
    """`from pipeline import ocr` without making every import of the package pay for it."""
    if name in __all__:
        from pipeline import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
