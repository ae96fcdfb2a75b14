"""The full-text indexes kept about as large as the pages they find.

FTS5 takes nothing out of an index when a page goes: it writes the page's words down once more, as gone, and both lists
stay until the segments that hold them are merged. By itself it merges only segments of about one size, four at a time,
so an index whose pages come and go grew to seven times what it found. Here everything is merged into one segment once
a third of what is listed is gone: a small index is built anew in one go, a large one merged in pieces, so that nobody
waits long to save a page.

How many pages are gone is counted by triggers, in the one row of `forgotten`.
"""

from __future__ import annotations

import sqlite3

from storage.database import transaction

INDEXES = ("pages_fts", "page_grams_fts")
FEWEST = 64  # pages; fewer are not worth a merge
SMALL = 500  # pages that are built anew in one go: 0.5 ms each (2 busy cores)
LEAVES = 64  # leaves of 4 KB that a piece goes through: some 40 ms (the same)
# SQLite 3.40 adds a level to an index with every merge of everything, and cannot read it any more at 2,000 of them
# (3.54 adds none).
LEVELS = 100
_STRUCTURE = 10  # the row of an index's data that says which segments there are; FTS5 has no other way to ask


def step(conn: sqlite3.Connection) -> bool:
    """Do a piece of a merge where one is due or under way, in one transaction; whether there is more to do.

    Raises: `DamagedError` where an index is, other storage errors; with nothing changed.
    """
    gone, merging = conn.execute("SELECT pages, merging FROM forgotten").fetchone()
    if gone < FEWEST and not merging:
        return False
    held = conn.execute("SELECT count(*) FROM pages").fetchone()[0]
    if not merging and gone * 2 <= held:
        return False
    with transaction(conn):
        if not merging and gone + held <= SMALL:
            for index in INDEXES:
                conn.execute(f"INSERT INTO {index}({index}) VALUES ('rebuild')")
            is_done = True
        else:
            # A piece ends by what it has written, which is the less the more of what it reads is gone.
            leaves = max(1, LEAVES * held // (held + gone))
            is_done = sum(_merge(conn, index, leaves, begin=not merging) for index in INDEXES) == 0
        if is_done:
            conn.execute("UPDATE forgotten SET pages = pages - ?, merging = 0", (merging or gone,))
        elif not merging:
            conn.execute("UPDATE forgotten SET merging = ?", (gone,))
    return not is_done


def _merge(conn: sqlite3.Connection, index: str, leaves: int, *, begin: bool) -> bool:
    """Merge until so many leaves are written; whether there was anything to merge."""
    # A negative number makes all segments part of the merge: https://www.sqlite.org/fts5.html#the_merge_command
    everything = begin and _levels(conn, index) < LEVELS
    before = conn.total_changes
    conn.execute(
        f"INSERT INTO {index}({index}, rank) VALUES ('merge', ?)", (-leaves if everything else leaves,)
    )
    return conn.total_changes - before >= 2  # as the same page says


def _levels(conn: sqlite3.Connection, index: str) -> int:
    """Levels of the index: a varint after four other bytes. One of two bytes is too many, whatever it is."""
    (record,) = conn.execute(f"SELECT block FROM {index}_data WHERE id = ?", (_STRUCTURE,)).fetchone()
    return int(record[4]) if len(record) > 4 else LEVELS  # damaged: merging says so
