"""A page as it stands in the sidecars: a JSON object of `ocrd/1`, and Markdown under a page mark."""

from __future__ import annotations

import html
import json
import math
import re
from typing import TYPE_CHECKING, Any

from storage.records import Block, Box, PageReading, PageWarning

if TYPE_CHECKING:
    from storage.results import DocumentResult, FailedPage

SCHEMA = "ocrd/1"
_SURROGATES = re.compile("[\ud800-\udfff]")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f]")
_OWN_COMMENT = re.compile(r"<!--(?=\s*(?:page\s+\d|ocrd/))")
_MARKDOWN = re.compile(r"([\\`*_{}\[\]()<>#+\-!|~$&])")


# --- JSON --------------------------------------------------------------------------------------------------


def page_object(page: PageReading | FailedPage, *, words: bool = True) -> dict[str, Any]:
    """The page as in `pages` of a sidecar; `words` keeps the words of each block with their boxes.

    A page that failed has the same keys, `error`, and no text.
    """
    if not isinstance(page, PageReading):
        return _failed_object(page)
    found: dict[str, Any] = {
        "page": page.page,
        "label": page.label,
        "width_pt": _rounded(page.width_pt),
        "height_pt": _rounded(page.height_pt),
        "text": page.text,
        "markdown": page.markdown,
        "blocks": [_block_object(block, words) for block in page.blocks],
        "source": page.source,
        "layer": page.layer.value,
        "layer_reason": page.layer_reason,
        "engine": page.engine,
        "model": page.model,
        "revision": page.revision,
        "prompt": page.prompt,
        "dpi": _rounded(page.dpi),
        "stop_reason": page.stop_reason.value,
        "confidence": _share(page.confidence),
        "warnings": warning_objects(page.warnings),
        "error": None,
    }
    if page.attempts:  # without their seconds, which differ from reading to reading
        found["attempts"] = [
            {"rung": attempt.rung, "stop_reason": attempt.stop_reason.value, "tokens": attempt.tokens}
            for attempt in page.attempts
        ]
    return found


def _failed_object(page: FailedPage) -> dict[str, Any]:
    unknown = dict.fromkeys(("width_pt", "height_pt"))
    text: dict[str, Any] = {"text": "", "markdown": "", "blocks": [], "source": None, "layer": None}
    reader = dict.fromkeys(("engine", "model", "revision", "prompt", "dpi"))
    return {
        "page": page.page,
        "label": page.label,
        **unknown,
        **text,
        "layer_reason": "",
        **reader,
        "stop_reason": "error",
        "confidence": None,
        "warnings": [],
        "error": {"code": page.code, "message": page.message, "remedy": page.remedy},
    }


def _block_object(block: Block, words: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "category": block.category.value,
        "box": _box(block.box),
        "text": block.text,
        "markdown": block.markdown,
        "level": block.level,
        "confidence": _share(block.confidence),
    }
    if words and any(line.words for line in block.lines):
        found["words"] = [
            {"text": word.text, "box": _box(word.box), "confidence": _share(word.confidence)}
            for line in block.lines
            for word in line.words
        ]
    return found


def warning_objects(warnings: tuple[PageWarning, ...]) -> list[dict[str, str]]:
    """Warnings as in a sidecar."""
    return [{"code": warning.code, "message": warning.message} for warning in warnings]


def _box(box: Box) -> list[float]:
    return [_rounded(value) or 0.0 for value in box]


def _rounded(value: float | None, digits: int = 2) -> float | None:
    """A short number; None for what JSON has no number for."""
    if value is None or not math.isfinite(value):
        return None
    return round(float(value), digits) + 0.0  # no -0.0


def _share(value: float | None) -> float | None:
    rounded = _rounded(value, 3)
    return None if rounded is None else min(1.0, max(0.0, rounded))


def dumps(value: object) -> str:
    """One line of JSON that any UTF-8 file can hold."""
    return _SURROGATES.sub("\ufffd", json.dumps(value, ensure_ascii=False, allow_nan=False))


def source_object(result: DocumentResult, name: str) -> dict[str, Any]:
    """What was read, in a sidecar."""
    return {
        "name": name,
        "sha256": result.sha256,
        "size": result.size,
        "media_type": result.media_type or None,
        "title": result.title,
        "pages": result.page_count,
    }


# --- Markdown ----------------------------------------------------------------------------------------------


def markdown_header(sha256: str) -> str:
    """First line of the Markdown file: whose work it is, and of what. How we know a file to be ours."""
    return f"<!-- {SCHEMA} source-sha256={sha256} -->\n"


def page_markdown(page: PageReading | FailedPage) -> str:
    """The page mark, and the page's Markdown below; ends with a line feed."""
    label = "" if page.label is None else f' label="{_attribute(page.label)}"'
    if not isinstance(page, PageReading):
        message = _escaped(f"{page.message} ({page.code})")
        mark = f'<!-- page {page.page}{label} failed="{_attribute(page.code)}" -->\n'
        return _tidy(f"{mark}\n> Page {page.page} could not be read: {message}\n")
    body = page.markdown.strip("\n")
    # A text that looks like a mark of ours must not be taken for one.
    body = _OWN_COMMENT.sub("&lt;!--", body)
    return _tidy(f"<!-- page {page.page}{label} -->\n" + (f"\n{body}\n" if body else ""))


def _attribute(text: str) -> str:
    """Text that cannot end the quotes or the comment it stands in."""
    one_line = " ".join(_CONTROL.sub(" ", text).split())
    return html.escape(one_line).replace("--", "-&#45;")


def _escaped(text: str) -> str:
    return _MARKDOWN.sub(r"\\\1", " ".join(text.split()))


def _tidy(text: str) -> str:
    return _SURROGATES.sub("\ufffd", _CONTROL.sub("", text))
