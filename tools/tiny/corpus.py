"""Text to render: Debian's text packages where they are installed, else what every machine with Python has.

It is drawn into pictures and counted for the tokenizer's merges; no text goes into the checkpoint.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tools.tiny.charset import to_ascii

ROOT = Path(__file__).resolve().parents[2]
DEBIAN_PACKAGES = ("bible-kjv", "fortunes", "fortunes-min", "wamerican", "vim-runtime")
HELD_FORTUNES = frozenset({"literature", "science", "law", "wisdom"})
NO_PROSE = frozenset({"ascii-art", "art"})
_BIBLE_TRAIN, _BIBLE_HELD = 700_000, 60_000  # characters from its start and from its end
_DOCUMENT = 40_000  # characters of one system document
_LEAST_HELD = 4_000


@dataclass(frozen=True, slots=True)
class Corpus:
    """Texts of one line each: `train` is rendered in training, `held` only in evaluation; `words` are shared."""

    source: str
    train: str
    held: str
    words: tuple[str, ...]

    @property
    def fingerprint(self) -> str:
        """First 16 digits of the SHA-256 over everything."""
        body = "\0".join((self.train, self.held, *self.words))
        return hashlib.sha256(body.encode()).hexdigest()[:16]


def gather(source: str = "auto") -> Corpus:
    """The corpus `debian`, `builtin`, or with `auto` the first of them that is there.

    Raises: `LookupError` naming the packages when `debian` is asked for and not installed.
    """
    if source in ("auto", "debian"):
        found = _debian()
        if found is not None:
            return found
        if source == "debian":
            raise LookupError(f"no Debian texts here; install {' '.join(DEBIAN_PACKAGES)}")
    return _builtin()


def _debian() -> Corpus | None:
    bible = _bible()
    fortunes = sorted(Path("/usr/share/games/fortunes").glob("*"))
    fortunes = [p for p in fortunes if "." not in p.name and p.name not in NO_PROSE]
    words = _dictionary()
    if not (bible and fortunes and words):
        return None
    texts = {path.name: one_line(_read(path).replace("\n%\n", " ")) for path in fortunes}
    train = [bible[:_BIBLE_TRAIN]]
    train += [text for name, text in texts.items() if name not in HELD_FORTUNES]
    train += [without_rules(_read(path))[:_DOCUMENT] for path in _system_documents()]
    held = [bible[-_BIBLE_HELD:], *(text for name, text in texts.items() if name in HELD_FORTUNES)]
    return Corpus("debian", " ".join(train), " ".join(held), words)


def _bible() -> str:
    try:
        done = subprocess.run(["bible", "Gen1:1-Rev22:21"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return one_line(re.sub(r"\n\s+(\d+) ", r" \1 ", to_ascii(done.stdout)))


def _dictionary() -> tuple[str, ...]:
    path = Path("/usr/share/dict/words")
    return _usable(_read(path).split("\n")) if path.exists() else ()


def _system_documents() -> list[Path]:
    share = Path("/usr/share")
    return [
        *sorted(share.glob("vim/vim*/doc/usr_*.txt")),
        *sorted(share.glob("doc/*/copyright"))[:150],
        *sorted(share.glob("doc/*/README*"))[:80],
        *sorted(share.glob("common-licenses/*"))[:8],
    ]


def _builtin() -> Corpus:
    """Python's own reference (the texts behind `help()`, PSF licence) and this project's documents."""
    from pydoc_data import topics

    texts = [without_rules(topics.topics[name]) for name in sorted(topics.topics)]
    paths = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    texts += [without_rules(_read(path)) for path in paths if path.exists()]
    train, held = _divide(texts)
    letter = ROOT / "tools" / "sample_paper.txt"
    held = f"{without_rules(_read(letter))} {held}" if letter.exists() else held
    words = _usable(sorted(set(re.findall(r"[A-Za-z][a-z']+", train))))
    return Corpus("builtin", train, held, words)


def _divide(texts: Iterable[str], every: int = 10) -> tuple[str, str]:
    """Whole texts: each tenth is held out, and more where that is too little to draw pages from.

    What other texts say in the same sentence is left out of what is held: documents quote each other.
    """
    pieces = [text for text in texts if text]
    held, train = pieces[::every], [text for i, text in enumerate(pieces) if i % every]
    while train and sum(map(len, held)) < _LEAST_HELD:
        held.append(train.pop())
    trained = " ".join(train)
    sentences = re.split(r"(?<=[.:;]) ", " ".join(held))
    return trained, " ".join(sentence for sentence in sentences if sentence not in trained)


def one_line(text: str) -> str:
    """ASCII with single spaces; overstrikes of manual pages undone."""
    return " ".join(to_ascii(re.sub(r".\x08", "", text)).split())


def without_rules(text: str) -> str:
    """As `one_line`, and without rows of dashes, dots and hashes."""
    return one_line(re.sub(r"[-=*_.#|]{4,}", " ", text))


def _usable(words: Iterable[str]) -> tuple[str, ...]:
    stripped = (word.strip() for word in words)
    return tuple(word for word in stripped if word.isascii() and 2 <= len(word) <= 12)


def _read(path: Path) -> str:
    """The text of a file, compressed or not; "" where it cannot be read."""
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except OSError:
        return ""
    return raw.decode("utf-8", errors="ignore")
