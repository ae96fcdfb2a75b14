"""Which characters two readings of a page have in common, whatever the mark-up: letters, digits, some punctuation."""

from __future__ import annotations

import re

_PUNCTUATION = frozenset(".,:;()%/+=&@!?、。")
# Written one way by a text layer, another by a model.
_SAME = {
    "’": "'", "‘": "'", "“": '"', "”": '"', "\u00a0": " ", "\u2009": " ", "\u202f": " ", "\u200b": "",
    "\ufb00": "ff", "\ufb01": "fi", "\ufb02": "fl", "\ufb03": "ffi", "\ufb04": "ffl", "\ufb05": "st", "\ufb06": "st",
    "\u00ad": "-", "\u2212": "-", "，": ",", "：": ":", "；": ";", "（": "(", "）": ")", "！": "!", "？": "?",
    "％": "%", "µ": "μ", "∑": "Σ", "∆": "Δ", "Ω": "Ω", "…": "...",
}  # fmt: skip
_KEPT_IN_TEXT = frozenset("’‘“”，：；（）！？…")  # the draft writes these as they are

_NAMES = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon phi chi psi "
    "omega Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega"
)
GREEK = dict(zip(_NAMES.split(), "αβγδεζηθικλμνξπρστυφχψωΓΔΘΛΞΠΣΦΨΩ", strict=True))
GREEK |= {"varepsilon": "ε", "varphi": "φ", "vartheta": "θ", "ell": "l", "sum": "Σ", "epsilon": "ε"}
COMMANDS = {
    "∈": "\\in", "Σ": "\\sum", "≤": "\\leq", "≥": "\\geq", "×": "\\times", "→": "\\to", "∞": "\\infty",
    "±": "\\pm", "≠": "\\neq", "∼": "\\sim", "∂": "\\partial", "∫": "\\int", "√": "\\sqrt", "·": "\\cdot",
    "≈": "\\approx",
}  # fmt: skip
COMMANDS = {char: "\\" + name for name, char in reversed(GREEK.items()) if name != "ell"} | {
    char: command for char, command in COMMANDS.items() if char != "Σ"
}

# Commands that print their own name.
FUNCTIONS = frozenset(
    re.findall(
        r"\w+",
        "ln log exp sin cos tan cot sec sinh cosh tanh arcsin arccos arctan max min sup inf lim det dim ker deg gcd",
    )
)


def is_skeleton(char: str) -> bool:
    """Whether `char` counts in alignment."""
    return char.isalnum() or char in _PUNCTUATION


def folded(char: str) -> str:
    """`char` as alignment compares it; more than one for ligatures, none for what has no width."""
    return _SAME.get(char, char)


def as_written(char: str) -> str:
    """`char` as a draft writes it: ligatures resolved, typographic quotes kept."""
    return char if char in _KEPT_IN_TEXT else _SAME.get(char, char)


def skeleton(text: str) -> str:
    """The characters of `text` that count."""
    return "".join(c for char in text for c in folded(char) if is_skeleton(c))


def is_spaceless(char: str) -> bool:
    """Whether lines of this character's script are joined without a space (CJK; not Hangul)."""
    return "\u2e80" <= char <= "\u9fff" or "\uf900" <= char <= "\ufaff" or "\uff00" <= char <= "\uffef"
