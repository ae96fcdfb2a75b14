"""Read one line of print cheaply: how the text layer's words are compared with what is really on the page."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from pipeline.engines import tessdata

if TYPE_CHECKING:
    from PIL import Image

_local = threading.local()  # a Tesseract handle belongs to one thread; starting it costs 60 ms, so it is kept
_SINGLE_LINE = 7  # tesserocr.PSM.SINGLE_LINE


def read_line(image: Image.Image) -> str:
    """What Tesseract makes of a picture of one line, English data alone: enough to tell true from false.

    Raises: `EngineUnavailableError` where Tesseract or its data is missing.
    """
    handle = _handle()
    handle.SetImage(image)
    return str(handle.GetUTF8Text()).strip()


def _handle() -> Any:
    if not hasattr(_local, "handle"):
        from pipeline.engines import tesseract

        _local.handle = tesseract.start(["eng"], tessdata.folders(), psm=_SINGLE_LINE)
    return _local.handle
