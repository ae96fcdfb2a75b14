"""Make a database with N pages of generated text, as a library of that size would have it.

    python tests/bench/make_index.py HOME --pages 100000 [--words 300] [--cjk 0.1] [--seed 1]

Words follow Zipf's law over a made-up vocabulary; a share of the pages is CJK text. Ten pages to a document, five
blocks to a page, every page done, one every ten seconds until now; one document in four has a text layer, one in seven
was read by a model. The database goes to HOME/ocrd.db.
"""

from __future__ import annotations

import argparse
import hashlib
import sqlite3
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from storage.database import open_database
from storage.index import grams
from storage.names import name_key

PAGES_PER_DOCUMENT = 10
BLOCKS_PER_PAGE = 5
SECONDS_PER_PAGE = 10.0
# Each commit makes a segment of the full-text index, and segments are merged: so few and large ones.
PAGES_PER_COMMIT = 20_000
HASH_BYTES = 500_000_000
FTS5_HASH_BYTES = 1 << 20  # its own default, put back in the end
VOCABULARY = 60_000
CHARACTERS = 3_000
_ONSETS = [
    "",
    "b",
    "br",
    "c",
    "ch",
    "d",
    "f",
    "g",
    "gr",
    "l",
    "m",
    "n",
    "p",
    "pl",
    "r",
    "s",
    "st",
    "t",
    "tr",
    "v",
]
_NUCLEI = ["a", "e", "i", "o", "u", "ai", "ea", "ou", "é", "ü"]
_CODAS = ["", "", "", "n", "r", "s", "t", "l", "nd", "ct"]


def vocabulary(rng: np.random.Generator, size: int = VOCABULARY) -> list[str]:
    """Distinct pronounceable words, short ones first, so that frequent words are short as in a language."""
    words: dict[str, None] = {}
    while len(words) < size:
        syllables = 1 + len(words) * 3 // size + int(rng.integers(0, 2))
        word = "".join(
            str(rng.choice(_ONSETS)) + str(rng.choice(_NUCLEI)) + str(rng.choice(_CODAS))
            for _ in range(syllables)
        )
        words[word] = None
    return list(words)


def zipf(size: int, exponent: float = 1.05) -> np.ndarray:
    """Cumulative probabilities of ranks 1…size."""
    weights = 1.0 / np.arange(2, size + 2) ** exponent
    return np.cumsum(weights / weights.sum())


def page_texts(pages: int, words_per_page: int, cjk_share: float, seed: int) -> Iterator[str]:
    """One text a page: five paragraphs of sentences."""
    rng = np.random.default_rng(seed)
    words = vocabulary(rng)
    latin, han = zipf(VOCABULARY), zipf(CHARACTERS)
    characters = [chr(0x4E00 + i * 6) for i in range(CHARACTERS)]
    for _ in range(pages):
        paragraphs = []
        is_cjk = rng.random() < cjk_share
        for _ in range(BLOCKS_PER_PAGE):
            count = words_per_page // BLOCKS_PER_PAGE
            if is_cjk:
                picks = np.searchsorted(han, rng.random(count * 2))
                paragraphs.append("".join(characters[i] for i in picks) + "。")
            else:
                picks = np.searchsorted(latin, rng.random(count))
                paragraphs.append(" ".join(words[i] for i in picks).capitalize() + ".")
        yield "\n\n".join(paragraphs)


def fill(conn: sqlite3.Connection, texts: Iterator[str], pages: int, now: float) -> None:
    """Insert documents, files, jobs, pages, blocks and grams."""
    conn.execute("PRAGMA synchronous = OFF")
    conn.execute("PRAGMA cache_size = -500000")
    conn.execute("INSERT INTO pages_fts (pages_fts, rank) VALUES ('hashsize', ?)", [HASH_BYTES])
    conn.execute("BEGIN")
    for i, text in enumerate(texts):
        document, page = i // PAGES_PER_DOCUMENT + 1, i % PAGES_PER_DOCUMENT + 1
        if page == 1:
            _add_document(
                conn, document, min(PAGES_PER_DOCUMENT, pages - i), now - (pages - i) * SECONDS_PER_PAGE
            )
        _add_page(conn, i + 1, document, page, text, now - (pages - i) * SECONDS_PER_PAGE)
        if i % PAGES_PER_COMMIT == PAGES_PER_COMMIT - 1:
            conn.execute("COMMIT")
            conn.execute("BEGIN")
    conn.execute("INSERT INTO pages_fts (pages_fts, rank) VALUES ('hashsize', ?)", [FTS5_HASH_BYTES])
    conn.execute("COMMIT")
    conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _add_document(conn: sqlite3.Connection, document: int, pages: int, now: float) -> None:
    conn.execute(
        "INSERT INTO documents (id, sha256, size, media_type, state, pages, pages_done, added_at, finished_at) "
        "VALUES (?, ?, 100000, 'application/pdf', 'done', ?, ?, ?, ?)",
        (document, hashlib.sha256(b"%d" % document).hexdigest(), pages, pages, now, now),
    )
    path = f"/library/{document % 97:02d}/document {document:06d}.pdf"
    conn.execute(
        "INSERT INTO files (path, path_bytes, name_key, size, mtime_ns, document_id, state, sidecar_state, "
        "first_seen, last_seen) VALUES (?, ?, ?, 100000, 0, ?, 'linked', 'written', ?, ?)",
        (path, path.encode(), name_key(path.encode()), document, now, now),
    )


def _add_page(
    conn: sqlite3.Connection, page_id: int, document: int, page: int, text: str, now: float
) -> None:
    conn.execute(
        "INSERT INTO page_jobs (document_id, page, state, attempts, finished_at) VALUES (?, ?, 'done', 1, ?)",
        (document, page, now),
    )
    engine = None if document % 4 == 0 else "vlm" if document % 7 == 0 else "classic"
    source, layer = ("engine", "absent") if engine else ("text-layer", "good")
    conn.execute(
        "INSERT INTO pages (id, document_id, page, text, markdown, source, engine, layer, stop_reason, width_pt, "
        "height_pt, read_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'complete', 595, 842, ?)",
        (page_id, document, page, text, text, source, engine, layer, now),
    )
    conn.executemany(
        'INSERT INTO blocks (page_id, position, category, "left", top, "right", bottom, text, markdown) '
        "VALUES (?, ?, 'text', 72, ?, 523, ?, ?, ?)",
        [(page_id, i, 72 + 140 * i, 200 + 140 * i, part, part) for i, part in enumerate(text.split("\n\n"))],
    )
    if kept := grams(text):
        conn.execute("INSERT INTO page_grams (page_id, grams) VALUES (?, ?)", (page_id, kept))


def make(home: Path, pages: int, words: int = 300, cjk: float = 0.1, seed: int = 1) -> None:
    """Make HOME/ocrd.db and say what it took."""
    started = time.perf_counter()
    conn = open_database(home / "ocrd.db")
    fill(conn, page_texts(pages, words, cjk, seed), pages, now=1_700_000_000.0)
    conn.close()
    size = (home / "ocrd.db").stat().st_size
    print(f"{pages} pages in {time.perf_counter() - started:.0f} s, {size / 1e6:.0f} MB")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("home", type=Path)
    parser.add_argument("--pages", type=int, default=100_000)
    parser.add_argument(
        "--words", type=int, default=300, help="words a page (a CJK page has twice as many characters)"
    )
    parser.add_argument("--cjk", type=float, default=0.1, help="share of CJK pages")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    make(args.home, args.pages, args.words, args.cjk, args.seed)


if __name__ == "__main__":
    main()
