"""The default: Tesseract first, RapidOCR for the lines it is unsure of."""

from __future__ import annotations

from pipeline.engines.tesseract import TesseractEngine


class ClassicEngine(TesseractEngine):
    """Tesseract's reading."""

    name = "classic"
