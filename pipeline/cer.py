"""Character error rate of a reading against what is printed.

What a reader would not call an error does not count: Unicode compatibility forms, the shape of quotes and dashes,
Markdown marks, white space, and words divided at a line's end.
"""

from __future__ import annotations

import re
import unicodedata

_SAME = str.maketrans(
    {
        **dict.fromkeys("‘’‚‛′`´", "'"),
        **dict.fromkeys("“”„‟″«»", '"'),
        **dict.fromkeys("‐‑‒–—―−", "-"),
        "⁄": "/",
        "\u00ad": None,
        **dict.fromkeys("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069", None),
    }
)
_TABLE_RULE = re.compile(r"^[ \t]*\|?(?:[ \t]*:?-{3,}:?[ \t]*\|?)+[ \t]*$", re.MULTILINE)
_LINE_MARK = re.compile(r"^[ \t]*(?:#{1,6}[ \t]+|[-*+•‣◦▪][ \t]+|>[ \t]+|```.*$)", re.MULTILINE)
_DIVIDED = re.compile(r"(?<=\w)-[ \t]*\n\s*(?=\w)")
_EMPHASIS = re.compile(r"\*\*|__")
_SPACELESS = "\u2e80-\u2fdf\u3000-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_SPACE_IN_SPACELESS = re.compile(f"(?<=[{_SPACELESS}、。])\\s+(?=[{_SPACELESS}])")


def normalise(text: str) -> str:
    """The text as far as it counts: one line, single spaces."""
    text = unicodedata.normalize("NFKC", text).translate(_SAME)
    text = _TABLE_RULE.sub("", text)
    text = _LINE_MARK.sub("", text)
    text = _DIVIDED.sub("", text)
    text = _EMPHASIS.sub("", text).replace("|", " ")
    text = _SPACE_IN_SPACELESS.sub("", text)
    return " ".join(text.split())


def errors(truth: str, reading: str) -> tuple[int, int]:
    """Insertions, deletions and replacements that turn the reading into the truth; and the truth's length."""
    from rapidfuzz.distance import Levenshtein

    right, read = normalise(truth), normalise(reading)
    return Levenshtein.distance(right, read), len(right)


def character_error_rate(truth: str, reading: str) -> float:
    """Errors per character of the truth; above 1 where more was invented than is there."""
    wrong, length = errors(truth, reading)
    return wrong / max(1, length)
