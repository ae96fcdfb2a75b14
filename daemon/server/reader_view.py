"""What the reader shows of a page: its blocks as safe HTML, who read it, where its neighbours are."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from daemon.server import chat_request
from daemon.server.rendering import render_markdown
from storage import query
from storage.records import FURNITURE, Category
from storage.snippet import Finder

if TYPE_CHECKING:
    from daemon.server import shapes
    from storage.records import Box
    from storage.settings import Settings

# What `ocrd retry --engine` takes and a person may choose, in words.
_CHOICES = {
    "classic": "Classic OCR: Tesseract, in doubt RapidOCR",
    "tesseract": "Tesseract alone",
    "rapidocr": "RapidOCR alone",
    "vision": "Apple Vision",
}
_READERS = {
    "tesseract": "Tesseract",
    "rapidocr": "RapidOCR",
    "classic": "classic OCR",
    "vision": "Apple Vision",
}
_LAYERS = {
    "absent": "The file carries none",
    "good": "Good",
    "bad": "Not believed",
    "ignored": "Ignored, as it was asked",
}
_STOPS = {
    "complete": "Complete",
    "blank": "Nothing printed",
    "length": "Cut short: the token budget was spent",
    "repetition": "Cut where the model began to repeat itself",
    "error": "Stopped by a failure",
}
_SHOWN_EMPTY = frozenset({Category.PICTURE, Category.FORMULA, Category.TABLE})


def engines(settings: Settings) -> list[tuple[str, str]]:
    """The engines a page can be read again with here, each with its words; "" leaves it as it is set.

    A model only where the settings name one: without, `vlm` means the tiny model, which spoils good text.
    """
    names = [name for name in chat_request.engines_here(settings) if name in _CHOICES or name == "vlm"]
    return [
        ("", "As it is set"),
        *((name, _CHOICES.get(name) or f"The model {settings.model}") for name in names),
    ]


@dataclass(frozen=True, slots=True)
class ShownBlock:
    """A block of the page as the template takes it."""

    position: int
    category: str
    kind: str  # the category in words
    box: Box
    html: str  # safe; "" where there is no text
    is_shown_empty: bool  # a place in the text although there is none


@dataclass(frozen=True, slots=True)
class How:
    """Who read the page, in words, and what is known besides."""

    reader: str
    facts: tuple[tuple[str, str], ...]  # (name, value)


def blocks(page: shapes.Page, words: str = "") -> list[ShownBlock]:
    """The blocks of a page in reading order, with matches of the query `words` marked."""
    terms = query.parse(words).terms
    finder = Finder(terms) if terms else None
    return [
        ShownBlock(
            block.position,
            str(block.category),
            str(block.category).replace("_", " ").capitalize(),
            block.box,
            # Furniture stays out of the text that is searched, so nothing in it is a match.
            render_markdown(block.markdown, None if block.category in FURNITURE else finder).strip(),
            block.category in _SHOWN_EMPTY,
        )
        for block in page.blocks
    ]


def how(made: shapes.Provenance) -> How:
    """Who read the page."""
    if made.source == "blank":
        reader = "Nothing printed here"
    elif made.source == "text-layer":
        reader = "Text that the file carries"
    else:
        reader = f"Read by {made.model or _READERS.get(made.engine or '', made.engine or 'an engine')}"
    return How(reader, tuple((name, value) for name, value in _facts(made) if value))


def _facts(made: shapes.Provenance) -> Iterator[tuple[str, str]]:
    yield "Engine", made.engine or ""
    yield "Model", " ".join(filter(None, (made.model, made.revision and made.revision[:12])))
    yield "Prompt", made.prompt or ""
    layer = _LAYERS.get(made.layer, made.layer)
    yield "Text in the file", layer + (f" ({made.layer_reason})" if made.layer_reason else "")
    yield "Confidence", "" if made.confidence is None else f"{made.confidence:.1%}"
    yield "Reading", _STOPS.get(made.stop_reason, made.stop_reason)
    if made.dpi and made.width_px and made.height_px:
        yield "Picture read", f"{made.width_px} × {made.height_px} pixels at {made.dpi:.0f} dpi"
    if made.tokens is not None:
        yield "Tokens", _tokens(made)
    if made.attempts:
        yield "Ways tried", ", ".join(f"{one.rung} ({one.stop_reason})" for one in made.attempts)
    yield "Time", ", ".join(f"{stage} {seconds:.2f} s" for stage, seconds in made.seconds.items())
    if made.read_at is not None:
        yield "Read", f"{datetime.datetime.fromtimestamp(made.read_at, datetime.UTC):%d %B %Y, %H:%M} UTC"


def _tokens(made: shapes.Provenance) -> str:
    passes = made.target_passes or 0
    text = f"{made.tokens} in {passes} passes"
    if passes and made.accepted is not None:
        text += f", {made.accepted / passes:.2f} drafted ones accepted a pass"
    return text


def address(document_id: int, number: int, page_id: int | None, words: str = "") -> str:
    """Where the reader shows a page: by its id once it was read, else by document and number."""
    path = f"/documents/{document_id}/pages/{number}" if page_id is None else f"/pages/{page_id}"
    return f"{path}?{urlencode({'q': words})}" if words else path


def search_address(words: str) -> str:
    """Where the search for `words` is."""
    return f"/?{urlencode({'q': words})}"


def place(box: Box) -> dict[str, float]:
    """A box as the attributes of an SVG rectangle, points."""
    left, top, right, bottom = box
    return {"x": left, "y": top, "width": max(0.0, right - left), "height": max(0.0, bottom - top)}
