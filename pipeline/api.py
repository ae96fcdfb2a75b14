"""Reading from Python: `ocr(path)` gives the pages, `stream(path)` their text as it is accepted."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from storage.records import Block, PageReading

if TYPE_CHECKING:
    from pipeline.document import DocumentReader


@dataclass(frozen=True, slots=True)
class OcrResult:
    """What was read of a file; `pages` in order, one for an image of one frame."""

    pages: tuple[PageReading, ...]

    @property
    def text(self) -> str:
        """Running text of all pages, a blank line between them."""
        return "\n\n".join(page.text for page in self.pages if page.text)

    @property
    def markdown(self) -> str:
        """Markdown of all pages, a blank line between them."""
        return "\n\n".join(page.markdown for page in self.pages if page.markdown)

    @property
    def blocks(self) -> tuple[Block, ...]:
        """Blocks of all pages in reading order; boxes are of the page they stand on."""
        return tuple(block for page in self.pages for block in page.blocks)

    @property
    def tokens_per_sec(self) -> float | None:
        """Tokens written per second of decoding; None where no model read."""
        tokens = sum(page.decode.tokens for page in self.pages if page.decode)
        seconds = sum(page.seconds.get("decode", 0.0) for page in self.pages)
        return tokens / seconds if tokens and seconds else None

    @property
    def mean_accept_len(self) -> float | None:
        """Draft tokens accepted per pass of the model, its own token not counted; None where no model read."""
        passes = sum(page.decode.target_passes for page in self.pages if page.decode)
        return sum(page.decode.accepted for page in self.pages if page.decode) / passes if passes else None


def ocr(
    path: str | os.PathLike[str],
    *,
    model: str | None = None,
    mode: str = "auto",
    engine: str | None = None,
    pages: Iterable[int] | None = None,
    password: str | None = None,
    **settings: Any,
) -> OcrResult:
    """Read a PDF or image; the library is not touched.

    `model`: a preset or folder (then the engine is `vlm`); `mode`: who drafts for it; `pages`: from 1, all by default;
    `settings`: any of `storage.settings.Settings`, such as `dpi=300`. Raises: the errors of `storage.errors`.
    """
    from pipeline.engines.base import to_end

    return to_end(
        stream(path, model=model, mode=mode, engine=engine, pages=pages, password=password, **settings)
    )


def stream(
    path: str | os.PathLike[str],
    *,
    model: str | None = None,
    mode: str = "auto",
    engine: str | None = None,
    pages: Iterable[int] | None = None,
    password: str | None = None,
    **settings: Any,
) -> Generator[str, None, OcrResult]:
    """As `ocr`, yielding text as the model's passes accept it; other engines yield a page at a time.

    The text of region models comes region by region, without the structure that the result's Markdown has.
    """
    from pipeline.document import DocumentReader
    from pipeline.engines import registry
    from storage.settings import load

    name = engine or ("vlm" if model else None)
    chosen = load({**settings, "engine": name, "model": model, "mode": mode})
    made = registry.create(registry.resolve(chosen.engine, chosen)[0], chosen)
    passwords = (password,) if password else ()
    readings: list[PageReading] = []
    try:
        with DocumentReader(Path(path), chosen, made, passwords) as reader:
            for number in pages or range(1, reader.info.pages + 1):
                readings.append((yield from _page(reader, number)))
    finally:
        made.close()
    return OcrResult(tuple(readings))


def _page(reader: DocumentReader, number: int) -> Generator[str, None, PageReading]:
    pieces = reader.stream(reader.prepare(number))
    streamed = False
    while True:
        try:
            piece = next(pieces)
        except StopIteration as end:
            reading: PageReading = end.value
            break
        streamed = True
        yield piece.text
    if not streamed and reading.text:
        yield reading.text
    return reading
