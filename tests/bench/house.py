"""What the daemon's measuring scripts share: files to read, a daemon in a process of its own, figures as JSON."""

from __future__ import annotations

import json
import os
import pickle
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from daemon.scanner import WatchRoot
from storage.database import open_database
from storage.settings import Settings

DAEMON = """
import pickle, sys
from daemon import supervisor
settings, roots = pickle.load(sys.stdin.buffer)
sys.exit(supervisor.run(settings, roots).exit_code)
"""
WORDS = tuple("the quick brown fox jumps over a lazy dog while wizards quietly brew strong tea".split())  # noqa: SIM905


def pdf_of(texts: list[list[str]]) -> bytes:
    """A PDF with a page per list of lines, set in Helvetica."""
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"",
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    kids = []
    for lines in texts:
        shown = " ".join(f"1 0 0 1 72 {770 - 14 * n} Tm ({line}) Tj" for n, line in enumerate(lines))
        content = f"BT /F1 11 Tf {shown} ET".encode()
        objects.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content))
        page = f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents {len(objects)} 0 R"
        objects.append((page + " /Resources << /Font << /F1 3 0 R >> >> >>").encode())
        kids.append(f"{len(objects)} 0 R")
    objects[1] = f"<< /Type /Pages /Kids [{' '.join(kids)}] /Count {len(kids)} >>".encode()
    body, offsets = b"%PDF-1.4\n", []
    parts = [body]
    at = len(body)
    for number, item in enumerate(objects, 1):
        offsets.append(at)
        parts.append(b"%d 0 obj\n%s\nendobj\n" % (number, item))
        at += len(parts[-1])
    parts.append(b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1))
    parts += [b"%010d 00000 n \n" % offset for offset in offsets]
    parts.append(b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, at))
    return b"".join(parts)


def page_lines(number: int, lines: int = 40) -> list[str]:
    """Lines of a page that no other number has."""
    words = [WORDS[(number * 7 + n * 3) % len(WORDS)] for n in range(lines * 9)]
    return [f"Page {number} begins here"] + [" ".join(words[n * 9 : n * 9 + 9]) for n in range(lines)]


class Daemon:
    """A running daemon that watches `folder`."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        out = os.fsencode(settings.out) if settings.out else None
        self.conn = open_database(settings.database_path)
        self.process = subprocess.Popen([sys.executable, "-P", "-c", DAEMON], stdin=subprocess.PIPE)
        assert self.process.stdin is not None
        root = WatchRoot(os.fsencode(folder), out_dir=out, base=os.fsencode(folder) if out else None)
        self.process.stdin.write(pickle.dumps((settings, [root])))
        self.process.stdin.close()
        self.until(lambda: self.value("SELECT count(*) FROM control WHERE value = 'alive'"), 60)

    def value(self, query: str) -> float:
        """The first column of the first row."""
        row = self.conn.execute(query).fetchone()
        return 0.0 if row is None or row[0] is None else float(row[0])

    def until(
        self, true: Callable[[], object], limit_s: float, each: Callable[[], None] | None = None
    ) -> float:
        """Wait; returns the seconds it took. Raises: TimeoutError."""
        started = time.monotonic()
        while not true():
            if time.monotonic() - started > limit_s or self.process.poll() is not None:
                raise TimeoutError(f"not within {limit_s:g} s, or the daemon ended")
            if each:
                each()
            time.sleep(0.1)
        return time.monotonic() - started

    def stop(self) -> None:
        """End it as a service manager would."""
        self.process.terminate()
        self.process.wait(30)
        self.conn.close()


def report(figures: dict[str, object], path: str | None) -> None:
    """Print the figures, and write them to a file if asked."""
    figures = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        **figures,
    }
    text = json.dumps(figures, indent=2)
    print(text)
    if path:
        Path(path).write_text(text + "\n", "utf-8")
