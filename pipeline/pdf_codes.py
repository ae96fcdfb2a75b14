"""Character codes of a PDF page as people read them: symbols, presentation forms, surrogates, what is no character."""

from __future__ import annotations

import functools
import unicodedata

import numpy as np
import numpy.typing as npt

_SPACES = np.array(
    [9, 10, 11, 12, 13, 32, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000]
)
_PDFIUM_HYPHEN = 0x02  # what PDFium puts in the place of a hyphen at a line's end
_SYMBOLS = {  # private-use codes of the Symbol and Wingdings fonts that lists are made with
    0xF0B7: "•", 0xF0A7: "▪", 0xF0A8: "◻", 0xF0D8: "➢", 0xF0FC: "✓", 0xF0FE: "☒", 0xF06F: "□", 0xF0E0: "→",
    0xF076: "❖", 0xF02D: "-", 0xF02B: "+", 0xF03D: "=", 0xF0B0: "°", 0xF0B1: "±", 0xF0A3: "≤", 0xF0B3: "≥",
    0xF0AE: "→", 0xF061: "α", 0xF062: "β", 0xF067: "γ", 0xF064: "δ", 0xF06D: "µ", 0xF070: "π", 0xF073: "σ",
}  # fmt: skip


def clean(codes: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """White space as U+0020, PDFium's hyphen as such, what nobody can read as 0."""
    codes = codes.copy()
    codes[np.isin(codes, _SPACES)] = 32
    codes[codes == _PDFIUM_HYPHEN] = 0x2D
    odd = (codes < 32) | ((codes >= 0x7F) & (codes < 0xA0)) | (codes >= 0x200B)
    if odd.any():
        for code in np.unique(codes[odd]).tolist():
            codes[codes == code] = _readable(code)
    return codes


@functools.lru_cache(maxsize=4096)
def _readable(code: int) -> int:
    """The code itself, its readable form, or 0."""
    if code in _SYMBOLS:
        return ord(_SYMBOLS[code])
    if 0xD800 <= code <= 0xDFFF or code in (0x200C, 0x200D, 0xFFFD):
        return (
            code  # halves of a pair are put together in the word; joiners are part of Persian and Indic words
        )
    if code > 0x10FFFF or unicodedata.category(chr(code)) in ("Cc", "Cf", "Co", "Cn"):
        return 0
    return code


def compose(text: str) -> str:
    """Letters and their marks as one character, surrogate pairs joined, presentation forms as plain letters."""
    if any("\ud800" <= char <= "\udfff" for char in text):
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "ignore")
    return unicodedata.normalize("NFC", "".join(map(_plain, text)))


@functools.lru_cache(maxsize=4096)
def _plain(char: str) -> str:
    """A ligature or presentation form taken apart; other compatibility characters (², ½, ⅷ) say more as they are."""
    code = ord(char)
    if (
        0xFB00 <= code <= 0xFDFB
        or 0xFE70 <= code <= 0xFEFC
        or 0x2E80 <= code <= 0x2FDF
        or 0xFE30 <= code <= 0xFE4F
    ):
        return unicodedata.normalize("NFKC", char)
    return char
