"""Which way up a page's content is: its skew from pixels, its quarter turn from Tesseract's orientation model.

Measured on the test pages: the skew search takes 20 to 60 ms a page and finds a turn made on purpose to 0.1°;
the orientation model takes 0.1 to 0.5 s, so it is asked only after a reading nobody can believe. At reduced size it
is twice as fast and wrong on 4 pages of 32; at full size it is right on all.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.engines.base import PageImage
from pipeline.engines.frame import Frame
from storage.errors import EngineUnavailableError

if TYPE_CHECKING:
    from PIL import Image

log = logging.getLogger(__name__)

# Tesseract follows slanted lines by itself; from about here on its columns run into each other.
MIN_SKEW = 1.0
_MAX_SKEW = 10.0
_MIN_GAIN = 1.3  # how much sharper the rows must get; 1.4 and more where a page is askew, 1.1 by chance
_SEARCH_PX = 1000  # long side of the image the skew is looked for in
_MIN_EDGES = 200  # fewer edge pixels say nothing
_MIN_TURN_CONFIDENCE = 1.5  # of the orientation model; right answers of the test pages: 2.3 and more


@dataclass(frozen=True, slots=True)
class Turn:
    """What the orientation model says."""

    degrees: int  # counter-clockwise turn that sets the content upright: 0, 90, 180 or 270
    confidence: float
    script: str  # "Latin", "Han", "Arabic", …
    script_confidence: float


def skew_degrees(image: Image.Image) -> float:
    """The counter-clockwise turn that levels the text lines, within ±10°; 0 where that is not clear.

    Sharpness of the projection of lower edges onto the vertical axis, after Postl (US patent 4723297), with edges
    in place of all ink so that pictures weigh little.
    """
    import numpy as np

    grey = np.asarray(image.convert("L").reduce(max(1, round(max(image.size) / _SEARCH_PX)))).astype(np.int16)
    ink = grey < (np.percentile(grey, 5) + np.median(grey)) / 2
    y, x = np.nonzero(ink[:-1] & ~ink[1:])
    if len(y) < _MIN_EDGES:
        return 0.0

    def sharpness(degrees: float) -> float:
        rows = y - x * np.tan(np.radians(degrees))
        counts = np.bincount((rows - rows.min()).astype(np.int64))
        return float((counts.astype(np.float64) ** 2).sum())

    coarse = max(np.arange(-_MAX_SKEW, _MAX_SKEW + 0.01, 0.5).tolist(), key=sharpness)
    fine = max(np.arange(coarse - 0.5, coarse + 0.51, 0.1).tolist(), key=sharpness)
    if sharpness(fine) < _MIN_GAIN * sharpness(0.0):
        return 0.0
    return round(float(fine), 1)


def turn(page: PageImage, degrees: float) -> tuple[PageImage, Frame]:
    """The page turned counter-clockwise, and the way back."""
    from PIL import Image

    frame = Frame(degrees % 360.0, page.width_pt, page.height_pt)
    quarters = {
        90.0: Image.Transpose.ROTATE_90,
        180.0: Image.Transpose.ROTATE_180,
        270.0: Image.Transpose.ROTATE_270,
    }
    if frame.degrees in quarters:
        image = page.image.transpose(quarters[frame.degrees])
    else:
        white: Any = 255 if page.image.mode == "L" else (255, 255, 255)
        image = page.image.rotate(frame.degrees, Image.Resampling.BICUBIC, expand=True, fillcolor=white)
    # The canvas is whole pixels: its size in points is what the pixels say, else boxes drift.
    width, height = frame.size
    return replace(page, image=image, width_pt=width, height_pt=height), frame


class TurnDetector:
    """Tesseract's orientation and script model (`osd`), set up at the first question."""

    def __init__(self, places: Sequence[Path]) -> None:
        self._places = places
        self._api: Any = None
        self._is_missing = False

    def detect(self, page: PageImage) -> Turn | None:
        """Which way up the content is; None where the model has no answer or there is none.

        A missing model is no reason to fail a page that an engine has read.
        """
        api = self._start()
        if api is None:
            return None
        grey = page.image.convert("L")
        api.SetImageBytes(grey.tobytes(), grey.width, grey.height, 1, grey.width)
        api.SetSourceResolution(min(max(round(page.dpi), 70), 2400))
        try:
            found = api.DetectOrientationScript()
        except RuntimeError:
            found = None
        finally:
            api.Clear()
        if not found:
            return None
        return Turn(
            int(found["orient_deg"]) % 360,
            float(found["orient_conf"]),
            str(found["script_name"]),
            float(found["script_conf"]),
        )

    def _start(self) -> Any:
        if self._api is None and not self._is_missing:
            from pipeline.engines.tesseract import start

            try:
                import tesserocr

                self._api = start(("osd",), self._places, psm=tesserocr.PSM.OSD_ONLY)
            except (ImportError, EngineUnavailableError) as error:
                self._is_missing = True
                log.info("no orientation model: turned pages stay turned (%s)", error)
        return self._api

    def close(self) -> None:
        """Free the model."""
        if self._api is not None:
            self._api.End()
            self._api = None


def is_turned(found: Turn | None) -> bool:
    """Whether the model is sure enough that the content is not upright."""
    return found is not None and found.degrees != 0 and found.confidence >= _MIN_TURN_CONFIDENCE
