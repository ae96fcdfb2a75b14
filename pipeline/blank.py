"""Is anything printed on a page? Decided from its pixels, before an engine is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline.engines.base import PageImage
    from storage.records import PageText


def is_blank(image: PageImage) -> bool:
    """Whether nothing is printed on the page: paper, noise, shadows and show-through do not count."""
    import numpy as np

    grey = np.asarray(image.image.convert("L"))
    paper = float(np.median(grey))
    return bool(np.count_nonzero(grey < paper - 50) < 30)


def is_noise(page: PageText, image: PageImage) -> bool:
    """Whether what an engine read on a near-blank page is dirt, not text."""
    return False
