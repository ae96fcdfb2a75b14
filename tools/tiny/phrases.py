"""What is written on a picture: prose of the corpus, words, numbers of daily life, and strings without any sense.

Without the last the model learns to guess words instead of reading letters.
"""

from __future__ import annotations

import string
from collections.abc import Callable
from random import Random

from tools.tiny.corpus import Corpus


def _split(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_MONTHS = _split(
    "January February March April May June July August September October November December Jan Feb Mar "
    "Apr Jun Jul Aug Sep Oct Nov Dec"
)
_LABELS = _split("Total Subtotal Invoice Qty Ref Page Tax VAT ID Date")
_WRAPPINGS = _split(
    "(%s) \"%s\" [%s] '%s' <%s> {%s} _%s_ *%s* ~%s `%s` ^%s &%s %s/ \\%s |%s %s= +%s @%s #%s %s-"
)
_ALPHANUMERIC = string.ascii_letters + string.digits
_UPPER_OR_DIGIT = string.ascii_uppercase + string.digits
_WORDS, _NUMBERS = 0.10, 0.15  # shares beside random strings; the rest is prose


def text(rng: Random, length: int, corpus: Corpus, *, random_strings: float, held: bool = False) -> str:
    """About `length` characters on one line. `random_strings`: probability that it is nothing but those."""
    kind = rng.random()
    if kind < random_strings:
        return _collect(rng, length, _random_string)
    if kind < random_strings + _WORDS:
        return _collect(rng, length, lambda r: _dressed_word(r, corpus.words))
    if kind < random_strings + _WORDS + _NUMBERS:
        return _collect(rng, length, lambda r: _number_or_word(r, corpus.words))
    return _prose(rng, length, corpus.held if held else corpus.train)


def _collect(rng: Random, length: int, draw: Callable[[Random], str]) -> str:
    words: list[str] = []
    filled = 0
    while filled < length:
        words.append(draw(rng))
        filled += len(words[-1]) + 1
    return " ".join(words)


def _prose(rng: Random, length: int, source: str) -> str:
    """A stretch of the source from the start of a word."""
    start = rng.randrange(max(1, len(source) - length - 60))
    piece = source[start : start + length + 40]
    space = piece.find(" ")
    return piece[space + 1 :].lstrip() if 0 <= space < 30 else piece


def _random_string(rng: Random) -> str:
    kind, length = rng.random(), rng.randrange(1, 9)
    if kind < 0.55:
        alphabet = _ALPHANUMERIC
    elif kind < 0.8:
        alphabet = string.ascii_lowercase
    elif kind < 0.9:
        alphabet = string.ascii_uppercase
    else:
        alphabet = string.punctuation + _ALPHANUMERIC
    return "".join(rng.choice(alphabet) for _ in range(length))


def _dressed_word(rng: Random, words: tuple[str, ...]) -> str:
    """A dictionary word, at times in capitals, with punctuation or between brackets: for the rare characters."""
    word, case, dress = rng.choice(words), rng.random(), rng.random()
    if case < 0.1:
        word = word.upper()
    elif case < 0.3:
        word = word.capitalize()
    if dress < 0.15:
        return word + rng.choice(".,;:!?")
    return rng.choice(_WRAPPINGS) % word if dress < 0.2 else word


def _number_or_word(rng: Random, words: tuple[str, ...]) -> str:
    return _number(rng, words) if rng.random() < 0.7 else rng.choice(words)


def _number(rng: Random, words: tuple[str, ...]) -> str:
    """Dates, sums, times, telephone numbers, addresses, references."""
    n = rng.randrange
    makers: tuple[Callable[[], str], ...] = (
        lambda: f"{n(1, 32)} {rng.choice(_MONTHS)} {n(1900, 2040)}",
        lambda: f"{n(1900, 2040)}-{n(1, 13):02d}-{n(1, 29):02d}",
        lambda: f"{rng.choice('$$$#')}{n(1, 10 ** n(1, 7)):,}.{n(100):02d}",
        lambda: f"{n(10 ** n(1, 9)):,}",
        lambda: f"{n(100)}.{n(10)}%",
        lambda: f"{n(24):02d}:{n(60):02d}",
        lambda: f"({n(100, 999)}) {n(100, 999)}-{n(1000, 9999)}",
        lambda: _address(rng, words),
        lambda: "".join(rng.choice(_UPPER_OR_DIGIT) for _ in range(n(4, 10))),
        lambda: f"No. {n(10_000)}",
        lambda: f"{n(1, 32)}/{n(1, 13)}/{n(1980, 2040)}",
        lambda: f"{rng.choice(_LABELS)}: {n(10 ** n(1, 6))}",
        lambda: "".join(rng.choice(string.digits) for _ in range(n(3, 12))),
        lambda: f"{n(1000)} {rng.choice('x*+-/=<>')} {n(1000)}",
    )
    return rng.choice(makers)()


def _address(rng: Random, words: tuple[str, ...]) -> str:
    user, host = (rng.choice(words).lower().replace("'", "") for _ in range(2))
    return f"{user}@{host}.{rng.choice(('com', 'org', 'net'))}"
